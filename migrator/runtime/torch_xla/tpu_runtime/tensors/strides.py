"""Gives views torch's strides, which decide whether `contiguous()` and `reshape` copy.

torch_xla 2.9 has no strides: `x.t().contiguous()` is still a view, and a write to it changes x.
Here the steps from the base to a view are repeated on a meta tensor, which has torch's strides.
Tensors that aren't views count as contiguous; in torch, the result of `x.t() + 1` isn't.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy
from torch.utils.weak import WeakIdKeyDictionary

from ..device import DEVICE_TYPE
from ..dispatch.replaced_kernels import substitute

# The memories that `x.data = y` replaced, by tensor: older views still have their strides.
_older: WeakIdKeyDictionary = WeakIdKeyDictionary()
_OLDER = 8  # at most, for each tensor
# Whether any view exists that shows an element more than once: until then writes aren't checked.
ways_matter = False


def _layout(x: Tensor) -> Tensor | None:
    """A meta tensor with the shape and strides of ``x``, if that is a view on the device."""
    if x.device.type != DEVICE_TYPE:
        return None
    if x._base is None:
        return _turned(x)
    memory = memory_of(x)
    if memory is None:
        return None
    try:
        return x._view_func_unsafe(memory)  # type: ignore[no-any-return]
    except RuntimeError:  # real parts of conjugates
        return None


def _is_wrapped(x: Tensor) -> bool:
    """Whether it is a tensor of `torch.func`'s transforms: these have no memory."""
    return torch._C._functorch.is_functorch_wrapped_tensor(x)


def storage_of(x: Tensor) -> int:
    with torch._C.DisableTorchFunctionSubclass():  # lazy modules' buffers allow few functions
        return x.untyped_storage()._cdata  # type: ignore[no-any-return]


def memory_of(view: Tensor) -> Tensor | None:
    """The memory of a view, as a meta tensor; None if unknown."""
    if _is_wrapped(view):
        return None
    base: Any = view._base
    storage = storage_of(view)
    return _memory(base) if storage == storage_of(base) else _older.get(base, {}).get(storage)


def _memory(base: Tensor) -> Tensor:
    """The memory of ``base``, as a meta tensor."""
    known = _turned(base)
    return torch.empty(base.shape, dtype=base.dtype, device="meta") if known is None else known


def _turned(x: Tensor) -> Tensor | None:
    """The layout of a tensor that `t_()` has transposed, if it still is."""
    known: Tensor | None = x.__dict__.get("_turned")
    return known if known is not None and known.shape == x.shape else None


def _contiguous(stock: Callable[..., Tensor]) -> Callable[..., Tensor]:
    @functools.wraps(stock)
    def contiguous(
        self: Tensor, memory_format: torch.memory_format = torch.contiguous_format
    ) -> Tensor:
        layout = _layout(self)
        if layout is None or layout.is_contiguous():
            return stock(self, memory_format=memory_format)
        if layout.is_contiguous(memory_format=memory_format):
            return self
        return self.clone(memory_format=memory_format)

    return contiguous


def _reshaping(stock: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A view if torch can create one, otherwise a view of a copy."""

    @functools.wraps(stock)
    def reshape(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        layout = _layout(self)
        if layout is not None and not layout.is_contiguous():
            result = stock(layout, *args, **kwargs)
            if result._base is not layout._base:
                self = self.clone()
        return stock(self, *args, **kwargs)

    return reshape


def is_view(x: Tensor) -> bool:
    """Whether it is a view on the device, and of its recorded base."""
    base = x._base if x.device.type == DEVICE_TYPE and not _is_wrapped(x) else None
    return base is not None and storage_of(x) == storage_of(base)


def _is_found(x: Tensor) -> bool:
    """Whether a view has to keep its base because its strides follow from it."""
    if not is_view(x):
        return False
    layout = _layout(x)
    return layout is not None and (ways_matter or not layout.is_contiguous())


def _renewed(base: Tensor) -> Tensor:
    """The base with the writes to its views: the next sync donates its previous buffer."""
    if torch._is_functional_tensor(base):  # not in the trace of a loop
        torch._sync(base)
    return base


def _detach(stock: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """The same view of the detached base, so that its strides are known."""

    @functools.wraps(stock)
    def detach(self: Tensor) -> Tensor:
        if not _is_found(self):
            return stock(self)
        return self._view_func_unsafe(_renewed(self._base).detach())  # type: ignore[no-any-return,arg-type]

    return detach


def _data(stock: Any) -> property:
    """The same for `.data`."""

    def get(self: Tensor) -> Tensor:
        if not _is_found(self):
            return stock.__get__(self)  # type: ignore[no-any-return]
        return self._view_func_unsafe(stock.__get__(_renewed(self._base)))  # type: ignore[no-any-return,arg-type]

    def put(self: Tensor, new: Tensor) -> None:
        if self.device.type == new.device.type == DEVICE_TYPE:
            if self._base is not None:  # it stops being a view
                contents = torch.Tensor.detach(new)
                torch._C._swap_tensor_impl(self, contents)
                self = contents
            elif self._use_count() > 1 and not is_lazy(self):  # type: ignore[attr-defined]
                older = _older.setdefault(self, {})
                older[storage_of(self)] = _memory(self)
                for storage in [*older][:-_OLDER]:
                    del older[storage]
        stock.__set__(self, new)

    return property(get, put, doc=stock.__doc__)


def _turning(stock: Callable[..., Tensor], plain: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """`t_()` and similar methods: the tensor becomes a view; older views don't change."""

    @functools.wraps(stock)
    def turn(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if self.device.type != DEVICE_TYPE:
            return stock(self, *args, **kwargs)
        if not (self.requires_grad and self.is_leaf):
            torch._C._swap_tensor_impl(self, plain(self, *args, **kwargs))
            return self
        layout = _turned(self)
        layout = torch.empty(self.shape, device="meta") if layout is None else layout
        self.__dict__["_turned"] = stock(layout.detach(), *args, **kwargs)
        return stock(self, *args, **kwargs)

    return turn


def _diagonal(stock: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Of the last two dimensions: torch_xla 2.9 confuses them if others follow."""

    @functools.wraps(stock)
    def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
        if input.device.type == DEVICE_TYPE and input.dim() > 2:
            input, dim1, dim2 = input.movedim((dim1, dim2), (-2, -1)), -2, -1
        return stock(input, offset, dim1, dim2)

    return diagonal


def _asking(stock: Callable[..., Any]) -> Callable[..., Any]:
    """`stride()` and similar methods, answered by the layout."""

    @functools.wraps(stock)
    def ask(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        layout = _layout(self)
        if layout is None and self.device.type == DEVICE_TYPE and not self.numel():
            layout = torch.empty(self.shape, device="meta")
        return stock(self if layout is None else layout, *args, **kwargs)

    return ask


def _as_strided(stock: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Takes elements by their position in the base's memory, as in torch."""

    @functools.wraps(stock)
    def as_strided(
        input: Tensor, size: Any, stride: Any, storage_offset: int | None = None
    ) -> Tensor:
        layout = _layout(input)
        if layout is not None:
            offset = int(layout.storage_offset() if storage_offset is None else storage_offset)
            if input._base is not None and not is_view(input):  # the base has been replaced
                if not layout.is_contiguous():
                    raise RuntimeError("as_strided: the base of this view has other data now")
                return stock(input, size, stride, offset - layout.storage_offset())
            memory = _in_memory(input if input._base is None else input._base)
            found = stock(memory, size, stride, offset)
            if found.requires_grad:
                _without_gradient_outside(found, layout, (size, stride, offset))
            return found
        return stock(input, size, stride, storage_offset)

    return as_strided


def _without_gradient_outside(found: Tensor, layout: Tensor, place: tuple[Any, Any, int]) -> None:
    """What `as_strided` found at a place outside of the view with this layout has no gradient."""
    length = layout.untyped_storage().nbytes() // layout.element_size()
    numbers = torch.arange(length, device="cpu")
    inside = torch.zeros(length, dtype=torch.bool, device="cpu")
    own = layout.shape, layout.stride(), layout.storage_offset()
    inside[numbers.as_strided(*own).reshape(-1)] = True
    chosen = inside.as_strided(*place)
    if not chosen.all():
        there = chosen.to(found.device)
        found.register_hook(lambda gradient: torch.where(there, gradient, 0))


def _as_strided_copy(stock: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The same elements, in memory of its own."""

    @functools.wraps(stock)
    def as_strided_copy(input: Tensor, *args: Any, out: Any = None, **kwargs: Any) -> Tensor:
        if input.device.type != DEVICE_TYPE or out is not None:
            return stock(input, *args, out=out, **kwargs)
        return torch.as_strided(input, *args, **kwargs).clone()

    return as_strided_copy


def _as_strided_scatter(stock: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Writes to the elements that are at these positions of the base's memory.

    Torch does it to their numbers, on the CPU: what it refuses is refused here, too.
    """

    @functools.wraps(stock)
    def as_strided_scatter(
        input: Tensor, src: Tensor, size: Any, stride: Any, storage_offset: int | None = None
    ) -> Tensor:
        if input.device.type != DEVICE_TYPE:
            return stock(input, src, size, stride, storage_offset)
        layout = _layout(input)
        if layout is None:
            layout = torch.empty(input.shape, dtype=input.dtype, device="meta")
        length = layout.untyped_storage().nbytes() // layout.element_size()
        memory = torch.full((length,), -1, device="cpu")
        here = memory.as_strided(layout.shape, layout.stride(), layout.storage_offset())
        numbers = torch.arange(src.numel(), device="cpu").view(src.shape)
        sources = stock(here, numbers, size, stride, storage_offset).to(input.device)
        if not src.numel():
            return input.clone()
        if torch.is_grad_enabled() and (input.requires_grad or src.requires_grad):
            # Torch's own, which is not that of what is computed here.
            if input._base is not None:
                raise RuntimeError("as_strided_scatter of a view has no gradient: clone() it first")
            return stock(input, src, size, stride, storage_offset)
        values = src.to(input.dtype).reshape(-1)[sources.clamp(min=0)]
        return torch.where(sources < 0, input, values)

    return as_strided_scatter


def _resizing(stock: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Within its memory, the tensor becomes another view of it: torch_xla does this only once.

    New elements are zero.
    """

    @functools.wraps(stock)
    def resize_(self: Tensor, *size: Any, **kwargs: Any) -> Tensor:
        if self.device.type != DEVICE_TYPE or self.requires_grad:
            return stock(self, *size, **kwargs)
        layout = torch.empty(*size, device="meta", **kwargs)
        if layout.shape == self.shape:
            return self
        memory = _in_memory(self if self._base is None else self._base)
        offset = self.storage_offset()
        more = offset + layout.numel() - memory.numel()
        is_of_another = self._base is not None and "_resized" not in self.__dict__
        if is_of_another and more > 0:
            raise RuntimeError("resize_: a view cannot have more elements than its base")
        if more > 0:
            values = memory.reshape(-1)
            new = torch.cat([values, values.new_zeros(more)]).reshape(layout.shape)
        else:
            new = self.as_strided(layout.shape, layout.stride(), offset)
        torch._C._swap_tensor_impl(self, new)
        if not is_of_another:
            self.__dict__["_resized"] = True  # its base is its own
        return self

    return resize_


def _in_memory(base: Tensor) -> Tensor:
    """A base as laid out in its memory, even if it is transposed."""
    layout = _turned(base)
    if layout is None:
        return base
    strides = layout.stride()
    return base.permute(sorted(range(base.dim()), key=lambda dim: -strides[dim]))


def install() -> None:
    """Replace methods and functions; operators inside of torch keep their own."""
    for make, owners, names in (
        (_contiguous, (Tensor,), "contiguous"),
        (_reshaping, (Tensor,), "reshape_as"),
        (_reshaping, (torch, Tensor), "reshape flatten ravel"),
        (_detach, (torch, Tensor), "detach"),
        (_asking, (Tensor,), "is_contiguous stride storage_offset"),
        (_as_strided, (torch, Tensor), "as_strided"),
        (_as_strided_copy, (torch,), "as_strided_copy"),
        (_as_strided_scatter, (torch, Tensor), "as_strided_scatter"),
        (_resizing, (Tensor,), "resize_"),
        (_diagonal, (torch, Tensor), "diagonal"),
    ):
        for owner in owners:
            for name in names.split():
                substitute(owner, name, make(getattr(owner, name)))
    for name in ("t", "transpose", "swapaxes", "swapdims", "squeeze", "unsqueeze"):
        turn = _turning(getattr(Tensor, f"{name}_"), getattr(Tensor, name))
        substitute(Tensor, f"{name}_", turn)
    Tensor.data = _data(Tensor.data)  # type: ignore[assignment]
