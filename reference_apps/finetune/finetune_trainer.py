"""Fine-tune all weights by transformers' Trainer, in half precision.

python finetune_trainer.py --epochs 3
"""

import time
from typing import Any

import torch
from transformers import EvalPrediction, Trainer, TrainerCallback, TrainingArguments

from dataset import IGNORED, Completions, Padded
from model import language_model
from options import Options, parse_args
from record import Record


class StepTimes(TrainerCallback):
    """Times each step."""

    def __init__(self, record: Record) -> None:
        self.record, self.began = record, 0.0

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self.began = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.record.took(time.perf_counter() - self.began)


def accuracy(prediction: EvalPrediction) -> dict[str, float]:
    """The fraction of bytes that are guessed."""
    guessed, labels = prediction.predictions[:, :-1], prediction.label_ids[:, 1:]
    counts = labels != IGNORED
    return {"accuracy": float((guessed == labels)[counts].mean())}


def run(options: Options) -> Record:
    """Train; returns what was logged and the weights."""
    record = Record("trainer")
    arguments = TrainingArguments(
        output_dir=str(options.output / "trainer"),
        num_train_epochs=options.epochs,
        per_device_train_batch_size=16,
        per_device_eval_batch_size=8,
        learning_rate=2e-3,
        lr_scheduler_type="linear",
        warmup_steps=2,
        weight_decay=0.01,
        fp16=True,
        tf32=False,
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=1,
        logging_steps=1,
        report_to="none",
        disable_tqdm=True,
        seed=options.seed,
    )
    trainer = Trainer(
        model=language_model(options.seed),
        args=arguments,
        train_dataset=Completions(options.data / "train.jsonl"),
        eval_dataset=Completions(options.data / "eval.jsonl"),
        data_collator=Padded(options.length),
        compute_metrics=accuracy,
        preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1),
        callbacks=[StepTimes(record)],
    )
    trainer.train()
    for entry in trainer.state.log_history:
        record.add(**{name: entry[name] for name in ("loss", "eval_loss") if name in entry})
    record.add(eval_accuracy=trainer.evaluate()["eval_accuracy"])
    trainer.save_model(str(options.output / "trainer"))
    record.keep(trainer.model.parameters())
    return record


if __name__ == "__main__":
    run(parse_args()).show()
