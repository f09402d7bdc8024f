"""Training: where a program steps its optimizers, for any target. Found on the `ast`, never run.

Only an optimizer's step is an optimizer's step: `scheduler.step()`, `env.step()`, `self.step()` are
told apart by what the receiver is (flow), then by its name; what stays unclear is said so.
"""

from __future__ import annotations

import ast
import re

from migrator.flow import Flow, Kind
from migrator.names import Names, dotted

_OPTIMIZER_NAME = re.compile(
    r"optim|(?:^|_)opt(?:$|_|[a-z]?$|imizer)|^(?:adam|adamw|sgd|lbfgs)$", re.I
)
_OTHER_NAME = re.compile(
    r"sched|warmup|lr|env|prof|bar|pbar|self|meter|timer|writer|logger|clock|ema|agent|tracker",
    re.I,
)


def is_optimizer_step(names: Names, flow: Flow, call: ast.Call) -> bool | None:
    """Whether `x.step(…)` changes parameters; None where nothing tells."""
    assert isinstance(call.func, ast.Attribute)
    receiver = call.func.value
    kind = flow.kind(receiver)
    if kind & Kind.OPTIMIZER:
        return True
    owner = receiver.value if isinstance(receiver, ast.Subscript) else receiver  # optimizers["g"]
    name = (dotted(owner) or "").rpartition(".")[2]
    if kind & Kind.SCALER or "scaler" in name.lower():
        return bool(call.args)  # scaler.step(optimizer)
    if _zeroes_gradients(names, receiver):
        return True
    if not name or _OTHER_NAME.search(name):
        return False
    if _OPTIMIZER_NAME.search(name):
        return True
    return False if call.args else None


def _zeroes_gradients(names: Names, receiver: ast.expr) -> bool:
    """True where `zero_grad` or `param_groups` of the same object is used, too."""
    text = ast.dump(receiver)
    return any(
        isinstance(node, ast.Attribute)
        and node.attr in ("zero_grad", "param_groups")
        and ast.dump(node.value) == text
        for node in names.order
    )


def end_of_step(names: Names, call: ast.Call) -> ast.stmt:
    """The statement behind which a step of the loop is over.

    Out of `if (i + 1) % n == 0:`, since the gradients of every round have to be computed; behind
    the last of several steps in a row.
    """
    at = names.statement(call)
    assert at is not None
    parent = names.parents.get(at)
    while isinstance(parent, ast.If) and _counts(parent.test):
        at, parent = parent, names.parents.get(parent)
    for follower in following(names, at):
        if not _is_step(follower):
            break
        at = follower
    return at


def following(names: Names, statement: ast.stmt) -> list[ast.stmt]:
    """The statements behind one, in its block."""
    parent = names.parents.get(statement)
    for field in ("body", "orelse", "finalbody"):
        block = getattr(parent, field, [])
        if isinstance(block, list) and statement in block:
            return block[block.index(statement) + 1 :]
    return []


def _is_step(statement: ast.stmt) -> bool:
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr="step" | "update"))):
            return True
    return False


def _counts(test: ast.expr) -> bool:
    return any(isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mod) for n in ast.walk(test))
