"""Packages and commands of Keras and TensorFlow programs."""

import ast
import re

from migrator.rule_api import Construct, Context, Decision, Example, Keep, Report, Rule
from migrator.rule_api.keras import BRINGS_TENSORFLOW, OF_CONDA, TENSORFLOW
from migrator.rule_api.libraries import of_package
from migrator.rule_api.packages import alike, constraint, name_of, normal, on_tpu, pinned
from migrator.rule_api.requirement_lists import is_exported, of_conda, packages_beside
from migrator.rule_api.shell_commands import (
    as_words,
    container,
    installed_by,
    mark,
    nvidia_smi,
    slurm,
)
from migrator.rule_api.texts import CONSTRAINT, HIDES, ShellWord, without_comment

PACKAGE = Rule(
    code="KER060",
    name="tensorflow-package",
    summary="TensorFlow's packages become those that were tested for TPUs",
    why="""tensorflow-tpu 2.19.1 and libtpu 0.0.10 are the last releases that work together on a
TPU. With Keras on JAX, `tensorflow-cpu` is installed for input pipelines.

In requirements and constraints, these replace any TensorFlow; in other lists they are only
reported. Packages that depend on `tensorflow` would overwrite its files, and are reported: install
them with `--no-deps`, or not at all. If nothing in a project is rewritten, its requirements stay.
""",
    framework="tensorflow",
    references=("https://pypi.org/project/tensorflow-tpu/",),
    examples=(
        Example(
            """
            numpy
            tensorflow-gpu==2.10.0
            tensorflow-datasets
            """,
            except_on={
                "keras_jax": """
            numpy
            keras==3.15.1
            jax==0.10.2
            jaxlib==0.10.2
            libtpu==0.0.52
            tensorflow-cpu==2.21.0
            tensorflow-datasets
            """,
                "tf_tpu": """
            numpy
            tensorflow-tpu==2.19.1
            libtpu==0.0.10
            keras==3.15.1
            tensorflow-datasets
            """,
            },
            path="requirements.txt",
        ),
        Example(
            """
            tensorflow-datasets
            numpy
            """,
            says={1: "does not depend on the device"},
            path="requirements.txt",
        ),
        Example(
            """
            tensorflow-text==2.15.0
            numpy
            """,
            says={1: "depends on `tensorflow`, whose files would overwrite"},
            path="requirements.txt",
        ),
    ),
    is_requirement=True,
)
COMMAND = Rule(
    code="KER061",
    name="tensorflow-command",
    summary="commands that install TensorFlow, or run it on GPUs",
    why="""In shell scripts, Dockerfiles and notebooks, commands that install TensorFlow install the
packages for a TPU instead, and `nvidia-smi` becomes `tpu-info`. Variables that only TensorFlow on a
GPU reads have no effect, and stay. Images and XLA flags for GPUs, and requests for GPUs are
reported.""",
    framework="tensorflow",
    examples=(
        Example(
            """
            pip install -q tensorflow-gpu imageio
            export TF_FORCE_GPU_ALLOW_GROWTH=true
            nvidia-smi
            """,
            except_on={
                "keras_jax": """
            pip install -q keras==3.15.1 jax==0.10.2 jaxlib==0.10.2 libtpu==0.0.52 tensorflow-cpu==2.21.0 imageio
            export TF_FORCE_GPU_ALLOW_GROWTH=true
            tpu-info
            """,  # noqa: E501
                "tf_tpu": """
            pip install -q tensorflow-tpu==2.19.1 libtpu==0.0.10 keras==3.15.1 imageio
            export TF_FORCE_GPU_ALLOW_GROWTH=true
            tpu-info
            """,
            },
            path="train.sh",
        ),
        Example(
            """
            pip install tensorflow-datasets imageio
            """,
            says={1: "installs nothing that depends on the device"},
            path="train.sh",
        ),
        Example(
            """
            FROM tensorflow/tensorflow:2.15.0-gpu
            RUN python train.py
            """,
            says={1: "contains TensorFlow for GPUs"},
            path="Dockerfile",
        ),
    ),
)
_NEEDS = ("keras", "tensorflow-", "tf-", "tflearn")  # of conda, which depend on its tensorflow
_BRINGS = (
    "depends on `tensorflow`, whose files would overwrite those of {}: install it with --no-deps"
)


def needed(ctx: Context) -> dict[str, str]:
    """The packages that a machine with a TPU needs, by name."""
    instead = on_tpu(ctx.target)
    modules = {each.module for each in instead}
    own = [e for e in pinned(ctx.target) if e.module not in modules and e.exact]
    wanted = [*instead, *own] if instead else own
    found = {normal(e.name): e.text.partition(";")[0].strip() for e in wanted}
    return {name: text for name, text in found.items() if name not in ("numpy", "pillow")}


def in_place_of_tensorflow(ctx: Context, others: set[str]) -> list[str]:
    """The packages, without those that are listed separately."""
    return [text for name, text in needed(ctx).items() if name not in others]


def _refused(ctx: Context, name: str) -> Report | None:
    if name in TENSORFLOW:
        return None
    if (library := of_package(name)) is not None:
        return Report(library.reason(name))
    if name in BRINGS_TENSORFLOW:
        own = next(n for n in needed(ctx) if n in TENSORFLOW)
        return Report(_BRINGS.format(own))
    return None


@PACKAGE.on("tensorflow package", "package")
def package(ctx: Context, found: Construct) -> Decision:
    text = found.content
    said = without_comment(text)
    body, _, marker = said.partition(";")
    name = name_of(body) or ""
    if (refused := _refused(ctx, name)) is not None:
        return refused
    versions = needed(ctx)
    beside = packages_beside(ctx, found)
    if name in TENSORFLOW:
        others = {n for n in versions if n in beside and n not in TENSORFLOW}
        new = in_place_of_tensorflow(ctx, others)
    elif name in versions and any(n in beside for n in (*TENSORFLOW, "keras")):
        new = [versions[name]]
    else:
        return Keep("does not depend on the device")
    if beside[name] > 1:
        return Report(f"is listed more than once: the target needs {', '.join(new)}")
    if marker or " -" in body or said.startswith("-") or "://" in body:
        return Report(f"the target needs {', '.join(new)} instead")
    call = ctx.names.parent(found.node)
    if (
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id == CONSTRAINT
    ):
        new = list(map(constraint, new))
    if len(new) == 1 and alike(new[0], body):
        return Keep("the version that was tested")
    end = "\r\n" if text.endswith("\r") else "\n"
    changed = end.join(new) + text[len(said) :]
    return ctx.code.with_text(found, changed, "versions for a TPU")


@PACKAGE.on("tensorflow package", "other")
def listed(ctx: Context, found: Construct) -> Decision:
    match = re.match(r"""[\s"']*([A-Za-z][\w.-]*)""", found.content)
    name = normal(match[1]) if match is not None else ""
    if (refused := _refused(ctx, name)) is not None:
        return refused
    if name in TENSORFLOW:
        return Report(f"the target needs {', '.join(in_place_of_tensorflow(ctx, set()))}")
    if name == "keras":
        return Report(f"the target needs {needed(ctx)['keras']}")
    return Keep("does not depend on the device")


@PACKAGE.on("tensorflow package", "conda")
def conda(ctx: Context, found: Construct) -> Decision:
    name = of_conda(found.content)[0]
    listed = ctx.once(_of_conda)
    new = in_place_of_tensorflow(ctx, set())
    wanted = ", ".join(f"`- {line}`" for line in new)
    if name in OF_CONDA and is_exported(ctx, found):
        return Report(
            f"conda has no build for TPUs: remove it here, and install {', '.join(new)} by pip"
        )
    if name in OF_CONDA:
        if back := [each for each in listed if each.startswith(_NEEDS) and each not in OF_CONDA]:
            return Report(
                f"conda has no build for TPUs, and conda's {', '.join(back)} needs conda's "
                f"tensorflow: move all of these to the pip section, and add {wanted} there"
            )
        if not TENSORFLOW.isdisjoint(ctx.once(_of_pip)):
            return Report("pip also installs it, and conda has no build for TPUs: remove it")
        if listed.index(name) != next(n for n, each in enumerate(listed) if each in OF_CONDA):
            return ctx.code.with_text(found, "", "only pip has the target's build")
        return ctx.code.with_text(found, "\n".join(new), "only pip has the target's build")
    if (refused := _refused(ctx, name)) is not None:
        return refused
    if name in needed(ctx):
        return Report(f"the target needs {needed(ctx)[name]} from pip: remove it here")
    return Keep("does not depend on the device")


def _of_conda(ctx: Context) -> list[str]:
    """The packages that conda installs, in order."""
    return [of_conda(each.content)[0] for each in ctx.constructs if each.key == "conda"]


def _of_pip(ctx: Context) -> set[str]:
    """The packages that pip installs beside those of conda."""
    found = (c for c in ctx.constructs if c.kind == "tensorflow package" and c.key == "package")
    return {name_of(without_comment(each.content)) or "" for each in found}


@PACKAGE.on("tensorflow package", "compiled")
def compiled(ctx: Context, found: Construct) -> Decision:
    return Report(f"generated by a tool: run it again, with {', '.join(needed(ctx).values())}")


@COMMAND.on("tensorflow command", "pip")
def pip(ctx: Context, found: Construct) -> Decision:
    text = found.content
    packages, _, _ = installed_by(text)
    named = [(word, name_of(word.text) or "") for word in packages]
    for _, name in named:
        if (refused := _refused(ctx, name)) is not None:
            return refused
    versions = needed(ctx)
    own = [name for _, name in named]
    if TENSORFLOW.isdisjoint(own) and "keras" not in own:
        return Keep("installs nothing that depends on the device")
    others = {name for name in own if name in versions and name not in TENSORFLOW}
    changes, is_first = [], True
    for word, name in named:
        new: list[str] = []
        if name in TENSORFLOW:
            new = in_place_of_tensorflow(ctx, others) if is_first else []
            is_first = False
        elif name in versions:
            new = [versions[name]]
        else:
            continue
        if len(new) != 1 or not alike(word.text, new[0]):
            start = word.start - (not new and text[word.start - 1] == " ")
            changes.append(
                ShellWord(start, word.end, as_words(new, mark(ctx, found, text[word.start])))
            )
    if not changes:
        return Keep("versions that were tested together")
    for start, end, words in sorted(changes, reverse=True):
        text = text[:start] + words + text[end:]
    return ctx.code.with_text(found, text, "versions for a TPU")


@COMMAND.on("tensorflow command", "nvidia-smi")
def asks_driver(ctx: Context, found: Construct) -> Decision | None:
    return nvidia_smi(ctx, found)


@COMMAND.on("tensorflow command", "slurm")
def asks_slurm(ctx: Context, found: Construct) -> Decision | None:
    return slurm(ctx, found)


@COMMAND.on("tensorflow command", "container")
def in_container(ctx: Context, found: Construct) -> Decision | None:
    return container(ctx, found)


@COMMAND.on("tensorflow command", "image")
def image(ctx: Context, found: Construct) -> Decision:
    new = " ".join(needed(ctx).values())
    if "tensorflow/tensorflow" in found.content:
        return Report(f"contains TensorFlow for GPUs: use python:3.12 and `pip install {new}`")
    return Report(f"an image for CUDA: use python:3.12 and `pip install {new}`")


@COMMAND.on("tensorflow command", "variable")
def variable(ctx: Context, found: Construct) -> Decision:
    return Keep("only affects TensorFlow on GPUs")


@COMMAND.on("tensorflow command", "hides")
def hides(ctx: Context, found: Construct) -> Decision:
    return Report(HIDES)


@COMMAND.on("tensorflow command", "flags")
def flags(ctx: Context, found: Construct) -> Decision:
    return Report("XLA flags for GPUs: remove them")


@COMMAND.on("tensorflow command", "notebook")
def notebook(ctx: Context, found: Construct) -> Decision:
    """Colab's TPU runtimes have no TensorFlow."""
    new = " ".join(needed(ctx).values())
    return Keep(
        "does not depend on the device", f"Colab has no TensorFlow for TPUs: `%pip install {new}`"
    )
