"""What a migrated training step costs against one written for JAX by hand.

    JAX_PLATFORMS=cpu python benchmarks/compiled_step.py [--only NAME …] [--seconds S]

In the environment of torchax, with optax (`uv pip install optax`). Each model trains by AdamW five
times, from the same weights on the same batches: by `tpu_runtime.train_step` (what the tool
writes), by a step for JAX (the same modules called functionally, `jax.value_and_grad` and optax in
one `jax.jit` with donated state), by a step that stays in its loop (model and optimizer are
compiled each by itself), operator by operator (TPU_RUNTIME_EAGER), and on CPU torch. The steps are
taken in turn, so that all share the machine's moods; the table has medians. All float32
products are at HIGHEST. The losses of the first three steps must agree to 1e-4. Then, for loops as
people write them, how many programs are compiled once they are warm: none is right. Exits with 1
where something is not.
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # torch's threads make room for JAX's
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference_apps/mshnet"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "migrator/runtime/torchax"))

import jax
import optax
import torch
import torch.nn.functional as F
import torchax
import tpu_runtime
from loss import SLSIoULoss
from model import MSHNet
from torch import Tensor, nn

LR = 1e-3
AGREE = 1e-4  # relative, of losses
BATCHES = 4
LEAST = 3  # measured steps of each kind
SLOW = 8  # the kind that is much slower takes its turn in every eighth round only
REST = 0.02  # seconds before each step: the threads of the one before may still be spinning

Batch = tuple[Tensor, ...]


# ---- models --------------------------------------------------------------------------------------


@dataclass
class Case:
    """A model, its batches and its loss."""

    name: str
    model: nn.Module
    batch: Callable[[], Batch]
    loss: Callable[..., Tensor]  # of the model's output and the batch
    inputs: tuple[Any, ...] = ()  # of the model, beside the first tensor of the batch


def images(size: int, channels: int, side: int) -> Callable[[], Batch]:
    return lambda: (torch.randn(size, channels, side, side), torch.randint(10, (size,)))


def entropy(output: Tensor, _: Tensor, label: Tensor) -> Tensor:
    return F.cross_entropy(output, label)


def mlp() -> Case:
    layers = [nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU()]
    return Case("MLP", nn.Sequential(*layers, nn.Linear(256, 10)), images(64, 1, 28), entropy)


def normalized(channels: int, features: int) -> list[nn.Module]:
    conv = nn.Conv2d(channels, features, 3, padding=1, bias=False)
    return [conv, nn.BatchNorm2d(features), nn.ReLU(inplace=True)]


def convnet() -> Case:
    layers = [*normalized(3, 16), nn.MaxPool2d(2), *normalized(16, 32), nn.MaxPool2d(2)]
    layers += [*normalized(32, 64), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)]
    return Case("ConvNet, BatchNorm", nn.Sequential(*layers), images(16, 3, 32), entropy)


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, -1).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).split(width, -1)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, words: int, length: int, width: int, layers: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, width // 32) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.tokens.weight  # tied

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.size(1), device=tokens.device)
        return self.head(self.norm(self.blocks(self.tokens(tokens) + self.places(places))))


def gpt() -> Case:
    def batch() -> Batch:
        tokens = torch.randint(512, (8, 65))
        return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    def loss(output: Tensor, _: Tensor, following: Tensor) -> Tensor:
        return F.cross_entropy(output.flatten(0, 1), following.flatten())

    return Case("GPT", GPT(512, 64, 192, 6), batch, loss)


class UNet(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        sizes = [width, 2 * width, 4 * width]
        self.down = nn.ModuleList(
            nn.Sequential(*normalized(a, b), *normalized(b, b))
            for a, b in zip([1, *sizes], sizes, strict=False)
        )
        self.enlarge = nn.ModuleList(
            nn.ConvTranspose2d(b, a, 2, stride=2) for a, b in itertools.pairwise(sizes)
        )
        self.merge = nn.ModuleList(nn.Sequential(*normalized(2 * a, a)) for a in sizes[:-1])
        self.last = nn.Conv2d(width, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        skips = []
        for level in self.down:
            x = level(F.max_pool2d(x, 2) if skips else x)
            skips.append(x)
        for enlarge, merge, skip in zip(
            reversed(self.enlarge), reversed(self.merge), reversed(skips[:-1]), strict=True
        ):
            x = merge(torch.cat([skip, enlarge(x)], 1))
        return self.last(x)


def masks(size: int, channels: int, side: int) -> Callable[[], Batch]:
    """Noise with a bright square, and where that is."""

    def batch() -> Batch:
        mask = torch.zeros(size, 1, side, side)
        for number in range(size):
            mask[number, :, 4 + number : 12 + number, 8:14] = 1
        return torch.randn(size, channels, side, side) * 0.3 + 2 * mask, mask

    return batch


def unet() -> Case:
    def loss(output: Tensor, _: Tensor, mask: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(output, mask)

    return Case("U-Net, BatchNorm", UNet(16), masks(8, 1, 64), loss)


def mshnet() -> Case:
    criterion, epoch, down = SLSIoULoss(warm_epoch=5), 6, nn.MaxPool2d(2, 2)

    def loss(output: tuple[list[Tensor], Tensor], _: Tensor, label: Tensor) -> Tensor:
        scales, final = output
        total = criterion(final, label, epoch)
        for level, mask in enumerate(scales):
            if level > 0:
                label = down(label)
            total = total + criterion(mask, label, epoch)
        return total / (len(scales) + 1)

    return Case("MSHNet", MSHNet(width=8, blocks=1), masks(8, 3, 64), loss, inputs=(True,))


CASES: dict[str, Callable[[], Case]] = {
    "mlp": mlp, "convnet": convnet, "gpt": gpt, "unet": unet, "mshnet": mshnet
}  # fmt: skip


# ---- five ways to train --------------------------------------------------------------------------

Step = Callable[[int], float]  # of the number of a batch; its loss


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=LR)


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


def by_hand(case: Case, batches: list[Batch]) -> Step:
    """The step that one writes for JAX: pure, the state goes in and out, and is donated."""
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

    step = jax.jit(update, donate_argnums=0)
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

    return run


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


def state_tensors(model: nn.Module) -> int:
    """Of a training by AdamW: parameters, buffers, and three for each parameter."""
    parameters = sum(1 for _ in model.parameters())
    return 4 * parameters + sum(1 for _ in model.buffers())


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
    compiled = Runner(by_torch(case, batches, "jax", tpu_runtime.train_step))
    by_jax = Runner(by_hand(case, batches))
    in_parts = Runner(by_torch(case, batches, "jax", as_it_is))
    eager = Runner(by_torch(case, batches, "jax", operator_by_operator), every=SLOW)
    on_cpu = Runner(by_torch(case, batches, "cpu", as_it_is))
    runners = [compiled, by_jax, in_parts, eager, on_cpu]
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
        for runner in (compiled, in_parts, eager, on_cpu)
        for a, b in zip(runner.losses[:3], by_jax.losses[:3], strict=True)
    )
    tensors = state_tensors(case.model)
    overhead = compiled.milliseconds - by_jax.milliseconds
    allowed = 2 + 0.01 * tensors
    wrong = []
    if apart > AGREE:
        wrong.append(f"{case.name}: losses are {apart:.1e} apart")
    if programs:
        wrong.append(f"{case.name}: {len(programs)} programs compiled after warm-up")
    if overhead > allowed and compiled.milliseconds > 1.1 * by_jax.milliseconds:
        wrong.append(f"{case.name}: {overhead:.1f} ms more than by hand")
    cells = [
        case.name, f"{compiled.first:.1f}", f"{by_jax.first:.1f}",
        *(f"{runner.milliseconds:.1f}" for runner in runners),
        f"{compiled.milliseconds / by_jax.milliseconds:.2f}", str(tensors),
        f"{overhead:.1f} of {allowed:.1f}", f"{apart:.0e}", f"{len(compiled.taken)}",
    ]  # fmt: skip
    return row(cells), wrong


HEADINGS = (
    "model", "first two steps, s: compiled", "by hand", "a step, ms: compiled", "by hand",
    "in parts", "operator by operator", "CPU torch", "compiled / by hand", "state tensors",
    "overhead, ms, of 2 + 0.01 each", "losses apart", "rounds",
)  # fmt: skip


def row(cells: Any) -> str:
    return f"| {' | '.join(cells)} |"


@contextmanager
def counted() -> Iterator[list[float]]:
    """The seconds of each program that XLA compiles meanwhile."""
    compiled: list[float] = []
    is_open = True

    def listen(event: str, seconds: float, **_: Any) -> None:
        if is_open and event == "/jax/core/compile/backend_compile_duration":
            compiled.append(seconds)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield compiled
    finally:
        is_open = False


# ---- loops that must not compile again -----------------------------------------------------------

Loop = Callable[[], Callable[[int], None]]  # makes what trains one round


def small() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Sequential(*normalized(3, 8), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    model = model.append(nn.Linear(8, 10)).to("jax")
    return model, adamw(model)


def batch_of(size: int) -> Batch:
    return tuple(tensor.to("jax") for tensor in images(size, 3, 16)())


def scheduler() -> Callable[[int], None]:
    model, optimizer = small()
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)

    @tpu_runtime.train_step
    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    def once(number: int) -> None:
        step(*batch_of(8)).item()
        schedule.step()

    return once


def accumulation() -> Callable[[int], None]:
    model, optimizer = small()

    @tpu_runtime.train_step
    def step(x: Tensor, y: Tensor, update: bool) -> Tensor:
        loss = F.cross_entropy(model(x), y) / 2
        loss.backward()
        if update:
            optimizer.step()
            optimizer.zero_grad()
        return loss

    return lambda number: (step(*batch_of(8), number % 2 == 1).item(), None)[1]


def partial_batch() -> Callable[[int], None]:
    model, optimizer = small()

    @tpu_runtime.train_step
    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    def once(number: int) -> None:
        step(*batch_of(5 if number % 4 == 3 else 8)).item()
        if step.compilations > 2:
            raise RuntimeError(f"{step.compilations} programs of one step")

    return once


def ema(inside: bool) -> Loop:
    def make() -> Callable[[int], None]:
        model, optimizer = small()
        average = copy.deepcopy(model)

        @torch.no_grad()
        def follow() -> None:
            for mean, parameter in zip(average.parameters(), model.parameters(), strict=True):
                mean.mul_(0.99).add_(parameter, alpha=0.01)
            for mean, buffer in zip(average.buffers(), model.buffers(), strict=True):
                mean.copy_(buffer)

        @tpu_runtime.train_step
        def step(x: Tensor, y: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            if inside:
                follow()
            return loss

        def once(number: int) -> None:
            step(*batch_of(8)).item()
            if not inside:
                follow()

        return once

    return make


def two_optimizers() -> Callable[[int], None]:
    generator, critic = nn.Linear(6, 10).to("jax"), nn.Linear(10, 1).to("jax")
    opt_g, opt_c = adamw(generator), adamw(critic)

    @tpu_runtime.train_step
    def step(noise: Tensor, real: Tensor) -> Tensor:
        fake = generator(noise)
        opt_c.zero_grad()
        difference = critic(fake.detach()).mean() - critic(real).mean()
        difference.backward()
        opt_c.step()
        opt_g.zero_grad()
        loss = -critic(fake).mean()
        loss.backward()
        opt_g.step()
        return difference

    def once(number: int) -> None:
        step(torch.randn(8, 6).to("jax"), torch.randn(8, 10).to("jax")).item()

    return once


LOOPS: dict[str, Loop] = {
    "a scheduler that changes lr at every step": scheduler,
    "gradient accumulation, by a bool": accumulation,
    "a last partial batch": partial_batch,
    "an EMA of the weights, within the step": ema(inside=True),
    "an EMA of the weights, after the step": ema(inside=False),
    "two optimizers": two_optimizers,
}


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


def report(only: list[str], seconds: float) -> int:
    """Print both tables; the exit code."""
    wrong = []
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
