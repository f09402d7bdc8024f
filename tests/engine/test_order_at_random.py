"""Random scripts: what they do outside of torch happens as before, in the same order.

Imports and set-up are added between a script's lines, statements and arguments go, seeds change.
Torch is a stand-in that keeps random state; whatever else a line does is noted.
"""

from __future__ import annotations

import builtins
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any
from unittest import mock

import pytest
from helpers import run

TARGETS = ("torchax", "torch_xla", "torch_tpu")
INDICES = (
    "0", "pick()", "next(numbers)", "min(numbers)", "list(map(int, numbers))[0]", "things.gpu",
    "things[0]", "(n := 1)", "[note('in a list') for _ in 'a'][0]", "[0 for _ in numbers][0]",
    "int(os.environ.get('GPU', 0))", "gpus[0]", "max(len(gpus), 0)",
)  # fmt: skip
USES = (
    "x = torch.ones(2).cuda({})", "torch.cuda.set_device({})",
    "torch.backends.cudnn.benchmark = {}", "with torch.cuda.device({}):\n    note('inside')",
    "torch.cuda.synchronize({})", "x = torch.ones(2, device=torch.device('cuda', {}))",
    "y = x.cuda({}) + 1", "net = torch.nn.DataParallel(net, device_ids=[{}])",
    "if [{}] == []:\n    torch.cuda.init()",
)  # fmt: skip
SEEDS = ("torch.manual_seed(3)", "torch.cuda.manual_seed(3)", "torch.cuda.manual_seed_all(4)",
         "torch.cuda.manual_seed_all(3)", "note(torch.rand(1))", "random.seed(3)",
         "note(torch.rand(1, device='cuda'))", "note(random.random())")  # fmt: skip
LINES = (
    "import helper_a", "from helper_b import act", "import os, helper_c", "import torch, helper_d",
    "import torch; note('beside')", "from torch import nn", "import sys",
    "try:\n    import helper_e\nexcept ImportError:\n    helper_e = None",
    "if gpus:\n    import helper_f", "note('alone')", "helper_g = __import__('helper_g')",
    "def move(value):\n    return value.cuda()", "sys_path = [note('a path')]", "act()",
)  # fmt: skip
HEAD = """\
import os
import random
{torch}from noting import note

gpus = [0]
numbers = iter(range(9))


def pick():
    return note("picked")


class Things:
    @property
    def gpu(self):
        return note("asked")

    def __getitem__(self, key):
        return note("taken")


things = Things()
act = net = None
"""


def script(rng: random.Random) -> str:
    lines = [rng.choice(LINES) for _ in range(rng.randrange(5))]
    lines += [rng.choice(USES).format(rng.choice(INDICES)) for _ in range(rng.randrange(1, 4))]
    lines += [rng.choice(SEEDS) for _ in range(rng.randrange(4))]
    rng.shuffle(lines)
    early = rng.random() < 0.7
    if not early:
        lines.insert(0, "import torch")
    tail = ["x = torch.ones(2).cuda()", "note(next(numbers))", "note(torch.rand(1))"]
    rng.shuffle(tail)
    return "\n".join([HEAD.format(torch="import torch\n" if early else ""), *lines, *tail, ""])


class Library(ModuleType):
    """Any module of torch or of a target: what isn't here is a mock."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = mock.MagicMock()
        setattr(self, name, made)
        return made


class Random:
    """Torch's generators: a seed and the number of draws, of the CPU and of the device."""

    def __init__(self) -> None:
        self.cpu, self.device = [0, 0], [0, 0]

    def seed(self, number: int) -> None:
        self.cpu, self.device = [number, 0], [number, 0]

    def seed_device(self, number: int) -> None:
        self.device = [number, 0]

    def draw(self, count: int, device: object = None) -> str:
        state = self.cpu if device is None else self.device
        state[1] += 1
        return f"{'cpu' if device is None else 'device'} {state}"

    @contextmanager
    def fork(self, devices: list[int]) -> Iterator[None]:
        kept = list(self.cpu)
        yield
        self.cpu = kept


def libraries(gpu: bool) -> dict[str, ModuleType]:
    """On a TPU, what is left of torch.cuda does nothing."""
    names = ("torch", "torch.nn", "torch_xla", "tpu_runtime", "noting")
    made: dict[str, Any] = {name: Library(name) for name in names}
    torch, state = made["torch"], Random()
    torch.manual_seed, torch.rand, torch.random.fork_rng = state.seed, state.draw, state.fork
    torch.cuda.is_available.return_value = gpu
    torch.accelerator.current_accelerator.return_value.type = "tpu"
    for name in ("manual_seed", "manual_seed_all"):
        seed = state.seed_device
        setattr(torch.cuda, name, seed if gpu else mock.MagicMock())
        setattr(made["tpu_runtime"], name, seed)
        setattr(made["torch_xla"], name, seed)
    return made


def happened(source: str, gpu: bool) -> list[str]:
    """What a script does, in order."""
    notes: list[str] = []
    known, load = libraries(gpu), builtins.__import__

    def note(value: object) -> int:
        notes.append(str(value))
        return 0

    def bring(name: str, *rest: Any) -> Any:
        if name.startswith("helper_") and name not in known:
            notes.append(f"import {name}")
            known[name] = Library(name)
            known[name].act = lambda: note("acted")
            sys.modules[name] = known[name]
        return load(name, *rest)

    known["noting"].note = note
    random.seed(0)
    with mock.patch.dict(sys.modules, known), mock.patch.object(builtins, "__import__", bring):
        try:
            exec(compile(source, "script.py", "exec"), {"__name__": "__main__"})
        except Exception as error:
            notes.append(repr(error))
    return notes


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("seed", range(6))
def test_what_a_script_does_besides_is_the_same(seed: int, target: str) -> None:
    rng, rewritten = random.Random(seed), 0
    for _ in range(40):
        source = script(rng)
        text = run(source, target, entry=True).source.decode()
        assert happened(text, gpu=False) == happened(source, gpu=True), f"{source}\n===\n{text}"
        rewritten += text.count("cuda") < source.count("cuda") - 1
    assert rewritten > 20
