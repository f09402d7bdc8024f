"""Host: how programs of a target find a device on a machine, and what to look at there."""

from __future__ import annotations

import os
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Slow:
    """A variable that makes programs slow.

    `values` are those that do; without any, all do but "", 0 and false.
    """

    what: str
    values: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Host:
    """Variables of the environment that a target's programs read, and what they do to them.

    In the settings, `{own}` is what the variable holds already. `device_variable` takes names of
    devices, with commas between them; "tpu" means the same for every target.
    """

    device_variable: str = ""  # chooses the device; "": nothing does
    older_device_variables: tuple[str, ...] = ()
    devices: Set[str] = frozenset()  # that it may name; without any, it may name what it likes
    plugins: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # one of them has to be
    # there for a device that it names
    tpu: Mapping[str, str] = field(default_factory=dict)  # settings for a TPU, or for nothing
    cpu: Mapping[str, str] = field(default_factory=dict)  # settings for the CPU
    virtual: Mapping[str, str] = field(default_factory=dict)  # … that shows `{count}` devices
    hasty: Mapping[str, str] = field(default_factory=dict)  # … that compiles with less care
    dump: Mapping[str, str] = field(default_factory=dict)  # programs are written to `{folder}`
    replicas: Path | None = None  # runs ranks as threads on the CPU, where one process has all
    # devices; else each rank is a process
    compiles_for_tpu: bool = False  # what is dumped can be compiled for a TPU that is not there
    has_tpu_compiler: bool = False  # by its own environment, with JAX and libtpu
    variables: Mapping[str, str] = field(default_factory=dict)  # what each of its own does
    families: tuple[str, ...] = ()  # beginnings of names that only its programs read
    slow: Mapping[str, Slow] = field(default_factory=dict)

    def on_tpu(self) -> dict[str, str]:
        """Settings that hold a program to a TPU: it may not fall back to the CPU in silence."""
        return dict(self.tpu)

    def on_cpu(self, count: int | None = None) -> dict[str, str]:
        """Settings that hold a program to the CPU, which shows `count` devices."""
        virtual = {} if count is None else with_own(self.virtual, os.environ, count=str(count))
        return {**self.cpu, **virtual}

    def in_haste(self, environment: Mapping[str, str]) -> dict[str, str]:
        """`environment`, with the settings that make the CPU compile sooner what runs slower."""
        return {**environment, **with_own(self.hasty, _added_to_ours(environment))}

    def dumping(self, environment: Mapping[str, str], folder: str) -> dict[str, str]:
        """`environment`, with the settings that make a run write its programs to `folder`."""
        return {**environment, **with_own(self.dump, _added_to_ours(environment), folder=folder)}

    def allows_tpu(self, environment: Mapping[str, str]) -> bool:
        """Whether the user has not chosen another device."""
        wish = environment.get(self.device_variable, "")
        return not wish or "tpu" in wish.lower().split(",")

    def reads(self, name: str) -> bool:
        """Whether a variable is one that this target's programs read, and no other's."""
        return name.startswith(self.families)


def _added_to_ours(environment: Mapping[str, str]) -> dict[str, str]:
    return {**os.environ, **{name: value for name, value in environment.items() if value}}


def with_own(
    settings: Mapping[str, str], environment: Mapping[str, str], **values: str
) -> dict[str, str]:
    """Settings with text in the place of `{name}`; `{own}` is what the variable holds already."""
    return {
        name: text.format(own=environment.get(name, ""), **values).strip()
        for name, text in settings.items()
    }
