"""A recurrent module is a loop in a compiled step; its numbers are in test_contract.py."""

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import tpu_runtime as tpu
from torch import Tensor, nn

from tests.runtime.for_torchax.modules import compiled

tpu.setup()


def test_a_step_with_a_recurrent_module_compiles_once() -> None:
    torch.manual_seed(0)
    lstm, head = nn.LSTM(6, 8, 2, batch_first=True), nn.Linear(8, 3)
    x, y = torch.randn(4, 9, 6), torch.randint(3, (4,))

    def train(device: str) -> tuple[list[float], Any]:
        models = nn.ModuleList(copy.deepcopy([lstm, head])).to(device)
        optimizer = torch.optim.Adam(models.parameters(), 0.01)

        def step(x: Tensor, y: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = F.cross_entropy(models[1](models[0](x)[0][:, -1]), y)
            loss.backward()
            optimizer.step()
            return loss

        return [step(x.to(device), y.to(device)).item() for _ in range(5)], models[0]

    expected, _ = train("cpu")
    found, there = train("jax")
    assert found == pytest.approx(expected, rel=2e-6)
    assert compiled(there) == 1
