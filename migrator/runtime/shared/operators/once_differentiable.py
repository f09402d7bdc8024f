"""Gradients that can't be differentiated again, like cuDNN's for recurrent modules."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def once(backward: Callable[..., Any]) -> Callable[..., Any]:
    """A backward that isn't recorded: second derivatives raise, instead of being lost.

    (torch's `once_differentiable` only checks the incoming gradients.)
    """

    @functools.wraps(backward)
    def checked(ctx: Any, *gradients: Any) -> Any:
        if not torch.is_grad_enabled():
            return backward(ctx, *gradients)
        with torch.no_grad():
            results = backward(ctx, *gradients)
        places = [i for i, result in enumerate(results) if isinstance(result, Tensor)]
        error = torch._C._functions.DelayedError(
            b"the gradient of a recurrent module cannot be differentiated again", len(places)
        )
        marked = error(*(results[i].detach().requires_grad_() for i in places))
        marked = marked if isinstance(marked, tuple) else (marked,)
        replaced = dict(zip(places, marked, strict=True))
        return tuple(replaced.get(i, result) for i, result in enumerate(results))

    return checked
