"""Operators that follow from others: `out=`, lists of tensors, and those that torch can decompose.

torchax 0.0.13 has some of each and raises OperatorNotFound for the rest: `foreach=True`, amsgrad,
Adamax, Adafactor and EMA by `torch.optim.swa_utils` fail. In-place forms are in views.py.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch._decomp import decomposition_table
from torchax.ops.ops_registry import Operator
from torchax.tensor import Environment, OperatorNotFound

from ..dispatch import cpu_fallback
from ..dispatch.calls import Function, register

# By the name after `_foreach_`, if it differs from the operator for one tensor.
_SINGLE = {
    "maximum": "clamp_min",
    "minimum": "clamp_max",
    "maximum_": "clamp_min_",
    "minimum_": "clamp_max_",
    "norm": "linalg_vector_norm",
}
# Numbers that are positional for a list, and named for one tensor.
_BY_NAME = {"addcmul": "value", "addcdiv": "value"}


def _for_each(overload: Any) -> Function:
    """`_foreach_X(tensors, ...)` as one X after another."""
    name = overload.overloadpacket.__name__.removeprefix("_foreach_")
    one = _single_operator(name, overload)
    number_name = _BY_NAME.get(name.rstrip("_"))

    def run(*all_args: Any, **kwargs: Any) -> Any:
        args = list(all_args)
        if number_name is not None and len(args) == 4:
            *args, number = args
            kwargs[number_name] = number
        length = max(len(arg) for arg in args if isinstance(arg, (list, tuple)))
        results = [
            _apply(one, [_item(a, n) for a in args], {k: _item(v, n) for k, v in kwargs.items()})
            for n in range(length)
        ]
        return None if name.endswith("_") else results

    return run


def _apply(one: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """The operator, whose ``alpha`` or ``value`` is a tensor if it varies, which torch refuses."""
    for name in ("alpha", "value"):
        if isinstance(kwargs.get(name), torch.Tensor):
            dtype, factor = torch.result_type(*args[:2]), args[1]
            wide = factor.float() if factor.dtype.itemsize == 2 else factor  # as torch computes
            args = [args[0], wide * kwargs.pop(name), *args[2:]]
            return one(*args, **kwargs).to(dtype)
    return one(*args, **kwargs)


def _single_operator(name: str, overload: Any) -> Any:
    if "maximum" in name or "minimum" in name:
        scalars = any(
            str(a.type).startswith(("number", "List[number")) for a in overload._schema.arguments
        )
        if not scalars:
            if name.endswith("_"):
                plain = getattr(torch.ops.aten, name[:-1])
                return lambda x, y: x.copy_(plain(x, y))
            return getattr(torch.ops.aten, name)
    return getattr(torch.ops.aten, _SINGLE.get(name, name))


def _item(value: Any, number: int) -> Any:
    if isinstance(value, (list, tuple)):
        return value[number]
    # One tensor with the numbers for all, as in `_foreach_addcdiv_.Tensor`.
    return value[number] if isinstance(value, torch.Tensor) and value.dim() == 1 else value


def _writing(overload: Any) -> Function:
    """`X(..., out=y)` as a write of X's result to y."""
    names = [argument.name for argument in overload._schema.arguments if argument.is_out]
    packet = overload.overloadpacket

    def run(*args: Any, **kwargs: Any) -> Any:
        outputs = [kwargs.pop(name) for name in names]
        results = packet(*args, **kwargs)
        for output, result in zip(
            outputs, results if isinstance(results, tuple) else (results,), strict=True
        ):
            if output.shape != result.shape:
                raise RuntimeError(
                    f"out= has shape {tuple(output.shape)}, the result {tuple(result.shape)}: "
                    "this device does not change the shape of a tensor in place"
                )
            output.copy_(result)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    return run


def _derive(function: Any) -> Function | None:
    if not isinstance(function, torch._ops.OpOverload):
        return None
    if function.overloadpacket.__name__.startswith("_foreach_"):
        return _for_each(function)
    if function in decomposition_table:
        return decomposition_table[function]
    if torch._C._dispatch_has_kernel_for_dispatch_key(function.name(), "CompositeImplicitAutograd"):
        return function.decompose  # torch computes it by other operators on every device
    return None


def _finder(env: Environment, lookup: Callable[[Any], Operator]) -> Callable[[Any], Operator]:
    """torchax's look-up, and derived operators if it finds nothing."""

    def find(function: Any) -> Operator:
        if (
            isinstance(function, torch._ops.OpOverload)
            and function not in env._ops
            and any(argument.is_out for argument in function._schema.arguments)
        ):
            # torchax would find the operator without out=, and fail on the argument.
            return register(env, function, _writing(function), of_arrays=False)
        try:
            return lookup(function)
        except OperatorNotFound:
            derived = _derive(function)
            if derived is None:
                return cpu_fallback.find(env, function)
            return register(env, function, derived, of_arrays=False)

    return find


def install(env: Environment) -> None:
    """Derive operators at their first use."""
    env.__dict__["_get_op_or_decomp"] = _finder(env, env._get_op_or_decomp)
