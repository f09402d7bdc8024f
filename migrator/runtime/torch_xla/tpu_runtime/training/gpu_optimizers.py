"""Optimizers made for a GPU: fused ones, loss scaling, and those that compile in each step."""

import functools
from collections.abc import Callable
from typing import Any

import torch.amp.grad_scaler
from torch import optim
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils import _foreach_utils

from ..device import DEVICE_TYPE


def _drop_fused(kind: Any) -> None:
    """Let ``kind(..., fused=True)`` be the optimizer without it: the results are the same.

    torch 2.9 has no fused kernels for XLA and raises: in the constructor, or, if the parameters
    move to the device later, in the first step. XLA fuses the step by itself.
    """
    init = kind.__init__

    @functools.wraps(init)
    def unfused(self: Any, *args: Any, **kwargs: Any) -> None:
        if kwargs.get("fused"):
            kwargs["fused"] = None
        init(self, *args, **kwargs)

    kind.__init__ = unfused


def _drop_fused_in_files() -> None:
    """The same for a fused optimizer's state that was saved on a GPU."""
    load: Callable[..., None] = optim.Optimizer.load_state_dict

    @functools.wraps(load)
    def load_state_dict(self: optim.Optimizer, state_dict: dict[str, Any]) -> None:
        groups = [g | {"fused": None} if g.get("fused") else g for g in state_dict["param_groups"]]
        load(self, {**state_dict, "param_groups": groups})

    optim.Optimizer.load_state_dict = load_state_dict  # type: ignore[method-assign]


# torch 2.9: these index by masks or read their state back, so XLA compiles again and again,
# 110 programs in 10 steps of Rprop. `capturable=True` is the same rule without that: 2 programs.
_BETTER_CAPTURABLE = (optim.Rprop, optim.ASGD)


def _suit_the_device(optimizer: optim.Optimizer, *_: object) -> None:
    """Before a step: switch to the variant that stays on the device, one parameter at a time.

    torch 2.9 refuses `foreach=True` with `capturable=True` on XLA, and either for Adadelta; the
    results are the same.
    """
    for group in optimizer.param_groups:
        if not group["params"] or "capturable" not in group:
            continue
        if any(p.device.type != DEVICE_TYPE for p in group["params"]):
            continue
        if isinstance(optimizer, _BETTER_CAPTURABLE) and not group["capturable"]:
            group["capturable"] = not any(optimizer.state.get(p) for p in group["params"])
        if isinstance(optimizer, optim.Adadelta):
            group["capturable"] = False
        elif group["capturable"] and group.get("foreach"):
            group["foreach"] = False


def _never_scale() -> None:
    """Treat every `GradScaler`, except the CPU's, as one with `enabled=False`.

    bfloat16 has the range of float32, so nothing underflows. If torch_xla is present, torch 2.9
    scales anyway, and then reads back from the device in each step.
    """
    scaler: Any = torch.amp.grad_scaler.GradScaler
    init = scaler.__init__

    @functools.wraps(init)
    def disabled(self: Any, *args: Any, **kwargs: Any) -> None:
        device = args[0] if args else kwargs.get("device", "cuda")
        if device != "cpu":
            args, kwargs = args[:5], {**kwargs, "enabled": False}
        init(self, *args, **kwargs)

    scaler.__init__ = disabled


def install() -> None:
    """Patch torch's classes."""
    if DEVICE_TYPE not in _foreach_utils._get_fused_kernels_supported_devices():
        for kind in (optim.Adam, optim.AdamW, optim.SGD, optim.Adagrad):
            _drop_fused(kind)
        _drop_fused_in_files()
    register_optimizer_step_pre_hook(_suit_the_device)
    _never_scale()
