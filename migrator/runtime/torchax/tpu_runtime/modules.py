"""Modules, data loaders and inference: what wraps tensors and goes wrong with torchax's."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.utils.weight_norm import WeightNorm
from torch.utils.data import DataLoader
from torchax.tensor import Environment

from .calls import patch


class inference_mode(torch.no_grad):
    """`torch.inference_mode` as `no_grad`.

    torchax 0.0.13 cannot run in inference mode: operators reach it in another form and raise.
    """

    def __new__(cls, mode: Any = True) -> Any:
        return object.__new__(cls) if not callable(mode) else cls()(mode)

    def __init__(self, mode: bool = True) -> None:
        super().__init__()
        self.mode = mode

    def __enter__(self) -> None:
        self.prev = torch.is_grad_enabled()
        if self.mode:
            torch.set_grad_enabled(False)

    def clone(self) -> "inference_mode":
        return type(self)(self.mode)


def _keep_identity(apply: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(apply)
    def _apply(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        # The old weight_norm keeps the weight it computed, whose graph holds on to the parameters.
        normed = [h for h in self._forward_pre_hooks.values() if isinstance(h, WeightNorm)]
        for hook in normed:
            self.__dict__.pop(hook.name, None)
        future = torch.__future__
        before = future.get_swap_module_params_on_conversion()
        future.set_swap_module_params_on_conversion(True)
        try:
            return apply(self, *args, **kwargs)
        except RuntimeError as error:
            if "Couldn't swap" not in str(error):
                raise
            raise RuntimeError(
                f"{error}: a module cannot be moved while the result of an earlier call with "
                "gradients is alive; make that call under torch.no_grad(), or move the module first"
            ) from error
        finally:
            future.set_swap_module_params_on_conversion(before)
            for hook in normed:
                setattr(self, hook.name, hook.compute_weight(self))

    return _apply


def install(env: Environment) -> None:
    """Keep parameters the same objects on `.to(device)`, and never pin memory.

    torchax 0.0.13: moving a module replaces its parameters, which silently unties shared weights
    and leaves an optimizer built before with the old ones; `.half()` leaves C++ with the old dtype.
    Pinning raises, for there is no CUDA; it only makes copies to a GPU faster.
    """
    patch(torch.nn.Module, _apply=_keep_identity(torch.nn.Module._apply))
    patch(torch, inference_mode=inference_mode)
    patch(DataLoader, pin_memory=property(lambda self: False, lambda self, value: None))
