"""What frameworks run is compiled in parts."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
import tpu_runtime
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from tiers import thorough_but
from torch.utils.data import DataLoader, TensorDataset
from tpu_runtime.compilation.state_guards import KEPT
from tpu_runtime.lazy import lazy_programs
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

CONFIG = LlamaConfig(
    vocab_size=16, hidden_size=8, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
    num_key_value_heads=2, max_position_embeddings=8,
)  # fmt: skip
DATA = TensorDataset(4 + torch.arange(192.0).reshape(24, 8) % 11, torch.arange(24) % 4)


@pytest.mark.parametrize(
    "kind", thorough_but([torch.optim.AdamW], [torch.optim.AdamW, torch.optim.SGD])
)
def test_model_and_optimizer_are_programs(kind: Callable[..., torch.optim.Optimizer]) -> None:
    """transformers keeps a dict with a `get` of its own; Lightning's step has a closure."""
    tpu_runtime.setup()
    torch.manual_seed(0)
    words = torch.randint(0, 16, (2, 8))

    def train(model: LlamaForCausalLM) -> tuple[torch.optim.Optimizer, list[float]]:
        device = model.lm_head.weight.device
        optimizer = kind(model.parameters(), lr=0.01)
        losses = []

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = model(input_ids=words.to(device), labels=words.to(device)).loss
            loss.backward()
            return loss

        for _ in range(3):
            losses.append(float(optimizer.step(closure)))  # type: ignore[arg-type]
        return optimizer, losses

    model = LlamaForCausalLM(CONFIG)
    _, expected = train(copy.deepcopy(model))
    model.to("jax")
    optimizer, losses = train(model)
    assert losses == pytest.approx(expected, abs=1e-5)
    parts = [*vars(model)[KEPT].values(), *vars(optimizer)[KEPT].values()]
    assert [(part.compilations, part.why_eager) for part in parts] == [(1, ""), (1, "")]


def with_accelerate(folder: Path) -> None:
    model: Any = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4))
    optimizer: Any = torch.optim.AdamW(model.parameters())
    accelerator = Accelerator()
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(DATA, batch_size=4))
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def with_trainer(folder: Path) -> None:
    arguments = TrainingArguments(
        str(folder), per_device_train_batch_size=4, num_train_epochs=1, report_to=[],
        save_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    words = [{"input_ids": x.long() % 16, "labels": x.long() % 16} for x, _ in DATA]
    Trainer(model=LlamaForCausalLM(CONFIG), args=arguments, train_dataset=words).train()


class Classifier(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8))

    def training_step(self, batch: Any, _: int) -> torch.Tensor:
        loss = torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        self.log("loss", loss, on_epoch=True, prog_bar=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters())


def with_lightning(folder: Path) -> None:
    L.Trainer(
        max_epochs=1, accelerator="tpu", logger=False, enable_progress_bar=False,
        enable_checkpointing=False, enable_model_summary=False, gradient_clip_val=0.5,
    ).fit(Classifier(), DataLoader(DATA, batch_size=4))  # fmt: skip


@pytest.mark.parametrize(
    ("train", "programs"),
    [(with_accelerate, [True]), (with_trainer, [False, True]), (with_lightning, [True])],
)
def test_a_step_in_a_loop_is_one_program(
    train: Callable[[Path], None], programs: list[bool], tmp_path: Path
) -> None:
    """Two where the loss is read behind the backward pass; the optimizer's owns its weights."""
    tpu_runtime.setup()
    AcceleratorState._reset_state(reset_partial_state=True)
    lazy_programs._programs.clear()
    train(tmp_path)
    known = [program for program in lazy_programs._programs.values() if program.calls >= 3]
    assert [bool(program.donated) for program in known] == programs


@pytest.mark.parametrize(("most", "kind"), [(0.1, 2.0), (100.0, 2.0), (0.1, float("inf"))])
def test_clipping_is_a_program(most: float, kind: float) -> None:
    tpu_runtime.setup()
    torch.manual_seed(0)
    drawn = [[torch.randn(4, 3), torch.randn(5)] for _ in range(3)]
    on_cpu = [torch.nn.Parameter(torch.zeros_like(each)) for each in drawn[0]]
    on_device = [torch.nn.Parameter(each.detach().to("jax")) for each in on_cpu]
    for gradients in drawn:
        for p, q, gradient in zip(on_cpu, on_device, gradients, strict=True):
            p.grad, q.grad = gradient.clone(), gradient.to("jax")
        expected = torch.nn.utils.clip_grad_norm_(on_cpu, most, kind)
        result = torch.nn.utils.clip_grad_norm_((q for q in on_device), most, kind)
        assert result.item() == pytest.approx(expected.item(), rel=1e-6)
        for p, q in zip(on_cpu, on_device, strict=True):
            assert p.grad is not None and q.grad is not None
            assert torch.allclose(q.grad.cpu(), p.grad, rtol=1e-6, atol=0)


def test_a_hook_in_front_of_a_step_comes_before_its_closure() -> None:
    tpu_runtime.setup()
    model = torch.nn.Linear(3, 1).to("jax")
    optimizer, seen = torch.optim.SGD(model.parameters(), lr=0.1), []

    def closure() -> torch.Tensor:
        seen.append("closure")
        loss = model(torch.ones(2, 3, device=model.weight.device)).sum()
        loss.backward()
        return loss  # type: ignore[no-any-return]

    optimizer.register_step_pre_hook(lambda *_: seen.append("hook"))
    for _ in range(3):
        optimizer.step(closure)  # type: ignore[arg-type]
    assert seen == ["hook", "closure"] * 3
