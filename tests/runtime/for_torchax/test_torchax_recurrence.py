"""A recurrent module is a loop in a compiled step; its numbers are in test_contract.py."""

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import tpu_runtime as tpu
from torch import Tensor, nn

tpu.setup()


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
