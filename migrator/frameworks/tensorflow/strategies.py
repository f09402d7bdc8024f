"""Strategies of tf.distribute whose uses are all known."""

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
    "is used for more than scope() and num_replicas_in_sync, or is one of several: set up "
    "keras.distribution.DataParallel by hand"
)


@dataclass(frozen=True)
class Strategy:
    """The statement that creates a strategy, the blocks in its scope, and the reads of its device
    count."""

    made: ast.Assign
    scopes: tuple[tuple[ast.With, ast.withitem], ...]
    counts: tuple[ast.Attribute, ...]


def is_own_strategy(qualname: str) -> bool:
    """Whether a strategy is for GPUs, so that a TPUStrategy can replace it."""
    return qualname in _OWN


def made_by_name(names: Names, node: ast.expr) -> str:
    """Why a strategy can't be replaced; "" if it is created once, in an assignment."""
    statement = names.statement(node)
    match statement:
        case ast.Assign(targets=[ast.Name() as target], value=value):
            alone = len(names.scope_of(target).bindings.get(target.id, ())) == 1
        case ast.Assign(targets=[ast.Attribute()], value=value):
            alone = True
        case _:
            return "is created where it is used: assign it to a variable first"
    if value is not names.call_of(node):
        return "is created in a larger expression: assign it to a variable first"
    return (
        ""
        if alone
        else ("is one of several strategies: create one TPUStrategy in place of all of them")
    )


def strategy_of(names: Names, node: ast.expr) -> Strategy | None:
    """The strategy that a call creates; None if it is used in other ways."""
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
