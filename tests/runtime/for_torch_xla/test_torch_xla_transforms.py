"""Fourier transforms and parts of complex numbers; optimizers made for captured CUDA graphs."""

from collections.abc import Callable

import pytest
import torch
import tpu_runtime as tpu
from torch import Tensor, nn, optim

tpu.setup()

GRADIENTS: dict[str, Callable[[Tensor], Tensor]] = {
    "irfft of rfft": lambda x: torch.fft.irfft(torch.fft.rfft(x), n=7),
    "hfft of ihfft": lambda x: torch.fft.hfft(torch.fft.ihfft(x)),
    "irfft2": lambda x: torch.fft.irfft2(torch.fft.rfft2(x)),
    "irfftn, norm": lambda x: torch.fft.irfftn(torch.fft.rfftn(x, norm="ortho"), dim=(1, 0)),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name: str) -> None:
    x = torch.randn(4, 7, generator=torch.Generator().manual_seed(0)).requires_grad_()
    there = x.detach().to("xla").requires_grad_()
    for leaf in (x, there):
        GRADIENTS[name](leaf).pow(3).sum().backward()
    assert x.grad is not None and there.grad is not None
    assert torch.allclose(there.grad.cpu(), x.grad, rtol=1e-3, atol=1e-3)


def test_istft_of_a_batch() -> None:
    x = torch.randn(2, 64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    there = x.detach().to("xla").requires_grad_()
    results = []
    for leaf in (x, there):
        window = torch.hann_window(16).to(leaf.device)
        waves = torch.stft(leaf, 16, window=window, return_complex=True)
        result = torch.istft(waves * 2, 16, window=window, length=64)
        result.pow(2).sum().backward()
        results.append(result.detach().cpu())
    assert torch.allclose(results[1], results[0], atol=1e-4)
    assert x.grad is not None and there.grad is not None
    assert torch.allclose(there.grad.cpu(), x.grad, atol=1e-3)


def test_parts_are_transposed() -> None:
    x = torch.view_as_complex(torch.arange(48.0).reshape(2, 3, 4, 2))
    there = torch.view_as_complex(torch.view_as_real(x.to("xla")).transpose(1, 2))
    assert torch.equal(there.cpu(), x.transpose(1, 2))


@pytest.mark.parametrize("kind", [optim.Adam, optim.AdamW, optim.NAdam, optim.Adadelta])
def test_capturable_and_foreach(kind: Callable[..., optim.Optimizer]) -> None:
    def trained(device: str, **options: bool) -> Tensor:
        torch.manual_seed(0)
        model = nn.Linear(3, 2).to(device)
        optimizer = kind(model.parameters(), lr=0.1, **options)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(2, 3, device=device)).pow(2).sum().backward()
            optimizer.step()
        return model.weight.detach().cpu()

    wanted = trained("cpu")
    assert torch.allclose(trained("xla", capturable=True, foreach=True), wanted, atol=1e-4)


def test_asgd_with_foreach() -> None:
    weight = torch.ones(3, device="xla", requires_grad=True)
    optimizer = optim.ASGD([weight], lr=0.1, foreach=True)
    weight.sum().backward()
    optimizer.step()
    assert torch.allclose(weight.detach().cpu(), torch.full((3,), 0.9), atol=1e-4)
