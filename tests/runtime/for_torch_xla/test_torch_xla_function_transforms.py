"""torch.func's transforms, and batched gradients: what an operator gives inside of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
import tpu_runtime as tpu
from torch import Tensor
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap

tpu.setup()

Function = Callable[[Tensor], Tensor]


def labels(x: Tensor) -> Tensor:
    return torch.tensor([0, 2, -100], device=x.device)


def square(x: Tensor) -> Tensor:
    return x.mT @ x + torch.eye(4, device=x.device)


# Of torch's own composition: stock's kernels for these left no gradient.
COMPOSED: dict[str, Function] = {
    "std": lambda x: x.std(0),
    "std of all": torch.std,
    "cross": lambda x: torch.cross(x, x.roll(1, 1), dim=0),
    "diag": torch.diag,
    "inverse": lambda x: square(x).inverse(),
    "logdet": lambda x: square(x).logdet(),
    "kl_div": lambda x: F.kl_div(x.log_softmax(-1), x.abs(), reduction="sum"),
    "qr": lambda x: torch.qr(x.mT).R.abs(),
    "selu": torch.selu,
    "svd": lambda x: torch.svd(x).S,
}
# Divided by the sum of weights.
LOSSES: dict[str, Function] = {
    "cross_entropy": lambda x: F.cross_entropy(x, labels(x)),
    "weighted": lambda x: F.cross_entropy(x, labels(x), torch.arange(1.0, 5, device=x.device)),
    "of images": lambda x: F.cross_entropy(x.mT.reshape(1, 4, 3, 1), labels(x).view(1, 3, 1)),
}
# With gradients that have to broadcast.
ACTIVATIONS: dict[str, Function] = {
    "relu": F.relu,
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
    "leaky_relu": F.leaky_relu,
    "hardtanh": F.hardtanh,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "logsigmoid": F.logsigmoid,
}
# Views, whose strides the runtime asks for.
VIEWS: dict[str, Function] = {
    "contiguous": lambda x: x.t().contiguous(),
    "reshape": lambda x: x.t().reshape(-1),
    "expand": lambda x: x[:1].expand(5, 4),
    "unfold": lambda x: x.unfold(1, 2, 1),
    "layer_norm": lambda x: F.layer_norm(x, (4,)),
}


# Those of one dimension raised an error.
TANGENTS: dict[str, Function] = {
    "max_unpool1d": lambda x: F.max_unpool1d(
        x, torch.arange(0, 8, 2, device=x.device).expand(3, 4), 2
    ),
    "max_unpool2d": lambda x: F.max_unpool2d(
        x.view(1, 3, 2, 2), torch.tensor([[0, 3], [8, 10]], device=x.device).expand(1, 3, 2, 2), 2
    ),
    "max_unpool3d": lambda x: F.max_unpool3d(
        x[:2].view(1, 1, 2, 2, 2),
        torch.tensor([[[0, 2], [9, 11]], [[32, 34], [40, 42]]], device=x.device)[None, None],
        2,
    ),
}


def squared(function: Function) -> Function:
    return lambda x: function(x).pow(2).sum()


@pytest.mark.parametrize("name", [*COMPOSED, *LOSSES, *ACTIVATIONS, *VIEWS, *TANGENTS])
def test_values_of_transforms(name: str) -> None:
    function = (COMPOSED | LOSSES | ACTIVATIONS | VIEWS | TANGENTS)[name]
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    there = x.to("xla")
    for made in (grad(squared(function)), jacrev(function), jacfwd(function)):
        assert torch.allclose(made(there).cpu(), made(x), atol=1e-4, rtol=1e-4)
    tangents = [jvp(function, (t,), (t.cos(),))[1].cpu() for t in (there, x)]
    assert torch.allclose(*tangents, atol=1e-4, rtol=1e-4)
    both = vmap(grad(squared(function)))
    assert torch.allclose(
        both(torch.stack([there, there])).cpu(), both(torch.stack([x, x])), atol=1e-4, rtol=1e-4
    )


@pytest.mark.parametrize("name", ["std", "cross_entropy", "relu", "silu", "contiguous"])
def test_hessians(name: str) -> None:
    function = squared((COMPOSED | LOSSES | ACTIVATIONS | VIEWS)[name])
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(hessian(function)(x.to("xla")).cpu(), hessian(function)(x), atol=1e-4)


def test_batched_gradients() -> None:
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))

    def batched(x: Tensor) -> Tensor:
        x = x.clone().requires_grad_()
        ways = torch.eye(4, device=x.device)
        (result,) = torch.autograd.grad(F.relu(x.std(0)), x, ways, is_grads_batched=True)
        return result

    assert torch.allclose(batched(x.to("xla")).cpu(), batched(x), atol=1e-5)
