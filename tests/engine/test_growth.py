"""Growth: the work for a file grows with its length, whatever is in it; nothing is counted twice.

Work is counted in calls of our own functions, so that the result is the same on every machine.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest
from helpers import errors, run

import migrator
import rules

_OWN = tuple(str(Path(package.__path__[0])) for package in (migrator, rules))
_TORCH = "import torch\nx = torch.ones(1)\n"

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
    "loops that train": lambda n: "for x in xs:\n    loss = net(x.cuda())\n    loss.backward()\n"
    "    opt.step()\n" * n,
}  # fmt: skip


@pytest.mark.parametrize("kind", FILES)
def test_the_work_grows_with_the_file(kind: str) -> None:
    run("import torch\nx = x.cuda()\n")  # what is loaded and compiled once
    small, large = (_calls(_TORCH + FILES[kind](n)) for n in (25, 100))
    assert large < 5.5 * small


def _calls(source: str) -> int:
    """How many calls of our functions a migration takes."""
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        if event == "call" and frame.f_code.co_filename.startswith(_OWN):
            calls += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        result = run(source)
    finally:
        sys.setprofile(before)
    assert not errors(result)
    return calls
