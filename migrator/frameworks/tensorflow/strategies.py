"""Strategies of tf.distribute of which all uses are known."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from migrator.analysis.syntax.names import Names

MIRRORED = "tensorflow.distribute.MirroredStrategy"
ONE_DEVICE = "tensorflow.distribute.OneDeviceStrategy"
_OWN = (
    MIRRORED, ONE_DEVICE, "tensorflow.distribute.MultiWorkerMirroredStrategy",
    "tensorflow.distribute.experimental.MultiWorkerMirroredStrategy",
)  # fmt: skip
WORKERS = _OWN[2:]
OTHERWISE = (
    "is used by more than scope() and num_replicas_in_sync, or is one of several: set "
    "keras.distribution.DataParallel by hand"
)


@dataclass(frozen=True)
class Strategy:
    """The statement that makes a strategy, the blocks in its scope, and where it counts devices."""

    made: ast.Assign
    scopes: tuple[tuple[ast.With, ast.withitem], ...]
    counts: tuple[ast.Attribute, ...]


def is_own_strategy(qualname: str) -> bool:
    """Whether a strategy is one for GPUs, in whose place a TPUStrategy may stand."""
    return qualname in _OWN


def made_by_name(names: Names, node: ast.expr) -> str:
    """Why no other strategy can take the place of one; "" where it is made once, by a name."""
    statement = names.statement(node)
    match statement:
        case ast.Assign(targets=[ast.Name() as target], value=value):
            alone = len(names.scope_of(target).bindings.get(target.id, ())) == 1
        case ast.Assign(targets=[ast.Attribute()], value=value):
            alone = True
        case _:
            return "is made where it is used: give it a name of its own, in a statement"
    if value is not names.call_of(node):
        return "is made within a larger expression: give it a name of its own, in a statement"
    return "" if alone else "is one of several: make one TPUStrategy in the place of all of them"


def strategy_of(names: Names, node: ast.expr) -> Strategy | None:
    """The strategy that a call of this name makes; None where something else is done with it."""
    statement = names.statement(node)
    match statement:
        case ast.Assign(targets=[ast.Name() as target], value=value):
            scope = names.scope_of(target)
        case _:
            return None
    if value is not names.call_of(node) or len(scope.bindings.get(target.id, ())) > 1:
        return None
    scopes: list[tuple[ast.With, ast.withitem]] = []
    counts: list[ast.Attribute] = []
    for use in names.uses(target.id, scope):
        attribute = names.parents.get(use)
        if not isinstance(attribute, ast.Attribute):
            return None
        if attribute.attr == "num_replicas_in_sync":
            counts.append(attribute)
            continue
        entered = _entered(names, attribute)
        if attribute.attr != "scope" or entered is None:
            return None
        scopes.append(entered)
    return Strategy(statement, tuple(scopes), tuple(counts))


def _entered(names: Names, attribute: ast.Attribute) -> tuple[ast.With, ast.withitem] | None:
    call = names.call_of(attribute)
    item = names.parents.get(call) if call is not None else None
    block = names.parents.get(item) if isinstance(item, ast.withitem) else None
    if not isinstance(item, ast.withitem) or not isinstance(block, ast.With):
        return None
    return (block, item) if item.optional_vars is None else None
