"""Accelerate and transformers' Trainer on both targets: set-up alone, and the CPU's numbers.

Run in the environment of each target, see conftest.py.
"""

import copy
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
import tpu_runtime as tpu
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from safetensors.torch import load_file, save_file
from tiers import thorough_but
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from tpu_runtime.frameworks.import_hooks import when_imported
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

from tests.runtime.support import WORD

tpu.setup()

CONFIG = LlamaConfig(
    vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
    num_key_value_heads=2, max_position_embeddings=16,
)  # fmt: skip


def trained(model: nn.Module, batches: list[Any], step: Any) -> list[float]:
    """The losses of CPU torch, as both train by default: AdamW, gradients clipped to 1."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)
    losses = []
    for batch in batches:
        optimizer.zero_grad()
        loss: Tensor = step(model, batch)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("precision", thorough_but(["bf16"], ["no", "bf16"]))
def test_a_loop_with_accelerate(precision: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    data = TensorDataset(torch.randn(44, 16), torch.randint(0, 4, (44,)))
    loader = DataLoader(data, batch_size=16, shuffle=True)

    def step(net: nn.Module, batch: Any) -> Tensor:
        return nn.functional.cross_entropy(net(batch[0]), batch[1])

    torch.manual_seed(1)
    expected = trained(copy.deepcopy(model), list(loader), step)

    torch.manual_seed(1)
    AcceleratorState._reset_state(reset_partial_state=True)
    accelerator = Accelerator(mixed_precision=precision)
    assert accelerator.device.type == WORD
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    losses = []
    for batch in loader:
        optimizer.zero_grad()
        loss = step(model, batch)
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    apart = max(abs(a - b) for a, b in zip(losses, expected, strict=True))
    assert 1e-5 < apart < 3e-2 if precision == "bf16" else apart < 1e-5
    assert next(model.parameters()).device.type == WORD


def test_gradients_are_accumulated_up_to_the_last_batch_of_each_epoch() -> None:
    """The last batch of an odd number is a step by itself; what the loop draws stays in order."""
    torch.manual_seed(0)
    model = nn.Linear(8, 4)
    data = TensorDataset(torch.randn(28, 8), torch.randn(28, 4))
    loader = DataLoader(data, batch_size=4, shuffle=True)  # seven batches
    epochs, every = 3, 2

    def noisy(net: nn.Module, batch: Any) -> Tensor:
        scale = torch.rand(()).item()
        return nn.functional.mse_loss(net(batch[0]), batch[1]) * (1 + scale)

    torch.manual_seed(1)
    expected_model = copy.deepcopy(model)
    optimizer = torch.optim.AdamW(expected_model.parameters(), lr=1e-2)
    expected = []
    for _ in range(epochs):
        for number, batch in enumerate(loader, 1):
            loss = noisy(expected_model, batch)
            (loss / every).backward()
            expected.append(loss.item())
            if number % every == 0 or number == len(loader):
                optimizer.step()
                optimizer.zero_grad()

    torch.manual_seed(1)
    AcceleratorState._reset_state(reset_partial_state=True)
    accelerator = Accelerator(gradient_accumulation_steps=every)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    losses, steps = [], []
    for _ in range(epochs):
        for batch in loader:
            with accelerator.accumulate(model):
                loss = noisy(model, batch)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            losses.append(loss.item())
            steps.append(accelerator.sync_gradients)
    assert steps == [False, True, False, True, False, True, True] * epochs
    assert max(abs(a - b) for a, b in zip(losses, expected, strict=True)) < 1e-5
    for parameter, other in zip(model.parameters(), expected_model.parameters(), strict=True):
        assert torch.allclose(parameter.cpu(), other, atol=1e-5)


def test_saved_weights_are_all_there(tmp_path: Path) -> None:
    """Of one size, some tied, and moved since; what has one memory is saved once."""
    AcceleratorState._reset_state(reset_partial_state=True)
    accelerator = Accelerator()
    model = nn.Sequential(*(nn.Linear(3, 3, bias=False) for _ in range(4)))
    model[2].weight = model[1].weight
    accelerator.prepare(model)
    with torch.no_grad():
        model[3].weight.mul_(2)
    accelerator.save_state(str(tmp_path))
    accelerator.save_model(model, str(tmp_path / "model"))
    expected = {name: value.cpu() for name, value in model.state_dict().items()}
    for file in (tmp_path / "model.safetensors", tmp_path / "model" / "model.safetensors"):
        saved = load_file(file)
        assert saved.keys() | {"1.weight", "2.weight"} == expected.keys()
        assert all(torch.equal(saved[name], expected[name]) for name in saved)
    save_file({"w": model[0].weight}, tmp_path / "one.safetensors")
    assert torch.equal(load_file(tmp_path / "one.safetensors")["w"], expected["0.weight"])
    with torch.no_grad():
        model[2].weight.zero_()
    accelerator.load_state(str(tmp_path))
    assert all(torch.equal(v.cpu(), expected[name]) for name, v in model.state_dict().items())


def test_what_says_cpu_stays_there() -> None:
    """Also in a program that this one starts, which knows nothing of set-up."""
    AcceleratorState._reset_state(reset_partial_state=True)
    accelerator = Accelerator(cpu=True)
    assert accelerator.device.type == "cpu"
    assert accelerator.prepare(nn.Linear(2, 2)).weight.device.type == "cpu"
    assert "ACCELERATE_TORCH_DEVICE" not in os.environ
    AcceleratorState._reset_state(reset_partial_state=True)
    assert Accelerator().device.type == WORD


def test_a_library_that_is_imported_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "late").mkdir()
    (tmp_path / "late" / "__init__.py").write_text("")
    (tmp_path / "late" / "state.py").write_text("there = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    seen: list[Any] = []
    when_imported("late.state", lambda module: seen.append(module.there))
    assert find_spec("late.state")
    import late  # noqa: F401

    assert not seen
    from late import state

    assert seen == [1]
    when_imported("late.state", lambda module: seen.append(module))
    assert seen == [1, state]


@pytest.mark.parametrize("bf16", thorough_but([True], [False, True]))
def test_transformers_trainer(
    bf16: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.manual_seed(0)
    model = LlamaForCausalLM(CONFIG)
    words = torch.randint(0, 64, (8, 16))
    data = [{"input_ids": line, "labels": line} for line in words]
    every = {"input_ids": words, "labels": words}
    expected = trained(copy.deepcopy(model), [every] * 3, lambda net, batch: net(**batch).loss)

    AcceleratorState._reset_state(reset_partial_state=True)
    arguments = TrainingArguments(
        str(tmp_path), per_device_train_batch_size=8, num_train_epochs=3, learning_rate=1e-2,
        lr_scheduler_type="constant", logging_steps=1, report_to=[], save_steps=3, bf16=bf16,
        disable_tqdm=True,
    )  # fmt: skip
    assert arguments.device.type == WORD
    trainer = Trainer(model=model, args=arguments, train_dataset=data)
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    apart = max(abs(a - b) for a, b in zip(losses, expected, strict=True))
    assert 1e-4 < apart < 5e-2 if bf16 else apart < 1e-4  # the log has four digits
    assert next(model.parameters()).device.type == WORD
    assert capsys.readouterr().out.count("'loss'") == 3
    saved = load_file(tmp_path / "checkpoint-3" / "model.safetensors")
    assert saved.keys() == model.state_dict().keys()
    assert all(torch.equal(saved[name], v.cpu()) for name, v in model.state_dict().items())
