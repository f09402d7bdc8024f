"""Links: how a view gets its values from its base, even after the base got other memory.

`base.t_()` and `base.data = x` don't affect views created before. From then on, these use a hidden
tensor, with the old memory, as their base.
"""

import weakref
from dataclasses import dataclass, field
from typing import Any

import jax
from torchax.tensor import Tensor

from .view_functions import ViewFunction

Array = Any  # a jax.Array, or a tracer of one


class ViewFamily:
    """Shared by a tensor and its views: the views keep it, so it is gone if there are none."""

    former: Tensor | None = None  # the views' base, if the tensor got other memory


@dataclass
class Link:
    """How an alias gets its values from its parent, and writes to it."""

    held: Tensor
    view: ViewFunction
    seen: Array  # the parent's array from which the alias's current one was computed
    counted: bool = True  # whether autograd is told of a write, so that it can detect late writes
    origin: Any = None  # weak reference to the tensor it aliases, if that isn't its parent
    place: ViewFamily = field(init=False)

    def __post_init__(self) -> None:
        place = _view_family(self.held)
        if place is None:
            place = ViewFamily()
            self.held.__dict__["_place"] = weakref.ref(place)
        self.place = place

    @property
    def parent(self) -> Tensor:
        if self.place.former is not None:
            self.held = self.place.former
        return self.held


def _view_family(tensor: Tensor) -> ViewFamily | None:
    """What a tensor shares with its views; None if it has none."""
    reference = tensor.__dict__.get("_place")
    return reference() if reference is not None else None


def leave(tensor: Tensor) -> Tensor | None:
    """Give a tensor's views, if any, another base with the tensor's present values."""
    state, array = tensor.__dict__, tensor.__dict__["_elem"]
    place = _view_family(tensor)
    if place is None or isinstance(array, jax.core.Tracer):
        return None
    former = Tensor(array, tensor._env)
    former.__dict__["_link"] = state.get("_link")
    former.__dict__["_place"] = state.pop("_place")
    place.former = former
    return former
