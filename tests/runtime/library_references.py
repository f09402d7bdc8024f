"""What tests of functions of libraries share: tensors, and the comparison with a reference."""

from collections.abc import Callable

import torch
from target import WORD
from torch import Tensor


def made(*shapes: tuple[int, ...], seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator) for shape in shapes]


def agrees(
    function: Callable[..., Tensor], expected: Callable[..., Tensor], *tensors: Tensor
) -> Tensor:
    """Result and gradients of both are equal, of float32 on the device and float64 on the CPU."""
    exact = [x.double().requires_grad_() for x in tensors]
    ours = [x.to(WORD).requires_grad_() for x in tensors]
    right, found = expected(*exact), function(*ours)
    assert found.device.type == WORD and found.dtype == torch.float32
    assert found.shape == right.shape
    weights = torch.randn(right.shape, generator=torch.Generator().manual_seed(1))
    (right * weights).sum().backward()
    (found * weights.to(WORD)).sum().backward()
    assert (found.detach().cpu() - right).abs().max() < 5e-6
    for x, y in zip(exact, ours, strict=True):
        assert x.grad is not None and y.grad is not None
        assert (y.grad.cpu() - x.grad).abs().max() < 2e-5
    return found
