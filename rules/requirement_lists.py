"""Requirement lists: the packages next to a requirement."""

import os
import re
import tomllib
from collections import Counter
from collections.abc import Container, Iterable
from pathlib import PurePath, PurePosixPath
from typing import Any

from migrator.analysis.gpu_text_patterns import without_comment
from migrator.construct import Construct
from migrator.formats.kinds import lists_packages
from migrator.requirements import companions, extras_of, name_of, normal, tested
from migrator.rule import Context


def packages_beside(ctx: Context, found: Construct) -> Counter[str | None]:
    """Pip packages in the same list (including itself), or in the whole file, with how often."""
    return ctx.once(_packages).get((found.kind, _list_of(ctx, found)), Counter())


def _packages(ctx: Context) -> dict[tuple[str, object], Counter[str | None]]:
    """The packages of each kind, by list."""
    lists: dict[tuple[str, object], Counter[str | None]] = {}
    for each in ctx.constructs:
        if each.key not in ("package", "dependency", "constraint", "table"):
            continue
        text = ctx.text(each)
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
           and re.match(r"torch\b(?!-)", ctx.text(each)) for each in ctx.constructs):  # fmt: skip
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
