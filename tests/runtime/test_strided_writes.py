"""`as_strided_scatter` counts positions in the memory of a view's base, and refuses as torch."""

import itertools
from collections.abc import Callable

import pytest
import torch
import tpu_runtime as tpu
from target import WORD
from torch import Tensor

tpu.setup()

VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "no view": lambda x: x,
    "transposed": lambda x: x.t(),
    "rows": lambda x: x[1:],
    "columns": lambda x: x[:, 2:],
    "every other": lambda x: x[::2, 1::2],
    "expanded": lambda x: x[0].expand(3, 6),
    "a number": lambda x: x[1, 2],
    "diagonal": lambda x: x.diagonal(),
    "nothing": lambda x: x[:0],
    "overlapping": lambda x: x.unfold(1, 3, 1),
    "detached": lambda x: x.detach()[2:],
    "a view of a view": lambda x: x[1:].t()[1:, :2],
    "columns of another shape": lambda x: x.view(2, 12)[:, 3:7],
}
Place = tuple[tuple[int, ...], tuple[int, ...], int | None]
PLACES: tuple[Place, ...] = (
    ((2, 2), (4, 1), None),
    ((2, 2), (4, 1), 1),
    ((2, 2), (1, 6), 3),
    ((4,), (3,), 0),
    ((), (), 2),
    ((2, 2), (1, 1), 0),  # the last one counts
    ((3,), (0,), 1),  # refused
    ((0,), (1,), 0),
    ((2,), (1,), 23),  # refused: beyond the memory
)


def _written(x: Tensor, view: str, place: Place, shape: tuple[int, ...]) -> Tensor | None:
    """None: refused."""
    size, stride, offset = place
    values = -torch.arange(1, torch.Size(shape).numel() + 1).reshape(shape).to(x.device)
    part = VIEWS[view](x)
    try:
        written = torch.as_strided_scatter(part, values, size, stride, offset)
    except RuntimeError:
        return None
    assert part.dtype == written.dtype
    return torch.cat([written.flatten(), x.flatten()]).cpu()


@pytest.mark.parametrize("view", VIEWS)
def test_elements_are_those_of_the_memory(view: str) -> None:
    x = torch.arange(24.0).reshape(4, 6)
    for place, other in itertools.product(PLACES, (False, True)):
        shape = (*place[0], 3) if other else place[0]  # refused
        expected = _written(x, view, place, shape)
        written = _written(x.to(WORD), view, place, shape)
        assert (written is None) == (expected is None), place
        if written is not None and expected is not None:
            assert torch.equal(written, expected), place


def test_gradients() -> None:
    """Torch's: that of the input is only where it is overwritten."""
    x, new = torch.arange(24.0).reshape(4, 6), torch.arange(1.0, 5).reshape(2, 2)
    found = []
    for device in ("cpu", WORD):
        old, values = (t.to(device, copy=True).detach().requires_grad_() for t in (x, new))
        old.as_strided_scatter(values, (2, 2), (4, 1), 1).square().sum().backward()
        assert old.grad is not None and values.grad is not None
        found.append((old.grad.cpu(), values.grad.cpu()))
    assert all(map(torch.equal, *found))


@pytest.mark.parametrize("view", ["rows", "columns", "transposed", "every other"])
def test_elements_outside_of_a_view_have_no_gradient(view: str) -> None:
    found = []
    for device in ("cpu", WORD):
        x = torch.arange(24.0).reshape(4, 6).to(device, copy=True).requires_grad_()
        values = VIEWS[view](x).as_strided((3, 5), (5, 1), 1)
        (values * values).sum().backward()
        assert x.grad is not None
        found.append((values.detach().cpu(), x.grad.cpu()))
    assert all(map(torch.equal, *found))


def test_a_view_that_is_written_to_has_no_gradient() -> None:
    x = torch.arange(24.0).reshape(4, 6).to(WORD).requires_grad_()
    with pytest.raises(RuntimeError, match="no gradient"):
        x.t().as_strided_scatter(x.detach()[:2, :2], (2, 2), (1, 6), 3)
