"""Dimensions counted from the end, and tensors without elements or dimensions."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
import tpu_runtime as tpu
from torch import Tensor

tpu.setup()

CASES: dict[str, tuple[tuple[int, ...], Callable[[Tensor], Tensor]]] = {
    "cummax": ((3, 4), lambda x: x.cummax(-1).values),
    "cummin": ((3, 4), lambda x: torch.cummin(x, dim=-2).values),
    "logcumsumexp": ((3, 4), lambda x: torch.logcumsumexp(x, dim=-1)),
    "unfold": ((3, 4), lambda x: x.unfold(-1, 2, 1) * 2),
    "unfold of rows": ((3, 4), lambda x: x.unfold(-2, 2, 1) * 2),
    "flip": ((), lambda x: x.flip(-1)),
    "var_mean": ((), lambda x: torch.var_mean(x, -1)[1]),
    "nanmedian": ((0, 3), lambda x: x.nanmedian(1).values),
    "nanmedian of all": ((0,), lambda x: x.nanmedian()),
    "max_pool2d": ((0, 2, 4, 4), lambda x: F.max_pool2d(x, 2)),
    "adaptive_max_pool2d": ((0, 2, 4, 4), lambda x: F.adaptive_max_pool2d(x, 2)),
    "mse_loss": ((0, 3), lambda x: F.mse_loss(x, x.detach() + 1)),
    "smooth_l1_loss": ((0, 3), lambda x: F.smooth_l1_loss(x, x.detach() + 1)),
    "as_strided_copy": ((3, 4), lambda x: torch.as_strided_copy(x.t(), (2, 2), (1, 2))),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name: str) -> None:
    shape, compute = CASES[name]
    x = torch.arange(1.0, torch.Size(shape).numel() + 1).reshape(shape).requires_grad_()
    there = x.detach().to("jax").requires_grad_()
    results = compute(x), compute(there)
    for result in results:
        result.pow(2).sum().backward()
    assert torch.allclose(results[1].detach().cpu(), results[0].detach(), equal_nan=True)
    assert x.grad is not None and there.grad is not None
    assert torch.allclose(there.grad.cpu(), x.grad, equal_nan=True)


@pytest.mark.parametrize("p", [0, 0.5, 1, 2, 3, torch.inf])
@pytest.mark.parametrize("rows", [3, 30])
def test_distances_without_a_gradient(p: float, rows: int) -> None:
    x, y = torch.randn(2, rows, 3), torch.randn(2, 4, 3)
    found = torch.cdist(x.to("jax"), y.to("jax"), p)
    assert torch.allclose(found.cpu(), torch.cdist(x, y, p), atol=1e-5)


@pytest.mark.parametrize("extreme", [torch.cummax, torch.cummin])
@pytest.mark.parametrize("dim", [0, -1])
def test_the_place_of_nan_is_that_of_the_last(extreme: Callable[..., Tensor], dim: int) -> None:
    x = torch.tensor([[1.0, torch.nan, 3, -1], [2, 4, torch.nan, torch.nan], [5, -2, 1, 7]])
    found, expected = extreme(x.to("jax"), dim), extreme(x, dim)
    assert torch.equal(found[1].cpu(), expected[1].int())
    assert torch.equal(found[0].isnan().cpu(), expected[0].isnan())


@pytest.mark.parametrize("shape", [(0, 5, 5), (0, 5)])
def test_factors_of_nothing(shape: tuple[int, ...]) -> None:
    factored = torch.zeros(shape), torch.zeros(*shape[:-2], min(shape[-2:]), dtype=torch.int32)
    there = torch.lu_unpack(*(part.to("jax") for part in factored))
    assert [part.shape for part in there] == [p.shape for p in torch.lu_unpack(*factored)]
