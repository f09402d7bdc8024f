"""How code is recognised that was migrated to any target, or written for one."""

import re
from functools import cache

from migrator.targets import RUNTIME, all_markers

_MARKERS = all_markers()
# What a migration leaves behind: there the program's own device has become the target's.
MODULES = frozenset({RUNTIME, *(name for each in _MARKERS for name in each.modules)})
DEVICES = frozenset(
    name + index for each in _MARKERS for name in each.devices for index in ("", ":0")
)
MIGRATED = re.compile(
    "|".join([*sorted(MODULES), rf"[\"'](?:{'|'.join(sorted(DEVICES)) or '(?!)'})[\"']"]).encode()
)
# What people write programs for a target with, not for a GPU.
LIBRARIES = tuple(each.library for each in _MARKERS if each.library)
LIBRARY_DEVICE = next(each.devices[0] for each in _MARKERS if each.library)  # there is one library
PARTS = tuple(f"{library}." for library in LIBRARIES)
DEVICE_FUNCTIONS = tuple(name for each in _MARKERS for name in each.device_functions)
RANK_MODULES = tuple(f"{name}." for each in _MARKERS for name in each.rank_modules)
OLDER_VARIABLES = frozenset(name for each in _MARKERS for name in each.older_variables)


def foreign_libraries(own: str) -> tuple[str, ...]:
    """The libraries of other targets than the one with this one."""
    return tuple(library for library in LIBRARIES if library != own)


def quotes(name: str, source: bytes) -> bool:
    """Whether code has this string."""
    return any(mark + name.encode() + mark in source for mark in (b"'", b'"'))


@cache
def foreign_devices(own: tuple[str, ...]) -> frozenset[str]:
    """The names of other targets' devices than these."""
    return frozenset(name for each in _MARKERS for name in each.devices if name not in own)
