"""What each mechanism of the runtime for torchax buys: with and without it.

    JAX_PLATFORMS=cpu python benchmarks/mechanisms.py [--only NAME …] [--programs NAME …] [--out F]

In the environment of torchax, with the group `trainers`. Each program runs in a process of its own,
once as it is and once for each mechanism that is switched off (by replacing a function, so that the
runtime needs no switches for it). For each: CPU seconds of the first two steps and the least of a
later one, as ratios without / with, programs compiled in all, and how far losses and parameters are
apart.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from migrator.targets.copies import folder_to_import

ROOT = Path(__file__).resolve().parents[1]
STEPS = 16
CASES = ("mlp", "convnet", "gpt", "unet", "mshnet")  # of compiled_step.py
WARM = 6  # steps, before those that are measured
SAME = 1e-4


# ---- mechanisms ----------------------------------------------------------------------------------


def nothing(*_: Any, **__: Any) -> None:
    return None


def unchanged(function: Any) -> Any:
    return function


@dataclass(frozen=True)
class Mechanism:
    """``off``: switches it off, given a function that imports a module of the runtime."""

    files: tuple[str, ...]
    off: Callable[[Callable[[str], Any]], None]


def _no_first_calls(of: Any) -> None:
    of("compilation.purity").Inspection.is_possible = staticmethod(lambda: False)


def _no_models(of: Any) -> None:
    of("compilation.partial_compilation")._is_worth_it = lambda module: False


def _no_optimizers(of: Any) -> None:
    of("compilation.partial_compilation")._stepping = unchanged


def _no_clipping(of: Any) -> None:
    of("compilation.partial_compilation")._clipping = unchanged


def _stock_zero_grad(of: Any) -> None:
    of("compilation.partial_compilation")._dropping = unchanged


def _all_guards(of: Any) -> None:
    module = of("compilation.guard_skipping")
    stock = module.skipping_guards
    module.skipping_guards = lambda _=False: stock(False)


def _no_changing_numbers(of: Any) -> None:
    of("compilation.changing_numbers").ChangingArguments.note = nothing


def _no_varying_settings(of: Any) -> None:
    for name in ("learning_rates", "models_and_optimizers"):
        of(f"compilation.{name}").may_vary = lambda *_: False


def _no_donation(of: Any) -> None:
    class Sys:
        getrefcount = staticmethod(lambda _: 0)

    of("lazy.lazy_programs").sys = Sys


def _no_equal_results(of: Any) -> None:
    of("lazy.lazy_programs").LazyOperation.equal_results = lambda *_: {}


def _no_varying_numbers(of: Any) -> None:
    of("lazy.lazy_operators")._Form._has_changed = lambda *_: False
    of("lazy.lazy_graph").varies = lambda *_: False


def _no_lazy_operators(of: Any) -> None:
    for name in ("hold", "hold_function"):
        setattr(of("lazy.lazy_operators"), name, lambda *_: NotImplemented)


def _not_installed(name: str) -> Callable[[Any], None]:
    def off(of: Any) -> None:
        of(name).install = nothing

    return off


MECHANISMS = {
    "models as programs": Mechanism(
        ("compilation/partial_compilation", "compilation/differentiation"), _no_models
    ),
    "optimizers' steps as programs": Mechanism((), _no_optimizers),
    "first calls as programs": Mechanism(
        (
            "compilation/purity", "compilation/first_call", "compilation/initial_optimizer_state",
        ),
        _no_first_calls,
    ),
    "clipping as a program": Mechanism((), _no_clipping),
    "zero_grad without torchax": Mechanism((), _stock_zero_grad),
    "guards skipped in `generate`": Mechanism(("compilation/guard_skipping",), _all_guards),
    "numbers of calls as inputs": Mechanism(
        ("compilation/changing_numbers",), _no_changing_numbers
    ),
    "scheduled settings as inputs": Mechanism((), _no_varying_settings),
    "operators recorded": Mechanism(
        ("lazy/lazy_operators", "lazy/operator_arguments", "lazy/lazy_numbers"), _no_lazy_operators
    ),
    "numbers of operators as inputs": Mechanism(("lazy/lazy_numbers",), _no_varying_numbers),
    "memory used again": Mechanism((), _no_donation),
    "equal step counts share an array": Mechanism((), _no_equal_results),
    "recurrent layers as loops": Mechanism(
        ("operators/recurrent_loops",), _not_installed("operators.recurrent_loops")
    ),
    "lines of the program in profiles": Mechanism(
        ("profiling/source_lines",), _not_installed("profiling.source_lines")
    ),
}  # fmt: skip


# ---- programs ------------------------------------------------------------------------------------


@dataclass
class Ran:
    """CPU seconds of the first two steps, of a later one, programs compiled, and the numbers."""

    first: float
    step: float
    programs: int
    numbers: list[float]


Step = Callable[[int], list[float]]


def _case(name: str) -> Step:
    """A loop as people write it, on a model of compiled_step.py."""
    import step_models
    import torch

    torch.manual_seed(0)
    case = step_models.CASES[name]()
    model = case.model.to("jax")
    optimizer = step_models.adamw(model)
    batches = [tuple(x.to("jax") for x in case.batch()) for _ in range(4)]

    def step(number: int) -> list[float]:
        batch = batches[number % 4]
        optimizer.zero_grad()
        loss = case.loss(model(batch[0], *case.inputs), *batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return [loss.item()]

    return step


def _one_cycle() -> Step:
    """Learning rate and momentum change in each step."""
    import torch
    from step_models import images, normalized

    torch.manual_seed(0)
    layers = [*normalized(3, 16), *normalized(16, 32), torch.nn.AdaptiveAvgPool2d(1)]
    model = torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Linear(32, 10)).to("jax")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=100)
    x, y = (tensor.to("jax") for tensor in images(16, 3, 32)())

    def step(_: int) -> list[float]:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        schedule.step()
        return [loss.item()]

    return step


def _annealed() -> Step:
    """A model that is called with the weight of a loss, and the number of the step."""
    import torch

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.Sequential(
                *(torch.nn.Linear(64, 64) for _ in range(8)), torch.nn.Tanh()
            )

        def forward(self, x: torch.Tensor, weight: float, number: int) -> torch.Tensor:
            y = self.layers(x)
            return (y**2).mean() * weight + (y.abs().mean() if number > 3 else y.mean())

    torch.manual_seed(0)
    model, x = Model().to("jax"), torch.randn(32, 64).to("jax")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step(number: int) -> list[float]:
        optimizer.zero_grad()
        loss = model(x, 0.1 * number, number)
        loss.backward()
        optimizer.step()
        return [loss.item()]

    return step


def _generating() -> Step:
    """transformers' `generate`, 32 tokens a step."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    shape = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    config = LlamaConfig(
        vocab_size=256, num_attention_heads=4, max_position_embeddings=256, **shape
    )
    model = LlamaForCausalLM(config).eval().to("jax")
    prompt = torch.randint(3, 250, (2, 17)).to("jax")

    def step(_: int) -> list[float]:
        found = model.generate(prompt, max_new_tokens=32, do_sample=False, pad_token_id=0)
        return [float(x) for x in found.cpu().flatten()]

    return step


def _by_step(make: Callable[[], Step]) -> Callable[[], Ran]:
    def run() -> Ran:
        with _counted() as programs:
            began = time.process_time()
            step, numbers, times = make(), [], []
            began = time.process_time()
            for number in range(STEPS):
                numbers += step(number)
                times.append(time.process_time())
        taken = [b - a for a, b in itertools.pairwise(times)]
        return Ran(times[1] - began, min(taken[WARM:]), len(programs), numbers)

    return run


def _training(name: str, optimizer: str) -> Callable[[], Ran]:
    """One of the programs that training_numbers.py compares with CPU torch."""

    def run() -> Ran:
        os.environ["STEPS"] = str(STEPS)
        sys.path[:0] = [str(ROOT / "benchmarks/training"), str(ROOT / "reference_apps/mshnet")]
        import programs
        import torch

        programs.device = torch.device("jax")
        times: dict[int, float] = {}
        seeded = programs.seeded

        def noting(number: int) -> Any:  # each step draws its batch first
            times.setdefault(number % 1000, time.process_time())
            return seeded(number)

        programs.seeded = noting
        with _counted() as compiled:
            torch.manual_seed(7)
            losses, models = programs.PROGRAMS[name](programs.OPTIMIZERS[optimizer])
            state = programs.state_of(models)
        began = [times[n] for n in sorted(times)][: STEPS + 1]
        taken = [b - a for a, b in itertools.pairwise(began)]
        numbers = [*losses, *(float(abs(v.astype("float64")).sum()) for v in state.values())]
        return Ran(began[2] - began[0], min(taken[WARM:]), len(compiled), numbers)

    return run


PROGRAMS: dict[str, Callable[[], Ran]] = {
    **{name: _by_step(partial(_case, name)) for name in CASES},
    "one cycle": _by_step(_one_cycle),
    "annealed": _by_step(_annealed),
    "generate": _by_step(_generating),
    **{
        f"{name}, {optimizer}": _training(name, optimizer)
        for name, optimizer in (
            ("lstm", "adamw"), ("vae", "adamw"), ("gan", "adamw"), ("wgan_gp", "adamw"),
            ("ddpm", "sgd"), ("contrastive", "rmsprop"), ("reinforce", "adamw"),
            ("metric_learning", "sgd"), ("cnn", "lbfgs"),
        )
    },
}  # fmt: skip


class _counted(list[float]):
    """The programs that XLA compiles meanwhile, by their seconds."""

    def __enter__(self) -> _counted:
        import jax

        def listen(event: str, seconds: float, **_: Any) -> None:
            if event == "/jax/core/compile/backend_compile_duration":
                self.append(seconds)

        jax.monitoring.register_event_duration_secs_listener(listen)
        return self

    def __exit__(self, *_: object) -> None:
        return None


# ---- measuring -----------------------------------------------------------------------------------


def inside(mechanism: str, program: str) -> None:
    """Run one program in this process, and print what it took."""
    import importlib

    for folder in (ROOT / "benchmarks", Path(folder_to_import("torchax"))):
        sys.path.insert(0, str(folder))
    import tpu_runtime

    if mechanism:
        MECHANISMS[mechanism].off(lambda name: importlib.import_module(f"tpu_runtime.{name}"))
    if mechanism == "operators recorded":
        tpu_runtime._HOOKS = tpu_runtime.modes.Hooks(
            **{
                **vars(tpu_runtime._HOOKS),
                "hold": lambda *_: NotImplemented,
                "hold_function": lambda *_: NotImplemented,
            }
        )
    tpu_runtime.setup()
    print(json.dumps(asdict(PROGRAMS[program]())))


def measured(mechanism: str, program: str) -> Ran | str:
    """What the program took without the mechanism ("": with all), or its last line of an error."""
    command = [sys.executable, __file__, "--inside", mechanism, program]
    with tempfile.TemporaryDirectory() as cache:  # a first step finds nothing compiled
        environment = {
            **os.environ, "JAX_PLATFORMS": "cpu", "TPU_RUNTIME_REPORT": "0",
            "XDG_CACHE_HOME": cache,
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        }  # fmt: skip
        done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["no output"])[-1][-200:]
    return Ran(**json.loads(done.stdout.splitlines()[-1]))


def apart(some: Ran, other: Ran) -> float:
    """The largest relative difference of their numbers."""
    if len(some.numbers) != len(other.numbers):
        return float("inf")
    pairs = zip(some.numbers, other.numbers, strict=True)
    return max((abs(a - b) / max(abs(a), abs(b), 1e-6) for a, b in pairs), default=0.0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=MECHANISMS, default=[*MECHANISMS])
    parser.add_argument("--programs", nargs="+", choices=PROGRAMS, default=[*PROGRAMS])
    parser.add_argument("--out", type=Path, help="write all figures here, as JSON")
    parser.add_argument("--inside", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside:
        inside(*args.inside)
        return 0
    found: dict[str, dict[str, Any]] = {}
    for program in args.programs:
        known = measured("", program)
        print(f"{program}: {known}"[:160], flush=True)
        if isinstance(known, str):
            return 1
        for mechanism in args.only:
            ran = measured(mechanism, program)
            cell: dict[str, Any] = {"error": ran}
            if isinstance(ran, Ran):
                cell = {
                    "first": ran.first / known.first, "step": ran.step / known.step,
                    "programs": [known.programs, ran.programs], "apart": apart(ran, known),
                }  # fmt: skip
            found.setdefault(mechanism, {})[program] = cell
            print(f"  without {mechanism}: {cell}", flush=True)
            if args.out:
                args.out.write_text(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
