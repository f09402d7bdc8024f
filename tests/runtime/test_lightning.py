"""Lightning's Trainer and Fabric on both targets: set-up, `accelerator="tpu"`, the CPU's numbers.

Run in the environment of each target, see conftest.py.
"""

import copy
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
import tpu_runtime as tpu
from lightning.pytorch.callbacks import ModelCheckpoint
from tiers import thorough_but
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from tests.runtime.support import WORD

tpu.setup()

QUIET: dict[str, Any] = {
    "logger": False, "enable_progress_bar": False, "enable_model_summary": False,
}  # fmt: skip


class Classifier(L.LightningModule):
    """As people write them: accumulated metrics, a scheduler, a hook that reads the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(16, 32, bias=False), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4)
        )
        self.losses: list[float] = []
        self.validated: list[float] = []
        self.devices: set[str] = set()

    def loss(self, batch: Any) -> Tensor:
        x, y = batch
        assert x.device == self.device
        self.devices.add(x.device.type)
        return nn.functional.cross_entropy(self.net(x), y)

    def training_step(self, batch: Any, _: int) -> Tensor:
        loss = self.loss(batch)
        self.log("loss", loss, on_epoch=True)
        return loss

    def on_train_batch_end(self, outputs: Any, *_: Any) -> None:
        self.losses.append(outputs["loss"].item())

    def validation_step(self, batch: Any, _: int) -> None:
        self.log("validated", self.loss(batch))

    def on_validation_epoch_end(self) -> None:
        self.validated.append(float(self.trainer.callback_metrics["validated"]))

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)]


@pytest.fixture
def loader() -> DataLoader[Any]:
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(44, 16), torch.randint(0, 4, (44,)))
    return DataLoader(data, batch_size=16)


def fitted(module: Classifier, loader: DataLoader[Any], **given: Any) -> Classifier:
    arguments = {"max_epochs": 2, "enable_checkpointing": False, **QUIET, **given}
    L.Trainer(**arguments).fit(module, loader, loader)
    return module


def apart(a: nn.Module, b: nn.Module) -> float:
    pairs = zip(a.state_dict().values(), b.state_dict().values(), strict=True)
    return max((x.cpu().double() - y.cpu().double()).abs().max().item() for x, y in pairs)


def far(a: list[float], b: list[float]) -> float:
    return max(abs(x - y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize(
    "given",
    thorough_but(
        [{"gradient_clip_val": 0.5, "accumulate_grad_batches": 2}],
        [
            {"gradient_clip_val": 0.5, "accumulate_grad_batches": 2},
            {"strategy": "ddp", "devices": 1},
            {"devices": -1},
        ],
    ),
    ids=str,
)
def test_trainer(given: dict[str, Any], loader: DataLoader[Any]) -> None:
    module = Classifier()
    of_cpu = {name: value for name, value in given.items() if name not in ("strategy", "devices")}
    expected = fitted(copy.deepcopy(module), loader, accelerator="cpu", **of_cpu)
    result = fitted(module, loader, accelerator="tpu", **given)
    assert result.devices == {WORD}
    assert len(expected.losses) == 6 and len(expected.validated) == 3
    assert far(result.losses, expected.losses) < 1e-5
    assert far(result.validated, expected.validated) < 1e-5
    assert apart(result, expected) < 1e-5


@pytest.mark.thorough
@pytest.mark.parametrize("precision", ["bf16-mixed", "16-mixed", "bf16-true"])
def test_half_precision(precision: str, loader: DataLoader[Any]) -> None:
    """bfloat16 as on the CPU, and not float32."""
    module = Classifier()
    of_cpu = f"bf{precision.removeprefix('bf')}"
    single, expected = copy.deepcopy(module), copy.deepcopy(module)
    fitted(single, loader, accelerator="cpu", max_epochs=1)
    fitted(expected, loader, accelerator="cpu", precision=of_cpu, max_epochs=1)
    result = fitted(module, loader, accelerator="auto", precision=precision, max_epochs=1)
    assert result.devices == {WORD}
    assert far(result.losses, expected.losses) < 3e-2
    assert far(result.losses, single.losses) > 1e-5


@pytest.mark.thorough
def test_a_checkpoint_is_read_on_the_cpu_and_goes_on(
    loader: DataLoader[Any], tmp_path: Path
) -> None:
    module = Classifier()
    expected = fitted(copy.deepcopy(module), loader, accelerator="cpu")
    kept = ModelCheckpoint(tmp_path, filename="last")
    half: Any = {"max_epochs": 1, "enable_checkpointing": True, "callbacks": [kept]}
    fitted(copy.deepcopy(module), loader, accelerator="tpu", **half)
    content = torch.load(tmp_path / "last.ckpt", weights_only=False)
    moments = content["optimizer_states"][0]["state"][0]
    saved = [*content["state_dict"].values(), *moments.values()]
    assert {t.device.type for t in saved} == {"cpu"}
    trainer = L.Trainer(accelerator="tpu", max_epochs=2, enable_checkpointing=False, **QUIET)
    trainer.fit(module, loader, loader, ckpt_path=tmp_path / "last.ckpt")
    assert module.devices == {WORD}
    assert far(module.losses, expected.losses[3:]) < 1e-5
    assert apart(module, expected) < 1e-5


def with_fabric(module: Classifier, loader: Any, **given: Any) -> list[float]:
    fabric = L.Fabric(**given)
    fabric.launch()
    model, optimizer = fabric.setup(module.net, torch.optim.SGD(module.net.parameters(), lr=0.1))
    losses = []
    for x, y in fabric.setup_dataloaders(loader):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        fabric.backward(loss)
        fabric.clip_gradients(model, optimizer, max_norm=1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("precision", thorough_but(["32-true"], ["32-true", "bf16-mixed"]))
def test_fabric(precision: Any, loader: DataLoader[Any]) -> None:
    module = Classifier()
    other = copy.deepcopy(module)
    expected = with_fabric(other, loader, accelerator="cpu", precision=precision)
    result = with_fabric(module, loader, accelerator="tpu", devices=1, precision=precision)
    assert next(module.parameters()).device.type == WORD
    assert far(result, expected) < (1e-5 if precision == "32-true" else 3e-2)
    assert apart(module, other) < (1e-5 if precision == "32-true" else 3e-2)


def test_several_devices_want_a_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="torchrun --nproc-per-node=4"):
        L.Trainer(accelerator="tpu", devices=4, **QUIET)
    for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.setenv(name, "2")
    with pytest.raises(ValueError, match="1 devices, but 2 processes run"):
        L.Trainer(accelerator="tpu", devices=1, **QUIET)
    unused = {"find_unused_parameters": True}
    for devices, strategy, told in (
        ("auto", "auto", {}), ([0, 1], "ddp_find_unused_parameters_true", unused),
    ):  # fmt: skip
        made = L.Trainer(accelerator="tpu", devices=devices, strategy=strategy, **QUIET)
        assert made.world_size == 2 and made.strategy._ddp_kwargs == told
        assert made.strategy.parallel_devices == [torch.device(WORD)] * 2
