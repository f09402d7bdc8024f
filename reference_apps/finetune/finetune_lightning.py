"""Fine-tune all weights by Lightning, on one GPU.

python finetune_lightning.py --epochs 3
"""

import time
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import Tensor
from torch.utils.data import DataLoader

from dataset import Completions, Padded
from model import language_model
from options import Options, parse_args
from record import Record


class FineTuning(L.LightningModule):
    """A language model that learns completions."""

    def __init__(self, seed: int, record: Record) -> None:
        super().__init__()
        self.model = language_model(seed)
        self.record, self.began = record, 0.0

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        loss = self.model(**batch).loss
        self.log("train_loss", loss, prog_bar=True, on_step=True, on_epoch=True)
        return loss

    def validation_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        self.log("val_loss", self.model(**batch).loss, prog_bar=True)

    def configure_optimizers(self) -> dict[str, Any]:
        optimizer = torch.optim.AdamW(self.parameters(), lr=2e-3, weight_decay=0.01)
        steps = int(self.trainer.estimated_stepping_batches)
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=steps)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "interval": "step"},
        }

    def on_train_batch_start(self, *_: Any) -> None:
        self.began = time.perf_counter()

    def on_train_batch_end(self, outputs: dict[str, Tensor], *_: Any) -> None:
        self.record.add(loss=outputs["loss"].item())
        self.record.took(time.perf_counter() - self.began)

    def on_validation_epoch_end(self) -> None:
        if not self.trainer.sanity_checking:
            self.record.add(eval_loss=self.trainer.callback_metrics["val_loss"].item())


def run(options: Options) -> Record:
    """Train; returns losses and the weights of the last epoch."""
    L.seed_everything(options.seed, workers=True)
    torch.set_float32_matmul_precision("highest")  # runs on different cards are compared
    record = Record("lightning")
    collate = Padded(options.length)
    train_loader = DataLoader(
        Completions(options.data / "train.jsonl"),
        batch_size=16,
        shuffle=True,
        collate_fn=collate,
        pin_memory=True,
    )
    val_loader = DataLoader(
        Completions(options.data / "eval.jsonl"), batch_size=8, collate_fn=collate, pin_memory=True
    )
    module = FineTuning(options.seed, record)
    trainer = L.Trainer(
        accelerator="gpu",
        devices=1,
        precision="32-true",
        max_epochs=options.epochs,
        gradient_clip_val=1.0,
        log_every_n_steps=1,
        logger=CSVLogger(options.output / "lightning"),
        callbacks=[
            ModelCheckpoint(monitor="val_loss", save_last=True),
            LearningRateMonitor(logging_interval="step"),
        ],
        enable_progress_bar=False,
    )
    trainer.fit(module, train_loader, val_loader)
    record.keep(module.parameters())
    return record


if __name__ == "__main__":
    run(parse_args()).show()
