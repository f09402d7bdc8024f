"""What the arrays of a written program are for."""

import json
from collections import Counter
from pathlib import Path

import pytest
import torch
import tpu_runtime as tpu
from torch import nn
from tpu_runtime.compilation import lowering

from tests.runtime.support import batch

tpu.setup()

pytestmark = pytest.mark.usefixtures("no_programs")
WEIGHTS = 4  # of two layers, with biases


def test_a_step_has_weights_gradients_and_states(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TPU_RUNTIME_PROGRAMS", str(tmp_path))
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).to("jax")
    optimizer = torch.optim.AdamW(model.parameters())
    for number in range(4):
        loss = model(batch(number, 16, 4).to("jax")).square().mean()
        loss.backward()
        optimizer.step()
        loss.item()
        optimizer.zero_grad()
    file = max(tmp_path.glob("*.json"))
    assert lowering.runs[file.with_suffix(".mlir").name] == 4
    last = json.loads(file.read_text("utf-8"))
    results = Counter(last["results"])
    # Two moments of each weight, and the step count that all share.
    assert results["weights"] == WEIGHTS and results["optimizer states"] == 2 * WEIGHTS + 1
    assert results["gradients"] == WEIGHTS  # a step ends with the optimizer's, which reads them
    # What an update replaces is known by its result; nothing else holds a weight.
    assert set(last["given"].values()) <= {"weights", "optimizer states"}


def test_a_frozen_weight_is_one_by_what_holds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TPU_RUNTIME_PROGRAMS", str(tmp_path))
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2)).to("jax").requires_grad_(False)
    for number in range(3):
        model(batch(number, 16, 4).to("jax")).sum().item()
    (file, *_) = sorted(tmp_path.glob("*.json"))
    assert Counter(json.loads(file.read_text("utf-8"))["given"].values()) == {"weights": WEIGHTS}
