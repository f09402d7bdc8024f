"""Copies from the device to the device: `t.copy_(p)`, `t[:] = p`, `p.to("xla", copy=True)`.

torch_xla 2.9 lets both share a buffer after a `sync`. The next step that writes one of them donates
it, and reading the other raises "!buffer->IsDeleted()", for example in a copied target network.
`copy.copy(t)`, which shares its elements with t in torch, makes a copy through the CPU there.
"""

import copy
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._tensor import _rebuild_from_type_v2
from torch.nn import Parameter
from torch_xla import _XLAC

from ..device import DEVICE_TYPE
from ..dispatch.replaced_kernels import replace, stock
from .strides import is_view, storage_of


def _shallow(self: Tensor) -> Any:
    """`copy.copy`: another tensor with the same elements and the program's own attributes."""
    if self.device.type != DEVICE_TYPE or isinstance(self, Parameter):
        return copy._reconstruct(self, None, *self.__reduce_ex__(4))  # type: ignore[attr-defined]
    state = torch._utils._get_obj_state(self)
    return _rebuild_from_type_v2(
        lambda: self.data.requires_grad_(self.requires_grad), type(self), (), state
    )


def _deep(stock: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """`copy.deepcopy`: tensors that share elements still do so in the copy; not so in stock."""

    @functools.wraps(stock)
    def deepcopy(self: Tensor, memo: dict[int, Any]) -> Tensor:
        if self.device.type != DEVICE_TYPE or id(self) in memo:
            return stock(self, memo)
        base, place = self._base, storage_of(self)  # like torch's storages in the memo
        other = memo.get(place)
        if type(self) is not Tensor or not self.is_leaf or self.requires_grad:
            new = stock(self, memo)
        elif base is not None and base.is_leaf and is_view(self):
            with torch.no_grad():
                new = self._view_func_unsafe(copy.deepcopy(base, memo))
            new.__dict__.update(copy.deepcopy(self.__dict__, memo))
        elif other is not None and other.shape == self.shape:
            new = other.detach()
            new.__dict__.update(copy.deepcopy(self.__dict__, memo))
        else:
            new = stock(self, memo)
        memo.setdefault(place, new)
        memo[id(self)] = new
        return new

    return deepcopy


def _as_another_input(tensor: Tensor) -> Tensor:
    """The same buffer as an input of its own, if it is computed.

    torch_xla takes graphs for the same that only differ in which tensor is read again: after
    `rows[0] = a; rows[1] = b; rows[2] = a`, a graph that ends with `rows[2] = b` gives a again.
    """
    if _XLAC._check_tensor_need_materialization([tensor])[0]:
        return tensor
    found = _XLAC._get_tensors_xla_device_data_node([tensor])[1]
    return found[0] if found else tensor


def install() -> None:
    """Give each copy its own buffer."""
    copy_, clone, to_copy = stock("copy"), stock("clone"), stock("_to_copy")
    view_copy = stock("view_copy")

    def apart(source: Tensor) -> Tensor:
        if source.device.type != DEVICE_TYPE:
            return source
        return view_copy(_as_another_input(source), list(source.shape))  # type: ignore[no-any-return]

    def copy_apart(self: Tensor, src: Tensor, non_blocking: bool = False) -> Tensor:
        return copy_(self, apart(src), non_blocking)  # type: ignore[no-any-return]

    def to_copy_apart(self: Tensor, *, device: Any = None, **kwargs: Any) -> Tensor:
        stays = device is None or device.type == DEVICE_TYPE
        return to_copy(apart(self) if stays else self, device=device, **kwargs)  # type: ignore[no-any-return]

    def clone_apart(self: Tensor, *, memory_format: Any = None) -> Tensor:
        return clone(apart(self), memory_format=memory_format)  # type: ignore[no-any-return]

    replace("copy", copy_apart)
    replace("clone", clone_apart)
    replace("_to_copy", to_copy_apart)
    Tensor.__deepcopy__ = _deep(Tensor.__deepcopy__)  # type: ignore[method-assign]
    Tensor.__copy__ = _shallow  # type: ignore[attr-defined]
