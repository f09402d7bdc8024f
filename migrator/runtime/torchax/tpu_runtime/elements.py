"""Which elements of its base a view contains."""

from typing import Any

import jax
import numpy as np

from .links import Array
from .views import identity, positions, watchers


def _elements(tensor: Any) -> Array:
    """Which elements of its base a view contains."""
    link = tensor.__dict__.get("_link")
    return positions(tensor.jax()) if link is None else link.replay(_elements(link.parent))


def overlap(tensor: Any, other: Any) -> bool:
    """Whether two views of one tensor share elements."""
    before, watchers[:] = watchers[:], []
    try:
        with jax.ensure_compile_time_eval():
            return bool(np.intersect1d(_elements(tensor), _elements(other)).size)
    finally:
        watchers[:] = before


def is_whole(tensor: Any) -> bool:
    """Whether it contains all elements of its base, in their order."""
    while (link := tensor.__dict__.get("_link")) is not None:
        if link.replay is not identity:
            return False
        tensor = link.parent
    return True
