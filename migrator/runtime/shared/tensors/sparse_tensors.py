"""Sparse tensors on the device. XLA has none: they become dense, and remember their entries.

This holds for those that move there and for those that `torch.sparse_coo_tensor`,
`torch.sparse_csr_tensor`, `torch.sparse.FloatTensor` and `to_sparse` create there, which copy their
values. `torch.sparse.sum`, `softmax` and `log_softmax` compute with the dense values. Other
functions for sparse tensors are unchanged.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import UninitializedTensorMixin  # type: ignore[attr-defined]

from ..device import DEVICE_TYPE
from .dense_warning import warn_of

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


def _to_sparse(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """The entries are the elements that are not 0."""
    if args or kwargs.get("sparse_dim") is not None or kwargs.get("blocksize") is not None:
        raise RuntimeError("to_sparse of some dimensions or of blocks is not available here")
    made = tensor.clone()
    warn_of(made)
    indices = tensor.detach().nonzero().t()
    setattr(made, _ENTRIES, (indices, tensor[tuple(indices)], True))
    return made


def _rows(tensor: Tensor) -> Tensor:
    """Of a matrix, where the entries of each row begin and end."""
    indices = _coalesced(tensor).indices()
    counts = torch.bincount(indices[0].cpu(), minlength=tensor.shape[0])
    ends = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return ends.to(indices)


def _csr(crow: Any, col: Any, values: Any, size: Any = None, **kwargs: Any) -> Tensor:
    crow, col = (torch.as_tensor(part).cpu().long() for part in (crow, col))
    rows = torch.arange(len(crow) - 1).repeat_interleave(crow.diff())
    if size is None:
        size = (len(crow) - 1, int(col.max()) + 1)
    return dense(torch.stack([rows, col]), values, size, **kwargs)


def _entries_of(tensor: Tensor, name: str) -> Tensor:
    """Which elements are entries."""
    if not hasattr(tensor, _ENTRIES):
        raise RuntimeError(
            f"{name}: the sparse tensor is dense on this device, and which of its elements are"
            " entries is not known after an operation on it"
        )
    there = torch.zeros(tensor.shape, dtype=torch.bool, device=tensor.device)
    there[tuple(getattr(tensor, _ENTRIES)[0])] = True
    return there


def _of_entries(source: Tensor, result: Tensor) -> Tensor:
    """``result`` with the entries of ``source``."""
    indices = _coalesced(source).indices()
    setattr(result, _ENTRIES, (indices, result[tuple(indices)], True))
    return result


def _softmax(name: str) -> Callable[..., Tensor]:
    """Over the entries alone; other elements stay 0."""
    compute = getattr(torch, name)

    def softmax(input: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
        there = _entries_of(input, f"torch.sparse.{name}")
        values = compute(torch.where(there, input, -torch.inf), dim, dtype=dtype)
        return _of_entries(input, torch.where(there, values, 0))

    return softmax


def _sum(input: Tensor, dim: Any = None, dtype: torch.dtype | None = None) -> Tensor:
    return input.sum(dtype=dtype) if dim is None else input.sum(dim, dtype=dtype)


def _sparse_mask(tensor: Tensor, mask: Tensor) -> Tensor:
    return _of_entries(mask, torch.where(_entries_of(mask, "sparse_mask"), tensor, 0))


def _if_there(stock: Callable[..., Any], of_dense: Callable[..., Any]) -> Callable[..., Any]:
    """``of_dense`` where an argument, or the device that is asked for, is the device."""

    @functools.wraps(stock)
    def function(*args: Any, **kwargs: Any) -> Any:
        tensors = (a for a in (*args, *kwargs.values()) if isinstance(a, Tensor))
        there = _is_there(*tensors, kwargs.get("device"))
        kwargs = kwargs if not there else {k: v for k, v in kwargs.items() if k != "device"}
        return (of_dense if there else stock)(*args, **kwargs)

    return function


_OF_ENTRIES: dict[str, Callable[[Tensor], Any]] = {
    "_indices": lambda tensor: getattr(tensor, _ENTRIES)[0].detach(),
    "_values": lambda tensor: getattr(tensor, _ENTRIES)[1].detach(),
    "_nnz": lambda tensor: getattr(tensor, _ENTRIES)[1].shape[0],
    "indices": lambda tensor: getattr(tensor, _ENTRIES)[0],
    "values": lambda tensor: getattr(tensor, _ENTRIES)[1],
    "crow_indices": _rows,
    "col_indices": lambda tensor: _coalesced(tensor).indices()[1],
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
        if self.layout is torch.strided or there.device.type != DEVICE_TYPE:
            return there
        if there.layout is self.layout:  # TorchTPU moves it, but can't compute with it
            there = to(self.to_dense(), *args, **kwargs)
            warn_of(there)
        if self.layout is torch.sparse_coo:
            entries = (to(part, DEVICE_TYPE) for part in (self._indices(), self._values()))
            setattr(there, _ENTRIES, (*entries, self.is_coalesced()))
        return there

    Tensor.to = moved  # type: ignore[assignment,method-assign]
    UninitializedTensorMixin._allowed_methods.append(moved)
    for name, of_entries in _OF_ENTRIES.items():
        setattr(torch.Tensor, name, _known(getattr(torch.Tensor, name), of_entries))
    for name in ("to_sparse", "to_sparse_coo", "to_sparse_csr"):
        setattr(Tensor, name, _if_there(getattr(Tensor, name), _to_sparse))
    Tensor.sparse_mask = _if_there(Tensor.sparse_mask, _sparse_mask)  # type: ignore[method-assign]
    torch.sparse_csr_tensor = _if_there(torch.sparse_csr_tensor, _csr)
    for name, of_dense in (
        ("sum", _sum), ("softmax", _softmax("softmax")), ("log_softmax", _softmax("log_softmax")),
    ):  # fmt: skip
        setattr(torch.sparse, name, _if_there(getattr(torch.sparse, name), of_dense))
    for name in ("FloatTensor", "DoubleTensor", "LongTensor", "IntTensor"):
        setattr(torch.sparse, name, _old(getattr(torch.sparse, name), sparse_coo_tensor))
