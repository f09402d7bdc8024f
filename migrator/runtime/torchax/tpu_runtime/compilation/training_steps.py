"""A step of training as a function: what it records is computed when it ends."""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from ..lazy import lazy_graph

P = ParamSpec("P")
R = TypeVar("R")


def train_step(function: Callable[P, R]) -> Callable[P, R]:
    """Compute a step (forward pass, backward pass, update) as one program. A decorator.

    A loop without it does the same at `optimizer.step()`; programs that an earlier version of the
    tool wrote have it.
    """

    @functools.wraps(function)
    def step(*args: P.args, **kwargs: P.kwargs) -> R:
        result = function(*args, **kwargs)
        lazy_graph.run()
        return result

    return step
