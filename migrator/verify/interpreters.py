"""Which interpreter a target's script runs in, and what is wrong with one that does not do."""

import json
import re
import sys
import tempfile
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from migrator.requirements import NEWEST, OLDEST, Requirement, pinned

from .errors import VerifyError
from .inside import ask

_FIRST_TORCH_WITHOUT_TORCHAX = (2, 13)
_PROBE_SECONDS = 180.0  # the first import of torch from a cold disk takes a minute


@dataclass(frozen=True)
class Interpreter:
    """An interpreter looked at for one target."""

    python: Path
    target: str
    versions: dict[str, str] = field(default_factory=dict)  # by distribution
    problems: list[str] = field(default_factory=list)  # each: why it does not do, one line
    notes: list[str] = field(default_factory=list)  # each: a difference from the pinned set

    @property
    def works(self) -> bool:
        return not self.problems


@cache  # importing torch takes seconds, and --all asks once for every app
def examine(python: Path, target: str) -> Interpreter:
    """Look at ``python`` by importing the target's packages in a subprocess."""
    needed = pinned(target)
    modules = ["torch", *(["jax"] if target == "torchax" else []), target]
    with tempfile.TemporaryDirectory(prefix="tpu-migrate-probe-") as empty:
        try:
            found = ask(
                python,
                "probe.py",
                [json.dumps({r.name: r.module for r in needed}), json.dumps(modules)],
                timeout=_PROBE_SECONDS,
                cwd=Path(empty),
                # Importing must neither take a TPU nor look for one.
                env={"JAX_PLATFORMS": "cpu", "PJRT_DEVICE": "CPU"},
            )
        except VerifyError as error:
            return Interpreter(python, target, problems=[str(error)])
    return _judge(python, target, needed, found)


def _judge(
    python: Path, target: str, needed: list[Requirement], found: dict[str, Any]
) -> Interpreter:
    installed: dict[str, str | None] = found["installed"]
    versions = {name: version for name, version in installed.items() if version}
    problems = [
        problem
        for problem in (
            _wrong_python(python, found["python"]),
            _missing(python, target, needed, installed),
            _damaged(python, target, found, installed),
            _torch_too_new(target, installed.get("torch")),
        )
        if problem
    ]
    if not problems:  # an import error is mostly one of those; alone it speaks for itself
        problems = [f"import {m} fails in {python}: {e}" for m, e in found["errors"].items()]
    notes = [
        f"{r.name} {versions[r.name]} instead of the tested {r.exact}"
        for r in needed
        if r.exact and r.name in versions and _public(versions[r.name]) != r.exact
    ]
    return Interpreter(python, target, versions, problems, notes)


def _wrong_python(python: Path, version: list[int]) -> str | None:
    if OLDEST <= tuple(version[:2]) <= NEWEST:
        return None
    return (
        f"{python} is Python {version[0]}.{version[1]}; the targets need "
        f"{OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}"
    )


def _missing(
    python: Path, target: str, needed: list[Requirement], installed: dict[str, str | None]
) -> str | None:
    names = [r.name for r in needed if not r.conditional and not installed.get(r.name)]
    return f"{python} lacks {', '.join(names)} (extra {target!r})" if names else None


def _damaged(
    python: Path, target: str, found: dict[str, Any], installed: dict[str, str | None]
) -> str | None:
    """The torch_xla wheel carries an old torchax/ that overwrites the real one, silently."""
    recorded, actual = installed.get("torchax"), found["imported"].get("torchax")
    if target != "torchax" or not recorded or not actual or _public(recorded) == _public(actual):
        return None
    if recorded == "unknown":
        return f"torchax in {python} is the {actual} that the torch_xla wheel carries"
    remove, add = "torch_xla torchax", f"torchax=={_public(recorded)}"
    if found["pip"]:
        fix = f"{python} -m pip uninstall -y {remove} && {python} -m pip install {add}"
    else:  # as uv makes environments
        fix = (
            f"uv pip uninstall --python {python} {remove} && uv pip install --python {python} {add}"
        )
    return (
        f"torchax in {python} is damaged: installed as {recorded}, but its files are {actual} "
        f"(the torch_xla wheel overwrites them). Fix: {fix}"
    )


def _torch_too_new(target: str, torch: str | None) -> str | None:
    if target != "torchax" or not torch or _release(torch) < _FIRST_TORCH_WITHOUT_TORCHAX:
        return None
    newest = ".".join(map(str, _FIRST_TORCH_WITHOUT_TORCHAX))
    return f"torchax does not import with torch {torch}: it needs torch < {newest}"


def _public(version: str) -> str:
    """Without the local part: 2.9.0+cu128 is 2.9.0."""
    return version.partition("+")[0]


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def require(python: Path, target: str) -> Interpreter:
    """``python`` for ``target``. Raises VerifyError, a line for each problem."""
    found = examine(python, target)
    if not found.works:
        raise VerifyError("\n".join(found.problems))
    return found


def find(target: str) -> Interpreter | None:
    """The interpreter for ``target``: the current one, else the cached one; None without either.

    Raises VerifyError where the current one is damaged: a user has to hear of that, not be given
    another one in silence.
    """
    from .environments import cached_python

    current = examine(Path(sys.executable), target)
    if current.works:
        return current
    if any("damaged" in problem for problem in current.problems):
        raise VerifyError("\n".join(current.problems))
    cached = cached_python(target)
    if cached is None:
        return None
    try:
        return require(cached, target)
    except VerifyError as error:
        home = cached.parent.parent
        raise VerifyError(f"{error}\nRemove {home} and run again with --install.") from error
