"""Code that Keras traces, which another back end runs with its own tensors."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from migrator.analysis.syntax.memoize import once_in
from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.nodes import argument
from migrator.frameworks.tensorflow.keras_names import keras_name

# Classes whose methods compute in a model; callbacks and datasets stay on the host.
_PARTS = (
    "keras.Layer", "keras.Loss", "keras.Metric", "keras.Model", "keras.Optimizer",
    "keras.Regularizer", "keras.Sequential", "keras.constraints.", "keras.layers.",
    "keras.losses.", "keras.metrics.", "keras.models.", "keras.optimizers.",
    "keras.regularizers.",
)  # fmt: skip
# Their methods that run once, on the host.
_HOSTED = frozenset({
    "__init__", "build", "compile", "fit", "evaluate", "predict", "from_config", "get_config",
    "load_weights", "plot", "save", "save_weights", "summary",
})  # fmt: skip
_FUNCTIONS = ("activation", "loss", "metrics", "activity_regularizer", "kernel_regularizer")


def traced_functions(names: Names) -> set[ast.AST]:
    """The functions of a file that Keras traces, and the functions they call."""
    found: set[ast.AST] = set(_methods(names))
    found.update(_given(names))
    queue = [*found]
    while queue:
        for called in _called(names, queue.pop()):
            if called not in found:
                found.add(called)
                queue.append(called)
    return found


def is_traced(names: Names, node: ast.AST, functions: set[ast.AST]) -> bool:
    """Whether a node is in the body of one of the functions, not in an annotation or a default."""
    inner = node
    for ancestor in names.ancestors(node):
        if isinstance(ancestor, ast.AnnAssign) and ancestor.annotation is inner:
            return False
        if ancestor in functions:
            body = getattr(ancestor, "body", ())
            if inner is body or (isinstance(body, list) and inner in body):
                return True
        inner = ancestor
    return False


def _methods(names: Names) -> Iterator[ast.AST]:
    classes = [c for c in names.class_attributes if is_part(names, c)]
    for owner in classes:
        for statement in owner.body:
            if isinstance(statement, ast.FunctionDef) and statement.name not in _HOSTED:
                if not any(_is_static_question(d) for d in statement.decorator_list):
                    yield statement


def _is_static_question(decorator: ast.expr) -> bool:
    return isinstance(decorator, ast.Name) and decorator.id in ("property", "classmethod")


def is_part(names: Names, owner: ast.ClassDef, depth: int = 0) -> bool:
    """Whether a class is a layer, a model, a loss or the like, also by inheritance within its
    file."""
    for base in owner.bases:
        name = keras_name(names, base)
        if name:
            if name.startswith(_PARTS):
                return True
        elif isinstance(base, ast.Name) and depth < 9:
            bound = [b.node for b in names.lookup(base) if isinstance(b.node, ast.ClassDef)]
            if any(is_part(names, b, depth + 1) for b in bound if b is not owner):
                return True
            if not bound and _computes(owner):
                return True  # of another file
    return False


def _computes(owner: ast.ClassDef) -> bool:
    own = {s.name for s in owner.body if isinstance(s, ast.FunctionDef)}
    return bool(own & {"call", "train_step", "update_state", "test_step"})


def _given(names: Names) -> Iterator[ast.AST]:
    """Functions that are passed as a loss, a metric, an activation, or to a Lambda layer."""
    for node in names.order:
        if not isinstance(node, ast.Call):
            continue
        given = [k.value for k in node.keywords if k.arg in _FUNCTIONS]
        if isinstance(node.func, ast.Attribute) and node.func.attr == "compile":
            given += [*node.args[1:2], *node.args[3:4]]  # the loss, the metrics
        name = keras_name(names, node.func)
        if name.endswith(".Lambda") and (function := argument(node, 0, "function")) is not None:
            given.append(function)
        for value in given:
            for part in value.elts if isinstance(value, ast.List | ast.Tuple) else [value]:
                yield from _functions(names, part)


def _functions(names: Names, value: ast.expr) -> Iterator[ast.AST]:
    if isinstance(value, ast.Lambda):
        yield value
    elif isinstance(value, ast.Call):  # `make_loss(weights)` returns one
        yield from _functions(names, value.func)
    elif isinstance(value, ast.Name):
        for bound in names.lookup(value):
            if isinstance(bound.node, ast.FunctionDef):
                yield bound.node
            elif isinstance(bound.value, ast.Lambda):
                yield bound.value


def _called(names: Names, function: ast.AST) -> Iterator[ast.AST]:
    for node in ast.walk(function):
        if isinstance(node, ast.Call):
            yield from _functions(names, node.func)
            match node.func:
                case ast.Attribute(value=ast.Name() as owner, attr=name):
                    kind = names.owner_class(owner)
                    for statement in kind.body if kind is not None else ():
                        if isinstance(statement, ast.FunctionDef) and statement.name == name:
                            yield statement


@once_in
def called_by(names: Names, first: ast.FunctionDef) -> list[ast.FunctionDef]:
    """A function, and the functions of its file that it calls, directly or not."""
    found, queue = [first], [first]
    parts = [c for c in names.class_attributes if is_part(names, c)]
    while queue:
        for call in (n for n in ast.walk(queue.pop()) if isinstance(n, ast.Call)):
            called: list[ast.AST] = []
            if isinstance(call.func, ast.Name):
                called = [bound.node for bound in names.lookup(call.func)]
            elif isinstance(call.func, ast.Attribute):
                name, owner = call.func.attr, call.func.value
                own = names.owner_class(owner) if isinstance(owner, ast.Name) else None
                classes = parts if own is None or own in parts else [own]
                called = [s for c in classes for s in c.body if getattr(s, "name", "") == name]
            for function in called:
                if isinstance(function, ast.FunctionDef) and function not in found:
                    found.append(function)
                    queue.append(function)
    return found
