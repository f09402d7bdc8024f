"""A loop's parts as a program: a script, a function that is called, or an object with methods."""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

from random_loops.layout import SETUP, Names, OfSelf, Outline, leave_early, let_fail, parse, wrap
from random_loops.losses import HELPERS

_SEEDS = "torch.manual_seed({0})\nnp.random.seed({0})\nrandom.seed({0})"
_IMPORTS = {
    "collections": "import collections",
    "contextlib": "import contextlib",
    "copy": "import copy",
    "itertools": "import itertools",
    "random": "import random",
    "SimpleNamespace": "from types import SimpleNamespace",
    "np": "import numpy as np",
    "torch": "import torch",
    "F": "import torch.nn.functional as F",
    "nn": "from torch import nn",
}
_DEVICES = (
    'device = torch.device("cuda")',
    'device = "cuda"',
    'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")',
)


@dataclass
class Parts:
    definitions: list[str]
    setup: list[str]
    head: str  # of the loop
    body: list[ast.stmt]
    final: list[str]


def text_of(chance: random.Random, seed: int, parts: Parts, first: int) -> str:
    """The program; its rounds may end early behind their first statements, which get the batch."""
    style = chance.choice(["script", "script", "function", "class"])
    body = parts.body
    if chance.random() < 0.35:
        leave_early(chance, body, first)
    if chance.random() < 0.12:
        let_fail(chance, body, first)
    [outermost] = parse(f"{parts.head}\n        pass")
    loop = next(n for n in reversed([*ast.walk(outermost)]) if isinstance(n, ast.For | ast.While))
    kept = Names.of(parse("\n".join(parts.setup))).written | {*SETUP}
    last = Names.of(parse("\n".join(parts.final))).read
    outline = Outline(kept, style, Names.of([outermost]).written | {"step"}, last)
    for change, likely in ((wrap, 0.6), (outline.take, 0.6), (wrap, 0.3), (outline.take, 0.3)):
        if chance.random() < likely:
            change(chance, body)
    loop.body = body
    used = _words([outermost, *outline.functions])
    setup = parse("\n".join([*parts.setup, *(t for name, t in SETUP.items() if name in used)]))
    main = _STYLES[style](setup, outline.functions, outermost, parse("\n".join(parts.final)))
    text = "\n".join(_unparsed(part) for part in main)
    helpers = [helper for name, helper in HELPERS.items() if re.search(rf"\b{name}\(", text)]
    blocks = [*(block.strip("\n") for block in (*helpers, *parts.definitions)), text]
    begin = f"{_SEEDS.format(seed)}\n{chance.choice(_DEVICES)}"
    every = "\n\n\n".join([begin, *blocks])
    imports = [line for name, line in _IMPORTS.items() if re.search(rf"\b{name}\b", every)]
    return "\n".join(imports) + f"\n\n{every}\n"


def _words(statements: Sequence[ast.AST]) -> set[str]:
    return {word for s in statements for word in re.findall(r"\w+", ast.unparse(s))}


def _unparsed(part: ast.stmt) -> str:
    text = ast.unparse(ast.fix_missing_locations(part))
    return f"\n\n{text}\n\n" if isinstance(part, ast.FunctionDef | ast.ClassDef) else text


def _script(
    setup: list[ast.stmt], functions: list[ast.FunctionDef], loop: ast.stmt, final: list[ast.stmt]
) -> list[ast.stmt]:
    return [*setup, *functions, loop, *final]


def _function(
    setup: list[ast.stmt], functions: list[ast.FunctionDef], loop: ast.stmt, final: list[ast.stmt]
) -> list[ast.stmt]:
    """It gives back what it has set up, for whoever looks at it at the end."""
    names = sorted(Names.of(setup).written)
    [main, call] = parse("def main():\n    pass\n\nresults = main()")
    assert isinstance(main, ast.FunctionDef)
    listed = ast.Dict([ast.Constant(n) for n in names], [ast.Name(n, ast.Load()) for n in names])
    main.body = [*setup, *functions, loop, *final, ast.Return(listed)]
    return [main, call]


def _class(
    setup: list[ast.stmt], functions: list[ast.FunctionDef], loop: ast.stmt, final: list[ast.stmt]
) -> list[ast.stmt]:
    of_self = OfSelf(Names.of(setup).written - {"step"})
    lines = ["class Trainer:", "    def __init__(self):", "        pass", "    def run(self):",
             "        pass", "", "trainer = Trainer()", "trainer.run()"]  # fmt: skip
    [trainer, *calls] = parse("\n".join(lines))
    assert isinstance(trainer, ast.ClassDef)
    begin, run = trainer.body
    assert isinstance(begin, ast.FunctionDef) and isinstance(run, ast.FunctionDef)
    begin.body, run.body = setup, [loop, *final]
    step = [s for s in setup if "step" in Names.of([s]).written]  # of a `while` loop
    begin.body = [s for s in setup if s not in step]
    run.body = [*step, *run.body]
    trainer.body = [begin, *functions, run]
    return [of_self.visit(trainer), *calls]


_STYLES = {"script": _script, "function": _function, "class": _class}
