"""What a migrated training step costs against one written for JAX by hand.

    JAX_PLATFORMS=cpu python benchmarks/compiled_step.py [--only NAME …] [--seconds S]

In the environment of torchax, with optax (`uv pip install optax`). Each model trains by AdamW four
times, from the same weights on the same batches: by a loop as people write it (what the tool
leaves: the runtime records its operations, and computes a step as one program), by a step for JAX
(the same modules called functionally, `jax.value_and_grad` and optax in one `jax.jit` with donated
state), operator by operator (TPU_RUNTIME_EAGER), and on CPU torch.
The steps are taken in turn, so that all share the machine's moods; the table has medians. All
float32 products are at HIGHEST. The losses of the first three steps must agree to 1e-4; a step may
take 1.15 times that by hand (the MLP, which is small, 3 times), its first two twice those by hand,
and its largest program may need 1.2 times the memory of that by hand. Then, for loops as people
write them, how many programs are compiled once they are warm: none is right. Exits with 1 where
something is not.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from migrator.targets.copies import folder_to_import

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # torch's threads make room for JAX's
sys.path.insert(0, str(folder_to_import("torchax")))

import jax
import optax
import torch
import torchax
import tpu_runtime
from compiled_programs import counted, peak, recorded_programs
from step_loops import LOOPS, Loop
from step_models import CASES, LR, Batch, Case, adamw
from torch import Tensor
from tpu_runtime.compilation import lowering
from tpu_runtime.lazy import lazy_programs

AGREE = 1e-4  # relative, of losses
ALLOWED = {"MLP": 3.0}  # times a step by hand
AT_MOST = 1.15  # for others
FIRST = 2.0  # times the first two steps by hand
MEMORY = 1.2  # times that by hand
BATCHES = 4
LEAST = 3  # measured steps of each kind
SLOW = 8  # the kind that is much slower takes its turn in every eighth round only
REST = 0.02  # seconds before each step: the threads of the one before may still be spinning


# ---- four ways to train --------------------------------------------------------------------------

Step = Callable[[int], float]  # of the number of a batch; its loss


def by_torch(case: Case, batches: list[Batch], device: str, wrap: Callable[[Any], Any]) -> Step:
    """The loop as people write it, with its step wrapped."""
    model = copy.deepcopy(case.model).to(device)
    optimizer = adamw(model)
    inputs, loss_of = case.inputs, case.loss

    def step(*batch: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = loss_of(model(batch[0], *inputs), *batch)
        loss.backward()
        optimizer.step()
        return loss

    wrapped, parameters = wrap(step), [*model.parameters()]
    there = [tuple(tensor.to(device) for tensor in batch) for batch in batches]

    def run(number: int) -> float:
        loss = wrapped(*there[number]).item()
        if device == "jax":  # what the loss does not wait for belongs to the step, too
            jax.block_until_ready([parameter.jax() for parameter in parameters])
        return float(loss)

    return run


def by_hand(case: Case, batches: list[Batch]) -> tuple[Step, Callable[[], Any]]:
    """The step that one writes for JAX: pure, the state goes in and out, and is donated. Also its
    executable."""
    env = torchax.default_env()
    model = copy.deepcopy(case.model).to("jax")
    optimizer = optax.adamw(LR, weight_decay=0.01)  # torch's default

    def tensors(arrays: Any) -> Any:
        return jax.tree.map(lambda array: torchax.tensor.Tensor(array, env), arrays)

    def loss_of(params: Any, buffers: Any, batch: Any) -> Any:
        written, given = tensors(buffers), tensors(batch)
        call = (given[0], *case.inputs)
        output = torch.func.functional_call(model, {**tensors(params), **written}, call)
        loss = case.loss(output, *given)
        return loss.jax(), {name: buffer.jax() for name, buffer in written.items()}

    def update(state: Any, batch: Any) -> Any:
        params, buffers, memory = state
        gradient = jax.value_and_grad(loss_of, has_aux=True)
        (loss, buffers), gradients = gradient(params, buffers, batch)
        updates, memory = optimizer.update(gradients, memory, params)
        return (optax.apply_updates(params, updates), buffers, memory), loss

    step = jax.jit(update, donate_argnums=0, compiler_options=lowering.compiler_options())
    params = {name: parameter.detach().jax() for name, parameter in model.named_parameters()}
    buffers = {name: buffer.jax() for name, buffer in model.named_buffers()}
    # Copies: the model keeps the originals, which must not be donated.
    params, buffers = jax.tree.map(lambda array: array.copy(), (params, buffers))
    state = params, buffers, optimizer.init(params)
    there = [tuple(env.t2j_copy(tensor) for tensor in batch) for batch in batches]

    def run(number: int) -> float:
        nonlocal state
        state, loss = step(state, there[number])
        return float(jax.block_until_ready((loss, state))[0])

    return run, lambda: step.lower(state, there[0]).compile()


def as_it_is(step: Any) -> Any:
    return step


def operator_by_operator(step: Any) -> Any:
    def run(*batch: Tensor) -> Tensor:
        os.environ["TPU_RUNTIME_EAGER"] = "1"
        try:
            return step(*batch)
        finally:
            del os.environ["TPU_RUNTIME_EAGER"]

    return run


# ---- measuring -----------------------------------------------------------------------------------


@dataclass
class Runner:
    """One way to train: seconds of the first two steps, milliseconds of the later ones, losses."""

    step: Step
    every: int = 1  # rounds
    first: float = 0.0
    taken: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)

    def run(self, number: int) -> float:
        began = time.perf_counter()
        self.losses.append(self.step(number % BATCHES))
        return time.perf_counter() - began

    def start(self) -> None:
        self.first = self.run(0) + self.run(1)
        self.run(2)

    @property
    def milliseconds(self) -> float:
        return 1000 * statistics.median(self.taken)


def measure(case: Case, seconds: float) -> tuple[str, list[str]]:
    """A row of the table, and what is wrong."""
    batches = [case.batch() for _ in range(BATCHES)]
    recorded = Runner(by_torch(case, batches, "jax", as_it_is))
    step, executable = by_hand(case, batches)
    by_jax = Runner(step)
    eager = Runner(by_torch(case, batches, "jax", operator_by_operator), every=SLOW)
    on_cpu = Runner(by_torch(case, batches, "cpu", as_it_is))
    runners = [recorded, by_jax, eager, on_cpu]
    lazy_programs._programs.clear()
    for runner in runners:
        runner.start()
    with counted() as programs:
        end = time.perf_counter() + seconds
        for number in itertools.count():
            first = number % len(runners)  # none always comes after the same other one
            for runner in (*runners[first:], *runners[:first]):
                if number % runner.every == 0:
                    time.sleep(REST)
                    runner.taken.append(runner.run(3 + number))
            if time.perf_counter() > end and min(len(r.taken) for r in runners) >= LEAST:
                break
    apart = max(
        abs(a - b) / abs(b)
        for runner in (recorded, eager, on_cpu)
        for a, b in zip(runner.losses[:3], by_jax.losses[:3], strict=True)
    )
    memory = peak(recorded_programs(calls=1)) / peak([executable()])
    ratio = recorded.milliseconds / by_jax.milliseconds
    begin = recorded.first / by_jax.first
    wrong = []
    if apart > AGREE:
        wrong.append(f"{case.name}: losses are {apart:.1e} apart")
    if programs:
        wrong.append(f"{case.name}: {len(programs)} programs compiled after warm-up")
    for what, value, most in (
        ("of a step by hand", ratio, ALLOWED.get(case.name, AT_MOST)),
        ("of the first two steps by hand", begin, FIRST),
        ("of the memory by hand", memory, MEMORY),
    ):
        if value > most:
            wrong.append(f"{case.name}: {value:.2f} times that {what}")
    cells = [
        case.name, *(f"{runner.milliseconds:.1f}" for runner in runners), f"{ratio:.2f}",
        f"{recorded.first:.1f}", f"{by_jax.first:.1f}", f"{begin:.2f}", f"{memory:.2f}",
        f"{apart:.0e}", f"{len(recorded.taken)}",
    ]  # fmt: skip
    return row(cells), wrong


HEADINGS = (
    "model", "a step, ms: recorded", "by hand", "operator by operator", "CPU torch",
    "recorded / by hand", "first two steps, s: recorded", "by hand", "ratio",
    "memory / by hand", "losses apart", "rounds",
)  # fmt: skip


def row(cells: Any) -> str:
    return f"| {' | '.join(cells)} |"


def recompiled(make: Loop, rounds: int = 8) -> int:
    """Programs that a loop compiles after its first `rounds`, in as many again."""
    once = make()
    for number in range(rounds):
        once(number)
    with counted() as programs:
        for number in range(rounds, 2 * rounds):
            once(number)
    return len(programs)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=[*CASES, "loops"], default=[*CASES, "loops"])
    parser.add_argument("--seconds", type=float, default=60, help="of measuring each model")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache:  # a first step finds nothing compiled
        jax.config.update("jax_compilation_cache_dir", cache)
        tpu_runtime.setup()
        return report(args.only, args.seconds)


def warm_up() -> None:
    """Load and start what a process needs once, whatever it computes: for all ways to train."""
    case = Case("a layer", torch.nn.Linear(3, 2), lambda: (torch.ones(4, 3),), lambda y, _: y.sum())
    batches = [case.batch()]
    for step in (by_torch(case, batches, "jax", as_it_is), by_hand(case, batches)[0]):
        step(0)
        step(0)


def report(only: list[str], seconds: float) -> int:
    """Print both tables; the exit code."""
    wrong = []
    warm_up()
    print(row(HEADINGS), row(["---"] * len(HEADINGS)), sep="\n", flush=True)
    for name in [name for name in CASES if name in only]:
        torch.manual_seed(0)
        line, problems = measure(CASES[name](), seconds)
        wrong += problems
        print(line, flush=True)
    if "loops" in only:
        print()
        print(row(["loop", "programs compiled after 8 rounds"]), row(["---"] * 2), sep="\n")
        for name, loop in LOOPS.items():
            count = recompiled(loop)
            print(row([name, str(count)]), flush=True)
            wrong += [f"{name}: {count} programs compiled after warm-up"] if count else []
    for problem in wrong:
        print(f"WRONG: {problem}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
