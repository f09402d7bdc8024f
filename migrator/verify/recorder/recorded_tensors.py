"""Tensors in a program's values: finding them, copying them to the host, writing numbers."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from randomness import is_traced
from sharded import whole

_WRAPPERS = ("DataParallel", "DistributedDataParallel", "OptimizedModule")


def has_values() -> bool:
    """Whether tensors have values now that can be read.

    While JAX traces, none have, nor inside of torch.func's transforms. In a backward pass,
    torch_xla runs separate graphs for loops such as an LSTM's; reading one of their placeholder
    tensors ends the process.
    """
    return not is_transformed() and torch._C._current_graph_task_id() == -1


def is_transformed() -> bool:
    """Whether JAX or `torch.jit.trace` is tracing, or the code runs inside of `vmap`, `grad` or
    another of torch.func's transforms, or of fake tensors: these stand for others."""
    return (
        is_traced()
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch._C._get_tracing_state() is not None
        or torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None
    )


def compute_what_is_recorded() -> None:
    """On torch_xla, compute all pending tensors at once. Otherwise, each tensor that is read would
    be compiled and computed by itself, with everything that it depends on."""
    library = sys.modules.get("torch_xla")
    if library is not None and hasattr(library, "_XLAC"):
        own = library._XLAC._xla_get_default_device()  # others may belong to other ranks
        library._XLAC._xla_sync_live_tensors(own, [], False)


def kept(tensor: torch.Tensor) -> torch.Tensor:
    """The present values of a tensor, for `now` to read later: a copy on the CPU; or, where its
    computation is only recorded, a tensor of what will be computed. Reading that now would compute
    it, and divide what the program runs as one."""
    lazy = sys.modules.get("tpu_runtime.lazy.lazy_arrays")
    views = sys.modules.get("tpu_runtime.tensors.views")
    if lazy is None or views is None or not isinstance(tensor, views.Tensor):
        return on_host(tensor)
    array = views.peek(tensor)  # writes give the tensor another array
    if not lazy.is_any([array]):
        return on_host(tensor)
    return views.Tensor(array, tensor._env)  # type: ignore[no-any-return, attr-defined]


def is_there(tensor: torch.Tensor) -> bool:
    """Whether what `kept` returned has been computed."""
    lazy = sys.modules.get("tpu_runtime.lazy.lazy_arrays")
    return lazy is None or not lazy.is_any([tensor.__dict__.get("_elem")])


def now(tensor: torch.Tensor) -> torch.Tensor:
    """The values of what `kept` returned, on the CPU."""
    return tensor if tensor.device.type == "cpu" else on_host(tensor)


def for_json(number: float) -> float | str:
    """JSON has no NaN and Inf: they are text, which `float` reads."""
    return number if math.isfinite(number) else str(number)


def on_host(tensor: torch.Tensor) -> torch.Tensor:
    """A copy on the CPU, in a type that files support."""
    tensor = whole(tensor.detach())
    if tensor.is_sparse:
        tensor = tensor.to_dense()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    host = tensor.cpu()
    return host.clone() if host is tensor else host


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors in nested lists, tuples, dictionaries and dataclasses, with their paths."""
    if isinstance(value, torch.Tensor):
        if value.device.type != "meta":  # else: a shape without values
            yield path, value
        return
    items: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, (list, tuple)):
        items = list(enumerate(value))
    elif is_dataclass(value) and not isinstance(value, type):
        items = [(f.name, getattr(value, f.name)) for f in fields(value)]
    for key, item in items:
        yield from leaves(item, f"{path}.{key}" if path else str(key))


def unwrapped(module: torch.nn.Module) -> torch.nn.Module:
    """The module inside of a wrapper for several devices, or of torch.compile."""
    while type(module).__name__ in _WRAPPERS:
        inner = getattr(module, "module", None) or getattr(module, "_orig_mod", None)
        if not isinstance(inner, torch.nn.Module):
            break
        module = inner
    return module


def has_gradient(tensor: torch.Tensor) -> bool:
    """Whether a tensor requires a gradient. A view that was written to under `no_grad`, such as an
    embedding's padding row, says that it does, and then raises an error."""
    if not tensor.requires_grad:
        return False
    try:
        return tensor.is_leaf or tensor.grad_fn is not None
    except RuntimeError:
        return False
