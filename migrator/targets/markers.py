"""Markers: how to recognise code that was migrated to a target, or written for it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Markers:
    """What identifies a target's code.

    With a `library`, people write programs for the target by hand: there they stay as they are, but
    for older spellings, and other targets read them as the corresponding GPU programs. The
    target's rules (`rules` in its folder) do both.
    """

    modules: tuple[str, ...] = ()  # packages that migrated code imports
    devices: tuple[str, ...] = ()  # strings that name its device
    library: str = ""
    device_functions: tuple[str, ...] = ()  # of the library: they return a device
    rank_modules: tuple[str, ...] = ()  # modules of it through which ranks communicate
    older_variables: tuple[str, ...] = ()  # environment variables that older releases of it read
    older_packages: tuple[str, ...] = ()  # packages that it used to require
    older_wheels: tuple[str, ...] = ()  # parts of URLs where its wheels used to be
