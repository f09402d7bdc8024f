"""A function that takes the place of kernels, for the terminal and as JSON."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from migrator.targets import Target

from .kernel import Kernel, KernelCall, KernelPart
from .skeletons import how_to_run, pallas_skeleton, pytorch_skeleton


def lines_of_part(part: KernelPart) -> Iterator[str]:
    """What is known of it, for the terminal."""
    yield f"to write: {part.name}({part.parameters}), at {_at(part.path, part.line)}"
    for kernel in part.kernels:
        yield f"  {kernel.language} kernel: {kernel.signature}, at {_at(kernel.path, kernel.line)}"
        if kernel.reads or kernel.writes:
            read, written = ", ".join(kernel.reads), ", ".join(kernel.writes)
            yield f"    reads {read or 'nothing'}; writes {written or 'nothing'}"
        for launch in kernel.launches:
            yield from _lines("  launched", launch)
    for place in (*part.calls, *part.references):
        yield from _lines(place.said, place)


def _lines(said: str, place: KernelCall) -> Iterator[str]:
    yield f"  {said} at {_at(place.path, place.line)}: {place.code}"
    if place.values:
        indent = " " * (len(said) - len(said.lstrip()) + 4)
        yield f"{indent}{'; '.join(place.values)}"


def part_to_dict(part: KernelPart, target: Target) -> dict[str, Any]:
    """As JSON, with the skeletons."""
    return {
        "name": part.name,
        "parameters": part.parameters,
        "place": _at(part.path, part.line),
        "kernels": [_kernel(kernel) for kernel in part.kernels],
        "calls": [_place_to_dict(place) for place in part.calls],
        "references": [_place_to_dict(place) for place in part.references],
        "pytorch": pytorch_skeleton(part, target),
        "pallas": pallas_skeleton(part, target) or None,
        "run": how_to_run(part),
    }


def _kernel(kernel: Kernel) -> dict[str, Any]:
    return {
        "name": kernel.name,
        "language": kernel.language,
        "place": _at(kernel.path, kernel.line),
        "signature": kernel.signature,
        "reads": [*kernel.reads],
        "writes": [*kernel.writes],
        "launches": [_place_to_dict(place) for place in kernel.launches],
    }


def _place_to_dict(place: KernelCall) -> dict[str, Any]:
    return {
        "place": _at(place.path, place.line), "code": place.code, "values": [*place.values],
    }  # fmt: skip


def _at(path: Path, line: int) -> str:
    """A place, by its way from here if it is below."""
    here = Path(os.path.realpath("."))
    return f"{path.relative_to(here) if path.is_relative_to(here) else path}:{line}"
