"""Metrics of training loops: those that replicas update, and those of the host."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.once import once_in
from migrator.frameworks.tensorflow.held import value_of
from migrator.frameworks.tensorflow.keras_names import keras_name
from migrator.frameworks.tensorflow.replica_losses import MEAN, NUMBER, SHARED, kind
from migrator.frameworks.tensorflow.traced import called_by
from migrator.frameworks.tensorflow.training_loops import Step, Unfit, steps

_MEASURED = (
    "is given what is not seen to be an average over a batch, nor one value for each example"
)
_TWICE = "is updated in a step and outside of it: make a metric of its own for each"
_OUTSIDE = (
    "is made with what the steps train, in the strategy's scope, and updated outside of the steps: "
    "make it outside of the class, by a name of its own"
)
_OF_METRICS = ("update_state", "result", "reset_state", "reset_states", "name")


@dataclass(frozen=True)
class Metric:
    """An update of a metric."""

    call: ast.Call
    made: ast.Call
    value: ast.expr | None  # the only one that it is given

    def is_of(self, name: str, names: Names) -> bool:
        return keras_name(names, self.made.func) == f"keras.metrics.{name}"


def updates(names: Names, function: ast.AST) -> Iterator[Metric]:
    """Updates of metrics whose making is seen."""
    for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
        made = metric(names, _owner(call))
        if made is not None:
            alone = call.args[0] if len(call.args) == 1 and not call.keywords else None
            yield Metric(call, made, alone)


def _owner(call: ast.Call) -> ast.expr:
    """The metric, if a call updates one: by its method, or by itself."""
    match call.func:
        case ast.Attribute(value=owner, attr="update_state"):
            return owner
    return call.func


def metric(names: Names, owner: ast.expr) -> ast.Call | None:
    """The call that makes a metric, which a name or an attribute of an object holds."""
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
    """Losses that are divided among the replicas, where a metric averages them."""
    for each in updates(names, function):
        if each.value is not None and each.is_of("Mean", names):
            if kind(names, each.value) == SHARED:
                yield each.value


# ---- what keeps a program as it is ---------------------------------------------------------------


def unfit_in(names: Names, function: ast.FunctionDef) -> Iterator[Unfit]:
    """Updates on a replica whose average over all of them is not that of the batch."""
    seen = set()
    for each in updates(names, function):
        seen.add(each.call.func)
        if each.value is None and not each.is_of("Mean", names):
            continue
        known = kind(names, each.value) if each.value is not None else ""
        if not each.is_of("Mean", names) or known not in (SHARED, MEAN, NUMBER):
            yield Unfit(each.call, ast.unparse(each.call.func), _MEASURED)
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute) and node not in seen:
            if node.attr in ("update_state", "result") and names.call_of(node) is not None:
                yield Unfit(node, ast.unparse(node), _MEASURED)


def given(names: Names, step: Step) -> Iterator[Unfit]:
    """Metrics that a step has by a parameter, and calls, of which not all is seen."""
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
    """Metrics updated on replicas and elsewhere, where one of a strategy counts wrongly."""
    of_replicas = {m.made for f in inside for m in updates(names, f)}
    for each in updates(names, names.tree):
        if names.function(each.call) in inside:
            continue
        if each.made in of_replicas:
            yield Unfit(each.call, ast.unparse(each.call.func), _TWICE)
        elif inside and _is_of_steps(names, each, inside):
            yield Unfit(each.call, ast.unparse(each.call.func), _OUTSIDE)


def _is_of_steps(names: Names, each: Metric, inside: list[ast.FunctionDef]) -> bool:
    """Whether an object that has steps makes a metric, or updates it."""
    around = [names.enclosing_class(each.made), names.enclosing_class(each.call)]
    return any(names.parents.get(f) in around for f in inside)


def host_metrics(names: Names) -> set[ast.Call]:
    """The calls that make metrics which nothing but code outside of all steps updates."""
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
