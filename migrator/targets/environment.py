"""Environment: the packages and Python versions that programs for a target run with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Version = tuple[int, int]


@dataclass(frozen=True)
class Damage:
    """A distribution whose wheel contains files of the target's own package, in another version."""

    by: str


@dataclass(frozen=True)
class Environment:
    """The Python environment of a target, as a user makes it and `verify --install` does.

    `pins` are requirements that were tested together: torch, its companions, and `package`, the
    distribution that makes an environment one for this target. Without pins, they are the extra of
    tpu-migrate that has the target's name.
    """

    package: str
    pins: tuple[str, ...] = ()
    asked: Mapping[str, str] = field(default_factory=dict)  # by pins, in their own metadata
    pythons: tuple[Version, Version] = ((3, 11), (3, 13))  # for which all have wheels: from, to
    newest_with_tpu: Version | None = None  # if the driver has none for the newest of these
    systems: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # with wheels; {}: all
    driver: str = ""  # the pin that provides libtpu, itself or through its extra
    # Required on a machine with a TPU, instead of a pin for the same module.
    on_tpu: tuple[str, ...] = ()
    imports: tuple[str, ...] = ("torch",)  # modules whose import shows that the environment works
    runs_with: Mapping[str, str] = field(default_factory=dict)  # required by programs
    frameworks: Mapping[str, str] = field(default_factory=dict)  # releases that programs ran with
    import_limits: Mapping[str, str] = field(default_factory=dict)  # imports fail beyond them
    damage: Damage | None = None
    gigabytes: float = 8  # that are installed on Linux
    cpu_torch: bool = False  # PyTorch's build for the CPU does as well as the one with CUDA
    # Lists of the names that its packages have, in analysis/installed.
    names: tuple[str, ...] = (
        "torch-2.9.0", "torchvision-0.24.0", "numpy-2.4.6", "scipy-1.17.1", "PIL-13.0.0",
        "pandas-3.1.1",
    )  # fmt: skip

    @property
    def newest(self) -> Version:
        """The newest Python for which all packages have wheels, including those for a TPU."""
        return self.newest_with_tpu or self.pythons[1]

    def framework(self, name: str) -> str:
        """The requirement of a framework, in the release that programs were run with."""
        return f"{name}=={self.frameworks[name]}.*"

    def has_wheels(self, system: str, machine: str) -> bool:
        """Whether there are wheels for `sys.platform` and `platform.machine()`."""
        return not self.systems or machine in self.systems.get(system, ())
