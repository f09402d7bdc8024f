"""Which interpreter a target's script runs in, and what is wrong with one that does not do."""

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

from migrator.requirements import NEWEST, OLDEST, Requirement, newest, pinned

from .errors import VerifyError
from .inside import ask, command_line

# What the runtime of a target starts with (runtime/*/tpu_runtime/_versions.py).
RUNS_WITH = {
    "torchax": {"torch": ">=2.9,<2.13", "torchax": "==0.0.13"},
    "torch_xla": {"torch": "==2.9.*", "torch_xla": "==2.9.*"},
}
# What makes JAX run on a GPU.
JAX_PLUGINS = ("jax-cuda12-plugin", "jax-cuda13-plugin", "jax-rocm7-plugin")
_IMPORT_SECONDS = 180.0  # the first import of torch from a cold disk takes a minute
_READ_SECONDS = 20.0


@dataclass(frozen=True)
class Problem:
    """Why something does not do, and the command that mends it ("": none does)."""

    text: str
    fix: str = ""

    def __str__(self) -> str:
        return f"{self.text}. Fix: {self.fix}" if self.fix else self.text


@dataclass(frozen=True)
class Interpreter:
    """An interpreter looked at for one target."""

    python: Path
    target: str
    versions: dict[str, str] = field(default_factory=dict)  # by distribution
    problems: list[Problem] = field(default_factory=list)  # each: why it does not do, one line
    notes: list[str] = field(default_factory=list)  # each: a difference from the pinned set
    release: tuple[int, ...] = ()  # of Python; empty where it could not be run
    damaged: bool = False  # the torch_xla wheel has written over torchax
    files: dict[str, str | None] = field(default_factory=dict)  # versions as modules say them
    installer: tuple[str, ...] = ()  # the command that installs into it, without what

    @property
    def works(self) -> bool:
        return not self.problems


@cache  # importing torch takes seconds, and --all asks once for every app
def examine(python: Path, target: str, by_import: bool = True) -> Interpreter:
    """Look at ``python`` in a subprocess: by importing the target's packages, or, in a fraction of
    a second, by reading what is installed."""
    modules = ["torch", *(["jax"] if target == "torchax" else []), target]
    try:
        found = _probe(python, (*modules,) if by_import else (), by_import)
    except VerifyError as error:
        return Interpreter(python, target, problems=[Problem(str(error))])
    return _judge(python, target, found)


@cache
def _probe(python: Path, modules: tuple[str, ...], by_import: bool) -> dict[str, Any]:
    names = {r.name: r.module for target in RUNS_WITH for r in pinned(target)}
    names |= {name: name.replace("-", "_") for name in JAX_PLUGINS}
    with tempfile.TemporaryDirectory(prefix="tpu-migrate-probe-") as empty:
        return ask(
            python,
            "probe.py",
            [
                json.dumps(names),
                json.dumps(modules or ("torch", "torchax", "torch_xla")),
                "import" if by_import else "read",
            ],
            timeout=_IMPORT_SECONDS if by_import else _READ_SECONDS,
            cwd=Path(empty),
            # Importing must neither take a TPU nor look for one.
            env={"JAX_PLATFORMS": "cpu", "PJRT_DEVICE": "CPU"},
        )


def _judge(python: Path, target: str, found: dict[str, Any]) -> Interpreter:
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
    fix = "" if _belongs_to_other(target, installed) else _mend(python, needed, found, bool(damage))
    wrong = _wrong_python(python, target, found["python"], there=bool(installed.get(target)))
    problems = [*wrong, *(Problem(text, fix) for text in unfit)]
    if not problems:  # an import error is mostly one of those; alone it speaks for itself
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
        damaged=damage is not None and installed.get("torchax") != "unknown",
        files=found["imported"],
        installer=tuple(_pip(python, "install", found["pip"])),
    )


def _belongs_to_other(target: str, installed: dict[str, str | None]) -> bool:
    """Whether an environment is the other target's: installing this one there would damage it."""
    there = [name for name in RUNS_WITH if installed.get(name) not in (None, "unknown")]
    return bool(there) and target not in there


def _wrong_python(python: Path, target: str, version: list[int], there: bool) -> list[Problem]:
    last = NEWEST if there else newest(target)  # the CPU needs nothing of what is for a TPU
    if OLDEST <= tuple(version[:2]) <= last:
        return []
    return [
        Problem(
            f"{python} is Python {version[0]}.{version[1]}; {target} needs "
            f"{OLDEST[0]}.{OLDEST[1]} to {last[0]}.{last[1]}"
        )
    ]


def _missing(
    python: Path, target: str, needed: list[Requirement], installed: dict[str, str | None]
) -> list[str]:
    names = [r.name for r in needed if not r.conditional and not installed.get(r.name)]
    return [f"{python} lacks {', '.join(names)} (extra {target!r})"] if names else []


def _damaged(
    python: Path, target: str, found: dict[str, Any], installed: dict[str, str | None]
) -> str | None:
    """The torch_xla wheel carries an old torchax/ that overwrites the real one, silently."""
    recorded, actual = installed.get("torchax"), found["imported"].get("torchax")
    if target != "torchax" or not recorded or not actual or _public(recorded) == _public(actual):
        return None
    if recorded == "unknown":
        return f"torchax in {python} is the {actual} that the torch_xla wheel carries"
    return (
        f"torchax in {python} is damaged: installed as {recorded}, but its files are {actual} "
        "(the torch_xla wheel overwrites them)"
    )


def _unfit_versions(target: str, versions: dict[str, str]) -> Iterator[str]:
    for name, wanted in RUNS_WITH[target].items():
        version = versions.get(name, "unknown")
        if version != "unknown" and not _fits(version, SpecifierSet(wanted)):
            if (name, target) == ("torch", "torchax") and not _fits(version, SpecifierSet("<2.13")):
                yield f"torchax does not import with torch {version}: it needs torch < 2.13"
            else:
                yield f"programs for {target} need {name} {wanted}, not {version}"


def _unmet(
    python: Path,
    needed: list[Requirement],
    found: dict[str, Any],
    versions: dict[str, str],
) -> Iterator[str]:
    """What the packages say of each other: torchvision is for one torch, jax for one jaxlib."""
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


def _mend(python: Path, needed: list[Requirement], found: dict[str, Any], again: bool) -> str:
    """The command that makes the tested set of an interpreter's packages, without what fits."""
    installed: dict[str, str | None] = found["installed"]
    add = [
        r.text
        for r in needed
        if not (version := installed.get(r.name))
        or (r.exact and _public(version) != r.exact)
        or (again and r.name == "torchax")
    ]
    commands = [[*_pip(python, "install", found["pip"]), *add]]
    if again:
        remove = _pip(python, "uninstall", found["pip"])
        commands.insert(0, [*remove, *(["-y"] if found["pip"] else []), "torch_xla", "torchax"])
    return " && ".join(map(command_line, commands))


def _pip(python: Path, what: str, has_pip: bool) -> list[str]:
    """A command of pip's; uv, which makes environments without pip, has it, too."""
    from .environments import uv_by_name

    if has_pip:
        return [str(python), "-m", "pip", what]
    return [*uv_by_name(), "pip", what, "--python", str(python)]


def _public(version: str) -> str:
    """Without the local part: 2.9.0+cu128 is 2.9.0."""
    return version.partition("+")[0]


def _fits(version: str, wanted: SpecifierSet) -> bool:
    try:
        return wanted.contains(version, prereleases=True)
    except InvalidVersion:  # of a build of somebody's
        return True


def without_libtpu(found: Interpreter, environment: Mapping[str, str]) -> Problem | None:
    """What keeps programs from a TPU that is there; on the CPU nothing needs it."""
    if "libtpu" in found.versions or environment.get("TPU_LIBRARY_PATH"):
        return None
    text = "libtpu is not installed: programs do not see the TPU that is here"
    pins = {requirement.name: requirement for requirement in pinned(found.target)}
    brings = pins.get("libtpu") or pins[found.target]  # itself, or an extra of torch_xla
    if found.release[:2] > newest(found.target):
        last = ".".join(map(str, newest(found.target)))
        return Problem(f"{text}; {brings.text.partition(';')[0]} needs Python {last} or older")
    return Problem(text, command_line([*found.installer, brings.text]))


def require(python: Path, target: str, by_import: bool = True) -> Interpreter:
    """``python`` for ``target``. Raises VerifyError, a line for each problem."""
    found = examine(python, target, by_import)
    if not found.works:
        raise VerifyError(_told(found.problems))
    return found


def _told(problems: list[Problem]) -> str:
    """A line for each, and one command once."""
    last = {problem.fix: problem for problem in problems}
    return "\n".join(
        str(problem) if last[problem.fix] is problem else problem.text for problem in problems
    )


def forget() -> None:
    """Look again: packages were installed."""
    examine.cache_clear()
    _probe.cache_clear()


def candidates(target: str, by_import: bool = True) -> Iterator[Interpreter]:
    """The current interpreter, then, unless that does or is damaged, the cached one."""
    from .environments import cached_python

    current = examine(Path(sys.executable), target, by_import)
    yield current
    if not current.works and not current.damaged and (cached := cached_python(target)):
        yield examine(cached, target, by_import)


def find(target: str, by_import: bool = True) -> Interpreter | None:
    """The interpreter for ``target``: the current one, else the cached one; None without either.

    Raises VerifyError where the current one is damaged: a user has to hear of that, not be given
    another one in silence.
    """
    current, *cached = candidates(target, by_import)
    if current.works:
        return current
    if current.damaged:
        raise VerifyError(_told(current.problems))
    if not cached:
        return None
    if cached[0].works:
        return cached[0]
    home = cached[0].python.parent.parent
    raise VerifyError(f"{_told(cached[0].problems)}\nRemove {home} and run again with --install.")
