"""Results have torch's dtypes, and what torch refuses is refused.

torchax 0.0.13 leaves dtypes to JAX, whose rules differ: `mask + mask` is int32, a sum of uint8
is uint32, `any()` of uint8 is bool, the square of bools is a float, a half plus a float64 number
without dimensions is float32. Torch itself tells an operator's dtypes, by tensors without memory,
once for each combination of dtypes.
"""

import functools
from dataclasses import dataclass
from typing import Any

import jax
import torch
from torch.utils import _pytree as pytree
from torchax.ops import mappings
from torchax.tensor import Environment, Tensor

from .calls import is_device_tensor, native, natively

_KINDS = "b", "iu", "f", "c"  # NumPy's, each contained in the next
_UNTAGGED = ("floor_divide", "floor_divide_")
_CHOICES = ("where", "masked_fill")  # whose bools select
_PARTS = ("complex", "polar")  # take real numbers


@dataclass(frozen=True)
class Types:
    """The dtypes of a call, as JAX's: None if unknown or unchanged."""

    results: tuple[Any, ...] = ()
    inputs: Any = None  # what arguments are converted to first, as in torch


@dataclass(frozen=True)
class _Operator:
    is_asked: bool
    by_element: bool
    promotes: bool
    bools_choose: bool


NOTHING = Types()
_known: dict[Any, Types] = {}


@functools.cache
def _operator(function: Any) -> _Operator:
    tags, name = function.tags, function.overloadpacket.__name__
    by_element = torch.Tag.pointwise in tags or name in _UNTAGGED
    is_asked = not function.is_view and torch.Tag.nondeterministic_seeded not in tags
    promotes = by_element and not function._schema.is_mutable and name not in _PARTS
    return _Operator(is_asked, by_element, promotes, name in _CHOICES)


def of(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Types:
    """The dtypes of a call of an ATen operator. Raises what torch raises for them."""
    if function.namespace != "aten":
        return NOTHING
    operator = _operator(function)
    if not operator.is_asked:
        return NOTHING
    key = (
        function,
        torch.get_default_dtype(),
        _dtype_kind(args),
        _dtype_kind(tuple(kwargs.items())),
    )
    types = _known.get(key)
    if types is None:
        types = _known[key] = _asked(function, operator, args, kwargs)
    return types


def _dtype_kind(value: Any) -> Any:
    """The part of an argument that dtypes depend on."""
    if isinstance(value, torch.Tensor):
        elem = value.__dict__.get("_elem") if type(value) is Tensor else None
        return (value.dtype, value.dim() == 0) if elem is None else (elem.dtype, elem.ndim == 0)
    if isinstance(value, (tuple, list)):
        return tuple(map(_dtype_kind, value))
    return value if value is None or isinstance(value, (str, torch.dtype)) else type(value)


def _asked(function: Any, operator: _Operator, args: Any, kwargs: Any) -> Types:
    with natively():
        try:
            made = native(_instead, ("meta", function, args, kwargs), {})
        except NotImplementedError:
            return NOTHING
        except Exception as refusal:
            if not operator.by_element:
                return NOTHING  # it depends on values
            try:  # real devices may support more, such as shifting bools
                made = native(_instead, ("cpu", function, args, kwargs), {})
            except Exception:
                raise refusal from None
    results = tuple(map(_jax_dtype, pytree.tree_leaves(made)))
    if not operator.by_element:  # for statistics and the like torch's devices have their own rules
        results = tuple(None if t is not None and t.kind in "fV" else t for t in results)
    inputs = results[0] if operator.promotes and results else None
    if inputs is None or not any(_widens(operator, value, inputs) for value in args):
        inputs = None
    return Types(results if any(t is not None for t in results) else (), inputs)


def _instead(device: str, function: Any, args: Any, kwargs: Any) -> Any:
    """The call with tensors without memory; or with small ones on the CPU."""

    def instead(value: torch.Tensor) -> torch.Tensor:
        shape = value.shape if device == "meta" else (min(size, 2) for size in value.shape)
        return torch.ones(tuple(shape), dtype=value.dtype, device=device)

    if "device" in kwargs:
        kwargs = {**kwargs, "device": device}
    args, kwargs = pytree.tree_map_only(torch.Tensor, instead, (args, kwargs))
    return function(*args, **kwargs)


def _jax_dtype(value: Any) -> Any:
    if not isinstance(value, torch.Tensor) or value.dtype not in mappings.TORCH_DTYPE_TO_JAX:
        return None
    return jax.dtypes.canonicalize_dtype(mappings.t2j_dtype(value.dtype))


def _rank(dtype: Any) -> int:
    return next((n for n, kinds in enumerate(_KINDS) if dtype.kind in kinds), 2)  # bfloat16 is "V"


def _widens(operator: _Operator, value: Any, wanted: Any) -> bool:
    if not is_device_tensor(value):
        return False
    dtype = value._elem.dtype
    if operator.bools_choose and dtype.kind == "b":
        return False
    return dtype != wanted and _rank(dtype) <= _rank(wanted) and _rank(wanted) > 0


def promoted(function: Any, args: tuple[Any, ...], types: Types, env: Environment) -> Any:
    """The arguments in the dtype that torch computes in."""
    operator = _operator(function)
    return tuple(
        Tensor(value._elem.astype(types.inputs), env)
        if _widens(operator, value, types.inputs)
        else value
        for value in args
    )


def converted(result: Any, types: Types, env: Environment) -> Any:
    """The result in torch's dtypes."""
    results = result if isinstance(result, (tuple, list)) else (result,)
    wrong = [
        isinstance(item, Tensor) and wanted is not None and item._elem.dtype != wanted
        for item, wanted in zip(results, types.results, strict=False)
    ]
    if not any(wrong):
        return result
    made = tuple(
        Tensor(item._elem.astype(wanted), env) if is_wrong else item
        for item, wanted, is_wrong in zip(results, types.results, wrong, strict=True)
    )
    return made if isinstance(result, (tuple, list)) else made[0]
