"""Sparse tensors on the device. XLA has none: they become dense, and remember their entries.

This holds for those that move there and for those that `torch.sparse_coo_tensor` and
`torch.sparse.FloatTensor` create there, which copy their values. Other functions for sparse tensors
are unchanged.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import UninitializedTensorMixin

from .dense import warn_of
from .device import DEVICE_TYPE

NEEDED_BY = "*sparse*"

_ENTRIES = "_sparse_entries"  # of a dense tensor: indices, values, and whether they are coalesced


def _is_there(*arguments: Any) -> bool:
    """Whether one of these tensors or devices is the device."""
    devices = (a.device if isinstance(a, Tensor) else a for a in arguments)
    return any(
        device is not None and torch.device(device).type == DEVICE_TYPE for device in devices
    )


def dense(indices: Any, values: Any, size: Any = None, dtype: torch.dtype | None = None) -> Tensor:
    """The dense tensor of shape ``size`` with ``values`` at ``indices``; duplicates are summed.

    ``indices``: (sparse dimensions, entries); ``values``: (entries, dense dimensions…). Gradients
    reach the values. Without ``size``, the largest indices determine it.
    """
    indices = torch.as_tensor(indices, device=DEVICE_TYPE)
    values = torch.as_tensor(values, dtype=dtype, device=DEVICE_TYPE)
    if values.ndim == 0:
        values = values.expand(indices.shape[1])
    if size is None:
        size = [*(indices.amax(1) + 1).tolist(), *values.shape[1:]]
    made = torch.zeros(tuple(size), dtype=values.dtype, device=DEVICE_TYPE)
    made = made.index_put(tuple(indices), values, accumulate=True)
    warn_of(made)
    setattr(made, _ENTRIES, (indices, values, False))
    return made


def _coalesced(tensor: Tensor) -> Tensor:
    """Sorted, with values of the same index summed."""
    indices, values, done = getattr(tensor, _ENTRIES)
    if done:
        return tensor
    unique, place = indices.cpu().unique(dim=1, return_inverse=True)
    summed = torch.zeros_like(values[:1]).expand(unique.shape[1], *values.shape[1:])
    summed = summed.index_add(0, place.to(indices), values)
    made = tensor.clone()
    setattr(made, _ENTRIES, (unique.to(indices), summed, True))
    return made


_OF_ENTRIES: dict[str, Callable[[Tensor], Any]] = {
    "_indices": lambda tensor: getattr(tensor, _ENTRIES)[0].detach(),
    "_values": lambda tensor: getattr(tensor, _ENTRIES)[1].detach(),
    "_nnz": lambda tensor: getattr(tensor, _ENTRIES)[1].shape[0],
    "indices": lambda tensor: getattr(tensor, _ENTRIES)[0],
    "values": lambda tensor: getattr(tensor, _ENTRIES)[1],
    "coalesce": _coalesced,
    "is_coalesced": lambda tensor: getattr(tensor, _ENTRIES)[2],
}


def _known(stock: Callable[..., Any], of_entries: Callable[[Tensor], Any]) -> Callable[..., Any]:
    """A method of sparse tensors, also for dense ones that remember their entries."""

    @functools.wraps(stock)
    def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        known = hasattr(self, _ENTRIES)
        return of_entries(self) if known else stock(self, *args, **kwargs)

    return method


def _old(stock: Any, make: Callable[..., Tensor]) -> type:
    """`torch.sparse.FloatTensor` and its siblings."""

    class Type(type):
        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            return (make if _is_there(*args[:2]) else stock)(*args, **kwargs)

        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, stock)

    return Type(stock.__name__, (), {"__module__": "torch.sparse", "dtype": stock.dtype})


def install(env: object = None) -> None:
    """Make the device's sparse tensors dense."""
    stock = torch.sparse_coo_tensor

    @functools.wraps(stock)
    def sparse_coo_tensor(*args: Any, **kwargs: Any) -> Tensor:
        values = (*args, *(kwargs[k] for k in ("indices", "values") if k in kwargs))
        there = _is_there(*(v for v in values if isinstance(v, Tensor)), kwargs.get("device"))
        if not there or not (values and not isinstance(values[0], (int, torch.Size))):
            return stock(*args, **kwargs)
        requires_grad = kwargs.pop("requires_grad", False)
        for name in ("device", "check_invariants", "is_coalesced"):
            kwargs.pop(name, None)
        made = dense(*args, **kwargs)
        return made.requires_grad_() if requires_grad else made

    torch.sparse_coo_tensor = sparse_coo_tensor
    to = Tensor.to

    @functools.wraps(to)
    def moved(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        there = to(self, *args, **kwargs)
        if self.layout is torch.sparse_coo and there.device.type == DEVICE_TYPE:
            entries = (to(part, DEVICE_TYPE) for part in (self._indices(), self._values()))
            setattr(there, _ENTRIES, (*entries, self.is_coalesced()))
        return there

    Tensor.to = moved  # type: ignore[assignment,method-assign]
    UninitializedTensorMixin._allowed_methods.append(moved)
    for name, of_entries in _OF_ENTRIES.items():
        setattr(torch.Tensor, name, _known(getattr(torch.Tensor, name), of_entries))
    for name in ("FloatTensor", "DoubleTensor", "LongTensor", "IntTensor"):
        setattr(torch.sparse, name, _old(getattr(torch.sparse, name), sparse_coo_tensor))
