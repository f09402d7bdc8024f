"""Variables of the environment that change where and how migrated programs run."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from migrator.analysis.foreign_code import OLDER_VARIABLES
from migrator.targets import Target, targets
from migrator.verify.interpreters import Problem

# What those do here that programs for all targets read; a target's own stand in its `Host`.
_SHARED = {
    "XLA_FLAGS": "options of the compiler; one that it does not know ends the program",
    "LIBTPU_INIT_ARGS": "options of the TPU's compiler and driver",
    "TPU_LIBRARY_PATH": "the libtpu.so to use, instead of the installed package",
    "TPU_VISIBLE_CHIPS": "the chips that a program may use",
    "TPU_VISIBLE_DEVICES": "the chips that a program may use",
    "TPU_CHIPS_PER_PROCESS_BOUNDS": "how the chips are divided among processes",
    "TPU_PROCESS_BOUNDS": "how the chips are divided among processes",
    "TPU_SKIP_MDS_QUERY": "do not ask Google Cloud's metadata server about the TPU",
    "CUDA_VISIBLE_DEVICES": "GPUs of the original; a migrated program doesn't read it",
    "TPU_RUNTIME_DEVICE": "what a program migrated with --portable runs on: tpu, cuda, cpu",
    "TPU_RUNTIME_COMPUTE": "off: steps are compiled, not run (forecast --no-compute)",
    "TPU_RUNTIME_RECOMPUTE": "on: the backward pass computes activations of repeated blocks again",
    "TPU_RUNTIME_NUM_CORES": "devices that a multi-device program uses: 1 or all",
    "TPU_RUNTIME_REPORT": "1: say at the end what was compiled; a path: into that file; 0: nothing",
    "TPU_MIGRATE_CACHE": "where tpu-migrate keeps its environments, and what it has found out",
}  # fmt: skip
_OURS = "TPU_RUNTIME_"
_OF_MACHINE = re.compile(r"TPU_\w+|COLAB_TPU\w+|LIBTPU_\w+")
_FOR_TPU = re.compile(r"--(?:xla_tpu|megascale|xla_jf|xla_sc|2a886c8)\w*\S*")


@dataclass(frozen=True)
class Variable:
    """One that is set."""

    name: str
    value: str
    meaning: str
    read_by: tuple[str, ...]


@dataclass(frozen=True)
class VariableFault:
    """What is wrong with the variables: a program cannot start, or starts elsewhere."""

    problems: tuple[Problem, ...]
    warnings: tuple[Problem, ...]


def meanings() -> dict[str, str]:
    """What each variable does that is known, by its name."""
    own = (target.host.variables for target in targets().values())
    return {**_SHARED, **{name: what for each in own for name, what in each.items()}}


def present(environment: Mapping[str, str]) -> list[Variable]:
    """Those that are set and that mean something here, by name."""
    found, known = [], meanings()
    for name, value in sorted(environment.items()):
        readers = [target for target in targets().values() if target.host.reads(name)]
        meaning = known.get(name, "")
        if name in OLDER_VARIABLES:
            meaning = f"nothing reads it: of older releases of {_older_library(name)}"
        elif name.startswith(_OURS) and not meaning:
            meaning = "nothing reads it"
        elif not meaning and (readers or _OF_MACHINE.fullmatch(name)):
            by = " or ".join(target.name for target in readers) or "libtpu"
            meaning = f"set for {by} by the machine"
        if meaning:
            found.append(Variable(name, value, meaning, _read_by(name)))
    return found


def _older_library(name: str) -> str:
    return next(t.markers.library for t in targets().values() if name in t.markers.older_variables)


def _read_by(name: str) -> tuple[str, ...]:
    own = [target.name for target in targets().values() if target.host.reads(name)]
    return tuple(own or targets())


def judge(
    target: Target, environment: Mapping[str, str], tpu: bool, versions: Mapping[str, str]
) -> VariableFault:
    """What contradicts ``target`` on this machine, with or without a ``tpu``."""
    problems = [*_wish(target, environment, tpu, versions), *_settings(environment)]
    warnings = [] if problems else [*_elsewhere(target, environment, tpu)]
    return VariableFault(tuple(problems), (*warnings, *_useless(target, environment)))


def _wish(
    target: Target, environment: Mapping[str, str], tpu: bool, versions: Mapping[str, str]
) -> Iterator[Problem]:
    host, name = target.host, target.host.device_variable
    wish = environment.get(name)
    if wish is None:
        return
    wishes = wish.lower().split(",")
    plugins = next((host.plugins[w] for w in wishes if w in host.plugins), ())
    if "tpu" in wishes and not tpu:
        text = f"{name}={wish} asks for a TPU, and there is none: programs do not start"
        yield Problem(text, unset(name))
    elif plugins and versions.keys().isdisjoint(plugins):
        yield Problem(f"{name}={wish} asks for a GPU, and there is no plugin for it", unset(name))
    elif host.devices and host.devices.isdisjoint(wishes):
        what = f"{name}={wish} names" if wish else f"{name} is set, but to"
        yield Problem(f"{what} nothing that {target.name} can use", unset(name))


def _settings(environment: Mapping[str, str]) -> Iterator[Problem]:
    flags = environment.get("XLA_FLAGS", "")
    if misplaced := _FOR_TPU.findall(flags):
        rest = _FOR_TPU.sub("", flags).split()
        moved = f"{environment.get('LIBTPU_INIT_ARGS', '')} {' '.join(misplaced)}".strip()
        yield Problem(
            f"XLA_FLAGS holds {misplaced[0]}, which ends programs: options of the TPU go to "
            "LIBTPU_INIT_ARGS",
            f"{assign('XLA_FLAGS', ' '.join(rest))} && {assign('LIBTPU_INIT_ARGS', moved)}",
        )


def _elsewhere(target: Target, environment: Mapping[str, str], tpu: bool) -> Iterator[Problem]:
    """Programs start, but not on the TPU that is there, or slowly."""
    host = target.host
    for name in (host.device_variable, *host.older_device_variables) if tpu else ():
        wish = environment.get(name)
        if wish and "tpu" not in wish.lower().split(","):
            yield Problem(f"{name}={wish} keeps programs off this machine's TPU", unset(name))
    for name, value in host.originals.items():  # what keeps its library out
        if tpu and environment.get(name) == value:
            yield Problem(f"{name}={value} keeps programs off this machine's TPU", unset(name))
    device = environment.get("TPU_RUNTIME_DEVICE")
    if device and device not in ("tpu", "cuda", "cpu"):
        text = f"TPU_RUNTIME_DEVICE={device}: portable programs start with tpu, cuda or cpu only"
        yield Problem(text, unset("TPU_RUNTIME_DEVICE"))
    cores = environment.get("TPU_RUNTIME_NUM_CORES")
    if cores and cores != "all" and not cores.isdigit():
        text = f"TPU_RUNTIME_NUM_CORES={cores}: programs for several devices start with 1 or all"
        yield Problem(text, unset("TPU_RUNTIME_NUM_CORES"))
    if tpu and device in ("cuda", "cpu"):
        text = f"TPU_RUNTIME_DEVICE={device} keeps portable programs off this machine's TPU"
        yield Problem(text, unset("TPU_RUNTIME_DEVICE"))
    on_cpu = environment.get(host.device_variable, "").lower() == "cpu"
    if not tpu and device == "tpu" and not on_cpu:
        yield Problem(
            "TPU_RUNTIME_DEVICE=tpu: portable programs do not start, since there is no TPU",
            unset("TPU_RUNTIME_DEVICE"),
        )


def _useless(target: Target, environment: Mapping[str, str]) -> Iterator[Problem]:
    for name, slow in target.host.slow.items():
        value = environment.get(name, "")
        off = value.lower() in ("", "0", "false")
        if value in slow.values if slow.values else not off:
            yield Problem(f"{name}={value} {slow.what}, which is slow", unset(name))
    known = meanings()
    for name in sorted(environment):
        if name in OLDER_VARIABLES or (name.startswith(_OURS) and name not in known):
            yield Problem(f"{name} is set, and nothing reads it", unset(name))


def unset(name: str) -> str:
    """The command of this platform's shell that takes a variable away."""
    return f"set {name}=" if sys.platform == "win32" else f"unset {name}"


def assign(name: str, value: str) -> str:
    if not value:
        return unset(name)
    if sys.platform == "win32":
        return f'set "{name}={value}"'
    return f"export {name}={shlex.quote(value)}"
