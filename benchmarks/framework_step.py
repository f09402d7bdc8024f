"""What a step costs in the loop of a framework, beside a loop without one.

    JAX_PLATFORMS=cpu python benchmarks/framework_step.py [--steps 20] [--rounds 3]

In the environment of torchax, with the group `trainers`. A Llama of transformers (4 layers of width
128, 8 sequences of 64 tokens) trains by AdamW, its gradients clipped to a norm of 1: in the loop of
accelerate, where the loss is read behind the optimizer's step, behind the backward pass (as Trainer
does), and not at all; and in a loop without it. The same weights and batches each time.
The table has the least milliseconds of CPU time that a step took, of all that ran, and the ratio to
what the plain loop takes; the losses must agree to 1e-4.
"""

from __future__ import annotations

import argparse
import copy
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from migrator.targets.copies import folder_to_import

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # torch's threads make room for JAX's
sys.path.insert(0, str(folder_to_import("torchax")))

import jax
import torch
import tpu_runtime
from accelerate import Accelerator
from torch import Tensor, nn
from tpu_runtime.lazy import lazy_graph
from transformers import LlamaConfig, LlamaForCausalLM

AGREE = 1e-4  # relative, of losses
WARM = 4  # steps that are not counted
CONFIG = LlamaConfig(
    vocab_size=512, hidden_size=128, intermediate_size=512, num_hidden_layers=4,
    num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=64,
)  # fmt: skip

Step = Callable[[Tensor], Tensor]


def in_a_loop(model: Any, optimizer: Any, read: str) -> Step:
    accelerator = Accelerator()

    def step(words: Tensor) -> Tensor:
        loss = model(input_ids=words, labels=words).loss
        accelerator.backward(loss)
        if read == "backward pass":
            loss.item()
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss  # type: ignore[no-any-return]

    return step


def plain(model: Any, optimizer: Any) -> Step:
    def step(words: Tensor) -> Tensor:
        loss: Tensor = model(input_ids=words, labels=words).loss
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


class Kind:
    """One way to train."""

    def __init__(self, name: str, model: nn.Module, read: str = "") -> None:
        self.name = name
        self.model = copy.deepcopy(model).to("jax")
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self._step = (
            in_a_loop(self.model, optimizer, read) if read else plain(self.model, optimizer)
        )
        self.losses: list[float] = []
        self.least = float("inf")

    def run(self, words: Tensor) -> None:
        began = time.process_time()
        loss = self._step(words)
        lazy_graph.run()
        jax.block_until_ready([parameter.jax() for parameter in self.model.parameters()])
        took = time.process_time() - began
        self.losses.append(loss.item())
        if len(self.losses) > WARM:
            self.least = min(self.least, took)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    tpu_runtime.setup()
    torch.manual_seed(0)
    model = LlamaForCausalLM(CONFIG)
    batches = [torch.randint(512, (8, 64)).to("jax") for _ in range(4)]
    kinds = [
        Kind("the loss read behind the backward pass", model, "backward pass"),
        Kind("no loss read", model, "nowhere"),
        Kind("a plain loop", model),
    ]
    for number in range(WARM):
        for kind in kinds:
            kind.run(batches[number % len(batches)])
    for turn in range(arguments.rounds):
        for kind in kinds:
            for number in range(arguments.steps):
                kind.run(batches[(turn * arguments.steps + number) % len(batches)])
    one = kinds[-1]
    print("| step | least CPU time, ms | to the plain loop |\n|---|---|---|")
    for kind in kinds:
        print(f"| {kind.name} | {1000 * kind.least:.0f} | {kind.least / one.least:.2f} |")
    apart = max(
        abs(a - b) / abs(b) for kind in kinds for a, b in zip(kind.losses, one.losses, strict=True)
    )
    if apart > AGREE:
        sys.exit(f"losses are {apart:.1e} apart")


if __name__ == "__main__":
    main()
