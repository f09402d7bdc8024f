"""Losses on replicas: which are summed as they are, and which have to be divided first.

A strategy sums the gradients of its replicas. Keras' own losses take the number of replicas into
account; an average that a program computes only covers one replica's part of the batch.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from migrator.analysis.syntax.names import Binding, Names
from migrator.analysis.syntax.nodes import argument
from migrator.frameworks.tensorflow.keras_names import in_keras, keras_name
from migrator.frameworks.tensorflow.single_assignment import value_of
from migrator.frameworks.tensorflow.traced import is_part

SHARED, MEAN, NUMBER = "shared", "mean", "number"
REPLICAS = "num_replicas_in_sync"
_MEANS = ("tensorflow.reduce_mean", "tensorflow.math.reduce_mean", "keras.ops.mean",
          "keras.backend.mean")  # fmt: skip
_OF_MODELS = ("compute_loss", "compiled_loss")
_APPLIES = ("apply_gradients", "apply")
_DEPTH = 8


@dataclass(frozen=True)
class Training:
    """A place where the gradients of a loss are computed and applied: block, loss, function."""

    tape: ast.With
    loss: ast.expr
    function: ast.FunctionDef | None

    def is_of_fit(self, names: Names) -> bool:
        """Whether it is a model's step, which `fit` runs."""
        owner = names.enclosing_class(self.function) if self.function is not None else None
        assert self.function is None or isinstance(self.function, ast.FunctionDef)
        is_step = self.function is not None and self.function.name == "train_step"
        return is_step and owner is not None and is_part(names, owner)


def trainings(names: Names) -> Iterator[Training]:
    """The places where a program computes gradients with a tape, and trains with them."""
    for node in names.order:
        if not isinstance(node, ast.With):
            continue
        for item in node.items:
            if is_tape(names, item) and isinstance(item.optional_vars, ast.Name):
                function = names.function(node)
                assert not isinstance(function, ast.AsyncFunctionDef)
                for use in names.loads(item.optional_vars):
                    loss = _differentiated(names, use)
                    if loss is not None:
                        yield Training(node, loss, function)


def is_tape(names: Names, item: ast.withitem) -> bool:
    """Whether a `with` item is a gradient tape."""
    call = item.context_expr
    return isinstance(call, ast.Call) and names.qualified(call.func) == "tensorflow.GradientTape"


def _differentiated(names: Names, tape: ast.expr) -> ast.expr | None:
    """The loss of `tape.gradient(loss, …)`, where the gradients are applied."""
    method = names.parents.get(tape)
    if not isinstance(method, ast.Attribute) or method.attr != "gradient":
        return None
    call = names.call_of(method)
    loss = argument(call, 0, "target") if call is not None else None
    if call is None or loss is None:
        return None
    statement = names.statement(call)
    if isinstance(statement, ast.Return):  # the caller may train with them
        return loss if any(name in names.by_attribute for name in _APPLIES) else None
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    uses = (use for target in targets for use in names.loads(target))
    is_applied = _is_applied(names, call, False) or any(_is_applied(names, u, True) for u in uses)
    return loss if is_applied else None


def _is_applied(names: Names, node: ast.AST, through: bool) -> bool:
    """Whether gradients are passed to an optimizer, directly or through another statement."""
    for above in names.ancestors(node):
        if isinstance(above, ast.stmt):  # `gradients = [clip(g) for g in gradients]`
            return through and isinstance(above, ast.Assign | ast.AugAssign | ast.For)
        match above:
            case ast.Call(func=ast.Attribute(attr=name)) if name in _APPLIES:
                return True
    return False


def loss_kind(names: Names, value: ast.expr, depth: int = 0) -> str:
    """SHARED, MEAN, or NUMBER (the same on each replica); "" for anything else."""
    if depth > _DEPTH:
        return ""
    match value:
        case ast.Constant(value=int() | float()):
            return NUMBER
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return loss_kind(names, inner, depth + 1)
        case ast.BinOp():
            return _of_operation(names, value, depth)
        case ast.Name():
            return _same(_of_bound(names, value, depth))
        case ast.Attribute(value=ast.Name() as owner, attr=name):
            if value.attr == REPLICAS:
                return NUMBER
            held = names.owner_class(owner)
            values = names.class_attributes.get(held, {}).get(name, []) if held else []
            return NUMBER if held is not None and all(map(_is_setting, values)) else ""
        case ast.Call():
            return _of_call(names, value, depth)
    return ""


def _is_setting(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Name | ast.Constant)


def _of_operation(names: Names, value: ast.BinOp, depth: int) -> str:
    left, right = (loss_kind(names, side, depth + 1) for side in (value.left, value.right))
    match value.op:
        case ast.Add() | ast.Sub():
            sides = {left, right} - {NUMBER}
            if sides == {SHARED, MEAN}:
                return SHARED  # as the mean is divided: see `terms`
            return sides.pop() if len(sides) == 1 else "" if sides else NUMBER
        case ast.Mult():
            return (left or "") if right == NUMBER else right if left == NUMBER else ""
        case ast.Div() if right == NUMBER:
            by_replicas = isinstance(value.right, ast.Attribute) and value.right.attr == REPLICAS
            return SHARED if by_replicas and left == MEAN else "" if by_replicas else left
    return ""


def _of_bound(names: Names, value: ast.Name, depth: int) -> Iterator[str]:
    for bound in _last(names, value):
        target = names.parents.get(bound.node)
        if bound.kind == "assign" and bound.value is not None:
            yield loss_kind(names, bound.value, depth + 1)
        elif bound.kind == "item" and isinstance(bound.value, ast.Call):
            yield _same(_of_returned(names, bound.value, depth, bound.index))
        elif isinstance(target, ast.AugAssign) and isinstance(target.op, ast.Add):
            yield loss_kind(names, target.value, depth + 1)
        else:
            yield ""


def _last(names: Names, value: ast.Name) -> list[Binding]:
    """The bindings that a name may have where it is read: the last one, if they are in one
    block."""
    found = names.lookup(value)
    statements = [names.statement(b.node) for b in found]
    rows = {id(names.block(s)) if s is not None else 0 for s in statements}
    above = [b for b in found if getattr(b.node, "lineno", 0) < value.lineno]
    adds = any(isinstance(names.parents.get(b.node), ast.AugAssign) for b in found)
    return above[-1:] if len(rows) == 1 and above and not adds else found


def _same(found: Iterator[str]) -> str:
    kinds = {*found}
    if len(kinds) > 1:
        kinds -= {NUMBER}  # `loss = 0`, to which others are added
    return kinds.pop() if len(kinds) == 1 else ""


def _of_call(names: Names, call: ast.Call, depth: int) -> str:
    name = names.qualified(call.func) or ""
    if (in_keras(name) or name) in _MEANS:
        if len(call.args) != 1 or call.keywords:
            return ""
        return SHARED if loss_kind(names, call.args[0], depth + 1) == SHARED else MEAN
    if name == "tensorflow.nn.compute_average_loss":
        return SHARED
    if isinstance(call.func, ast.Attribute) and call.func.attr in _OF_MODELS:
        return SHARED
    if is_loss(names, call.func):
        return SHARED
    return _same(_of_returned(names, call, depth))


def _of_returned(
    names: Names, call: ast.Call, depth: int, index: int | None = None
) -> Iterator[str]:
    """The values that a function of the file returns, or those at one index of a returned tuple."""
    found: list[ast.AST] = []
    match call.func:
        case ast.Name():
            found = [bound.node for bound in names.lookup(call.func)]
        case ast.Attribute(value=ast.Name() as owner, attr=name):
            held = names.owner_class(owner)
            found = [s for s in held.body if getattr(s, "name", "") == name] if held else []
    for function in found:
        if not isinstance(function, ast.FunctionDef):
            yield ""
            continue
        returned = [
            node.value
            for node in ast.walk(function)
            if isinstance(node, ast.Return) and names.function(node) is function
        ]
        for value in returned or [None]:
            if index is not None:
                several = value.elts if isinstance(value, ast.Tuple) else []
                value = several[index] if index < len(several) else None
            yield loss_kind(names, value, depth + 1) if value is not None else ""


def terms(names: Names, function: ast.AST) -> Iterator[ast.expr]:
    """Averages that are added to a loss which is already divided among the replicas."""
    for node in ast.walk(function):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
            sides = {loss_kind(names, side): side for side in (node.left, node.right)}
            if {*sides} == {SHARED, MEAN}:
                yield sides[MEAN]


def is_loss(names: Names, called: ast.expr) -> bool:
    """Whether a call is of one of Keras' own losses, with Keras' averaging."""
    match called:
        case ast.Call():
            return _makes_loss(names, called)
        case ast.Name():
            value = value_of(names, called)
            return isinstance(value, ast.Call) and _makes_loss(names, value)
        case ast.Attribute(value=ast.Name() as owner, attr=name):
            held = names.owner_class(owner)
            values = names.class_attributes.get(held, {}).get(name, []) if held else []
            return bool(values) and all(_holds_loss(names, value) for value in values)
    return False


def _holds_loss(names: Names, value: ast.expr | None) -> bool:
    """Whether an attribute holds a loss: created by a call, or passed as an argument everywhere."""
    if isinstance(value, ast.Call):
        return _makes_loss(names, value)
    if not isinstance(value, ast.Name):
        return False
    if isinstance(held := value_of(names, value), ast.Call):
        return _makes_loss(names, held)
    given = [
        keyword.value
        for node in names.order
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg == value.id
    ]
    return bool(given) and all(is_loss(names, each) for each in given)


def _makes_loss(names: Names, call: ast.Call) -> bool:
    name = keras_name(names, call.func)
    last = name.removeprefix("keras.losses.")
    own = [k for k in call.keywords if k.arg in ("reduction", None)]
    return last != name and last[:1].isupper() and not own
