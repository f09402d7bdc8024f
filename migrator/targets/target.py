"""A target: what is known about one way to run programs of a framework on a TPU."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from migrator.distribution import RUNTIME

from .api_map import MIRRORED, Snippet, TargetApi
from .environment import Environment
from .host import Host
from .markers import Markers
from .signatures import Signature, signatures

SHARED = "shared.txt"  # in a runtime: the modules that it has from `shared`
_RUNTIMES = Path(__file__).resolve().parents[1] / "runtime"


def module_of(runtime: Path, name: str) -> Path:
    """Where a module of a runtime is: in its package, or among what this tool's runtimes share."""
    own = runtime / RUNTIME / name
    listed = runtime / SHARED
    is_shared = not own.exists() and listed.is_file() and name in listed.read_text().split()
    return _RUNTIMES / "shared" / name if is_shared else own


def own_runtime(name: str) -> Path:
    """The folder of a built-in target's runtime."""
    return _RUNTIMES / name


@dataclass(frozen=True)
class Delivered:
    """How a project gets the runtime: a requirement, and a wheel (without one: from an index)."""

    name: str
    requirement: str
    wheel: Path | None = None


@dataclass(frozen=True)
class Target:
    """One way to run programs on a TPU: a folder below `migrator/targets`, or a plug-in.

    `api` is for the rules, `environment` and `host` for `verify` and `doctor`, `markers` for
    recognising code of the target. `runtime` is the folder of the package `tpu_runtime`, which
    migrated code imports: the names in its `__all__` may be used. Without a runtime, a construct
    without a word is reported.
    """

    name: str
    summary: str
    home: str  # its web page
    api: TargetApi
    environment: Environment
    host: Host = field(default_factory=Host)
    markers: Markers = field(default_factory=Markers)
    runtime: Path | None = None
    framework: str = "torch"  # of the programs that run there, see `migrator.frameworks`
    portable: bool = False  # the program chooses its device when it starts, see `portable`
    good_for: str = ""  # what it is the one to take for, in words
    delivered: Delivered | None = None  # the runtime, if requirements have to name it
    pallas: str = ""  # what a kernel in Pallas begins with, for `tpu-migrate remaining`

    @property
    def label(self) -> str:
        """The target as the user asked for it, for messages."""
        return f"{self.name} --portable" if self.asks_runtime else self.name

    @property
    def asks_runtime(self) -> bool:
        """Whether a program asks its runtime which device it chose, not torch itself."""
        return self.portable and not self.api.device_names

    @property
    def launches(self) -> bool:
        """Whether a program with ranks stays one: a process for each device."""
        return self.api.launches

    @property
    def keeps_ranks(self) -> bool:
        """Whether no process of the target ever takes the place of all ranks."""
        devices = self.api.devices
        return self.launches and devices is not None and devices.one_process is None

    def offers(self, name: str) -> bool:
        """Whether migrated code may use `tpu_runtime.<name>`."""
        own = self.runtime is not None and name in _exported(self.runtime)
        if not self.asks_runtime:
            return own
        return own or name in MIRRORED or name in _exported(own_runtime("portable"))

    def signatures(self, module: str) -> Mapping[str, Signature]:
        """The functions that migrated code may use of `tpu_runtime.<module>`."""
        runtime = own_runtime("portable") if self.asks_runtime else self.runtime
        return {} if runtime is None else signatures(module_of(runtime, f"{module}.py"))


@cache
def _exported(runtime: Path) -> frozenset[str]:
    """The names in a runtime's `__all__`, read without running it."""
    tree = ast.parse((runtime / RUNTIME / "__init__.py").read_bytes())
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=value):
                return frozenset(ast.literal_eval(value))
    return frozenset()


def in_one_process(target: Target) -> Target:
    """The target for a program in which one process drives all devices."""
    devices = target.api.devices.one_process if target.api.devices is not None else None
    if devices is None:
        return target
    return replace(target, api=replace(target.api, devices=devices))


def with_ranks(target: Target) -> Target:
    """The target for a program that starts a process for each device.

    The starting process must not use the device itself; the runtime takes care of that.
    """
    if target.api.device_names:
        return target  # what it asks torch for doesn't use the device
    api = replace(
        target.api,
        device_object=None,
        device_has_index=False,
        calls={name: word for name, word in target.api.calls.items() if not word.requires},
        renames=_of_runtime(target.api.renames),
    )
    return replace(target, api=api)


def portable(target: Target) -> Target:
    """The target for a program that also runs on GPUs and CPUs: all words come from the runtime.

    A target whose own words are torch's, for any device, is already portable.
    """
    if target.portable:
        return target
    sync = Snippet(f"{RUNTIME}.sync()", (RUNTIME,))
    api = replace(
        target.api,
        device_object=Snippet(f"{RUNTIME}.device()", (RUNTIME,)),
        autocast=Snippet(f"{RUNTIME}.autocast", (RUNTIME,)),
        autocast_arguments=(),
        step_boundary=sync if target.api.step_boundary else None,
        device_loader=None,
        calls={},
        devices=None,
        renames=_of_runtime(target.api.renames),
    )
    return replace(target, api=api, portable=True)


def _of_runtime(names: Mapping[str, Snippet]) -> dict[str, Snippet]:
    return {name: Snippet(f"{RUNTIME}.{name.rpartition('.')[2]}", (RUNTIME,)) for name in names}
