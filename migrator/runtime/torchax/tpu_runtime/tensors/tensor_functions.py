"""More functions and methods of tensors that torchax lacks or gets wrong."""

import copy
import functools
import math
from types import FunctionType
from typing import Any

import jax.numpy as jnp
import numpy as np
import torch
from torchax.ops.ops_registry import Operator
from torchax.tensor import Environment, Tensor

from ..device import DEVICE_TYPE
from ..dispatch.calls import (
    Function,
    holds_device_tensor,
    is_device_tensor,
    names_device,
    native,
    patch,
    replaces,
)
from ..dispatch.modes import FunctionMode
from ..operators.indexing import of_base
from .moving import Args, Kwargs, check_limits, warn_of_class
from .tensor_identity import OnCpu, attributes, on_cpu
from .views import alias, layout_of, peek

# Torch's own, saved before a program replaces them.
_OF_TORCH = [(owner, dict(vars(owner))) for owner in (torch.Tensor, torch.nn.functional, torch)]


@functools.lru_cache(1000)
def _of_torch(function: Any) -> Any:
    """Torch's own function, which torch calls by a name that a program may have replaced."""
    for owner, functions in _OF_TORCH:
        name = next((name for name, other in vars(owner).items() if other is function), "")
        if name:
            return functions.get(name) or getattr(torch._C.TensorBase, name, function)
    return function


def _with_own_functions(handle: Function) -> Function:
    @functools.wraps(handle)
    def __torch_function__(mode: Any, func: Function, *args: Any, **kwargs: Any) -> Any:
        own = _of_torch(func) if type(func) is FunctionType else func
        return handle(mode, own, *args, **kwargs)

    return __torch_function__


@replaces(torch.Tensor.resize_, torch.Tensor.resize_as_)
def _resize(env: Environment, function: Function, args: Args, kwargs: Kwargs) -> Any:
    """Resize in place, also by separate numbers; torchax returns another tensor.

    Within its memory the tensor becomes another view of it. New elements are zero.
    """
    tensor, *size = args
    if not is_device_tensor(tensor) or not size:
        return NotImplemented
    first = size[0]
    wanted = first.shape if isinstance(first, torch.Tensor) else first
    shape = tuple(size) if isinstance(wanted, int) else tuple(wanted)
    if shape == tuple(tensor.shape):
        return tensor
    memory, *_, offset = of_base(tensor, shape, ())
    more = offset + math.prod(shape) - memory.numel()
    is_of_another = memory is not tensor and "_resized" not in tensor.__dict__
    if is_of_another and more > 0:
        raise RuntimeError("resize_: a view cannot have more elements than its base")
    with env:
        if more > 0:
            values = memory.detach().reshape(-1)
            tensor.data = torch.cat([values, values.new_zeros(more)]).reshape(shape)
        else:
            strides = native(torch.empty, (shape,), {"device": "meta"}).stride()
            tensor.data = torch.as_strided(tensor.detach(), shape, strides, offset)
    if not is_of_another:
        tensor.__dict__["_resized"] = True  # its base is its own
    return tensor


@replaces(torch.full, torch.full_like, torch.Tensor.fill_, torch.Tensor.new_full)
def _fill(env: Environment, function: Function, args: Args, kwargs: Kwargs) -> Any:
    """JAX silently cuts a number that is too large."""
    if names_device(kwargs.get("device")) or holds_device_tensor(args):
        for value in (*args[1:], *kwargs.values()):
            if type(value) is int:
                check_limits(value, value)
    return NotImplemented


@replaces(torch.cumsum, torch.Tensor.cumsum, torch.cumprod, torch.Tensor.cumprod)
def _cumulate(env: Environment, function: Function, args: Args, kwargs: Kwargs) -> Any:
    """torchax 0.0.13 sums small integers in their own dtype: uint8 wraps at 256."""
    tensor = args[0] if args else kwargs["input"]
    exact = tensor.is_floating_point() or tensor.is_complex()
    if exact or kwargs.get("dtype") is not None or not is_device_tensor(tensor):
        return NotImplemented
    with env:
        return function(*args, **{**kwargs, "dtype": torch.int64})


@replaces(torch.Tensor.new_tensor)
def _new_tensor(env: Environment, function: Function, args: Args, kwargs: Kwargs) -> Any:
    """torchax 0.0.13 gives a tensor without values."""
    tensor, data = args
    if not is_device_tensor(tensor):
        return NotImplemented
    with env:
        return torch.tensor(data, **{"dtype": tensor.dtype, "device": DEVICE_TYPE, **kwargs})


@replaces(torch.Tensor.new)
def _new_legacy(env: Environment, function: Function, args: Args, kwargs: Kwargs) -> Any:
    """`x.new([1.0, 2.0])`; torchax 0.0.13 gives a tensor on another device, without values."""
    tensor, *data = args
    if not is_device_tensor(tensor) or kwargs or len(data) != 1:
        return NotImplemented
    if not isinstance(data[0], (list, tuple, np.ndarray)) or isinstance(data[0], torch.Size):
        return NotImplemented
    with env:
        return torch.tensor(data[0], dtype=tensor.dtype, device=DEVICE_TYPE)


@replaces(torch.allclose, torch.Tensor.allclose)
def _allclose(env: Environment, function: Function, args: Args, kwargs: Kwargs) -> Any:
    """A bool; torchax 0.0.13 gives a tensor."""
    if not holds_device_tensor((args, kwargs)):
        return NotImplemented
    with env:
        return bool(torch.isclose(*args, **kwargs).all())


@replaces(torch.Tensor.get_device)
def _get_device(env: Environment, function: Function, args: Args, kwargs: Kwargs) -> Any:
    """0, as on the first CUDA device; torchax 0.0.13 answers -1, which means the CPU."""
    return 0 if is_device_tensor(args[0]) else NotImplemented


@replaces(torch.Tensor.is_pinned)
def _is_pinned(env: Environment, function: Function, args: Args, kwargs: Kwargs) -> Any:
    return False


@replaces(torch.Tensor.type)
def _type(env: Environment, function: Function, args: Args, kwargs: Kwargs) -> Any:
    """`x.type()` and `x.type(dtype)`."""
    tensor = args[0]
    if not is_device_tensor(tensor):
        return NotImplemented
    if len(args) == 1 and not kwargs:
        name: str = native(torch.empty, (0,), {"dtype": tensor.dtype, "device": "cpu"}).type()
        return name.replace("torch.", f"torch.{DEVICE_TYPE}.", 1)
    wanted = args[1] if len(args) > 1 else kwargs.get("dtype")
    if isinstance(wanted, torch.dtype):
        with env:
            return tensor.to(wanted)
    return native(tensor.torch().type, (wanted,), {})


@replaces(torch.Tensor.type_as)
def _type_as(env: Environment, function: Function, args: Args, kwargs: Kwargs) -> Any:
    with env:
        return args[0].to(args[1])


def _type_as_method(self: Tensor, other: torch.Tensor) -> Any:
    return self.to(other)


def _deepcopy(self: Tensor, memo: dict[int, Any]) -> Any:
    """As in torch: a Parameter's copy has no attributes and no gradient, a tensor's has both.

    The copy of a view is a view of its base's copy. torchax 0.0.13 tries to copy its whole
    environment and raises.
    """
    if id(self) in memo:
        return memo[id(self)]
    if isinstance(memo, OnCpu):
        return memo.setdefault(id(self), on_cpu(self))
    if not self.is_leaf:
        raise RuntimeError(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy "
            "protocol: detach() the result first"
        )
    values, link = peek(self), self.__dict__.get("_link")
    if link is None or not link.parent.is_leaf:
        result: Any = Tensor(values, self._env, self.requires_grad)
    else:
        base = copy.deepcopy(link.parent, memo)
        result = alias(base, values, layout_of(self), link.view)
        result.requires_grad_(self.requires_grad)
    memo[id(self)] = result
    if isinstance(self, torch.nn.Parameter):
        result._is_param, result.__class__ = True, type(self)
        return result
    result.__dict__.update(copy.deepcopy(attributes(self), memo))
    if self.grad is not None:
        result.grad = copy.deepcopy(self.grad, memo)
    return result


def _copy(self: Tensor) -> Any:
    """`copy.copy`: another tensor with the same values and the program's own attributes."""
    result: Any = self.data.requires_grad_(self.requires_grad)
    if isinstance(self, torch.nn.Parameter):
        result._is_param, result.__class__ = True, type(self)
    result.__dict__.update(attributes(self))
    return result


def _reduce(self: Tensor, protocol: Any) -> Any:
    """Pickle as a CPU tensor: such a file can be read anywhere. torchax 0.0.13 raises."""
    return on_cpu(self).__reduce_ex__(protocol)


def _as_subclass(self: torch.Tensor, cls: type) -> torch.Tensor:
    """A plain tensor, also when a subclass is moved to the device."""
    if not issubclass(torch.Tensor, cls):
        warn_of_class(cls)
    return self.view_as(self)


def install(env: Environment) -> None:
    """Mend the methods of torchax's tensor class."""
    handle = FunctionMode.__torch_function__
    patch(FunctionMode, __torch_function__=_with_own_functions(handle))
    for operator, function in (
        (torch.ops.aten._is_all_true, jnp.all),  # torch.distributions checks its arguments with it
        (torch.ops.aten._is_any_true, jnp.any),
    ):
        env._ops.setdefault(
            operator,
            Operator(
                operator, function, is_jax_function=True, is_user_defined=True, needs_env=False,
                is_view_op=False,
            ),
        )  # fmt: skip
    patch(
        Tensor,
        as_subclass=_as_subclass,  # torchax raises
        type_as=_type_as_method,  # torchax 0.0.13 changes self
        __copy__=_copy,
        __deepcopy__=_deepcopy,
        __reduce_ex__=_reduce,
    )
