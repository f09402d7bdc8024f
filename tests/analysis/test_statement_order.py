"""Which statements may change places: only where nobody can tell in which order they ran."""

from __future__ import annotations

import ast

import pytest

from migrator.analysis.syntax.names import Names
from migrator.analysis.values.effects import Effects
from migrator.analysis.values.flow import Flow
from migrator.analysis.values.statement_order import StatementOrder

HEAD = """
import random
import numpy as np
import torch
from mine import act, model, table
x = torch.ones(3)
y = torch.zeros(3)
z = x
n = 1
words = iter("abc")
held = [y]
shelf = table
def double(value):
    return torch.cat([value, value])
def zero(value):
    value[0] = 0
"""


def order_of(source: str) -> tuple[StatementOrder, list[ast.stmt]]:
    tree = ast.parse(source)
    names = Names(tree)
    flow = Flow(names)
    return StatementOrder(names, Effects(names, flow)), tree.body


def may_swap(first: str, second: str) -> bool:
    """Also the other way round, which must be the same."""
    order, body = order_of(f"{HEAD}\nfor _ in range(3):\n    {first}\n    {second}\n")
    loop = body[-1]
    assert isinstance(loop, ast.For)
    one, other = loop.body
    assert order.may_swap(one, other) is order.may_swap(other, one)
    return order.may_swap(one, other)


FREE = [
    ("a = n + 1", "b = n + 2"),
    ("a = x.sum()", "b = x.mean()"),
    ("a = torch.cat([x, y])", "y2 = torch.argmax(x)"),
    ("x[0] = 1", "a = y.sum()"),  # other tensors
    ("a = double(x)", "b = double(x)"),
    ("random.seed(1)", "np.random.seed(1)"),
    ("a = torch.rand(1)", "b = random.random()"),
    ("print(n)", "a = n + 1"),
    ("torch.backends.cudnn.benchmark = True", "a = n + 1"),
]
TIED = [
    ("a = n", "n = 2"),  # a variable
    ("n = 2", "n = 3"),
    ("n += 1", "a = n"),
    ("a = x.sum()", "x[0] = 1"),  # an object
    ("a = x.sum()", "z[0] = 1"),  # by another name
    ("a = x.sum()", "z += 1"),
    ("a = x.sum()", "x.add_(1)"),
    ("a = x.sum()", "zero(z)"),
    ("a = y.sum()", "held[0][1] = 3"),  # within another
    ("a = y.sum()", "held.append(x)"),
    ("a = x.sum()", "torch.add(y, 1, out=z)"),
    ("a = x.sum()", "act()"),  # act may have x: it is a variable of the module
    ("act()", "act()"),
    ("table.a = 1", "table.b = 1"),
    ("a = table.n", "shelf.n = 2"),
    ("a = torch.rand(1)", "b = torch.randn(1)"),  # generators
    ("a = random.random()", "b = random.random()"),
    ("a = np.random.rand()", "np.random.seed(1)"),
    ("print(1)", "print(2)"),  # output
    ("print(1)", "act()"),
    ("a = x * 2", "act()"),  # grad mode, autocast
    ("a = x * 2", "torch.set_grad_enabled(False)"),
    ("a = x * 2", "model.train()"),
    ("a = next(words)", "b = next(words)"),
    ("a = list(words)", "b = any(words)"),
    ("break", "a = 1"),  # leaving
    ("assert n", "print(1)"),
    ("a = 1", "continue"),
]


@pytest.mark.parametrize(("first", "second"), FREE)
def test_what_has_nothing_in_common_may(first: str, second: str) -> None:
    assert may_swap(first, second)


@pytest.mark.parametrize(("first", "second"), TIED)
def test_what_one_writes_and_the_other_reads_may_not(first: str, second: str) -> None:
    assert not may_swap(first, second)


def test_what_only_a_function_has_is_out_of_reach() -> None:
    source = """
import torch
def f(given):
    own = torch.zeros(3)
    passed = torch.zeros(3)
    keep(passed)
    act()
    own.sum(), passed.sum(), given.sum()
"""
    order, body = order_of(source)
    function = body[-1]
    assert isinstance(function, ast.FunctionDef)
    *_, acts, reads = function.body
    assert isinstance(reads, ast.Expr) and isinstance(reads.value, ast.Tuple)
    owners = [call.func.value for call in reads.value.elts]  # type: ignore[attr-defined]
    free = [order.may_swap(order.contents(owner), acts) for owner in owners]
    assert free == [True, False, False]


@pytest.mark.parametrize(
    ("statement", "first"),
    [
        ("y = f(n)", True),
        ("if f(n): pass", True),
        ("while f(n): pass", False),  # in each round
        ("if y: pass\nelif f(n): pass", False),
        ("y = [f(n) for n in x]", False),
        ("y = lambda n: f(n)", False),
        ("y = (n := 2) + f(n)", False),
        ("n = f(n)", True),
        ("y = f(n) if (n := 2) else 0", False),
        ("y[g()] = f(n)", True),
    ],
)
def test_a_part_that_may_be_evaluated_first(statement: str, first: bool) -> None:
    order, body = order_of(f"from mine import f, g\nn = 1\nx = y = [3]\n{statement}\n")
    uses = [n for n in ast.walk(ast.Module(body, [])) if isinstance(n, ast.Call)]
    (part,) = (call.args[0] for call in uses if isinstance(call.func, ast.Name) and call.args)
    whole = body[-1]
    if isinstance(whole, ast.If) and whole.orelse:
        (inner,) = whole.orelse
        whole = inner
    assert order.may_come_first(part, whole) is first


@pytest.mark.parametrize(
    ("source", "alone"),
    [
        ("m = torch.ones(3)\nm[0] = 2", True),
        ("m = torch.ones(3)\nother = m", False),
        ("m = torch.ones(3)\nother = [m]", False),
        ("m = torch.ones(3)\nkeep(m)", False),
        ("m = x.view(3)", False),
        ("m = x * 2", True),
        ("m = torch.squeeze(x)", False),
    ],
)
def test_an_object_that_no_other_name_reaches(source: str, alone: bool) -> None:
    order, body = order_of(f"import torch\nfrom mine import keep\nx = torch.ones(3)\n{source}\n")
    (name, *_) = (n for n in ast.walk(ast.Module(body, []))
                  if isinstance(n, ast.Name) and n.id == "m")  # fmt: skip
    assert order.is_alone(name) is alone
