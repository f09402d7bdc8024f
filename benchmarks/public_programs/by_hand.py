"""CPU seconds of a step of public programs, written for JAX by hand.

    JAX_PLATFORMS=cpu python benchmarks/public_programs/by_hand.py LIST CHECKOUTS [--only NAME …]

In the environment of torchax, with optax. LIST and CHECKOUTS are those of speed.py. For programs
that take more than 3 times the original's seconds: the same modules called functionally,
`jax.value_and_grad` and optax in one `jax.jit` with donated state, on batches of the same size,
which are copied from the host in each step. By this one sees whether XLA's code for a CPU is slow,
or what the runtime does around it. The figures go to by_hand.json, from which docs/program-speed.md
has them.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import speed

from migrator.targets.copies import folder_to_import

sys.path.insert(0, str(folder_to_import("torchax")))
os.environ["TPU_RUNTIME_EAGER"] = "1"  # what JAX traces here isn't compiled in parts

import jax
import optax
import torch
import torch.nn.functional as F
import torchax
import tpu_runtime
from torch import Tensor, nn
from tpu_runtime.compilation import lowering

RESULTS = Path(__file__).with_name("by_hand.json")
WARM, STEPS = 3, 20
BATCHES = 4

Loss = Callable[..., Any]  # of the model's function, the carry and a batch: the loss and a carry


@dataclass
class Step:
    """A model, its optimizer, batches of the CPU, and the loss; ``after``: evaluations."""

    model: nn.Module
    optimizer: optax.GradientTransformation
    batch: Callable[[], tuple[Tensor, ...]]
    loss: Loss
    carry: tuple[Tensor, ...] = ()  # what a step hands to the next
    reads: bool = False  # whether each step reads its loss
    evaluations: int = 0  # after each step, whose values are read


def ddp_single() -> Step:
    def loss(call: Any, carry: Any, x: Tensor, y: Tensor) -> Any:
        return F.cross_entropy(call(x), y), carry

    batch = lambda: (torch.rand(32, 20), torch.rand(32, 1))  # noqa: E731
    return Step(nn.Linear(20, 1), optax.sgd(1e-3), batch, loss)


def siamese() -> Step:
    from main import SiameseNetwork  # type: ignore[import-not-found]

    def loss(call: Any, carry: Any, a: Tensor, b: Tensor, y: Tensor) -> Any:
        return F.binary_cross_entropy(call(a, b).squeeze(), y), carry

    def batch() -> tuple[Tensor, ...]:
        return torch.rand(64, 1, 28, 28), torch.rand(64, 1, 28, 28), torch.randint(2, (64,)).float()

    return Step(SiameseNetwork(), optax.adadelta(1.0), batch, loss)


def gcn() -> Step:
    from main import GCN

    features, edges = torch.rand(2000, 70), (torch.rand(2000, 2000) < 0.002).float()
    labels = torch.randint(7, (2000,))
    index = torch.randperm(2000)[:500]

    def loss(call: Any, carry: Any, *given: Tensor) -> Any:
        x, adjacent, of, y = carry
        return F.nll_loss(call(x, adjacent)[of], y[of]), carry

    there = (features, edges, index, labels)
    optimizer = optax.chain(optax.add_decayed_weights(5e-4), optax.adam(0.01))
    return Step(GCN(70, 16, 7, False, 0.0), optimizer, lambda: (), loss, there, evaluations=2)


def wlm() -> Step:
    from model import RNNModel  # type: ignore[import-not-found]

    def loss(call: Any, carry: Any, x: Tensor, y: Tensor) -> Any:
        output, hidden = call(x, carry)
        return F.nll_loss(output, y), hidden

    def batch() -> tuple[Tensor, ...]:
        return torch.randint(9, (35, 8)), torch.randint(9, (280,))

    optimizer = optax.chain(optax.clip_by_global_norm(0.25), optax.sgd(20.0))
    hidden = torch.zeros(1, 8, 16), torch.zeros(1, 8, 16)
    return Step(RNNModel("LSTM", 9, 16, 16, 1, 0.0), optimizer, batch, loss, hidden, reads=True)


STEPS_BY_HAND: dict[str, Callable[[], Step]] = {
    "ex_ddp_single": ddp_single, "ex_siamese": siamese, "ex_gcn": gcn, "ex_wlm": wlm,
}  # fmt: skip


def functions(step: Step) -> tuple[Any, Any]:
    """The compiled step, and the compiled evaluation."""
    env = torchax.default_env()

    def tensors(arrays: Any) -> Any:
        return jax.tree.map(lambda array: torchax.tensor.Tensor(array, env), arrays)

    def loss_of(params: Any, buffers: Any, carry: Any, batch: Any) -> Any:
        written = tensors(buffers)

        def call(*given: Tensor) -> Any:
            return torch.func.functional_call(step.model, {**tensors(params), **written}, given)

        loss, carry = step.loss(call, tensors(carry), *tensors(batch))
        return loss.jax(), (jax.tree.map(lambda x: x.jax(), (written, carry)))

    def update(state: Any, carry: Any, batch: Any) -> Any:
        params, buffers, memory = state
        gradient = jax.value_and_grad(loss_of, has_aux=True)
        (loss, (buffers, carry)), gradients = gradient(params, buffers, carry, batch)
        updates, memory = step.optimizer.update(gradients, memory, params)
        return (optax.apply_updates(params, updates), buffers, memory), carry, loss

    def evaluate(state: Any, carry: Any, batch: Any) -> Any:
        return loss_of(*state[:2], carry, batch)[0]

    options = lowering.compiler_options()
    return (
        jax.jit(update, donate_argnums=0, compiler_options=options),
        jax.jit(evaluate, compiler_options=options),
    )


def seconds(step: Step) -> float:
    """CPU seconds of a step, once warm."""
    env = torchax.default_env()
    batches = [step.batch() for _ in range(BATCHES)]
    step.model.to("jax")
    update, evaluate = functions(step)
    params = {name: p.detach().jax().copy() for name, p in step.model.named_parameters()}
    buffers = {name: b.jax().copy() for name, b in step.model.named_buffers()}
    state: Any = params, buffers, step.optimizer.init(params)
    carry: Any = tuple(env.t2j_copy(x) for x in step.carry)
    loss: Any = None

    def run(number: int) -> None:
        nonlocal state, carry, loss
        batch = tuple(env.t2j_copy(x) for x in batches[number % BATCHES])
        state, carry, loss = update(state, carry, batch)
        if step.reads:
            float(loss)
        for _ in range(step.evaluations):
            float(evaluate(state, carry, batch))

    for number in range(WARM):
        run(number)
    jax.block_until_ready((state, carry, loss))
    began = time.process_time()
    for number in itertools.islice(itertools.count(), STEPS):
        run(number)
    jax.block_until_ready((state, carry, loss))
    return (time.process_time() - began) / STEPS


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("list", type=Path)
    parser.add_argument("checkouts", type=Path)
    parser.add_argument("--only", nargs="+", choices=STEPS_BY_HAND, default=[*STEPS_BY_HAND])
    asked = parser.parse_args()
    tpu_runtime.setup()
    figures = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for case in speed.cases(asked.list.resolve(), ""):
        if case.name not in asked.only:
            continue
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            speed.lay(case, asked.list.resolve(), asked.checkouts.resolve(), folder / "it", False)
            sys.path.insert(0, str(folder / "it" / case.sub))
            for module in ("main", "model"):
                sys.modules.pop(module, None)
            torch.manual_seed(0)
            figures[case.name] = float(f"{seconds(STEPS_BY_HAND[case.name]()):.3g}")
        print(case.name, figures[case.name], flush=True)
    RESULTS.write_text(json.dumps(dict(sorted(figures.items())), indent=1) + "\n")


if __name__ == "__main__":
    main()
