"""Finds the interpreter for a target's script, and problems with unsuitable ones."""

import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement
from packaging.requirements import Requirement as Parsed
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion

from migrator.analysis.python_requirements import Requirement, on_tpu, pinned
from migrator.targets import Target, targets

from .in_target_python import ask, command_line
from .verify_errors import VerifyError

_IMPORT_SECONDS = 180.0  # the first import of torch from a cold disk takes a minute
_READ_SECONDS = 20.0


@dataclass(frozen=True)
class Problem:
    """A problem with an interpreter, and the command that fixes it ("" if there is none)."""

    text: str
    fix: str = ""

    def __str__(self) -> str:
        return f"{self.text}. Fix: {self.fix}" if self.fix else self.text


@dataclass(frozen=True)
class Interpreter:
    """An interpreter examined for one target."""

    python: Path
    target: Target
    versions: dict[str, str] = field(default_factory=dict)  # by distribution
    problems: list[Problem] = field(default_factory=list)  # each: a problem, in one line
    notes: list[str] = field(default_factory=list)  # each: a difference from the pinned set
    release: tuple[int, ...] = ()  # of Python; empty if it could not be run
    damaged: bool = False  # another wheel has overwritten the target's package
    files: dict[str, str | None] = field(default_factory=dict)  # versions according to the modules
    installer: tuple[str, ...] = ()  # the install command, without the packages

    @property
    def works(self) -> bool:
        return not self.problems


def examine(python: Path, target: Target, by_import: bool = True) -> Interpreter:
    """Examine ``python`` in a subprocess: by importing the target's packages or, in a fraction of a
    second, by reading what is installed."""
    modules = target.environment.imports if by_import else ()
    try:
        found = _probe(python, modules, by_import)
    except VerifyError as error:
        return Interpreter(python, target, problems=[Problem(str(error))])
    return _judge(python, target, found)


@cache  # importing torch takes seconds, and --all needs it for every app
def _probe(python: Path, modules: tuple[str, ...], by_import: bool) -> dict[str, Any]:
    every = targets().values()
    names = {r.name: r.module for target in every for r in [*pinned(target), *on_tpu(target)]}
    plugins = {p for target in every for known in target.host.plugins.values() for p in known}
    frameworks = {name for target in every for name in target.environment.frameworks}
    names |= {name: name.replace("-", "_") for name in sorted(plugins | frameworks)}
    with tempfile.TemporaryDirectory(prefix="tpu-migrate-probe-") as empty:
        return ask(
            python,
            "probe.py",
            [
                json.dumps(names),
                json.dumps(modules or ["torch", *(t.environment.package for t in every)]),
                "import" if by_import else "read",
            ],
            timeout=_IMPORT_SECONDS if by_import else _READ_SECONDS,
            cwd=Path(empty),
            # Importing must neither occupy a TPU nor search for one.
            env={name: value for t in every for name, value in t.host.on_cpu().items()},
        )


def _judge(python: Path, target: Target, found: dict[str, Any]) -> Interpreter:
    needed = pinned(target)
    installed: dict[str, str | None] = found["installed"]
    versions = {name: version for name, version in installed.items() if version}
    damage = _damaged(python, target, found, installed)
    unfit = [
        *_missing(python, target, needed, installed),
        *([damage] if damage else []),
        *_unfit_versions(target, versions),
        *_unmet(python, needed, found, versions),
    ]
    fix = "" if _belongs_to_other(target, installed) else _mend(python, target, found, bool(damage))
    there = installed.get(target.environment.package)
    wrong = _wrong_python(python, target, found["python"], there is not None)
    problems = [*wrong, *(Problem(text, fix) for text in unfit)]
    if not problems:  # usually a consequence of one of those; alone it speaks for itself
        problems = [
            Problem(f"import {module} fails in {python}: {error}")
            for module, error in found["errors"].items()
        ]
    notes = [
        f"{r.name} {versions[r.name]} instead of the tested {r.exact}"
        for r in needed
        if r.exact and r.name in versions and _public(versions[r.name]) != r.exact
    ]
    return Interpreter(
        python,
        target,
        versions,
        problems,
        notes,
        release=tuple(found["python"]),
        damaged=damage is not None and there != "unknown",
        files=found["imported"],
        installer=tuple(pip(python, "install", found["pip"])),
    )


def _belongs_to_other(target: Target, installed: Mapping[str, str | None]) -> bool:
    """Whether the environment belongs to another target, which installing this one would damage."""
    there = targets_in(installed)
    return bool(there) and target.name not in there


def targets_in(versions: Mapping[str, str | None]) -> list[str]:
    """The targets whose package is installed."""
    return [
        name
        for name, target in targets().items()
        if versions.get(target.environment.package) not in (None, "unknown")
    ]


def _wrong_python(python: Path, target: Target, version: list[int], there: bool) -> list[Problem]:
    first, last = target.environment.pythons
    if not there:  # the CPU doesn't need the TPU's packages
        last = target.environment.newest
    if first <= tuple(version[:2]) <= last:
        return []
    return [
        Problem(
            f"{python} is Python {version[0]}.{version[1]}; {target.name} needs "
            f"{first[0]}.{first[1]} to {last[0]}.{last[1]}"
        )
    ]


def _missing(
    python: Path, target: Target, needed: list[Requirement], installed: dict[str, str | None]
) -> list[str]:
    for_tpu = {r.module for r in on_tpu(target) if installed.get(r.name)}
    names = [
        r.name
        for r in needed
        if not r.conditional and not installed.get(r.name) and r.module not in for_tpu
    ]
    extra = canonicalize_name(target.name)  # what old releases of pip need
    return [f"{python} lacks {', '.join(names)} (extra {extra!r})"] if names else []


def _damaged(
    python: Path, target: Target, found: dict[str, Any], installed: dict[str, str | None]
) -> str | None:
    """Whether another wheel silently replaced the target's package by an older one."""
    damage, name = target.environment.damage, target.environment.package
    recorded, actual = installed.get(name), found["imported"].get(name)
    if damage is None or not recorded or not actual or _public(recorded) == _public(actual):
        return None
    if recorded == "unknown":
        return f"{name} in {python} is the {actual} that the {damage.by} wheel carries"
    return (
        f"{name} in {python} is damaged: installed as {recorded}, but its files are {actual} "
        f"(the {damage.by} wheel overwrites them)"
    )


def _unfit_versions(target: Target, versions: dict[str, str]) -> Iterator[str]:
    for name, wanted in target.environment.runs_with.items():
        version = versions.get(name, "unknown")
        if version != "unknown" and not _fits(version, SpecifierSet(wanted)):
            limit = target.environment.import_limits.get(name)
            if limit is not None and not _fits(version, SpecifierSet(limit)):
                needs = f"{name} {limit.replace('<', '< ')}"
                package = target.environment.package
                yield f"{package} does not import with {name} {version}: it needs {needs}"
            else:
                yield f"programs for {target.name} need {name} {wanted}, not {version}"


def _unmet(
    python: Path,
    needed: list[Requirement],
    found: dict[str, Any],
    versions: dict[str, str],
) -> Iterator[str]:
    """Unmet requirements between packages: torchvision needs one torch, jax one jaxlib."""
    known = {canonicalize_name(r.name): r.name for r in needed}
    release = ".".join(map(str, found["python"]))
    there = {"extra": "", "python_version": release.rpartition(".")[0]}
    there["python_full_version"] = release
    for name in known.values():
        for text in found["needs"].get(name, ()):
            try:
                wants = Parsed(text)
            except InvalidRequirement:
                continue
            other = known.get(canonicalize_name(wants.name), "")
            version = versions.get(other, "unknown")
            if version == "unknown" or (wants.marker and not wants.marker.evaluate(there)):
                continue
            if not _fits(version, wants.specifier):
                wanted = f"{other}{wants.specifier}"
                yield f"{name} {versions[name]} in {python} needs {wanted}, not {version}"


def _mend(python: Path, target: Target, found: dict[str, Any], again: bool) -> str:
    """The command that installs the tested versions, except those that already fit."""
    installed: dict[str, str | None] = found["installed"]
    package, damage = target.environment.package, target.environment.damage
    add = [
        r.text
        for r in pinned(target)
        if not (version := installed.get(r.name))
        or (r.exact and _public(version) != r.exact)
        or (again and r.name == package)
    ]
    commands = [[*pip(python, "install", found["pip"]), *add]]
    if again and damage is not None:
        remove = pip(python, "uninstall", found["pip"])
        commands.insert(0, [*remove, *(["-y"] if found["pip"] else []), damage.by, package])
    return " && ".join(map(command_line, commands))


def pip(python: Path, what: str, has_pip: bool) -> list[str]:
    """A pip command; with uv for environments without pip."""
    from .environments import uv_by_name

    if has_pip:
        return [str(python), "-m", "pip", what]
    return [*uv_by_name(), "pip", what, "--python", str(python)]


def _public(version: str) -> str:
    """The version without its local part: 2.9.0 for 2.9.0+cu128."""
    return version.partition("+")[0]


def _fits(version: str, wanted: SpecifierSet) -> bool:
    try:
        return wanted.contains(version, prereleases=True)
    except InvalidVersion:  # a custom build
        return True


def without_libtpu(found: Interpreter, environment: Mapping[str, str]) -> Problem | None:
    """What prevents programs from using this machine's TPU; not needed on the CPU."""
    driver = found.target.environment.driver
    if not driver or "libtpu" in found.versions or environment.get("TPU_LIBRARY_PATH"):
        return None
    text = "libtpu is not installed: programs do not see this machine's TPU"
    brings = next(each for each in pinned(found.target) if each.name == driver)
    newest = found.target.environment.newest
    if found.release[:2] > newest:
        last = ".".join(map(str, newest))
        return Problem(f"{text}; {brings.text.partition(';')[0]} needs Python {last} or older")
    return Problem(text, command_line([*found.installer, brings.text]))


def require(python: Path, target: Target, by_import: bool = True) -> Interpreter:
    """Check ``python`` for ``target``. Raises VerifyError, with a line for each problem."""
    found = examine(python, target, by_import)
    if not found.works:
        raise VerifyError(_join_problems(found.problems))
    return found


def _join_problems(problems: list[Problem]) -> str:
    """A line for each, and one command once."""
    last = {problem.fix: problem for problem in problems}
    return "\n".join(
        str(problem) if last[problem.fix] is problem else problem.text for problem in problems
    )


def forget() -> None:
    """Examine interpreters again: packages were installed."""
    _probe.cache_clear()


def candidates(target: Target, by_import: bool = True) -> Iterator[Interpreter]:
    """The current interpreter and, unless it fits or is damaged, the cached one."""
    from .environments import cached_python

    current = examine(Path(sys.executable), target, by_import)
    yield current
    if not current.works and not current.damaged and (cached := cached_python(target)):
        yield examine(cached, target, by_import)


def find(target: Target, by_import: bool = True) -> Interpreter | None:
    """The interpreter for ``target``: the current one, otherwise the cached one; None without
    either.

    Raises VerifyError if the current one is damaged, because the user has to know.
    """
    current, *cached = candidates(target, by_import)
    if current.works:
        return current
    if current.damaged:
        raise VerifyError(_join_problems(current.problems))
    if not cached:
        return None
    if cached[0].works:
        return cached[0]
    home = cached[0].python.parent.parent
    raise VerifyError(
        f"{_join_problems(cached[0].problems)}\nRemove {home} and run again with --install."
    )
