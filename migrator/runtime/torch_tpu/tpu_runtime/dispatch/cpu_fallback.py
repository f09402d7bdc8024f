"""Operators that torch_tpu 0.2.0 lacks are computed on the CPU, with one warning.

`median`, `smooth_l1_loss`, `erfc`, `trace` and about a hundred others raise there, and so do all of
torchvision's (`nms`, `roi_align`). Their inputs are copied to the CPU and their results back, which
includes waiting for the device.
"""

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_map

from ..device import is_loaded
from ..frameworks.import_hooks import when_imported

# Kernels that compose an operator from others; with one, it needs no kernel of the device.
_OF_OTHERS = (
    "CompositeImplicitAutograd",
    "CompositeExplicitAutograd",
    "CompositeExplicitAutogradNonFunctional",
)
# Internal operators that others are made of; the rest concern memory and back ends.
_PARTS = (
    "_cholesky_", "_fused_dropout", "_histogramdd_", "_linalg_", "_segment_reduce", "_upsample_",
    "_cdist_", "_pdist_", "_embedding_bag", "_standard_gamma", "_sample_dirichlet",
    "_dirichlet_grad", "_fake_quantize_", "_aminmax", "_unique",
)  # fmt: skip
_HALVES = (torch.bfloat16, torch.float16)
_libraries: list[Any] = []  # registrations last as long as these
_told: set[str] = set()


def install() -> None:
    if is_loaded():
        _register("aten")
        when_imported("torchvision", lambda _: _register("torchvision"))


def _register(space: str) -> None:
    library = torch.library.Library(space, "IMPL")
    _libraries.append(library)
    for name in torch._C._dispatch_get_all_op_names():
        operator = _operator(name, space)
        if operator is not None and _is_missing(name) and _computes(operator._schema):
            library.impl(name.removeprefix(f"{space}::"), _on_cpu(operator), "PrivateUse1")


def by_cpu(name: str) -> Callable[..., Any]:
    """A kernel for the operator ``name`` that the CPU computes."""
    packet, _, overload = name.partition(".")
    return _on_cpu(getattr(getattr(torch.ops.aten, packet), overload or "default"))


def _operator(name: str, space: str) -> Any:
    of, _, rest = name.partition("::")
    packet, _, overload = rest.partition(".")
    is_internal = space == "aten" and packet.startswith("_") and not packet.startswith(_PARTS)
    if of != space or is_internal:
        return None
    return getattr(getattr(getattr(torch.ops, space), packet, None), overload or "default", None)


def _is_missing(name: str) -> bool:
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return has(name, "CPU") and not any(has(name, key) for key in ("PrivateUse1", *_OF_OTHERS))


def _computes(schema: Any) -> bool:
    """Whether it computes new values of a tensor, or writes them; a view doesn't."""
    names = {argument.name for argument in schema.arguments}
    tensors = any("Tensor" in str(argument.type) for argument in schema.arguments)
    views = any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns)
    return tensors and not views and names.isdisjoint({"device", "layout", "pin_memory", "stream"})


def _on_cpu(operator: Any) -> Callable[..., Any]:
    schema = operator._schema
    of_images = operator.namespace == "torchvision"
    written = {
        a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write
    }

    def computed(*args: Any, **kwargs: Any) -> Any:
        if schema.name not in _told:
            _told.add(schema.name)
            what = schema.name.rpartition("::")[2]
            print(f"tpu_runtime: the CPU computes {what}, which torch_tpu cannot", file=sys.stderr)
        here, here_by_name = tree_map(_to_cpu, (args, kwargs))
        if of_images:  # its kernels lack the halves that a GPU's have
            return _as_halves(operator(*tree_map(_in_float, here), **here_by_name), args)
        result = operator(*here, **here_by_name)
        outs = {}
        for place, argument in enumerate(schema.arguments):
            by_place = place < len(args)
            out = args[place] if by_place else kwargs.get(argument.name)
            if argument.name in written and out is not None:
                copy = here[place] if by_place else here_by_name[argument.name]
                if out.shape != copy.shape:
                    out.resize_(copy.shape)
                out.data.copy_(copy)  # autograd itself counts what is written
                outs[id(copy)] = out
        return tree_map(lambda value: outs.get(id(value), _to_tpu(value)), result)

    return computed


def _in_float(value: Any) -> Any:
    is_half = isinstance(value, torch.Tensor) and value.dtype in _HALVES
    return value.float() if is_half else value


def _as_halves(result: Any, args: Any) -> Any:
    """Results on the TPU; those of floats in the type of the input, if that is a half."""
    half = next((x.dtype for x in args if getattr(x, "dtype", None) in _HALVES), None)

    def converted(value: Any) -> Any:
        return _to_tpu(value.to(half) if half and value.is_floating_point() else value)

    return tree_map(converted, result)


def _to_cpu(value: Any) -> Any:
    return value.cpu() if isinstance(value, torch.Tensor) else value


def _to_tpu(value: Any) -> Any:
    return value.to("tpu") if isinstance(value, torch.Tensor) else value
