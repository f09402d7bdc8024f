"""Slices that begin or end before the first element: `x[:, -16:]` of four columns is all of them.

torch_xla 2.9 raises "Value out of range", where torch takes the first element.
"""

from torch import Tensor

from ..dispatch.replaced_kernels import replace, stock


def _slice_position(place: int | None, size: int) -> int | None:
    return max(place + size, 0) if place is not None and place < 0 else place


def install() -> None:
    """Bring an index that counts from the end into range."""
    read, write = stock("slice_copy.Tensor"), stock("slice_scatter")

    def slice_copy(
        self: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
    ) -> Tensor:
        if (start is not None and start < 0) or (end is not None and end < 0):
            size = self.shape[dim]
            start, end = _slice_position(start, size), _slice_position(end, size)
        return read(self, dim, start, end, step)  # type: ignore[no-any-return]

    def slice_scatter(
        self: Tensor,
        src: Tensor,
        dim: int = 0,
        start: int | None = None,
        end: int | None = None,
        step: int = 1,
    ) -> Tensor:
        size = self.shape[dim]
        return write(self, src, dim, _slice_position(start, size), _slice_position(end, size), step)  # type: ignore[no-any-return]

    replace("slice_copy.Tensor", slice_copy)
    replace("slice_scatter", slice_scatter)
