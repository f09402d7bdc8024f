"""Sums over 16-bit numbers are as exact as torch's, which adds up in float32."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
import tpu_runtime as tpu
from torch import Tensor

from tests.runtime.support import DEVICE

tpu.setup()

Function = Callable[[Tensor], Tensor]

FORWARD: dict[str, Function] = {
    "sum": Tensor.sum,
    "sum of rows": lambda x: x.sum(-1),
    "sum of halves": lambda x: x.float().sum((0, 1), dtype=x.dtype),
    "mean": lambda x: (x + 1).mean(),
    "mean of columns": lambda x: (x + 1).mean((0, 1)),
    "nansum": lambda x: x.nansum((0, 1)),
    "var": Tensor.var,
    "std": lambda x: x.std((0, 1)),
    "var_mean": lambda x: torch.var_mean(x, (0, 1))[0],
    "norm": lambda x: x.norm(),
    "norm of columns": lambda x: torch.linalg.vector_norm(x, dim=(0, 1)),
    "norm of order 1": lambda x: (x / 20).norm(1),
    "logsumexp": lambda x: x.reshape(-1, 64).logsumexp(0),
    "softmax": lambda x: x.reshape(64, -1).softmax(-1) * 100,
    "log_softmax": lambda x: x.reshape(64, -1).log_softmax(-1),
    "cumsum": lambda x: x.abs().reshape(-1, 64).cumsum(0),
    "cumprod": lambda x: (1 + x.sign() / 128).reshape(-1, 64).cumprod(0),
    "prod": lambda x: (1 + x.sign() / 128).reshape(-1, 64).prod(0),
    "avg_pool": lambda x: F.avg_pool2d(x.abs(), 32),
    "adaptive_avg_pool": lambda x: F.adaptive_avg_pool2d(x.abs(), 1),
    "adaptive_avg_pool of parts": lambda x: F.adaptive_avg_pool2d(x.abs(), (7, 3)),
    "mse_loss": lambda x: F.mse_loss(x, x / 2),
    "l1_loss": lambda x: F.l1_loss(x, x / 2),
    "smooth_l1_loss": lambda x: F.smooth_l1_loss(x, x / 10),
    "kl_div": lambda x: F.kl_div(x, x.abs()),
    "cross_entropy": lambda x: F.cross_entropy(
        x.reshape(-1, 64), torch.arange(4096, device=x.device) % 64
    ),
    "binary_cross_entropy": lambda x: F.binary_cross_entropy_with_logits(x, x.sigmoid()),
    "cosine_similarity": lambda x: F.cosine_similarity(x, x.roll(1, 0) + x, dim=1),
}
# Gradients that are sums, by a bias.
GRADIENTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "linear": lambda x, b: F.linear(x, torch.eye(64, dtype=x.dtype, device=x.device), b),
    "conv1d": lambda x, b: F.conv1d(x, x[:64, :, :1] / 64, b),
    "broadcast": lambda x, b: b + x,
    "softmax": lambda x, b: b.repeat(64).softmax(0) * x.reshape(-1)[:4096].abs() * 4096,
}


def normal(dtype: torch.dtype) -> Tensor:
    return torch.randn(64, 64, 64, generator=torch.Generator().manual_seed(0)).to(dtype)


def is_near(found: Tensor, exact: Tensor, dtype: torch.dtype) -> bool:
    """A few roundings of its elements away; sums in 16 bits are tens of them away."""
    spread = exact.std() if exact.numel() > 1 else 0
    allowed = 8 * torch.finfo(dtype).eps * (exact.abs() + 0.2 * spread)
    return bool(((found.cpu().double() - exact).abs() <= allowed).all())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
@pytest.mark.parametrize("name", FORWARD)
def test_a_sum_is_rounded_once(name: str, dtype: torch.dtype) -> None:
    x = normal(dtype)
    found = FORWARD[name](x.to(DEVICE))
    assert found.dtype == dtype
    assert is_near(found, FORWARD[name](x.double()), dtype)


@pytest.mark.parametrize("name", GRADIENTS)
def test_a_gradient_that_is_a_sum_is_rounded_once(name: str) -> None:
    def gradient(x: Tensor) -> Tensor:
        bias = torch.zeros(64, dtype=x.dtype, device=x.device, requires_grad=True)
        result = GRADIENTS[name](x, bias)
        (found,) = torch.autograd.grad(result, bias, torch.full_like(result, 0.75))
        return found

    x = normal(torch.bfloat16)
    assert is_near(gradient(x.to(DEVICE)), gradient(x.double()), x.dtype)
