"""Commands for a shell: NVIDIA's tools, what gets installed, options that name a device."""

import re

from migrator.rule_api import Construct, Context, Decision, Example, Family, Keep, Report, Rule
from migrator.rule_api.libraries import mentioned, of_package
from migrator.rule_api.packages import (
    alike,
    asked_of,
    clash,
    cloned,
    companions,
    in_place_of,
    name_of,
    older_library,
    repository_of,
    shut_out,
    tested,
    wheel_of,
    without_driver,
)
from migrator.rule_api.requirement_lists import wheel_of_runtime
from migrator.rule_api.shell_commands import as_words, installed_by, mark, nvidia_smi
from migrator.rule_api.texts import (
    DEVICE_OPTION,
    HIDES,
    NOT_HALF,
    OVERRIDE,
    ShellWord,
    hides_gpus,
    mentions_variables_alone,
    puts_folders_on_a_path,
    speaks_of_gpus,
    words,
)

FAMILY = Family("CMD", "Commands", 150)

COMMAND = Rule(
    code="CMD001",
    name="gpu-command",
    summary="a command for NVIDIA's tools, or for packages built for CUDA",
    why="""This rule reads shell scripts, Dockerfiles, notebooks, `os.system` calls, and command
keys in YAML and JSON (`run`, `command`, `args`, `script`, …).

Rewritten: `nvidia-smi` to `tpu-info`, which shows the same for TPUs; commands that install PyTorch
(pip, uv, pipenv, Poetry, PDM) to the versions that were tested together, from PyTorch's index of
CPU wheels; `--device cuda` to the target's device. In a workflow for GitHub's own machines, libtpu
is left out.

Kept: `--cuda` and similar options that the project's program has.

Reported: what a Dockerfile installs on an image for CUDA, conda commands, packages that only exist
for CUDA, and other lines about GPUs.

In notebooks, `%%bash` and `%%sh` are read as a script, `%%writefile` as the file that it writes.
Cells that are not Python, or don't parse (Python 2), stay and are reported.""",
    references=(
        "https://github.com/AI-Hypercomputer/cloud-accelerator-diagnostics/tree/main/tpu_info",
    ),
    examples=(
        Example(
            """
            import os
            os.system("nvidia-smi")
            """,
            after="""
            import os
            os.system("tpu-info")
            """,
        ),
        Example(
            """
            import os
            os.system("python train.py --device cuda")
            """,
            after="""
            import os
            os.system("python train.py --device {device}")
            """,
        ),
        Example(
            """
            pip install numpy
            conda install pytorch-cuda=12.1 -c nvidia
            """,
            says={2: "conda has no build for TPUs"},
            path="train.sh",
        ),
        Example(
            """
            nvcc -o ops ops.cu
            """,
            path="train.sh",
            says={1: "a CUDA tool"},
        ),
        Example(
            """
            export CUDA_HOME=/usr/local/cuda
            python train.py
            """,
            path="train.sh",
            says={1: "names CUDA folders"},
        ),
        Example(
            """
            CUDA_VISIBLE_DEVICES="" python test.py
            """,
            path="train.sh",
            says={1: "hides all GPUs, and no TPU"},
        ),
    ),
    for_written_files=True,
)


_FROM_CUDA = re.compile(
    r"(?<!\S)(?:-i|-f|--(?:extra-)?index-url|--find-links|--source|--index)[ =]*"
    r"\S*(?:cuda|cu\d{2,3})"
)


COMMAND.on("command", "nvidia-smi")(nvidia_smi)


@COMMAND.on("command", "clone")
def clone(ctx: Context, found: Construct) -> Decision:
    asked = cloned(found.content)
    assert asked is not None
    name, library = asked
    return Report(library.reason(name))


@COMMAND.on("command", "child")
def child(ctx: Context, found: Construct) -> Decision:
    return Report("a command for GPUs whose output the program uses")


_DEVICE = re.compile(r"--device(?![\w-])")


@COMMAND.on("command", "device", "launcher")
def device_option(ctx: Context, found: Construct) -> Decision | None:
    if found.key == "launcher" and not (ctx.api.launches and _DEVICE.search(found.content)):
        return None
    if ctx.target.asks_runtime:
        return Report("the program chooses its device itself; remove the option")
    staying = _that_stays(ctx, found.content)
    if staying:
        return Report(f"{staying} stays as it is, and so does what it is started with")
    device = ctx.api.device
    text = DEVICE_OPTION.sub(
        lambda m: f"{m['option']}{m['quote']}{ctx.code.device_name(bool(m['index']))}{m['quote']}",
        found.content,
    )
    if text == found.content:
        return Report(f"names a GPU; the target's device is {device}")
    return ctx.code.with_text(found, text)


def _that_stays(ctx: Context, text: str) -> str:
    """A program of the project that a command starts and that stays as it is."""
    before = ""
    for word in words(text):
        program = f"{word.text.replace('.', '/')}.py" if before == "-m" else word.text
        if program.endswith(".py") and ctx.project is not None and ctx.project.stays(program):
            return program
        before = word.text
    return ""


@COMMAND.on("command", "half")
def half(ctx: Context, found: Construct) -> Decision:
    return Report(NOT_HALF)


@COMMAND.on("command", "gpu")
def gpu_command(ctx: Context, found: Construct) -> Decision:
    text = found.content
    if re.search(r"\bnvcc\b|cuda-toolkit|cudatoolkit", text):
        return Report("a CUDA tool; a TPU has no counterpart")
    if hides_gpus(text):
        return Report(HIDES)
    if mentions_variables_alone(text):
        return Keep("means nothing on a TPU, where a program uses all devices")
    if puts_folders_on_a_path(text):
        return Keep("names CUDA folders, which nothing uses on a TPU")
    program = _whose_options(ctx, text)
    if program:
        return Keep(f"an option of {program} itself, which chooses the device")
    staying = _that_stays(ctx, text)
    if staying:
        return Report(f"{staying} stays as it is, and so does what it is started with")
    counts = [match["key"] for match in OVERRIDE.finditer(text)]
    if counts and not speaks_of_gpus(OVERRIDE.sub("", text)):
        if ctx.project is not None and all(map(ctx.project.is_asked_for, counts)):
            return Keep("a number of devices; the lines that read it are handled as GPU code")
    return Report("mentions GPUs; check what the program does with it")


def _whose_options(ctx: Context, text: str) -> str:
    """The project's own program if its options are the only GPU-related part of a command."""
    program, options, rest = "", set[str](), []
    for word in words(text):
        if program and not word.text:
            return ""  # another command follows
        if not program and ctx.project is not None and word.text.endswith(".py"):
            path = ctx.project.started(word.text)
            if path is None:
                return ""
            program, options = word.text, ctx.project.options(path)
        if word.text.partition("=")[0] not in options:
            rest.append(word.text)
    return "" if speaks_of_gpus(" ".join(rest)) else program


@COMMAND.on("command", "pip")
def pip(ctx: Context, found: Construct) -> Decision:
    text = found.content
    if ctx.target.portable:
        if not mentioned().search(text):
            return Keep("a portable program uses what its machine has")
        return Report("installs PyTorch; a portable program needs what its machine has")
    versions = _versions(ctx)
    packages, changes, indexes = installed_by(text)
    for package in packages:
        name = name_of(package.text) or wheel_of(package.text) or repository_of(package.text) or ""
        if (library := of_package(name)) is not None:
            return Report(library.reason(name))
        if missing := shut_out(ctx.target, name, asked_of(package.text)):
            return Report(f"{package.text} excludes every tested version: take {missing}")
    older = [place for place in packages if older_library(place.text)]
    packages = [place for place in packages if place not in older]
    names = {name_of(word) or wheel_of(word) for *_, word in packages}
    beside = (_of_pip(ctx, each) for each in companions(ctx.target, names, versions))
    needed = [versions["torch"], *beside]
    wanted = as_words(needed, mark(ctx, found))
    for name in filter(None, names):
        if why := clash(ctx.target, name, names):
            return Report(f"{name}: {why}")
    if {"torch", ctx.target.environment.package}.isdisjoint(names) and {
        "jax",
        "jaxlib",
    } & names & versions.keys():
        return Report(f"probably of a program for JAX; the target needs {versions['jax']}")
    if re.search(r"pytorch\.org/whl/(?:nightly|test)\b", text):
        return Report(f"asks for an unreleased version; the target needs {wanted}")
    if older and "torch" not in {name_of(place.text) for place in packages}:
        first = older.pop(0)
        changes.append(ShellWord(first.start, first.end, wanted))
    changes += [ShellWord(w.start - (text[w.start - 1] == " "), w.end, "") for w in older]
    for start, end, word in packages:
        known = name_of(word) or wheel_of(word)
        if known is None and re.search(r"torch|cu\d\d", word):
            return Report(f"{word} is not readable; it takes {versions['torch']}")
        if known in versions:
            said = [_of_pip(ctx, in_place_of(word, versions[known]))]
            said += needed[1:] if known == "torch" else []
            if len(said) > 1 or not alike(word, said[0]):
                changes.append(ShellWord(start, end, as_words(said, mark(ctx, found, text[start]))))
    if "torch" in names or older:
        changes += indexes  # which lack the parts that follow torch
    if not changes:
        if not names.isdisjoint(versions):
            return Keep("versions that were tested together")
        if not packages and not re.search(r"\b(?:echo|print)|\s(?:-r|--requirement|-e)\b", text):
            return Report(f"is not readable; the target needs {wanted}")
        if re.search(r"cu\d\d|cuda", text, re.I):
            return Report("was probably built for CUDA; take the build for the CPU, or none")
        return Keep("installs nothing that depends on the device")
    for start, end, new in sorted(changes, reverse=True):
        text = text[:start] + new + text[end:]
    if _FROM_CUDA.search(text):
        return Report(f"takes wheels for CUDA; here it is {wanted}, without that source")
    if any((each.kind, each.key) == ("command", "image") for each in ctx.constructs):
        return Report(f"becomes `{text.strip()}` once the base image isn't one for CUDA")
    return ctx.code.with_text(found, text, "versions that were tested together")


def _versions(ctx: Context) -> dict[str, str]:
    """The tested versions, for a machine without a TPU where one runs the command."""
    is_hosted = ctx.project is not None and ctx.project.is_hosted()
    versions = tested(ctx.target)
    return without_driver(ctx.target, versions) if is_hosted else versions


def _of_pip(ctx: Context, wanted: str) -> str:
    """What pip gets for a requirement: the runtime's wheel by its path."""
    return str(wheel_of_runtime(ctx, wanted) or wanted)


@COMMAND.on("command", "conda")
def conda(ctx: Context, found: Construct) -> Decision:
    if ctx.target.portable:
        return Report("installs PyTorch; a portable program needs what its machine has")
    needed = [tested(ctx.target)["torch"], *companions(ctx.target, ())]
    wanted = as_words(needed, "'")
    return Report(f"conda has no build for TPUs: `pip install {wanted}`")


@COMMAND.on("command", "other")
def other_cell(ctx: Context, found: Construct) -> Decision:
    first = found.content.lstrip().partition("\n")[0]
    what = f"a cell of {first.split()[0]}" if first.startswith("%%") else "it is not valid Python"
    return Report(f"{what}, and not read")
