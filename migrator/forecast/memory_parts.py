"""What a step's memory holds: weights, gradients, states of optimizers, activations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .hlo import HloProgram

WEIGHTS, GRADIENTS, STATES, OTHERS = "weights", "gradients", "optimizer states", "others"


def parts_of(program: HloProgram, owners: dict[str, Any], memory: dict[str, int]) -> dict[str, int]:
    """Bytes by what they are for, of one device; their sum is that of ``memory``.

    ``owners``: what the runtime says of the arrays. Temporaries are activations, and gradients that
    end with the step: the compiler gives both the same memory, one after the other. Others: the
    batch, results, and what the compiler's sums have beyond the arrays.
    """
    found = dict.fromkeys((WEIGHTS, GRADIENTS, STATES), 0)
    for kind, size in _arrays(program, owners):
        if kind in found:
            found[kind] += size
    held = memory["arguments"] + memory["outputs"]
    rest = {OTHERS: held - sum(found.values())}
    return {**found, **rest, "temporaries": memory["temporaries"], "code": memory["code"]}


def _arrays(program: HloProgram, owners: dict[str, Any]) -> Iterator[tuple[str, int]]:
    """What each argument is for, and each result that takes memory of its own, with its bytes."""
    results = owners["results"]
    for made in program.computations[program.entry].values():
        if made.parameter is not None:
            replaced = program.in_place.get(made.parameter)
            kind = owners["given"].get(made.op_name, OTHERS)
            kind = kind if replaced is None else results[replaced]
            yield kind, sum(shape.padded for shape in made.shapes)
    own = set(program.in_place.values())
    for number, shape in enumerate(program.root(program.entry).shapes):
        if number not in own:
            yield results[number], shape.padded
