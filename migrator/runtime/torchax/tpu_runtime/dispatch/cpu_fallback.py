"""Operators that torchax doesn't support or gets wrong are computed by torch on the CPU.

torchax 0.0.13 raises OperatorNotFound for some, and silently gives wrong numbers for others. Here
the arguments are copied to the CPU and the results back, with one warning for each operator: right
but slow. A compiled function has no values to copy: there it raises and names the operator.
"""

import warnings
from collections.abc import Iterator
from typing import Any

import jax
import torch
import torch.nn.functional as F
from torch.utils import _pytree as pytree
from torchax.ops.ops_registry import Operator
from torchax.tensor import Environment, OperatorNotFound, Tensor

from .calls import Function, holds_device_tensor, is_device_tensor, native, register, replaces
from .lost_gradients import to_other_device

# Operators that torchax 0.0.13 gets wrong (found by benchmarks/operator_audit.py), and that this
# package doesn't improve on the device.
_WRONG = (
    "_embedding_bag",  # sums over overlapping bags, or of another mode
    "_embedding_bag_forward_only",
    "polygamma",  # inexact near its poles, and for negative arguments
    "special_spherical_bessel_j0",  # turns the device's mode off
)
_HALVES = (torch.float16, torch.bfloat16)
# Operators that neither supports, and what to do instead.
_REFUSED = {
    "_sparse_coo_tensor_with_dims_and_tensors": "there are no sparse tensors; use sparse=False",
    "hash_tensor": "there are no 64-bit unsigned integers on this device: hash a CPU copy",
}


def _pairs(argument: Any, copy: Any) -> Iterator[tuple[Any, Any]]:
    """The device tensors of an argument, which may be a list, with their copies."""
    several = isinstance(argument, (tuple, list))
    for each, its in zip(argument, copy, strict=True) if several else ((argument, copy),):
        if is_device_tensor(each):
            yield each, its


def computed_on_cpu(env: Environment, overload: Any) -> Function:
    """``overload`` as a function of device tensors, computed by torch on the CPU."""
    name = str(overload).removesuffix(".default")
    # Places of torchvision's maxima stay int32. Its kernels lack the halves that a GPU has.
    of_images = overload.namespace == "torchvision"
    written = [
        argument.alias_info is not None and argument.alias_info.is_write
        for argument in overload._schema.arguments
    ]
    warned = False

    def to_cpu(value: Any) -> Any:
        if is_device_tensor(value):
            array = value.jax()
            if isinstance(array, jax.core.Tracer):
                raise OperatorNotFound(
                    f"{name} is not available on this device; outside of compiled functions it is "
                    "computed on the CPU"
                )
            tensor = value.torch()
            if of_images:
                return tensor.float() if tensor.dtype in _HALVES else tensor
            # With 64 bits off, an index is int32 on the device; torch requires int64.
            return tensor.long() if tensor.dtype == torch.int32 else tensor
        return torch.device("cpu") if isinstance(value, torch.device) else value

    def to_device(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and not is_device_tensor(value):
            return Tensor(env.t2j_copy(value), env)
        return value

    def run(*args: Any, **kwargs: Any) -> Any:
        nonlocal warned
        if not warned:
            warned = True
            warnings.warn(f"{name} is computed on the CPU, which is slow", stacklevel=2)
        with torch._C.DisableTorchFunction():
            cpu_args, cpu_kwargs = native(pytree.tree_map, (to_cpu, (args, kwargs)), {})
            results = native(overload, cpu_args, cpu_kwargs)
        for argument, copy, is_written in zip(args, cpu_args, written, strict=False):
            for each, its in _pairs(argument, copy) if is_written else ():
                each._elem = env.t2j_copy(its).astype(each._elem.dtype)
                results = each if results is its else results
        results = pytree.tree_map(to_device, results)
        return _as_halves(results, args[0].dtype) if of_images else results

    return run


def _as_halves(results: Any, dtype: torch.dtype) -> Any:
    """Results of floats as the ``dtype`` of the input, if that is a half."""

    def convert(tensor: Any) -> Any:
        return tensor.to(dtype) if tensor.is_floating_point() else tensor

    return pytree.tree_map(convert, results) if dtype in _HALVES else results


def find(env: Environment, function: Any) -> Operator:
    """The operator that computes ``function`` on the CPU; OperatorNotFound if there is none."""
    is_cpu_operator = (
        isinstance(function, torch._ops.OpOverload)
        and function.namespace in ("aten", "torchvision")
        and not function.is_view
        and any(
            torch._C._dispatch_has_kernel_for_dispatch_key(function.name(), key)
            for key in ("CPU", "CompositeExplicitAutograd")
        )
    )
    if not is_cpu_operator:
        raise OperatorNotFound(f"{function} is not available on this device")
    return register(env, function, computed_on_cpu(env, function), of_arrays=False)


@replaces(F.ctc_loss)
def _ctc_loss(env: Environment, function: Function, args: Any, kwargs: Any) -> Any:
    """The loss of CPU copies of the values; the lengths may be on either device, as on CUDA."""
    if not holds_device_tensor((args, kwargs)):
        return NotImplemented

    def to_cpu(value: Any) -> Any:
        return to_other_device(env, value) if is_device_tensor(value) else value

    cpu_args, cpu_kwargs = pytree.tree_map(to_cpu, (args, kwargs))
    return to_other_device(env, native(function, cpu_args, cpu_kwargs))


def _refusal(name: str, advice: str) -> Function:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(f"{name} is not available on this device: {advice}")

    return refuse


def _sampled(env: Environment) -> Function:
    """Samples of volumes, which torchax gets wrong if they are reflected at the edges."""
    on_cpu = computed_on_cpu(env, torch.ops.aten.grid_sampler_3d.default)
    stock = env._decomps[torch.ops.aten.grid_sampler_3d.default].func

    def grid_sampler_3d(x: Any, grid: Any, mode: int, padding: int, align_corners: bool) -> Any:
        sample = on_cpu if padding == 2 else stock
        return sample(x, grid, mode, padding, align_corners)

    return grid_sampler_3d


def _remove_nms(env: Environment) -> None:
    """torchax's always counts an overlap of 0.5 and needs sorted boxes; it returns all places.

    The number of boxes that are left is only known on the host, so it is computed there.
    """
    for operator in [op for op in env._ops if str(op).startswith("torchvision.nms")]:
        del env._ops[operator]


def install(env: Environment) -> None:
    """Remove the wrong operators from torchax."""
    _remove_nms(env)
    register(env, torch.ops.aten.grid_sampler_3d.default, _sampled(env), of_arrays=False)
    for name in _WRONG:
        packet = getattr(torch.ops.aten, name)
        env._ops.pop(packet, None)
        for overload in packet.overloads():
            operator = getattr(packet, overload)
            register(env, operator, computed_on_cpu(env, operator), of_arrays=False)
    for name, advice in _REFUSED.items():
        packet = getattr(torch.ops.aten, name, None)
        if packet is not None:
            register(env, packet, _refusal(name, advice), of_arrays=False)
