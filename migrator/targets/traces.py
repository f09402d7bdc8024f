"""Traces: how code is recognised that was migrated to a target, or written for it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Traces:
    """What code of a target has in it.

    With a `library`, people write programs for the target by hand: there they stay as they are, but
    for older spellings, and other targets read them as the GPU programs that they stand for. The
    target's rules (`rules` in its folder) do both.
    """

    modules: tuple[str, ...] = ()  # packages that migrated code imports
    devices: tuple[str, ...] = ()  # strings that name its device
    library: str = ""
    device_functions: tuple[str, ...] = ()  # of the library: they return a device
    rank_modules: tuple[str, ...] = ()  # parts of it by which ranks exchange something
    older_variables: tuple[str, ...] = ()  # of the environment, which older releases of it read
    older_packages: tuple[str, ...] = ()  # which it came with
    older_wheels: tuple[str, ...] = ()  # parts of URLs where it was to be had
