"""Host: how a target's programs find a device on a machine, and what `doctor` checks there."""

from __future__ import annotations

import os
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Slow:
    """A variable that makes programs slow.

    `values` are those that do; if there are none, all but "", 0 and false do.
    """

    what: str
    values: frozenset[str] = frozenset()


@dataclass(frozen=True)
class StandIn:
    """Replaces a TPU for a program whose library has no CPU back end.

    `modules` is a folder that is added to PYTHONPATH, `says` the note that results must contain.
    """

    modules: Path
    says: str


@dataclass(frozen=True)
class Host:
    """The environment variables that a target's programs read, and their effects.

    In the settings, `{own}` is the variable's present value. `device_variable` takes device names,
    separated by commas; "tpu" means the same for every target.
    """

    device_variable: str = ""  # chooses the device; "" if there is none
    older_device_variables: tuple[str, ...] = ()
    devices: Set[str] = frozenset()  # that it may name; any, if empty
    # A device that it names needs one of these.
    plugins: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    tpu: Mapping[str, str] = field(default_factory=dict)  # settings for a TPU, without a fallback
    cpu: Mapping[str, str] = field(default_factory=dict)  # settings for the CPU
    stand_in: StandIn | None = None  # … which they need
    originals: Mapping[str, str] = field(default_factory=dict)  # keep the library out of GPU code
    virtual: Mapping[str, str] = field(default_factory=dict)  # … with `{count}` devices
    float64: Mapping[str, str] = field(default_factory=dict)  # … that have 64-bit types
    hasty: Mapping[str, str] = field(default_factory=dict)  # … that compile fast
    dump: Mapping[str, str] = field(default_factory=dict)  # programs are written to `{folder}`
    replicas: Path | None = None  # runs ranks as threads on the CPU, if one process has all
    # devices; otherwise each rank is a process
    compiles_for_tpu: bool = False  # dumped programs can be compiled for a TPU without having one
    has_tpu_compiler: bool = False  # by its own environment, with JAX and libtpu
    variables: Mapping[str, str] = field(default_factory=dict)  # what its own ones do
    families: tuple[str, ...] = ()  # prefixes of variables that only its programs read
    slow: Mapping[str, Slow] = field(default_factory=dict)

    def on_tpu(self) -> dict[str, str]:
        """Settings that keep a program on a TPU: it must not silently fall back to the CPU."""
        return dict(self.tpu)

    def on_cpu(self, count: int | None = None) -> dict[str, str]:
        """Settings that keep a program on the CPU, with `count` devices."""
        virtual = {} if count is None else with_own(self.virtual, os.environ, count=str(count))
        return {**self.cpu, **virtual}

    def in_haste(self, environment: Mapping[str, str]) -> dict[str, str]:
        """`environment`, with the settings for faster compilation of slower code on the CPU."""
        return {**environment, **with_own(self.hasty, _added_to_ours(environment))}

    def dumping(self, environment: Mapping[str, str], folder: str) -> dict[str, str]:
        """`environment`, with the settings that make a run write its programs to `folder`."""
        return {**environment, **with_own(self.dump, _added_to_ours(environment), folder=folder)}

    def allows_tpu(self, environment: Mapping[str, str]) -> bool:
        """Whether the user has not chosen another device, or kept the library out."""
        if any(environment.get(name) == value for name, value in self.originals.items()):
            return False
        wish = environment.get(self.device_variable, "")
        return not wish or "tpu" in wish.lower().split(",")

    def reads(self, name: str) -> bool:
        """Whether only this target's programs read a variable."""
        return name.startswith(self.families)


def _added_to_ours(environment: Mapping[str, str]) -> dict[str, str]:
    return {**os.environ, **{name: value for name, value in environment.items() if value}}


def with_own(
    settings: Mapping[str, str], environment: Mapping[str, str], **values: str
) -> dict[str, str]:
    """Settings with `{name}` replaced by text; `{own}` is the variable's present value."""
    return {
        name: text.format(own=environment.get(name, ""), **values).strip()
        for name, text in settings.items()
    }
