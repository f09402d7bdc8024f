"""Choosing a device by testing for one accelerator after another."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from migrator.analysis.devices.choices import AVAILABLE
from migrator.analysis.devices.other_accelerators import asked_for
from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.nodes import dotted
from migrator.analysis.values.flow import Flow
from migrator.analysis.values.value_kinds import Kind
from migrator.targets import RUNTIME

_ASKED = ("is_available", "is_built", "is_vulkan_available", "device_count")


@dataclass(frozen=True)
class Ladder:
    """`if cuda: … elif mps: … else: …`, which chooses a device by one test after another.

    `picks` is the statement in CUDA's rung (`return torch.device("cuda")`), with its `device`.
    """

    rungs: list[ast.stmt]  # branches of one `if`, or several `if`s that each return
    picks: ast.Return | ast.Assign
    device: ast.expr
    has_tpu: bool  # the first rung tests for a TPU: the file was migrated before


def ladders(names: Names, flow: Flow) -> set[ast.If]:
    """The first statements of a file's ladders."""
    found: set[ast.If] = set()
    later: set[ast.AST] = set()
    questions = [n for n in names.all(ast.Attribute) if n.attr in _ASKED]
    for node in names.all(ast.If) if len(questions) > 1 else ():
        if node not in later:
            later.update(_branches(node)[1:])
            picked = ladder(names, flow, node)
            if picked is not None:
                found.add(node)
                later.update(picked.rungs)
    return found


def _branches(node: ast.If) -> list[ast.If]:
    """An `if` and its `elif`s."""
    chain = [node]
    while len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If):
        node = node.orelse[0]
        chain.append(node)
    return chain


def ladder(names: Names, flow: Flow, first: ast.If) -> Ladder | None:
    """The ladder that begins with this `if`."""
    rungs: list[ast.stmt] = []
    branches: list[ast.If] = []
    block = names.block(first)
    for statement in block[block.index(first) :]:
        if not isinstance(statement, ast.If):
            rungs += [statement] if isinstance(statement, ast.Return) else []
            break
        chain = _branches(statement)
        if not all(_asks_for_hardware(names, branch.test) for branch in chain):
            break
        rungs.append(statement)
        branches += chain
        if not all(isinstance(branch.body[-1], ast.Return) for branch in chain):
            break
    asked = [set(asked_for(names, branch.test)) for branch in branches]
    if len(set().union(*asked)) < 2:
        return None
    has_tpu = any(
        names.qualified(node) == f"{RUNTIME}.is_available"
        for node in ast.walk(first.test)
        if isinstance(node, ast.Attribute)
    )
    of_cuda = [b for b, kinds in zip(branches, asked, strict=True) if "cuda" in kinds]
    if not of_cuda or not all(map(_only_says, of_cuda[0].body[:-1])):
        return None
    match of_cuda[0].body[-1]:
        case ast.Return(value=ast.expr() as device) as picks:
            pass
        case ast.Assign(targets=[ast.Name() | ast.Attribute()], value=device) as picks:
            pass
        case _:
            return None
    if not flow.kind(device) & (Kind.DEVICE | Kind.DEVICE_STRING):
        return None
    return Ladder(rungs, picks, device, has_tpu)


def _asks_for_hardware(names: Names, test: ast.expr) -> bool:
    """Whether a condition only tests for hardware (no flag, no argument)."""
    match test:
        case ast.BoolOp(values=values):
            return all(_asks_for_hardware(names, value) for value in values)
        case ast.Compare(left=left, comparators=comparators):
            plain = all(isinstance(c, ast.Constant) for c in comparators)
            return plain and _asks_for_hardware(names, left)
        case ast.Call() if _asks_torch(names, test):
            return True
        case ast.Call(func=func):
            called = names.qualified(func) or ""
            last = (dotted(func) or "").rpartition(".")[2]
            own = not test.args and not test.keywords and last.endswith("available")
            return own or (called.startswith(("torch.", RUNTIME)) and last in _ASKED)
        case ast.Attribute():
            return (names.qualified(test) or "").startswith("torch.version.")
    return False


def _asks_torch(names: Names, node: ast.expr) -> bool:
    """`hasattr(torch.backends, "mps")`"""
    match node:
        case ast.Call(func=ast.Name(id="hasattr" | "getattr"), args=[module, *_]):
            return (names.qualified(module) or "").startswith("torch")
    return False


def _only_says(statement: ast.stmt) -> bool:
    """Whether a statement of a rung only prints, so that the TPU's rung doesn't need it."""
    match statement:
        case ast.Expr(value=ast.Call(func=func)):
            return (dotted(func) or "").partition(".")[0] in ("print", "logging", "logger", "log")
    return False


def question(names: Names, call: ast.expr) -> ast.expr:
    """The whole of `hasattr(torch, "xpu") and torch.xpu.is_available()`, given its last call."""
    match names.parents.get(call):
        case ast.BoolOp(op=ast.And(), values=[first, last]) as whole if last is call:
            asks = first.left if isinstance(first, ast.Compare) else first
            if _asks_torch(names, asks):
                return whole
            if isinstance(asks, ast.Call) and names.qualified(asks.func) in AVAILABLE:
                return whole  # is_built() and is_available()
    return call
