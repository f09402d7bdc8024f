"""Recurrent modules as loops, against CPU torch; run as tests/runtime/conftest.py says."""

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import tpu_runtime as tpu
from torch import Tensor, nn

tpu.setup()

KINDS: list[tuple[Any, dict[str, Any]]] = [
    (kind, how)
    for kind in (nn.LSTM, nn.GRU, nn.RNN)
    for how in (
        {},
        {"num_layers": 2, "bidirectional": True},
        {"batch_first": True, "bias": False},
    )
]
KINDS += [(nn.LSTM, {"proj_size": 3}), (nn.RNN, {"nonlinearity": "relu", "num_layers": 2})]


@pytest.mark.parametrize(("kind", "how"), KINDS)
def test_outputs_states_and_gradients(kind: Any, how: dict[str, Any]) -> None:
    torch.manual_seed(0)
    module = kind(5, 7, **how)
    x = torch.randn(6, 4, 5)

    def everything(module: nn.Module, device: str) -> list[Tensor]:
        given = x.clone().to(device).requires_grad_(True)
        output, last = module(given)
        states = last if isinstance(last, tuple) else (last,)
        loss: Any = output.square().sum() + sum(state.sin().sum() for state in states)
        loss.backward()
        assert given.grad is not None
        gradients = [p.grad for p in module.parameters() if p.grad is not None]
        assert len(gradients) == len(list(module.parameters()))
        return [t.detach().cpu() for t in (output, *states, given.grad, *gradients)]

    expected = everything(copy.deepcopy(module), "cpu")
    found = everything(module.to("jax"), "jax")
    for value, wanted in zip(found, expected, strict=True):
        assert value.shape == wanted.shape
        assert (value - wanted).abs().max() <= 2e-6 * (1e-3 + wanted.abs().max())


def test_a_step_with_a_recurrent_module_compiles_once() -> None:
    torch.manual_seed(0)
    lstm, head = nn.LSTM(6, 8, 2, batch_first=True), nn.Linear(8, 3)
    x, y = torch.randn(4, 9, 6), torch.randint(3, (4,))

    def train(device: str, compiled: bool) -> tuple[list[float], Any]:
        models = nn.ModuleList(copy.deepcopy([lstm, head])).to(device)
        optimizer = torch.optim.Adam(models.parameters(), 0.01)

        def step(x: Tensor, y: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = F.cross_entropy(models[1](models[0](x)[0][:, -1]), y)
            loss.backward()
            optimizer.step()
            return loss

        run: Any = tpu.train_step(step) if compiled else step
        return [run(x.to(device), y.to(device)).item() for _ in range(5)], run

    expected, _ = train("cpu", False)
    found, step = train("jax", True)
    assert found == pytest.approx(expected, rel=2e-6)
    assert step.compilations == 1 and not step.why_eager


def test_a_second_derivative_raises_instead_of_being_lost() -> None:
    module = nn.GRU(3, 4).to("jax")
    x = torch.randn(3, 2, 3).to("jax").requires_grad_(True)
    (slope,) = torch.autograd.grad(module(x)[0].sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="can not be differentiated again"):
        slope.square().sum().backward()
