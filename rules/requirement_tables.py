"""Requirements in tables (Poetry, pipenv, pixi, uv), and those that conda installs."""

import re

from migrator.rule_api import RUNTIME_PACKAGE, Construct, Context, Decision, Keep, Report
from migrator.rule_api.libraries import of_package
from migrator.rule_api.packages import (
    CPU_WHEELS,
    CUDA_WHEELS,
    asked_of,
    clash,
    companions,
    entry,
    extras_of,
    name_of,
    shut_out,
    tested,
)
from migrator.rule_api.requirement_lists import (
    SHUT_OUT,
    all_needed,
    beside_torch,
    is_exported,
    of_conda,
    packages_beside,
    pair,
    python_of_conda,
    wheel_of_runtime,
    where_portable,
)

from .requirements import REQUIREMENT

# ---- tables of Poetry, pipenv, pixi and uv -------------------------------------------------------


@REQUIREMENT.on("requirement", "table")
def in_table(ctx: Context, found: Construct) -> Decision:
    """`torch = "^2.0"`, also with an index, gets the version, with related packages below it."""
    text = found.content
    name, value = pair(text)
    asked = value.get("version", "") if isinstance(value, dict) else value
    if ctx.target.portable:
        return where_portable(ctx, name, str(asked))
    if library := of_package(name):
        return Report(library.reason(name))
    if missing := shut_out(ctx.target, name, str(asked)):
        return Report(SHUT_OUT.format(missing))
    version = tested(ctx.target).get(name)
    others = packages_beside(ctx, found)
    if version is not None and name == RUNTIME_PACKAGE:
        return _of_runtime(ctx, found, version)
    if version is None:
        if re.search(r"cu\d{2,3}\b", text):
            return Report(f"was probably built for CUDA; the target needs {all_needed(ctx)}")
        if why := clash(ctx.target, name, others):
            return Report(why)
        return Keep("does not depend on the device")
    lines = [version]
    if name == "torch":
        lines += companions(ctx.target, others)
    first, *more = (_entry(ctx, line) for line in lines)
    new = first if isinstance(value, str) else _with_version(text, value, version)
    if not more and (new == text or (asked == first.split('"')[1] and not extras_of(version))):
        return Keep("the version that was tested")
    if new is None or not text.startswith(name.split("-")[0]):
        listed = ", ".join(f"`{line}`" for line in (first, *more))
        return Report(f"not changed automatically; the target needs {listed}")
    note = "versions that were tested together; the lock file has to be made again"
    return ctx.code.with_text(found, "\n".join([new, *more]), note)


def _of_runtime(ctx: Context, found: Construct, wanted: str) -> Decision:
    """An entry of the runtime, whose version may be another one by now."""
    text, new, note = found.content, _entry(ctx, wanted), "the runtime of the migrated code"
    _, value = pair(text)
    wheel = wheel_of_runtime(ctx, wanted)
    if wheel is not None and isinstance(value, dict) and "path" in value:
        new = text.replace(value["path"], str(wheel))
    return Keep(note) if new == text else ctx.code.with_text(found, new, note)


def _entry(ctx: Context, wanted: str) -> str:
    """An entry of a table; the runtime is one of a wheel in the project."""
    wheel = wheel_of_runtime(ctx, wanted)
    return entry(wanted) if wheel is None else f'{name_of(wanted)} = {{path = "{wheel}"}}'


def _with_version(text: str, value: object, version: str) -> str | None:
    """An inline table with another version, from PyTorch's index for the CPU if it named CUDA's.

    Extras stay, and the wanted ones are with them.
    """
    if not isinstance(value, dict) or not value.keys() <= {"version", "source", "index", "extras"}:
        return None
    if not re.match(r"[\w-]+\s*=\s*\{", text) or "version" not in value:
        return None
    said = r"""(version\s*=\s*)(["'])[^"']*\2"""
    missing = [f'"{each}"' for each in extras_of(version) if each not in value.get("extras", ())]
    extras = f", extras = [{', '.join(missing)}]" if missing and "extras" not in value else ""
    asked = asked_of(version)
    text = re.sub(said, rf"\g<1>\g<2>{asked}\g<2>{extras}", text, count=1)
    if missing and not extras:
        more = ", ".join(missing) + ", " * bool(value["extras"])
        text = re.sub(r"(extras\s*=\s*\[\s*)", rf"\g<1>{more}", text, count=1)
    index = value.get("index", "")
    return text.replace(index, CPU_WHEELS) if index and CUDA_WHEELS.search(index) else text


@REQUIREMENT.on("requirement", "source")
def source(ctx: Context, found: Construct) -> Decision:
    """Where uv takes a package from: a named index, or another location."""
    name, value = pair(found.content)
    if ctx.target.portable:
        return Keep("a portable program uses what its machine has")
    if library := of_package(name):
        return Report(library.reason(name))
    places = [
        str(place)
        for each in (value if isinstance(value, list) else [value])
        for key, place in (each.items() if isinstance(each, dict) else [("", each)])
        if key not in ("index", "extra", "group", "marker")
    ]
    if name == RUNTIME_PACKAGE and name in tested(ctx.target):
        return _of_runtime(ctx, found, tested(ctx.target)[name])
    if name in tested(ctx.target) and places:
        return Report(f"comes from elsewhere; the target needs {tested(ctx.target)[name]}: "
                      "leave the source out")  # fmt: skip
    if any(re.search(r"cu\d{2,3}\b", place) for place in places):
        return Report("was probably built for CUDA")
    return Keep("comes from the index of that name")


@REQUIREMENT.on("requirement", "pixi")
def pixi(ctx: Context, found: Construct) -> Decision:
    name, _ = pair(found.content)
    if ctx.target.portable:
        return Keep("a portable program uses what its machine has")
    if package := _OF_PIP.get(name):
        lines = [tested(ctx.target)[package]]
        if package == "torch":
            lines += companions(ctx.target, packages_beside(ctx, found))
        listed = ", ".join(f"`{_entry(ctx, line)}`" for line in lines)
        return Report(f"conda has no build for TPUs: in `pypi-dependencies`, write {listed}")
    if name in (*_CHOOSES_BUILD, "cuda"):
        return Report("chooses a build for CUDA, and there is none for TPUs: remove it")
    if library := of_package(name):
        return Report(library.reason(name))
    if missing := shut_out(ctx.target, name, str(pair(found.content)[1])):
        return Report(SHUT_OUT.format(missing))
    return Keep("does not depend on the device")


# ---- conda ---------------------------------------------------------------------------------------

_OF_PIP = {"pytorch": "torch", "pytorch-gpu": "torch", "pytorch-cpu": "torch",
           "torchvision": "torchvision", "torchaudio": "torchaudio"}  # fmt: skip
_CHOOSES_BUILD = ("pytorch-cuda", "pytorch-mutex", "cpuonly")  # of conda's pytorch, nothing else
# Conda packages that would install conda's pytorch again.
_NEEDS_TORCH = re.compile(
    r"pytorch-.*|.*torch|torch.*|torchtext|pyg|dgl.*|fastai|timm|accelerate|diffusers|kornia|monai"
    r"|sentence-transformers|pyro-ppl|fvcore|iopath|lpips|detectron2|faiss-gpu"
)


# Those that PyPI has under the same name: they move with torch.
_ALSO_OF_PIP = {
    "pytorch-lightning", "pytorch-metric-learning", "pytorch-msssim", "torch-fidelity",
    "torchdiffeq", "torchmetrics",
}  # fmt: skip


@REQUIREMENT.on("requirement", "conda")
def conda(ctx: Context, found: Construct) -> Decision:
    text = found.content
    name, version = of_conda(text)
    if ctx.target.portable:
        return where_portable(ctx, name, _exactly(version))
    listed, back = ctx.once(_listed)
    of_pip = packages_beside(ctx, found)
    brings_torch = not listed.isdisjoint(_OF_PIP)
    if is_exported(ctx, found):
        return _exported(ctx, found, brings_torch or "torch" in listed)
    if name == "python":
        return python_of_conda(ctx, found, version, brings_torch or "torch" in of_pip)
    if name in _OF_PIP:
        package = _OF_PIP[name]
        lines = [tested(ctx.target)[package]]
        if package == "torch":
            lines += beside_torch(ctx, of_pip)
        wanted = ", ".join(f"`- {line}`" for line in lines)
        if back:
            return Report(
                f"conda has no build for TPUs, and {', '.join(back)} of conda's needs conda's "
                f"pytorch: move all of these to the list of pip, with {wanted} there"
            )
        if package in of_pip:
            return Report("pip also installs it, and conda has no build for TPUs: remove it")
        return ctx.code.with_text(found, "\n".join(lines), "only pip has the target's build")
    if name in _CHOOSES_BUILD:
        if brings_torch and not back:
            return ctx.code.with_text(
                found, "", "chooses a build of conda's pytorch, which is gone"
            )
        return Report("chooses a build of conda's pytorch, and there is none for TPUs")
    if (refused := _refused(ctx, name, version)) is not None:
        return refused
    moved = _for_pip(name, version)
    if moved and brings_torch and not back:
        return ctx.code.with_text(found, moved, "needs torch, which pip has for the target")
    return Keep("does not depend on the device")


def _listed(ctx: Context) -> tuple[frozenset[str], list[str]]:
    """The packages that conda installs, and those of them that need conda's torch."""
    listed = [of_conda(each.content) for each in ctx.constructs if each.key == "conda"]
    back = [each for each, asked in listed if each not in (*_OF_PIP, *_CHOOSES_BUILD)
            and _NEEDS_TORCH.fullmatch(each) and not _for_pip(each, asked)]  # fmt: skip
    return frozenset(each for each, _ in listed), back


def _exactly(version: str) -> str:
    """`=1.8` and `==1.8` of conda, as the version alone."""
    exact = re.match(r"\s*=+([^=]+)", version)
    return exact[1] if exact else version


def _refused(ctx: Context, name: str, version: str) -> Report | None:
    """What the target can't have from conda."""
    if library := of_package(name):
        return Report(library.reason(name))
    if missing := shut_out(ctx.target, name, _exactly(version)):
        return Report(SHUT_OUT.format(missing))
    fitting = tested(ctx.target).get(name)
    return Report(f"the target needs {fitting}, by pip: remove it here") if fitting else None


def _exported(ctx: Context, found: Construct, brings_torch: bool) -> Decision:
    """A line of `conda list --export`; its build is `pypi_0` if pip installed the package."""
    name, version = of_conda(found.content.strip())
    if name == "python":
        return python_of_conda(ctx, found, version, brings_torch)
    package = _OF_PIP.get(name, name)
    if package in _OF_PIP.values():
        lines = [tested(ctx.target)[package]]
        if package == "torch":
            lines += companions(ctx.target, ())
        wanted = ", ".join(lines)
        return Report(f"conda has no build for TPUs: remove it here, and install {wanted} by pip")
    if name in _CHOOSES_BUILD:
        return Report("chooses a build of conda's pytorch, and there is none for TPUs")
    return _refused(ctx, name, version) or Keep("does not depend on the device")


def _for_pip(name: str, version: str) -> str:
    """The pip requirement for this version of a conda package; empty if unsure."""
    match = re.fullmatch(r"(==?|>=)\s*(\d[\d.]*)", version.strip())
    if name not in _ALSO_OF_PIP or match is None:
        return ""
    alike = match[1] == "=" and match[2].count(".") < 2  # `=1.2` means any 1.2 in conda
    return f"{name}{'>=' if match[1] == '>=' else '=='}{match[2]}{'.*' * alike}"
