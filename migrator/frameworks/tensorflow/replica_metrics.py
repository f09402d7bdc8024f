"""Metrics of training loops: those updated on replicas, and those updated on the host."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from migrator.analysis.syntax.memoize import once_in
from migrator.analysis.syntax.names import Names
from migrator.frameworks.tensorflow.keras_names import keras_name
from migrator.frameworks.tensorflow.replica_losses import MEAN, NUMBER, SHARED, loss_kind
from migrator.frameworks.tensorflow.single_assignment import value_of
from migrator.frameworks.tensorflow.traced import called_by
from migrator.frameworks.tensorflow.training_loops import Step, Unfit, steps

_MEASURED = "is given values not recognised as an average over a batch, or as one value per example"
_TWICE = "is updated in a step and outside of it: use a separate metric for each"
_OUTSIDE = (
    "is created in the strategy's scope, together with the trained objects, but updated outside"
    " of the steps: create it outside of the class, in a variable of its own"
)
_OF_METRICS = ("update_state", "result", "reset_state", "reset_states", "name")


@dataclass(frozen=True)
class Metric:
    """An update of a metric."""

    call: ast.Call
    made: ast.Call
    value: ast.expr | None  # its only argument

    def is_of(self, name: str, names: Names) -> bool:
        return keras_name(names, self.made.func) == f"keras.metrics.{name}"


def updates(names: Names, function: ast.AST) -> Iterator[Metric]:
    """Updates of metrics whose creation is found."""
    for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
        made = metric(names, _owner(call))
        if made is not None:
            alone = call.args[0] if len(call.args) == 1 and not call.keywords else None
            yield Metric(call, made, alone)


def _owner(call: ast.Call) -> ast.expr:
    """The metric that a call updates, by its method or by calling it."""
    match call.func:
        case ast.Attribute(value=owner, attr="update_state"):
            return owner
    return call.func


def metric(names: Names, owner: ast.expr) -> ast.Call | None:
    """The call that creates the metric held by a name or an attribute."""
    values: list[ast.expr | None] = [value_of(names, owner)]
    match owner:
        case ast.Attribute(value=ast.Name() as held, attr=name):
            if (kept := names.owner_class(held)) is not None and values == [owner]:
                values = names.class_attributes[kept].get(name, [])
    match values:
        case [ast.Call() as made]:
            known = keras_name(names, made.func)
            return made if known.startswith("keras.metrics.") else None
    return None


def scaled(names: Names, function: ast.AST) -> Iterator[ast.expr]:
    """Losses that are divided among the replicas, and that a metric averages."""
    for each in updates(names, function):
        if each.value is not None and each.is_of("Mean", names):
            if loss_kind(names, each.value) == SHARED:
                yield each.value


# ---- what keeps a program as it is ---------------------------------------------------------------


def unfit_in(names: Names, function: ast.FunctionDef) -> Iterator[Unfit]:
    """Updates on a replica whose average over all replicas differs from that of the batch."""
    seen = set()
    for each in updates(names, function):
        seen.add(each.call.func)
        if each.value is None and not each.is_of("Mean", names):
            continue
        known = loss_kind(names, each.value) if each.value is not None else ""
        if not each.is_of("Mean", names) or known not in (SHARED, MEAN, NUMBER):
            yield Unfit(each.call, ast.unparse(each.call.func), _MEASURED)
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute) and node not in seen:
            if node.attr in ("update_state", "result") and names.call_of(node) is not None:
                yield Unfit(node, ast.unparse(node), _MEASURED)


def given(names: Names, step: Step) -> Iterator[Unfit]:
    """Calls of metrics that a step gets as a parameter, whose use can't be checked."""
    outside = step.given(step.loops[0])
    for call in (node for node in ast.walk(step.function) if isinstance(node, ast.Call)):
        if metric(names, call.func) is not None:
            continue
        if isinstance(call.func, ast.Name) and call.func.id in outside:
            value = value_of(names, outside[call.func.id])
            if isinstance(value, ast.Call) and keras_name(names, value.func).startswith(
                "keras.metrics."
            ):
                yield Unfit(call, call.func.id, _MEASURED)


def also_on_host(names: Names, inside: list[ast.FunctionDef]) -> Iterator[Unfit]:
    """Metrics that are updated both on replicas and elsewhere, where a strategy's metric
    miscounts."""
    of_replicas = {m.made for f in inside for m in updates(names, f)}
    for each in updates(names, names.tree):
        if names.function(each.call) in inside:
            continue
        if each.made in of_replicas:
            yield Unfit(each.call, ast.unparse(each.call.func), _TWICE)
        elif inside and _is_of_steps(names, each, inside):
            yield Unfit(each.call, ast.unparse(each.call.func), _OUTSIDE)


def _is_of_steps(names: Names, each: Metric, inside: list[ast.FunctionDef]) -> bool:
    """Whether a metric is created or updated by a class that also has steps."""
    around = [names.enclosing_class(each.made), names.enclosing_class(each.call)]
    return any(names.parents.get(f) in around for f in inside)


def host_metrics(names: Names) -> set[ast.Call]:
    """The calls that create metrics which are only updated outside of all steps."""
    return _host_metrics(names, names.tree)


@once_in
def _host_metrics(names: Names, tree: ast.AST) -> set[ast.Call]:
    inside = {f for s in steps(names) if isinstance(s, Step) for f in called_by(names, s.function)}
    found: set[ast.Call] = set()
    others: set[ast.Call] = set()
    for each in updates(names, tree):
        owner = _owner(each.call)
        uses = (
            [*names.uses(owner.id, names.scope_of(each.made))]
            if isinstance(owner, ast.Name)
            else []
        )
        alone = bool(uses) and all(_is_of_host(names, use) for use in uses)
        of_steps = names.function(each.call) in inside or names.enclosing_class(each.call)
        (found if alone and not of_steps else others).add(each.made)
    return found - others


def _is_of_host(names: Names, use: ast.expr) -> bool:
    above = names.parents.get(use)
    return names.call_of(use) is not None or (
        isinstance(above, ast.Attribute) and above.attr in _OF_METRICS
    )
