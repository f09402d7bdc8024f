"""Growth: the work for a file grows with its length, whatever is in it; nothing is counted twice.

Work is counted in calls of our own functions, so that the result is the same on every machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import indent
from types import FrameType

import pytest
from helpers import REPOSITORY, errors, run

import migrator
import rules

sys.path.insert(0, str(REPOSITORY / "benchmarks"))
from growing_files import FORMATS

_OWN = tuple(str(Path(package.__path__[0])) for package in (migrator, rules))
_TORCH = "import torch\nx = torch.ones(1)\n"
_LOOP = (
    "for x in xs:\n    opt.zero_grad()\n    loss = net(x.cuda())\n    loss.backward()\n"
    "    opt.step()\n    print(loss.item())\n"
)

FILES: dict[str, Callable[[int], str]] = {
    "moves of one name": lambda n: "x = x.cuda()\n" * n,
    "guarded moves": lambda n: "if torch.cuda.is_available():\n    x = x.cuda()\n" * n,
    "moves of two": lambda n: "x, y = x.cuda(), y.cuda()\n" * n,
    "names from each other": lambda n: "y = y + x; x = y * x\n" * n + "x = x.cuda()\n",
    "lists from each other": lambda n: "a = b\nb = a\n" * n + "for x in a:\n    x = x.cuda()\n",
    "functions": lambda n: "".join(f"def f{i}(x):\n    return x.cuda()\n" for i in range(n)),
    "classes": lambda n: "".join(
        f"class C{i}(torch.nn.Module):\n    def forward(self, x):\n        return x.cuda()\n"
        for i in range(n)
    ),
    "methods of one class": lambda n: "class C:\n" + "".join(
        f"    def f{i}(self, x):\n        self.x = self.x.cuda()\n        return self.f{i}(x)\n"
        for i in range(n)
    ),
    "imports": lambda n: "".join(f"from m{i} import n{i}\n" for i in range(n)) + "x = x.cuda()\n",
    "devices": lambda n: "".join(
        f"d{i} = torch.device('cuda:{i}')\ny{i} = x.to(d{i})\n" for i in range(n)
    ),
    "aliases of a device": lambda n: "d0 = torch.device('cuda')\n" + "".join(
        f"d{i + 1} = d{i}\ny = x.to(d{i})\n" for i in range(n)
    ),
    "branches": lambda n: "if a:\n    pass\n" + "".join(
        f"elif a == {i}:\n    x = x.cuda()\n" for i in range(n)
    ),
    "one list": lambda n: f"x = [{'x.cuda(), ' * n}]\n",
    "loops that train": lambda n: _LOOP * n,
    "loops with an optimizer each": lambda n: "".join(
        f"opt{i} = torch.optim.SGD(net.parameters(), lr=0.1)\n{_LOOP.replace('opt', f'opt{i}')}"
        for i in range(n)
    ),
    "functions that train": lambda n: "".join(
        f"def train{i}(net, opt, xs):\n{indent(_LOOP, '    ')}" for i in range(n)
    ),
    "loops with a scaler": lambda n: "scaler = torch.cuda.amp.GradScaler()\n" + (
        "for x in xs:\n    loss = net(x.cuda())\n    scaler.scale(loss).backward()\n"
        "    scaler.step(opt)\n    scaler.update()\n" * n
    ),
    "evaluations": lambda n: "with torch.no_grad():\n" + (
        "    for x in xs:\n        y = net(x.cuda())\n        s += y.sum().item()\n" * n
    ),
    "ranks": lambda n: "import os\nrank = int(os.environ['LOCAL_RANK'])\n" + "x.to(rank)\n" * n,
    "ranks as parameters": lambda n: "import torch.distributed as dist\n" + "".join(
        f"def f{i}(rank, x):\n    torch.cuda.set_device(rank)\n    return x.to(rank)\n"
        f"f{i}(dist.get_rank(), x)\n" for i in range(n)
    ),
    "a rank that is handed on": lambda n: "".join(
        f"def f{i}(rank, x):\n    return f{i + 1}(rank, x)\n" for i in range(n)
    ) + f"def f{n}(rank, x):\n    return x.to(rank)\nf0(0, x)\n",
    "models of ranks": lambda n: "import torch.distributed as dist\nimport os\n"
    "from torch.nn.parallel import DistributedDataParallel as DDP\n"
    "dist.init_process_group('nccl')\nrank = int(os.environ['LOCAL_RANK'])\n"
    + "m = DDP(net.to(rank), device_ids=[rank])\ndist.all_reduce(x)\n" * n,
    "loaders of the project's own": lambda n: "".join(
        f"def load{i}(d, **options):\n    return torch.utils.data.DataLoader(d, **options)\n"
        f"a = load{i}(d, pin_memory=True)\n" for i in range(n)
    ),
    "devices of arguments": lambda n: "import argparse\np = argparse.ArgumentParser()\n" + "".join(
        f"p.add_argument('--d{i}', default='cuda')\nx.to(p.parse_args().d{i})\n" for i in range(n)
    ),
    "guards in front of kernels": lambda n: "".join(
        f"def f{i}(x):\n    if x.is_cuda:\n        return k{i}.forward_cuda(x)\n    return x\n"
        for i in range(n)
    ),
    "optimizers in one loop": lambda n: "".join(
        f"o{i} = torch.optim.SGD(net.parameters(), lr=0.1)\n" for i in range(n)
    ) + "for x in xs:\n" + "".join(
        f"    o{i}.zero_grad()\n    l{i} = net(x.cuda())\n    l{i}.backward()\n"
        f"    o{i}.step()\n    print(l{i}.item())\n" for i in range(n)
    ),
    "optimizers of one backward pass": lambda n: "".join(
        f"o{i} = torch.optim.SGD(net.parameters(), lr=0.1)\n" for i in range(n)
    ) + "for x in xs:\n    l = net(x.cuda())\n    l.backward()\n" + "".join(
        f"    o{i}.step()\n" for i in range(n)
    ),
    "reads behind a step": lambda n: _LOOP + "    print(loss.item())\n" * n,
    "names of devices": lambda n: "s = 'cuda'\n" * n,
    "functions that do nothing": lambda n: "".join(
        f"def q{i}():\n    return 0\nx = x.cuda(q{i}())\n" for i in range(n)
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", FILES)
def test_the_work_grows_with_the_file(kind: str) -> None:
    run("import torch\nx = x.cuda()\n")  # what is loaded and compiled once
    small, large = (_calls(_TORCH + FILES[kind](n)) for n in (10, 40))
    assert large < 4.7 * small


@pytest.mark.parametrize("kind", FORMATS)
def test_the_work_grows_with_a_file_of_another_kind(kind: str) -> None:
    path, text = FORMATS[kind]
    run(text(2), path=path)  # what is loaded and compiled once
    small, large = (_calls(text(n), path) for n in (25, 100))
    assert large < 4.7 * small


NESTED = {
    "not": "y = " + "not " * 3000 + "x\n",
    "minus": "y = " + "-" * 3000 + "x\n",
    "attributes": "y = x" + ".b" * 3000 + "\n",
    "subscripts": "y = x" + "[0]" * 3000 + "\n",
    "conditions": "y = " + "a if b else " * 3000 + "x\n",
    "lines": "y = (" + "not \n" * 3000 + "x)\n",
    "in a default": "def f(y=" + "not " * 3000 + "x):\n    pass\n",
    "a sum": "y = " + "x + " * 3000 + "x\n",
    "calls": "y = x" + ".f()" * 3000 + "\n",
}


@pytest.mark.parametrize("kind", NESTED)
def test_what_nobody_nests_so_deeply_takes_neither_time_nor_memory(kind: str) -> None:
    source = f"{_TORCH}x = x.cuda()\n{NESTED[kind]}"
    program = (
        "import resource, sys\nfrom helpers import REPOSITORY, errors, run\n"
        "run('import torch\\nx = x.cuda()\\n')\n"
        "before = resource.getrusage(resource.RUSAGE_SELF)\n"
        "print([d.message for d in errors(run(sys.stdin.read()))])\n"
        "after = resource.getrusage(resource.RUSAGE_SELF)\n"
        "print(after.ru_maxrss - before.ru_maxrss, after.ru_utime - before.ru_utime)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], input=source, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY / "tests")}, timeout=120,
    )  # fmt: skip
    said, spent = done.stdout.splitlines()
    kibibytes, seconds = map(float, spent.split())
    assert said == "['too deeply nested to be rewritten']"
    assert kibibytes < 50_000 and seconds < 2


LONG = {
    "an elif chain": "if a:\n    pass\n" + "".join(
        f"elif a == {i}:\n    x = x.cuda()\n" for i in range(500)
    ),
    "aliases": "d0 = torch.device('cuda')\n" + "".join(f"d{i + 1} = d{i}\n" for i in range(900))
    + "x = x.to(d900)\nx = x.cuda()\n",
    "names from each other": "y = x\n" + "y = y + x; x = y * x\n" * 300 + "x = x.cuda()\n",
    "aliases of a module": "c0 = torch.cuda\n" + "".join(f"c{i + 1} = c{i}\n" for i in range(400))
    + "c400.synchronize()\nx = x.cuda()\n",
}  # fmt: skip


@pytest.mark.parametrize("kind", LONG)
def test_what_hangs_on_very_many_others_is_no_reason_to_give_up_on_a_file(kind: str) -> None:
    result = run(_TORCH + LONG[kind])
    assert not errors(result)
    assert result.source.endswith((b"x = x.to('jax')\n", b'x = x.to("jax")\n'))


def test_a_truly_deep_expression_is_one_clear_line() -> None:
    source = f"{_TORCH}x = x{'.cuda()' * 3000}\n"
    limit = sys.getrecursionlimit()
    result = run(source)
    assert [d.message for d in errors(result)] == ["too deeply nested to be rewritten"]
    assert result.source == source.encode()
    assert sys.getrecursionlimit() == limit


def _calls(source: str, path: str = "module.py") -> int:
    """How many calls of our functions a migration takes."""
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        if event == "call" and frame.f_code.co_filename.startswith(_OWN):
            calls += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        result = run(source, path=path)
    finally:
        sys.setprofile(before)
    assert not errors(result)
    return calls
