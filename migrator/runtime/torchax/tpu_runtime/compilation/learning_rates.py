"""Learning rates, step counts, and scheduled settings as tensors of a compiled step.

An optimizer computes with them as if they were numbers: torch asks them for their values.
OneCycleLR changes momentum or betas with the rate in each step, other schedules the weight decay.
"""

import contextlib
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torchax.tensor import Environment, Tensor

from ..dispatch.calls import Function, is_device_tensor, replaces

if TYPE_CHECKING:  # only a first call needs it
    from .purity import Inspection

Settings = frozenset[tuple[int, str]]  # index of the group, and its name
_SCHEDULED = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop)
_NAMES = ("momentum", "betas", "weight_decay")
_FULL = (torch.float32, torch.float64)


def of_groups(groups: list[dict[str, Any]], varying: Settings) -> list[Any]:
    """The learning rates as numbers for the program; None for one that is already a tensor. After
    them the varying settings."""
    kind = _precise()
    rates = [None if isinstance(g["lr"], torch.Tensor) else kind.type(g["lr"]) for g in groups]
    found = ((groups[i][name], name) for i, name in sorted(varying))
    return [*rates, *([_numbers(x) for x in _parts(value)] for value, _ in found)]


def may_vary(optimizer: torch.optim.Optimizer, group: dict[str, Any], name: str) -> bool:
    """Whether its step only computes with this setting, so that it may be a tensor."""
    if type(optimizer) not in _SCHEDULED or name not in _NAMES:
        return False
    full = all(p.dtype in _FULL for p in group["params"])
    return full and all(type(x) is float and 0 < x < 1 for x in _parts(group[name]))


def set_settings(
    env: Environment, groups: list[dict[str, Any]], varying: Settings, numbers: list[Any]
) -> None:
    """Replace the varying settings by tensors."""
    for (i, name), arrays in zip(sorted(varying), numbers, strict=True):
        made = [_setting(env, *parts) for parts in arrays]
        groups[i][name] = tuple(made) if isinstance(groups[i][name], tuple) else made[0]


def _parts(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _numbers(value: float) -> list[Any]:
    """A setting, 1 minus it, and its logarithm, each as exact as possible."""
    return [_precise().type(x) for x in (value, 1 - value, math.log(value))]


def _setting(env: Environment, value: Any, complement: Any, logarithm: Any) -> Tensor:
    made = Tensor(value, env)
    made.__dict__.update(_complement=Tensor(complement, env), _logarithm=logarithm)
    return made


def _is_setting(value: object) -> bool:
    return is_device_tensor(value) and "_complement" in value.__dict__


@replaces(
    torch.Tensor.__eq__, torch.Tensor.__ne__, torch.Tensor.__gt__, torch.Tensor.eq, torch.Tensor.ne,
    torch.Tensor.gt,
)  # fmt: skip
def _compare(env: Environment, function: Function, args: Any, kwargs: Any) -> Any:
    """`if momentum != 0`: it is positive."""
    if kwargs or not _is_setting(args[0]) or type(args[1]) not in (int, float) or args[1] != 0:
        return NotImplemented
    return function.__name__.strip("_") != "eq"


def _precise() -> Any:
    """The dtype of rates: float32, or float64 where JAX has it (JAX_ENABLE_X64)."""
    config: Any = jax.config  # its options are no attributes to mypy
    return np.dtype(np.float64 if config.jax_enable_x64 else np.float32)


def _is_rate(value: object) -> bool:
    return is_device_tensor(value) and value.dim() == 0  # type: ignore[attr-defined]


@replaces(torch.Tensor.add_, torch.Tensor.add, torch.add, torch.Tensor.sub_, torch.Tensor.sub)
def _with_alpha(env: Environment, function: Function, args: Any, kwargs: Any) -> Any:
    """`p.add_(d, alpha=-lr)`: torch requires a number for `alpha`, and asks the tensor for it."""
    alpha = kwargs.get("alpha")
    if not _is_rate(alpha):
        return NotImplemented
    return function(args[0], args[1] * alpha)


@replaces(torch.Tensor.addcdiv_, torch.Tensor.addcdiv, torch.Tensor.addcmul_, torch.Tensor.addcmul)
def _with_value(env: Environment, function: Function, args: Any, kwargs: Any) -> Any:
    """The same for `value`; the order of the operations is torch's."""
    value = kwargs.get("value")
    if not _is_rate(value):
        return NotImplemented
    one, other = args[1] * value, args[2]
    added = one / other if function.__name__.startswith("addcdiv") else one * other
    in_place = function.__name__.endswith("_")
    return args[0].add_(added) if in_place else args[0] + added


@replaces(torch.Tensor.__rpow__)
def _power(env: Environment, function: Function, args: Any, kwargs: Any) -> Any:
    """`beta ** step`, for its complement: 1 - 0.999 ** 1 has 4 correct digits in float32."""
    exponent, base = args
    if _is_rate(exponent) and _is_setting(base):
        return _exponential(env, exponent.jax().astype(_precise()) * base.__dict__["_logarithm"])
    if not _is_rate(exponent) or not isinstance(base, float) or not 0 < base < 1:
        return NotImplemented
    kind = _precise()
    return _exponential(env, exponent.jax().astype(kind) * kind.type(math.log(base)))


@replaces(torch.Tensor.__pow__, torch.Tensor.pow)
def _power_of_setting(env: Environment, function: Function, args: Any, kwargs: Any) -> Any:
    return _power(env, function, args[::-1], {}) if _is_setting(args[0]) else NotImplemented


def _exponential(env: Environment, logarithm: Any) -> Tensor:
    result = Tensor(jnp.exp(logarithm), env)
    result.__dict__["_log"] = logarithm
    return result


@replaces(torch.Tensor.__rsub__)
def _complement(env: Environment, function: Function, args: Any, kwargs: Any) -> Any:
    tensor, number = args
    if number == 1 and _is_setting(tensor):
        return tensor.__dict__["_complement"]
    logarithm = tensor.__dict__.get("_log") if is_device_tensor(tensor) else None
    if logarithm is None or number != 1:
        return NotImplemented
    return Tensor(-jnp.expm1(logarithm), env)


@contextlib.contextmanager
def as_tensors(inspection: "Inspection | None") -> Iterator[None]:
    """Optimizers keep their counts and rates as tensors if they think that they are compiled."""
    pauses = contextlib.ExitStack()

    def begin(optimizer: Any, args: Any, kwargs: Any) -> None:
        torch.compiler._is_compiling_flag = True
        if inspection is not None and len(args) == 1 and not kwargs:
            pauses.enter_context(inspection.paused(optimizer))

    def end(*_: Any) -> None:
        torch.compiler._is_compiling_flag = False
        pauses.close()

    handles = register_optimizer_step_pre_hook(begin), register_optimizer_step_post_hook(end)
    try:
        yield
    finally:
        end()
        for handle in handles:
            handle.remove()
