"""Links: how a view gets its values from its base, even after the base got other memory.

`base.t_()` and `base.data = x` don't affect views created before. From then on, these use a hidden
tensor, with the old memory, as their base.
"""

import sys
from dataclasses import dataclass, field
from typing import Any

import jax
from torchax.tensor import Tensor

from .view_functions import ViewFunction

Array = Any  # a jax.Array, or a tracer of one


class Place:
    """Shared by a tensor and its views."""

    former: Tensor | None = None  # the views' base, if the tensor got other memory


@dataclass
class Link:
    """How an alias gets its values from its parent, and writes to it."""

    held: Tensor
    view: ViewFunction
    seen: Array  # the parent's array from which the alias's current one was computed
    counted: bool = True  # whether autograd is told of a write, so that it can detect late writes
    origin: Any = None  # weak reference to the tensor it aliases, if that isn't its parent
    place: Place = field(init=False)

    def __post_init__(self) -> None:
        self.place = self.held.__dict__.setdefault("_place", Place())

    @property
    def parent(self) -> Tensor:
        if self.place.former is not None:
            self.held = self.place.former
        return self.held


def leave(tensor: Tensor) -> Tensor | None:
    """Give a tensor's views, if any, another base with the tensor's present values."""
    state, array = tensor.__dict__, tensor.__dict__["_elem"]
    place = state.get("_place")
    if place is None or sys.getrefcount(place) == 3 or isinstance(array, jax.core.Tracer):
        return None
    former = Tensor(array, tensor._env)
    former.__dict__["_link"] = state.get("_link")
    former.__dict__["_place"] = state.pop("_place")
    place.former = former
    return former
