"""The versions of the packages of a Python environment, and the upgrades that they need.

An environment is read, never run: its distributions are folders beside its packages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from packaging.version import InvalidVersion, Version

from migrator.analysis.find_absent_names import package_of
from migrator.analysis.find_removed_names import removed
from migrator.analysis.upgrade_tables import (
    keyword_only,
    removed_arguments,
    removed_builtins,
    removed_frame_methods,
    removed_methods,
)
from migrator.construct import Construct
from migrator.errors import UsageError

Versions = Mapping[str, str]  # by the canonical names of distributions; Python's is "python"
_FOLDERS = ("lib*/python3.*/*-packages", "local/lib/python3.*/*-packages", "lib/site-packages",
            "Lib/site-packages", "lib/python3/dist-packages")  # fmt: skip
_DISTRIBUTION = re.compile(r"(?P<name>[^-]+)-(?P<version>[^-]+)(?:-py[\d.]+)?\.(?:dist|egg)-info")
_PYTHON = re.compile(r"python(3\.\d+)")
_CONFIGURED = re.compile(r"^version(?:_info)?\s*=\s*(\d+\.\d+)", re.MULTILINE)
_SINCE = re.compile(r"([A-Za-z][\w-]*) ([\d.]+)")
_DISTRIBUTIONS = {"PIL": "pillow"}  # of packages with another name
# What no table of names has: since when code means something else.
_CHANGED = {
    "copy": "NumPy 2.0", "bytes": "NumPy 2.3", "pickle": "torch 2.6", "loader": "PyYAML 6.0",
    "style": "Matplotlib 3.8",
}  # fmt: skip


def read_versions(python: Path) -> dict[str, str]:
    """The versions in an environment, by its folder or its interpreter.

    Raises:
        UsageError: there is no environment, or nothing tells which Python it has.
    """
    root = python if python.is_dir() else python.absolute().parent.parent
    number = _python_of(root, python)
    folders = [
        folder
        for pattern in _FOLDERS
        for folder in sorted(root.glob(pattern))
        if number in (_number(folder) or number, None)
    ]
    if not python.exists() or not folders or number is None:
        raise UsageError(
            f"{python}: not an environment of Python; name its folder or its interpreter, such as "
            ".venv/bin/python"
        )
    return {"python": number} | {name: v for folder in folders for name, v in _listed(folder)}


def is_environment(python: Path) -> bool:
    """Whether its versions can be read: not those of a program that starts an interpreter."""
    try:
        read_versions(python)
    except UsageError:
        return False
    return True


def _python_of(root: Path, python: Path) -> str | None:
    """`3.11`, by what the environment says of itself, its interpreter or its folders."""
    settings = root / "pyvenv.cfg"
    if settings.is_file():
        if found := _CONFIGURED.search(settings.read_text(encoding="utf-8", errors="replace")):
            return found[1]
    named = _PYTHON.fullmatch(python.resolve().name)
    numbers = {number for each in root.glob("lib*/python3.*") if (number := _number(each))}
    return named[1] if named else numbers.pop() if len(numbers) == 1 else None


def _number(folder: Path) -> str | None:
    return next((m[1] for part in folder.parts[::-1] if (m := _PYTHON.fullmatch(part))), None)


def _listed(folder: Path) -> Iterator[tuple[str, str]]:
    from packaging.utils import canonicalize_name  # slow to import

    for path in folder.iterdir():
        if (found := _DISTRIBUTION.fullmatch(path.name)) is not None:
            yield canonicalize_name(found["name"]), found["version"]


def is_needed(construct: Construct, versions: Versions, lists: tuple[str, ...]) -> bool:
    """Whether a construct concerns an environment: all but upgrades that its versions don't need.

    Args:
        versions: what is installed; nothing for what the target pins.
        lists: those of names that are held against a program, as `numpy-2.4.6`.
    """
    if construct.kind == "absent":
        return _is_listed(package_of(construct.key), versions, lists)
    if not versions:
        return True
    since = _SINCE.findall(_since(construct))
    return not since or any(_is_reached(package, least, versions) for package, least in since)


def _since(construct: Construct) -> str:
    """`NumPy 2.0`; nothing for what is no upgrade, or of versions that nobody has any more."""
    key = construct.key.removesuffix("()")
    gone = None
    match construct.kind:
        case "removed" | "removed import":
            gone = removed(key)
        case "removed builtin":
            gone = removed_builtins().get(key)
        case "removed method":
            gone = removed_methods().get(key)
        case "removed of frame":
            gone = removed_frame_methods().get(key)
        case "removed argument":
            keyword = getattr(construct.node, "arg", None)
            gone = removed_arguments().get((key, keyword)) if keyword else None
        case "without names":
            gone = keyword_only().get(key)
        case "changed":
            return _CHANGED.get(key, "")
        case "loader" | "style" as kind:
            return _CHANGED[kind]
    return gone.since if gone is not None else ""


def _is_reached(package: str, least: str, versions: Versions) -> bool:
    """Whether a package is this new; one that is not installed has the target's own version."""
    from packaging.utils import canonicalize_name  # slow to import

    installed = _version(versions.get(canonicalize_name(package)))
    return installed is None or installed.release >= Version(least).release


def _is_listed(package: str, versions: Versions, lists: tuple[str, ...]) -> bool:
    """Whether a list has the names of the version that is installed."""
    installed = _version(versions.get(_DISTRIBUTIONS.get(package, package)))
    listed = [each.partition("-")[2] for each in lists if each.startswith(f"{package}-")]
    if installed is None:
        return bool(listed)
    return any(Version(v).release[:2] == installed.release[:2] for v in listed)


def _version(text: str | None) -> Version | None:
    try:
        return Version(text) if text else None
    except InvalidVersion:
        return None
