"""Whether a target can run here, with which interpreter, and what is in the way."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from migrator.analysis.python_requirements import on_tpu, pinned
from migrator.distribution import __version__
from migrator.targets import Target
from migrator.targets import targets as all_targets
from migrator.verify import interpreters
from migrator.verify.in_target_python import command_line
from migrator.verify.interpreters import Interpreter, Problem, targets_in, without_libtpu

from . import environment_variables
from .machine import Machine, inspect_machine


def packages() -> tuple[str, ...]:
    """The packages whose versions are shown: those that are pinned exactly, and numpy."""
    pins = (pin for target in all_targets().values() for pin in pinned(target))
    shown = ("torch", "torchvision", *(pin.name for pin in pins if pin.exact), "numpy")
    return tuple(dict.fromkeys(shown))


@dataclass(frozen=True)
class State:
    """One target on this machine."""

    target: Target
    interpreter: Interpreter | None  # the one that `verify` would use; None: there is none
    runs_on: str
    problems: Sequence[Problem] = ()  # it cannot run
    warnings: Sequence[Problem] = ()  # it can, but not as well as it could

    @property
    def ready(self) -> bool:
        return not self.problems


@dataclass(frozen=True)
class Diagnosis:
    """All that was found."""

    machine: Machine
    states: Sequence[State]
    looked_at: Sequence[Interpreter]  # each interpreter once
    variables: Sequence[environment_variables.Variable] = field(default_factory=list)
    every: bool = False  # whether each target is needed, or one of them

    @property
    def exit_code(self) -> int:
        """0 where what is needed can run, else 1."""
        ready = [state.ready for state in self.states]
        return 0 if (all(ready) if self.every else any(ready)) else 1

    def to_dict(self) -> dict[str, Any]:
        """For JSON; sizes are in bytes."""
        machine = self.machine
        return {
            "version": __version__,
            "machine": {
                "place": machine.place or None,
                "system": machine.system,
                "cpu": machine.cpu,
                "cores": machine.cores,
                "features": list(machine.features),
                "memory": machine.memory,
                "free": machine.free,
                "accelerators": {a.kind: a.found or None for a in machine.accelerators},
            },
            "interpreters": [
                {
                    "path": str(found.python),
                    "python": ".".join(map(str, found.release)) or None,
                    "packages": {name: version(found, name) for name in packages()},
                }
                for found in self.looked_at
            ],
            "variables": [
                {"name": v.name, "value": v.value, "meaning": v.meaning, "read_by": list(v.read_by)}
                for v in self.variables
            ],
            "targets": [
                {
                    "target": state.target.name,
                    "ready": state.ready,
                    "runs_on": state.runs_on if state.ready else None,
                    "python": str(state.interpreter.python) if state.interpreter else None,
                    "problems": list(map(_as_json, state.problems)),
                    "warnings": list(map(_as_json, state.warnings)),
                }
                for state in self.states
            ],
            "exit_code": self.exit_code,
        }


def _as_json(problem: Problem) -> dict[str, str | None]:
    return {"text": problem.text, "fix": problem.fix or None}


def version(found: Interpreter, package: str) -> str | None:
    """Of a package that is installed; with what its files say, where its record says otherwise."""
    recorded, written = found.versions.get(package), found.files.get(package)
    if recorded is None or written is None:
        return recorded
    if recorded == "unknown":  # it came with another package
        return f"{written} of another package"
    return written if written.startswith(recorded) else f"{recorded}, files {written}"


def diagnose(
    targets: Sequence[Target],
    python: Path | None = None,
    *,
    every: bool = False,
    root: Path = Path("/"),
    environment: Mapping[str, str] = os.environ,
) -> Diagnosis:
    """Look at this machine for ``targets``, and at ``python`` or what `verify` would use.

    ``every``: each of the targets is needed, not only one of them.
    """
    machine = inspect_machine(root, environment)
    looked_at: dict[Path, Interpreter] = {}
    states = []
    for target in targets:
        if python is not None:
            found = [interpreters.examine(python, target, by_import=False)]
        else:
            found = list(interpreters.candidates(target, by_import=False))
        for each in found:
            looked_at.setdefault(each.python, each)
        states.append(_state(target, found, python is not None, machine, environment))
    seen = environment_variables.present(environment)
    return Diagnosis(machine, states, list(looked_at.values()), seen, every)


def _state(
    target: Target,
    found: Sequence[Interpreter],
    asked: bool,
    machine: Machine,
    environment: Mapping[str, str],
) -> State:
    last = found[-1]
    set_here = environment_variables.judge(target, environment, machine.tpu, last.versions)
    problems = [
        *_platform_problems(target),
        *_interpreter_problems(target, found, asked),
        *set_here.problems,
        *(_unfit_for_tpu(last) if machine.tpu and last.release else ()),
    ]
    libtpu = _no_libtpu(last, environment) if machine.tpu and last.works else []
    shared = [*_shared(last), *_other_frameworks(last)] if last.works else []
    usable = last if asked or last.works or last.damaged or len(found) > 1 else None
    uses_tpu = machine.tpu and target.host.allows_tpu(environment) and not libtpu
    return State(
        target,
        usable,
        "TPU" if uses_tpu else f"CPU back end of {target.name}",
        problems,
        [*libtpu, *machine.hints, *set_here.warnings, *shared],
    )


def _platform_problems(target: Target) -> list[Problem]:
    system, machine = sys.platform, platform.machine().lower()
    if target.environment.has_wheels(system, machine):
        return []
    wheels = " and ".join(
        f"{s.capitalize()} on {m[0]}" for s, m in target.environment.systems.items()
    )
    others = [t.name for t in all_targets().values() if t.environment.has_wheels(system, machine)]
    how = f": use {others[0]} here" if others else ""
    return [Problem(f"{target.name} has wheels for {wheels} only{how}")]


def _interpreter_problems(
    target: Target, found: Sequence[Interpreter], asked: bool
) -> list[Problem]:
    """What is wrong with the last one that was looked at, if it was meant for the target."""
    last, install = found[-1], _install(target)
    if last.works:
        return []
    others = targets_in(last.versions)
    if others and target.name not in others:
        text = f"{last.python} is an environment for {others[0]}; each target needs its own"
        return [Problem(text, install)]
    if len(found) > 1:  # the cached one: it is made again
        return [Problem(problem.text, install) for problem in last.problems]
    if "torch" not in last.versions and not asked:
        text = "no environment yet: neither this Python nor the cache has its packages"
        return [Problem(text, install)]
    if all(problem.fix for problem in last.problems):
        return list(last.problems)
    return [Problem(problem.text, install) for problem in last.problems]


def _install(target: Target) -> str:
    return f"tpu-migrate doctor --target {target.name} --install"


def _no_libtpu(found: Interpreter, environment: Mapping[str, str]) -> list[Problem]:
    library = environment.get("TPU_LIBRARY_PATH")
    if library and not Path(library).is_file():
        text = f"TPU_LIBRARY_PATH={library}: no such file, so programs do not see the TPU"
        return [Problem(text, environment_variables.unset("TPU_LIBRARY_PATH"))]
    problem = without_libtpu(found, environment)
    if problem is not None and not problem.fix:
        problem = replace(problem, fix=_install(found.target))
    return [problem] if problem is not None else []


def _unfit_for_tpu(found: Interpreter) -> list[Problem]:
    """Packages that a TPU needs in releases of its own, and what is there instead."""
    wanted = on_tpu(found.target)
    others = [r.name for r in wanted if found.versions.get(r.name) != r.exact]
    if not others:
        return []
    here = ", ".join(f"{name} {found.versions.get(name, 'is missing')}" for name in others)
    texts = [r.text for r in wanted]
    text = f"{found.target.name} uses a TPU with {' and '.join(texts)}, the last that do; {here}"
    return [Problem(text, command_line([*found.installer, *texts]))]


def _shared(found: Interpreter) -> list[Problem]:
    damage, package = found.target.environment.damage, found.target.environment.package
    if damage is None or damage.by not in found.versions:
        return []
    text = f"{damage.by} is in the same environment: installing it again damages {package}"
    return [Problem(text)]


def _other_frameworks(found: Interpreter) -> list[Problem]:
    """Trainers of other releases than those with which programs were run on the target."""
    known = found.target.environment.frameworks
    others = [
        name for name, release in known.items()
        if (there := found.versions.get(name, "unknown")) != "unknown"
        and there.split(".")[:2] != release.split(".")
    ]  # fmt: skip
    if not others:
        return []
    here = ", ".join(f"{name} {found.versions[name]}" for name in others)
    ran = ", ".join(f"{name} {known[name]}" for name in others)
    pins = [found.target.environment.framework(name) for name in others]
    text = f"{here}: programs were run on {found.target.name} with {ran}"
    return [Problem(text, command_line([*found.installer, *pins]))]
