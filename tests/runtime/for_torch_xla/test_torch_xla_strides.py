"""What depends on the strides of views, which torch_xla 2.9 does not have."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_xla
import tpu_runtime as tpu
from torch import Tensor

from tests.runtime.support import DEVICE, on_device, small

tpu.setup()

VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "itself": lambda x: x,
    "transposed": lambda x: x.t(),
    "transposed twice": lambda x: x.t().t(),
    "a row": lambda x: x[1],
    "a column": lambda x: x[:, 1],
    "every second column": lambda x: x[:, ::2],
    "expanded": lambda x: x[:1].expand(4, 3),
    "permuted": lambda x: x.view(2, 3, 1).permute(2, 1, 0),
    "one of several": lambda x: x.unbind(1)[2],
    "detached": lambda x: x.t().detach(),
    "its data": lambda x: x.t().data,
    "turned over": lambda x: x.clone().t_(),
    "turned over, of others": lambda x: torch.stack([x]).transpose_(0, 2).swapaxes_(0, 1),
    "a view of what is turned over": lambda x: x.clone().t_()[1:],
    "turned over and back": lambda x: x.clone().t_().t_(),
    "as_strided of what is turned over": lambda x: x.clone().t_().as_strided((2, 2), (1, 3)),
    "of a detached": lambda x: x.detach().t(),
    "a diagonal": lambda x: x.diagonal(),
    "windows": lambda x: x.unfold(1, 2, 1),
    "as_strided": lambda x: x.as_strided((2, 2), (1, 3), 1),
    "as_strided of a view": lambda x: x[:, 1:].as_strided((2, 1), (3, 1)),
    "as_strided of a view, elsewhere": lambda x: x.detach()[1:].as_strided((3,), (2,), 0),
}
ASKED: dict[str, Callable[[Tensor], Any]] = {
    "stride": lambda x: x.stride(),
    "stride of one": lambda x: x.stride(0),
    "offset": lambda x: x.storage_offset(),
    "contiguous": lambda x: x.is_contiguous(),
    "values": lambda x: x.tolist(),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views(name: str) -> None:
    expected, found = (
        {asked: ask(VIEWS[name](x)) for asked, ask in ASKED.items()} for x in (small(), on_device())
    )
    assert found == expected


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("copy", ["contiguous", "reshape", "flatten"])
def test_what_is_written_to_the_result(name: str, copy: str) -> None:
    """It reaches the source where, and only where, torch's result is a view. Gradients, too."""
    results = []
    for start in (small(), on_device()):
        source = start.requires_grad_() * 1
        view = VIEWS[name](source)
        made = view.reshape(-1) if copy == "reshape" else getattr(view, copy)()
        weights = torch.arange(1.0, made.numel() + 1).reshape(made.shape).to(start.device)
        (gradient,) = torch.autograd.grad((made * weights).sum() + source.sum(), start)
        with torch.no_grad():
            made.mul_(2)
        results.append([tensor.detach().cpu() for tensor in (source, made, gradient)])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_inside_of_transforms() -> None:
    def function(row: Tensor) -> Tensor:
        return (row.reshape(3, 2).t().reshape(-1).contiguous() * row).cumsum(0)

    for transform in (torch.vmap(function), torch.func.jacrev(torch.vmap(function))):
        expected, found = (transform(x.view(1, 6)) for x in (small(), on_device()))
        assert torch.equal(found.cpu(), expected)


def test_in_scripts() -> None:
    """TorchScript knows the functions that are replaced."""

    def function(x: Tensor) -> Tensor:
        y = torch.flatten(torch.matmul(x, x.t()), 0)
        return torch.layer_norm(torch.div(torch.cumsum(y, 0), 2), [4])

    x = small()
    found = torch.jit.script(function)(x.to(DEVICE))
    torch.testing.assert_close(found.cpu(), function(x))


@pytest.mark.parametrize("dims", [(0, 1), (1, 0), (0, 2), (2, 1)])
@pytest.mark.parametrize("offset", [-1, 0, 1])
def test_diagonals(dims: tuple[int, int], offset: int) -> None:
    here = torch.arange(24.0).reshape(2, 3, 4)
    there = here.to(DEVICE)
    for x in (here, there):
        x.diagonal(offset, *dims).mul_(-1)
    assert torch.equal(there.cpu(), here)
    expected, found = (torch.diagonal(x, offset, *dims) for x in (here, there))
    assert torch.equal(found.cpu(), expected)


def test_a_view_is_detached_behind_a_sync() -> None:
    """The sync gives away what its base held before a write by an alias."""
    base = torch.arange(6.0).reshape(3, 2).to("xla")
    turned = base.t()
    base.data.add_(6)
    once_more = turned.t()
    for tensor, expected in ((base, 6.0), (turned, 6.0), (once_more, 6.0)):
        detached = tensor.detach()
        torch_xla.sync()
        assert detached.cpu().min() == expected
        assert (tensor.data.sum() - 51).item() == 0
