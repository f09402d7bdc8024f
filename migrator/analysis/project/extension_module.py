"""What is known of a compiled module that a project imports; see `extensions`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Built(StrEnum):
    """What a module is compiled for."""

    CUDA = "CUDA"
    CPU = "the CPU"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Extension:
    """A compiled module, by its full name, and how it is known to be one: the end of a sentence."""

    module: str
    built: Built
    known_by: str
