"""Slices and elements at positions that torch_xla 2.9 gets wrong, or compiles again for.

* Slices that begin or end before the first element: `x[:, -16:]` of four columns is all of them.
  torch_xla raises "Value out of range", where torch takes the first element.
* Positions that change from step to step are inputs of a program (`changing_positions`).
"""

from torch import Tensor

from ..dispatch.replaced_kernels import replace, stock
from .changing_positions import positions


def _bounds(start: int | None, end: int | None, step: int, size: int) -> tuple[int, int, int]:
    """Where a slice begins and ends, within the dimension, and how many elements it has."""
    first, last, _ = slice(start, end).indices(size)
    last = max(first, last)
    return first, last, -(-(last - first) // step)


def install() -> None:
    read, write = stock("slice_copy.Tensor"), stock("slice_scatter")
    pick, put = stock("select_copy.int"), stock("select_scatter")
    gather, scatter = stock("index_select"), stock("index_copy")

    def slice_copy(
        self: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
    ) -> Tensor:
        first, last, count = _bounds(start, end, step, self.shape[dim])
        at = positions(self, dim, first, count, step)
        if at is not None:
            return gather(self, dim, at)  # type: ignore[no-any-return]
        return read(self, dim, first, last, step)  # type: ignore[no-any-return]

    def slice_scatter(
        self: Tensor,
        src: Tensor,
        dim: int = 0,
        start: int | None = None,
        end: int | None = None,
        step: int = 1,
    ) -> Tensor:
        first, last, count = _bounds(start, end, step, self.shape[dim])
        at = positions(self, dim, first, count, step)
        if at is not None:
            return scatter(self, dim, at.long(), src)  # type: ignore[no-any-return]
        return write(self, src, dim, first, last, step)  # type: ignore[no-any-return]

    def select_copy(self: Tensor, dim: int, index: int) -> Tensor:
        size = self.shape[dim]
        at = positions(self, dim, index % size, 1) if -size <= index < size else None
        if at is not None:
            return gather(self, dim, at).squeeze(dim)  # type: ignore[no-any-return]
        return pick(self, dim, index)  # type: ignore[no-any-return]

    def select_scatter(self: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
        size = self.shape[dim]
        at = positions(self, dim, index % size, 1) if -size <= index < size else None
        if at is not None:
            return scatter(self, dim, at.long(), src.unsqueeze(dim))  # type: ignore[no-any-return]
        return put(self, src, dim, index)  # type: ignore[no-any-return]

    replace("slice_copy.Tensor", slice_copy)
    replace("slice_scatter", slice_scatter)
    replace("select_copy.int", select_copy)
    replace("select_scatter", select_scatter)
