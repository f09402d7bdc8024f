"""The gradient of cross entropy: torch's own numbers, without a scatter."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import tpu_runtime as tpu
from tpu_runtime.lazy import lazy_graph

tpu.setup()
IGNORED = 3


def gradient(device: str, shape: tuple[int, ...], **how: Any) -> torch.Tensor:
    """Of a loss with some targets that count for nothing; by torch's decomposition on the CPU."""
    torch.manual_seed(0)
    x, weight = torch.randn(shape), torch.rand(shape[min(1, len(shape) - 1)])
    target = torch.randint(0, 7, shape[:1] + shape[2:] if len(shape) > 1 else ())
    if how.pop("weighted", False):
        how["weight"] = weight.to(device)
    x = F.log_softmax(x, min(1, x.dim() - 1)).to(device).requires_grad_()
    loss = F.nll_loss(x, target.to(device), **how)
    loss.backward(torch.linspace(0.3, 2, loss.numel()).reshape(loss.shape).to(device))
    assert x.grad is not None
    return x.grad.cpu()


@pytest.mark.parametrize("shape", [(7,), (12, 7), (2, 7, 4, 5)])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_gradient_is_torchs(shape: tuple[int, ...], reduction: str, weighted: bool) -> None:
    how = {"reduction": reduction, "weighted": weighted, "ignore_index": IGNORED}
    found, expected = gradient("jax", shape, **how), gradient("cpu", shape, **how)
    # Quotient and product of a weighted mean are in another order on the CPU.
    rtol = 2e-7 if weighted and reduction == "mean" else 0.0
    torch.testing.assert_close(found, expected, rtol=rtol, atol=0.0)


def test_an_infinite_gradient_is_that_of_targets_only() -> None:
    for device in ("cpu", "jax"):
        x = torch.zeros(1, 3).to(device).requires_grad_()
        F.nll_loss(x, torch.tensor([1]).to(device)).backward(torch.tensor(torch.inf).to(device))
        assert x.grad is not None and x.grad.tolist() == [[0, -torch.inf, 0]]


def test_no_scatter_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TPU_RUNTIME_PROGRAMS", str(tmp_path))
    x = torch.randn(6, 50).to("jax").requires_grad_()
    F.cross_entropy(x, torch.arange(6).to("jax")).backward()
    lazy_graph.run()
    assert x.grad is not None
    texts = [file.read_text("utf-8") for file in tmp_path.glob("*.mlir")]
    assert texts and not any("stablehlo.scatter" in text for text in texts)
