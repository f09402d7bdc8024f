"""Positions that change: `data[i : i + n]` and `betas[t]` in a loop whose steps are programs.

torch_xla makes the position a part of the program, so each step compiles another one. Where a place
of the program reads or writes at new positions from graph to graph, the position becomes an input.
One that only changes within a graph, as in an unrolled loop, stays a part of it.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
import torch_xla.runtime as xr
from torch import Tensor
from torch_xla import _XLAC

from ..tensors.value_reads import place_outside

_MANY = 3  # positions, after which others are expected
_KNOWN = 4096  # places

Key = tuple[Any, ...]


@dataclass
class _Place:
    """The positions of a place of the program, for tensors of one shape."""

    graphs: int = -1  # that had run when the current one began
    number: int = 0  # of its uses in the current graph
    seen: list[set[int]] = field(default_factory=list)  # positions, of the first use, the second …
    changes: bool = False

    def use(self, position: int, graphs: int) -> bool:
        """Whether this use is at a position that changes from graph to graph."""
        if self.changes:
            return True
        self.number = self.number + 1 if graphs == self.graphs else 0
        self.graphs = graphs
        if self.number == len(self.seen):
            self.seen.append(set())
        seen = self.seen[self.number]
        seen.add(position)
        if len(seen) >= _MANY:
            self.changes, self.seen = True, []
        return self.changes


_places: dict[Key, _Place] = {}


def positions(tensor: Tensor, dim: int, start: int, count: int, step: int = 1) -> Tensor | None:
    """The positions of a slice as a tensor if they are to be an input of the program.

    Not with several devices: their programs have to agree.
    """
    place = place_outside()
    if place is None or not 0 < count < tensor.shape[dim]:
        return None
    key = (*place, dim, count, step, tensor.shape)
    found = _places.get(key)
    if found is None:
        if len(_places) > _KNOWN:
            _places.clear()
        found = _places[key] = _Place()
    if not found.use(start, _graphs()) or _XLAC._xla_get_replication_devices_count():
        return None
    if xr.is_spmd():
        return None
    return torch.arange(start, start + count * step, step, dtype=torch.int32).to(tensor.device)


def _graphs() -> int:
    """How many have run."""
    return sum(_XLAC._xla_counter_value(name) or 0 for name in ("CachedCompile", "UncachedCompile"))
