"""Which elements of its base a view contains."""

from typing import Any

import jax
import numpy as np

from ..dispatch.jax_kernels import Array
from .view_functions import IDENTITY, positions
from .views import watchers


def _elements(tensor: Any) -> Array:
    """Which elements of its base a view contains."""
    link = tensor.__dict__.get("_link")
    if link is None:
        return positions(tensor.jax())
    return link.view.read(_elements(link.parent), *link.view.others)


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
        if link.view is not IDENTITY:
            return False
        tensor = link.parent
    return True
