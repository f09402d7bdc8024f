"""Gradients that can't be differentiated again, like cuDNN's for recurrent modules."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def once(backward: Callable[..., Any]) -> Callable[..., Any]:
    """A backward that is not recorded: a second derivative, which would be lost, raises.

    (torch's `once_differentiable` looks at the incoming gradients only.)
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
