"""Requirement lists: the packages next to a requirement."""

import os
import re
import tomllib
from collections import Counter
from collections.abc import Container, Iterable
from pathlib import PurePath, PurePosixPath
from typing import Any

from migrator.analysis.setup_py import reads_list
from migrator.rule_api import (
    Construct,
    Context,
    Decision,
    Keep,
    Report,
)
from migrator.rule_api.packages import (
    companions,
    excludes,
    extras_of,
    lists_packages,
    name_of,
    normal,
    tested,
)
from migrator.rule_api.texts import without_comment

SHUT_OUT = "excludes every version tested with the target, which takes {}"


def where_portable(ctx: Context, name: str | None, asked: str) -> Decision:
    """A requirement of a program for several kinds of devices, as ``asked``: it stays. But code in
    PyTorch's own words for any device needs a PyTorch that has them, on GPUs, too."""
    wanted = ctx.target.environment.runs_with.get("torch") if ctx.api.device_names else None
    if wanted and name in ("torch", "pytorch") and excludes(asked, wanted):
        return Report(f"excludes every version that the migrated code runs with: torch{wanted}")
    return Keep("a portable program uses what its machine has")


def packages_beside(ctx: Context, found: Construct) -> Counter[str | None]:
    """Pip packages in the same list (including itself), or in the whole file, with how often."""
    return ctx.once(_packages).get((found.kind, _list_of(ctx, found)), Counter())


def _packages(ctx: Context) -> dict[tuple[str, object], Counter[str | None]]:
    """The packages of each kind, by list."""
    lists: dict[tuple[str, object], Counter[str | None]] = {}
    for each in ctx.constructs:
        if each.key not in ("package", "dependency", "constraint", "table"):
            continue
        text = each.content
        name = (
            pair(text)[0] if each.key == "table"
            else name_of(re.split(r"[;\\]| -", without_comment(text))[0])
        )  # fmt: skip
        lists.setdefault((each.kind, _list_of(ctx, each)), Counter())[name] += 1
    return lists


def beside_torch(ctx: Context, named: Container[str | None]) -> list[str]:
    """What has to be installed beside torch, less what is ``named`` already.

    A list that pip reads line by line names the folder of the runtime's wheel, too.
    """
    lines = companions(ctx.target, named)
    if ctx.project is None or ctx.project.path.suffix not in _READ_BY_PIP:
        return lines
    if reads_list(ctx.project.path, ctx.project.reader.read):
        return [line for line in lines if wheel_of_runtime(ctx, line) is None]
    wheels = {line: wheel_of_runtime(ctx, line) for line in lines}
    folders = {line: f"--find-links {wheel.parent}" for line, wheel in wheels.items() if wheel}
    return [each for line in lines for each in (folders.get(line), line) if each]


_READ_BY_PIP = (".txt", ".in", ".yml", ".yaml")


def wheel_of_runtime(ctx: Context, wanted: str) -> PurePosixPath | None:
    """The wheel of a requirement, as the folder of this file sees it, if it is the runtime's."""
    delivered = ctx.target.delivered
    if delivered is None or delivered.wheel is None or ctx.project is None:
        return None
    if wanted != delivered.requirement:
        return None
    path = PurePath(os.path.relpath(delivered.wheel, ctx.project.path.parent))
    return PurePosixPath(path.as_posix())


def is_of_jax(ctx: Context, name: str, others: Container[str | None]) -> bool:
    """Whether a list has no torch: its other packages may need another JAX."""
    with_torch = "torch" in others or ctx.target.environment.package in others
    alone = not with_torch and not is_of(ctx, "conda")
    return name in ("jax", "jaxlib", "libtpu") and alone


def _list_of(ctx: Context, found: Construct) -> object:
    return next((a for a in ctx.names.ancestors(found.node) if hasattr(a, "elts")), None)


def is_exported(ctx: Context, found: Construct) -> bool:
    """Whether a package of conda's is a line of `conda list --export`, where pip has no place."""
    return _list_of(ctx, found) is None


def is_of(ctx: Context, key: str) -> bool:
    return key in ctx.once(_keys)


def _keys(ctx: Context) -> frozenset[str]:
    """The keys of a file's requirements."""
    return frozenset(each.key for each in ctx.constructs if each.kind == "requirement")


def all_needed(ctx: Context) -> str:
    """All packages that the target needs."""
    needed = [tested(ctx.target)["torch"], *companions(ctx.target, ())]
    return ", ".join(f"`{each}`" for each in needed)


def pair(text: str) -> tuple[str, Any]:
    """`torch = "^2.0"` and `torch.version = "^2.0"`: the package, and its value."""
    try:
        ((name, value),) = tomllib.loads(text).items()
    except (tomllib.TOMLDecodeError, ValueError):
        return "", ""
    return normal(name), value


_TORCH = re.compile(rb"(?<![\w-])(?:torch|pytorch|torch[-_]xla)(?![\w./-])")


def what_a_constraint_lacks(ctx: Context, wanted: Iterable[str]) -> str:
    """A requirement that a constraint can't express, if no list of the project can, either."""
    told = [each for each in wanted if extras_of(each)]
    if not told or ctx.once(_is_listed):
        return ""
    return f"a constraint has no extras: what installs it has to ask for {', '.join(told)}"


def _is_listed(ctx: Context) -> bool:
    """Whether a list that the project installs from names torch: it gets the extra there."""
    if any(each.kind == "requirement" and each.key in ("package", "dependency", "table")
           and re.match(r"torch\b(?!-)", each.content) for each in ctx.constructs):  # fmt: skip
        return True
    if ctx.project is None:
        return False
    here, reader = ctx.project.path.parent, ctx.project.reader
    folders = [here, *(each for each in here.parents if ctx.project.root in (each, *each.parents))]
    return any(
        _TORCH.search(reader.read(folder / name) or b"")
        for folder in folders
        for name in reader.list(folder)
        if lists_packages(folder / name) and folder / name != ctx.project.path
    )


def python_of_conda(ctx: Context, found: Construct, version: str, needs_torch: bool) -> Decision:
    first, last = ctx.target.environment.pythons[0], ctx.target.environment.newest
    low, high = (".".join(map(str, each)) for each in (first, last))
    match = re.match(r"\s*=*\s*3(?:\.(\d+))?", version) or re.search(r"<\s*3\.(\d+)", version)
    if not needs_torch or match is None or match[1] is None:
        return Keep("does not depend on the device")
    if "<" not in version and first[1] <= int(match[1]) <= last[1]:
        return Keep("a version that the target has wheels for")
    if "<" in version and int(match[1]) > first[1]:
        return Keep("allows a version that the target has wheels for")
    reason = f"the target's packages need Python {low} to {high}"
    if re.fullmatch(r"\s*=+\s*3\.\d+", version):
        text = found.content.replace(version, f"={low}")
        return ctx.code.with_text(found, text, reason)
    return Report(f"{reason}: `{'' if is_exported(ctx, found) else '- '}python={low}`")


def of_conda(text: str) -> tuple[str, str]:
    """Name and version: `pytorch::torchvision=0.8=py38` has both, and more."""
    match = re.match(r"(?:[\w./-]+::)?([\w.-]+)(.*)", text)
    return (normal(match[1]), match[2]) if match else ("", "")
