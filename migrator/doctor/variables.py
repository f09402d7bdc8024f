"""Variables of the environment that change where and how migrated programs run."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from migrator.analysis.inventory import XLA_VARIABLES
from migrator.targets import targets
from migrator.verify.device import WISH
from migrator.verify.interpreters import JAX_PLUGINS, Problem

# What each does here. Of variables that only one target reads, the target stands in _READERS.
KNOWN = {
    "JAX_PLATFORMS": "what JAX runs on, in this order; none other than these",
    "JAX_PLATFORM_NAME": "older spelling of JAX_PLATFORMS, for the default device",
    "PJRT_DEVICE": "what torch_xla runs on",
    "CPU_NUM_DEVICES": "virtual devices of torch_xla's CPU back end",
    "XLA_FLAGS": "options of the compiler; one that it does not know ends the program",
    "LIBTPU_INIT_ARGS": "options of the TPU's compiler and driver",
    "TPU_LIBRARY_PATH": "the libtpu.so to use, instead of the installed package",
    "TPU_VISIBLE_CHIPS": "the chips that a program may use",
    "TPU_VISIBLE_DEVICES": "the chips that a program may use",
    "TPU_CHIPS_PER_PROCESS_BOUNDS": "how the chips are divided among processes",
    "TPU_PROCESS_BOUNDS": "how the chips are divided among processes",
    "TPU_SKIP_MDS_QUERY": "do not ask Google Cloud's metadata server about the TPU",
    "JAX_ENABLE_X64": "64-bit types on the device; results are tested without",
    "JAX_DISABLE_JIT": "compile nothing",
    "JAX_DEFAULT_MATMUL_PRECISION": "of float32 products; tpu_runtime.setup() decides instead",
    "JAX_COMPILATION_CACHE_DIR": "where compiled programs are kept",
    "XLA_PERSISTENT_CACHE_PATH": "where compiled programs are kept",
    "CUDA_VISIBLE_DEVICES": "GPUs of the original; nothing of a migrated program reads it",
    "TPU_RUNTIME_DEVICE": "what a program migrated with --portable runs on: tpu, cuda, cpu",
    "TPU_RUNTIME_NUM_CORES": "devices of a program for several: 1 or all",
    "TPU_RUNTIME_REPORT": "say at the end what was compiled; a path: into that file",
    "TPU_RUNTIME_PROGRAMS": "a folder for the programs as a TPU gets them",
    "TPU_RUNTIME_EAGER": "compile no training step",
    "TPU_RUNTIME_FLASH": "attention's TPU kernel: off, or interpret",
    "TPU_MIGRATE_CACHE": "where tpu-migrate keeps its environments",
}  # fmt: skip
_READERS = {
    "torchax": ("JAX_", "TPU_RUNTIME_PROGRAMS", "TPU_RUNTIME_EAGER", "TPU_RUNTIME_FLASH"),
    "torch_xla": ("PJRT_", "CPU_NUM_DEVICES", "XLA_PERSISTENT_CACHE_PATH"),
}
_OURS = "TPU_RUNTIME_"
_FURTHER = re.compile(r"TPU_\w+|JAX_\w+|PJRT_\w+|COLAB_TPU\w+|LIBTPU_\w+")
_FOR_TPU = re.compile(r"--(?:xla_tpu|megascale|xla_jf|xla_sc|2a886c8)\w*\S*")
_GPUS = {"cuda", "rocm", "gpu"}


@dataclass(frozen=True)
class Variable:
    """One that is set."""

    name: str
    value: str
    meaning: str
    read_by: tuple[str, ...]


@dataclass(frozen=True)
class Found:
    """What is wrong with the variables: a program can not start, or starts elsewhere."""

    problems: tuple[Problem, ...]
    warnings: tuple[Problem, ...]


def present(environment: Mapping[str, str]) -> list[Variable]:
    """Those that are set and that mean something here, by name."""
    found = []
    for name, value in sorted(environment.items()):
        meaning = KNOWN.get(name, "")
        if name in XLA_VARIABLES:
            meaning = "nothing reads it: of older releases of torch_xla"
        elif name.startswith(_OURS) and not meaning:
            meaning = "nothing reads it"
        elif not meaning and _FURTHER.fullmatch(name):
            meaning = "told to libtpu, JAX or torch_xla by the machine"
        if meaning:
            found.append(Variable(name, value, meaning, _read_by(name)))
    return found


def _read_by(name: str) -> tuple[str, ...]:
    own = [target for target, starts in _READERS.items() if name.startswith(starts)]
    return tuple(own or targets())


def allows_tpu(target: str, environment: Mapping[str, str]) -> bool:
    """Whether the user has not chosen another device."""
    wish = environment.get(WISH[target], "")
    return not wish or "tpu" in wish.lower().split(",")


def judge(
    target: str, environment: Mapping[str, str], tpu: bool, versions: Mapping[str, str]
) -> Found:
    """What contradicts ``target`` on this machine, with or without a ``tpu``."""
    problems = [*_wish(target, environment, tpu, versions), *_settings(environment)]
    warnings = [] if problems else [*_elsewhere(target, environment, tpu)]
    return Found(tuple(problems), (*warnings, *_useless(target, environment)))


def _wish(
    target: str, environment: Mapping[str, str], tpu: bool, versions: Mapping[str, str]
) -> Iterator[Problem]:
    name = WISH[target]
    wish = environment.get(name)
    wishes = set((wish or "").lower().split(","))
    if "tpu" in wishes and not tpu:
        text = f"{name}={wish} asks for a TPU, and there is none: programs do not start"
        yield Problem(text, unset(name))
    elif target == "torchax" and wishes & _GPUS and not set(JAX_PLUGINS) & versions.keys():
        yield Problem(f"{name}={wish} asks for a GPU, and JAX has no plugin for it", unset(name))
    elif target == "torch_xla" and wish is not None and not wishes & {"tpu", "cpu"}:
        what = f"{name}={wish} names" if wish else f"{name} is set, but to"
        yield Problem(f"{what} nothing that torch_xla 2.9 runs on", unset(name))


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


def _elsewhere(target: str, environment: Mapping[str, str], tpu: bool) -> Iterator[Problem]:
    """Programs start, but not on the TPU that is there, or slowly."""
    names = [WISH[target], *(["JAX_PLATFORM_NAME"] if target == "torchax" else [])]
    for name in names if tpu else ():
        wish = environment.get(name)
        if wish and "tpu" not in wish.lower().split(","):
            yield Problem(f"{name}={wish} keeps programs from the TPU that is here", unset(name))
    device = environment.get("TPU_RUNTIME_DEVICE")
    if device and device not in ("tpu", "cuda", "cpu"):
        text = f"TPU_RUNTIME_DEVICE={device}: portable programs start with tpu, cuda or cpu only"
        yield Problem(text, unset("TPU_RUNTIME_DEVICE"))
    cores = environment.get("TPU_RUNTIME_NUM_CORES")
    if cores and cores != "all" and not cores.isdigit():
        text = f"TPU_RUNTIME_NUM_CORES={cores}: programs for several devices start with 1 or all"
        yield Problem(text, unset("TPU_RUNTIME_NUM_CORES"))
    if tpu and device in ("cuda", "cpu"):
        text = f"TPU_RUNTIME_DEVICE={device} keeps portable programs from the TPU that is here"
        yield Problem(text, unset("TPU_RUNTIME_DEVICE"))
    if not tpu and device == "tpu" and environment.get(WISH[target], "").lower() != "cpu":
        yield Problem(
            "TPU_RUNTIME_DEVICE=tpu: portable programs do not start, since there is no TPU",
            unset("TPU_RUNTIME_DEVICE"),
        )


def _useless(target: str, environment: Mapping[str, str]) -> Iterator[Problem]:
    slow = {
        "TPU_RUNTIME_EAGER": "runs training steps operator by operator, which is slow",
        "JAX_DISABLE_JIT": "runs programs operator by operator, which is slow",
    }
    for name, what in slow.items():
        value = environment.get(name, "")
        if target == "torchax" and value.lower() not in ("", "0", "false"):
            yield Problem(f"{name}={value} {what}", unset(name))
    if environment.get("TPU_RUNTIME_FLASH") == "interpret" and target == "torchax":
        text = "TPU_RUNTIME_FLASH=interpret runs attention in an interpreter, which is slow"
        yield Problem(text, unset("TPU_RUNTIME_FLASH"))
    for name in sorted(environment):
        if name in XLA_VARIABLES or (name.startswith(_OURS) and name not in KNOWN):
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
