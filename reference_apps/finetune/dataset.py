"""Prompts and completions as bytes; only completions are learned."""

import json
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import Dataset

PAD = 0
END = 1  # a byte that no text has
IGNORED = -100  # a label that cross_entropy leaves out


class Completions(Dataset[dict[str, list[int]]]):
    """Lines of a JSON file with `prompt` and `completion`."""

    def __init__(self, path: Path) -> None:
        self.examples = []
        for line in path.read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            prompt = list(entry["prompt"].encode())
            completion = [*entry["completion"].encode(), END]
            self.examples.append(
                {
                    "input_ids": prompt + completion,
                    "labels": [IGNORED] * len(prompt) + completion,
                }
            )

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int) -> dict[str, list[int]]:
        return self.examples[index]


class Padded:
    """Collates examples to one length."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __call__(self, examples: list[dict[str, list[int]]]) -> dict[str, Tensor]:
        batch = {
            name: torch.tensor(
                [each[name] + [fill] * (self.length - len(each[name])) for each in examples]
            )
            for name, fill in (("input_ids", PAD), ("labels", IGNORED))
        }
        batch["attention_mask"] = (batch["input_ids"] != PAD).long()
        return batch
