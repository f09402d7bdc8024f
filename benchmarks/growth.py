"""CPU time of large files and programs, at a size and at twice that size.

    python benchmarks/growth.py                       # all kinds
    python benchmarks/growth.py -k optimizers --sizes 20 40 80 160
    python benchmarks/growth.py --plot docs/growth.svg      # six curves; needs matplotlib

Each kind of file is generated; what it holds is repeated as often as the size says: of a program,
files. Prints the seconds of each size, and what the last step multiplied them by for twice the
size: 2 where the work grows with the file. Exit code 1 where that is above the limit.
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from math import inf
from pathlib import Path
from textwrap import indent

from growing_files import FORMATS

from migrator.cli import COLLECTING
from migrator.config import Config
from migrator.diagnostics import Severity
from migrator.options import Options
from migrator.pipeline.engine import migrate_file
from migrator.runs.run import migrate_paths
from migrator.targets import targets

_TORCH = "import torch\nx = torch.ones(1)\n"


def _each(text: str) -> Callable[[int], str]:
    """`text` again and again, with the number of the round for {i} and of the next for {j}."""

    def repeated(count: int) -> str:
        return "".join(text.replace("{i}", str(i)).replace("{j}", str(i + 1)) for i in range(count))

    return repeated


def _within(head: str, text: str) -> Callable[[int], str]:
    """The same as the body of `head`."""
    return lambda count: head + indent(_each(text)(count), "    ")


_STEP = "o.zero_grad()\nl = net(x.cuda())\nl.backward()\no.step()\n"
_OPTIMIZER = "o{i} = torch.optim.SGD(net.parameters(), lr=0.1)\n"

# What is repeated, and how often at the smaller of two sizes.
KINDS: dict[str, tuple[int, Callable[[int], str]]] = {
    # what the parts of a language repeat
    "one name assigned": (10000, lambda n: "x = x + 1\n" * n + "x = x.cuda()\n"),
    "moves of one name": (1000, _each("x = x.cuda()\n")),
    "imports": (5000, lambda n: _each("from m{i} import n{i}\n")(n) + "x = x.cuda()\n"),
    "imports of one package": (
        5000, lambda n: _each("import p.m{i}\n")(n) + "x = x.cuda()\n"
    ),
    "imports of torch": (500, _each("from torch.cuda import synchronize as s{i}\ns{i}()\n")),
    "an elif chain": (
        300, lambda n: "if a:\n    pass\n" + _each("elif a == {i}:\n    x = x.cuda()\n")(n)
    ),
    "nested calls": (20, lambda n: "x = " + "f(" * n + "x.cuda()" + ")" * n + "\n"),
    "an attribute chain": (100, lambda n: "x = x" + ".a" * n + ".cuda()\n"),
    "a sum": (200, lambda n: "x = " + "x.cuda() + " * n + "x\n"),
    "functions": (1000, _each("def f{i}(x):\n    return x.cuda()\n")),
    "functions of the CPU": (
        5000, lambda n: _each("def f{i}(x):\n    return x\n")(n) + "x = x.cuda()\n"
    ),
    "functions that call the next": (500, _each("def f{i}(x):\n    return f{j}(x.cuda())\n")),
    "classes": (
        1500,
        _each("class C{i}(torch.nn.Module):\n    def forward(self, x):\n        return x.cuda()\n"),
    ),
    "subclasses": (
        200,
        lambda n: "class A0(torch.nn.Module):\n    pass\n"
        + _each("class A{j}(A{i}):\n    def f(self, x):\n        return x.cuda()\n")(n),
    ),
    "a dict": (
        25000, lambda n: "d = {" + _each("'k{i}': {i}, ")(n) + "}\nx = x.cuda()\n"
    ),
    "a dict of moves": (500, lambda n: "d = {" + _each("'k{i}': x.cuda(), ")(n) + "}\n"),
    "lines": (12500, lambda n: "print(x)\ny = x + 1\n" * (n // 2) + "x = x.cuda()\n"),
    "comments": (12000, lambda n: "# cuda\n" * n + "x = x.cuda()\n"),
    "strings": (1000, lambda n: "s = 'cuda'\n" * n),
    "tries": (
        500, _each("try:\n    x = x.cuda()\nexcept RuntimeError:\n    torch.cuda.empty_cache()\n")
    ),
    "guards": (
        500,
        _each("if torch.cuda.is_available():\n    d{i} = 'cuda'\nelse:\n    d{i} = 'cpu'\n"
              "x = x.to(d{i})\n"),
    ),
    "attributes of self": (
        300,
        lambda n: "class C(torch.nn.Module):\n    def __init__(self):\n"
        + indent(_each("self.l{i} = torch.nn.Linear(2, 2).cuda()\n")(n), " " * 8)
        + "    def forward(self, x):\n"
        + indent(_each("x = self.l{i}(x)\n")(n), " " * 8),
    ),
    "globals": (
        1000, _each("G{i} = None\ndef s{i}():\n    global G{i}\n    G{i} = x.cuda()\n")
    ),
    "arguments": (
        1000,
        lambda n: "import argparse\np = argparse.ArgumentParser()\n"
        + _each("p.add_argument('--a{i}', default='cuda')\n")(n)
        + "a = p.parse_args()\n" + _each("x.to(a.a{i})\n")(n),
    ),
    "match cases": (
        500, lambda n: "match a:\n" + indent(_each("case {i}:\n    x = x.cuda()\n")(n), "    ")
    ),
    # what programs that train repeat
    "loops": (200, _each("for x in xs:\n" + indent(_STEP, "    "))),
    "steps in one loop": (
        40,
        lambda n: "o = torch.optim.SGD(net.parameters())\n" + _within("for x in xs:\n", _STEP)(n),
    ),
    "optimizers in one loop": (
        40,
        lambda n: _each(_OPTIMIZER)(n)
        + _within("for x in xs:\n", _STEP.replace("o.", "o{i}."))(n),
    ),
    "optimizers of one backward pass": (
        40,
        lambda n: _each(_OPTIMIZER)(n)
        + "for x in xs:\n    l = net(x.cuda())\n    l.backward()\n"
        + indent(_each("o{i}.step()\n")(n), "    "),
    ),
    "optimizers of models": (
        40,
        lambda n: _each("g{i} = torch.nn.Linear(2, 2).cuda()\n"
                        "o{i} = torch.optim.Adam(g{i}.parameters())\n")(n)
        + _within("for x in xs:\n", "o{i}.zero_grad()\nl{i} = g{i}(x.cuda()).mean()\n"
                  "l{i}.backward()\no{i}.step()\nprint(l{i}.item())\n")(n),
    ),
    "optimizers in functions": (
        100,
        _each("def t{i}():\n    net = torch.nn.Linear(2, 2).cuda()\n    " + _OPTIMIZER
              + "    for x in xs:\n" + indent(_STEP.replace("o.", "o{i}."), " " * 8)),
    ),
    "a long step": (
        200,
        lambda n: "o = torch.optim.SGD(net.parameters())\nfor x in xs:\n    y = x.cuda()\n"
        + "    y = net(y)\n" * n + "    y.sum().backward()\n    o.step()\n",
    ),
    "reads behind a step": (
        200,
        lambda n: "o = torch.optim.SGD(net.parameters())\nfor x in xs:\n"
        + indent(_STEP, "    ") + "    print(l.item())\n" * n,
    ),
    "reads in a step": (
        100,
        lambda n: "o = torch.optim.SGD(net.parameters())\nfor x in xs:\n    l = net(x.cuda())\n"
        + indent(_each("s{i} = l.mean().item()\n")(n), "    ")
        + "    l.backward()\n    o.step()\n",
    ),
    "branches in a loop": (
        200,
        _within("for x in xs:\n", "if a{i}:\n    x = x.cuda()\nelse:\n    y = net(x)\n"),
    ),
    "autocasts": (
        200, _within("for x in xs:\n", "with torch.cuda.amp.autocast():\n    y = net(x.cuda())\n")
    ),
    "checkpoints": (
        200,
        _each("c{i} = torch.load('a.pt')\nnet.load_state_dict(c{i}['m'])\n"
              "torch.save(net.state_dict(), 'b{i}.pt')\n"),
    ),
    "timers": (
        200,
        lambda n: "import time\n"
        + _each("t{i} = time.time()\nx = x.cuda()\ntorch.cuda.synchronize()\n"
                "print(time.time() - t{i})\n")(n),
    ),
    "streams": (
        200,
        _each("s{i} = torch.cuda.Stream()\nwith torch.cuda.stream(s{i}):\n    x = x.cuda()\n"),
    ),
}  # fmt: skip

_MODULE = (
    _TORCH
    + """
class Net{i}(torch.nn.Module):
    def forward(self, x):
        return f{i}(x.cuda())

def f{i}(x):
    return x.to("cuda")
"""
)
_MAIN = (
    _TORCH
    + """import torch.distributed as dist
dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_rank())
"""
)


def _program(main: str, module: str, takes: str) -> Callable[[int], dict[str, str]]:
    """A script, and as many modules that it imports, one of the other, too."""

    def files(count: int) -> dict[str, str]:
        imports = _each("from m{i} import Net{i}\n")(count)
        made = _each("print(Net{i}()(x))\n")(count)
        modules = {
            f"m{i}.py": (module + (takes if i else ""))
            .replace("{i}", str(i))
            .replace("{h}", str(i - 1))
            for i in range(count)
        }
        return {"main.py": imports + main + made, **modules}

    return files


_LIBRARY = """import torch
import torch.distributed as dist
from m{h} import Part{h}

class Part{i}(Part{h}):
    def __init__(self, width=8, fused=False):
        super().__init__(width, fused)
        self.width{i} = width
        self.fused = fused

    def forward(self, x):
        return self.inner{i}(x.cuda()) if self.width{i} else x

    def inner{i}(self, x):
        if self.fused:
            dist.distributed_c10d._coalescing_manager()
        return super().forward(x)
"""
_BASE = """import torch
import torch.distributed as dist

class Part0(torch.nn.Module):
    def __init__(self, width=8, fused=False):
        super().__init__()
        self.fused = fused

def start():
    dist.init_process_group("nccl")
    torch.cuda.set_device(dist.get_rank())
"""


def _tests(count: int) -> dict[str, str]:
    """As many modules of a library as tests of it: programs that have almost all of their files."""
    last = count - 1
    modules = {
        f"m{i}.py": _LIBRARY.replace("{i}", str(i)).replace("{h}", str(i - 1))
        for i in range(1, count)
    }
    test = f"import m0, m{last}\ndef test_{{i}}():\n    m0.start()\n    m{last}.Part{last}({{i}})\n"
    tests = {f"test_{i}.py": test.replace("{i}", str(i)) for i in range(count)}
    return {"m0.py": _BASE, **modules, **tests}


# Programs of many files, and how many at the smaller of two sizes.
PROGRAMS: dict[str, tuple[int, Callable[[int], dict[str, str]]]] = {
    "files of one program": (100, _program(_TORCH, _MODULE, "")),
    "files that import the one before": (
        100, _program(_TORCH, _MODULE, "from m{h} import f{h}\n")
    ),
    "files of a program of ranks": (100, _program(_MAIN, _MODULE, "from m{h} import f{h}\n")),
    "tests of a library with ranks": (30, _tests),
}  # fmt: skip

_LINES = 1000  # of files of other kinds, at the smaller of two sizes

# The curves of docs/speed.md: a kind, and its sizes.
CURVES = {
    "files of one program": (10, 30, 100, 300, 1000),
    "files of a program of ranks": (10, 30, 100, 300),
    "lines": (3000, 6000, 12500, 25000, 50000),
    "one name assigned": (1250, 2500, 5000, 10000, 20000),
    "imports": (625, 1250, 2500, 5000, 10000),
    "an elif chain": (40, 80, 160, 320, 600),
    "nested calls": (5, 10, 20, 40),
}


def of_program(files: dict[str, str], target: str) -> float:
    """CPU seconds of a run over the files of a program; infinite where it cannot be processed."""
    with tempfile.TemporaryDirectory() as name:
        for file, text in files.items():
            (Path(name) / file).write_text(text)
        gc.collect()
        start = time.process_time()
        report = migrate_paths([name], target, config=Config(jobs=1))
        spent = time.process_time() - start
    return inf if any(file.result.failed for file in report.files) else spent


def of_kind(kind: str, size: int, target: str) -> float:
    if kind in PROGRAMS:
        return of_program(PROGRAMS[kind][1](size), target)
    if kind in FORMATS:
        path, text = FORMATS[kind]
        return seconds(text(size), target, Path(path))
    return seconds(_TORCH + KINDS[kind][1](size), target)


def plot(file: Path, target: str) -> None:
    """Draw the curves, each as multiples of its first size and of the seconds of that."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.5))
    for kind, sizes in CURVES.items():
        row = [of_kind(kind, size, target) for size in sizes]
        print(f"| {kind} | {sizes[0]:,} to {sizes[-1]:,} | {row[0]:.2f} | {row[-1]:.2f} | "
              f"{sizes[-1] / sizes[0]:.0f} | {row[-1] / row[0]:.0f} |", flush=True)  # fmt: skip
        label = f"{kind}, {sizes[0]:,} to {sizes[-1]:,}"
        axes.plot([n / sizes[0] for n in sizes], [t / row[0] for t in row], marker="o", label=label)
    axes.plot([1, 100], [1, 100], color="gray", linestyle="--", label="in proportion")
    axes.set(xscale="log", yscale="log", xlabel="times the size", ylabel="times the CPU time")
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(file)


def seconds(source: str, target: str, path: Path = Path("module.py")) -> float:
    """CPU seconds of one migration, the least of three; infinite where the file is refused."""
    spent = inf
    for _ in range(3):
        gc.collect()
        start = time.process_time()
        result = migrate_file(path, source.encode(), targets()[target], Options(entry=False))
        spent = min(spent, time.process_time() - start)
    for found in result.diagnostics:
        if found.severity is Severity.ERROR:
            return inf
    return spent


def _sizes(first: int, given: Iterable[int] | None) -> list[int]:
    return list(given) if given else [first, 2 * first]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-k", default="", help="only kinds with this in their name")
    parser.add_argument("--target", default="torchax")
    parser.add_argument("--sizes", type=int, nargs="+", help="in place of each kind's own")
    parser.add_argument("--limit", type=float, default=2.5, help="for twice the size")
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="draw the curves of docs/speed.md"
    )
    arguments = parser.parse_args()
    gc.set_threshold(*COLLECTING)  # as the command does
    seconds("import torch\nx = x.cuda()\n", arguments.target)  # what is loaded once
    if arguments.plot:
        plot(arguments.plot, arguments.target)
        return 0
    above = []
    formats = {kind: (_LINES, text) for kind, (_, text) in FORMATS.items()}
    for kind, (first, _) in {**KINDS, **PROGRAMS, **formats}.items():
        if arguments.k not in kind:
            continue
        row = [of_kind(kind, n, arguments.target) for n in _sizes(first, arguments.sizes)]
        ratio = row[-1] / row[-2] if len(row) > 1 else 0.0
        sizes = ", ".join(str(n) for n in _sizes(first, arguments.sizes))
        times = " ".join(f"{spent:7.2f}" for spent in row)
        print(f"{kind:32s} {sizes:>14s} {times}  × {ratio:.1f}", flush=True)
        if not ratio <= arguments.limit:
            above.append(kind)
    print(f"above {arguments.limit}: {', '.join(above) or 'none'}")
    return int(bool(above))


if __name__ == "__main__":
    sys.exit(main())
