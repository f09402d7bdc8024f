"""Steps without a tf.function: whether a graph would do everything they do each time.

`strategy.run` needs a graph on a TPU. Python code in a step would only run once, when the graph is
made.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from migrator.analysis.syntax.names import Names
from migrator.frameworks.tensorflow.keras_names import in_keras
from migrator.frameworks.tensorflow.replica_losses import is_tape
from migrator.frameworks.tensorflow.single_assignment import value_of
from migrator.frameworks.tensorflow.traced import called_by, is_part
from migrator.frameworks.tensorflow.training_loops import Step, Unfit

_ONCE = (
    "would only run once, because strategy.run needs the step to be a tf.function: move it into"
    " the loop, or decorate the step yourself"
)
_DRAWS = (
    "draws other numbers in a tf.function, which strategy.run needs: decorate the step yourself"
)
_VALUES = (
    "is given values that may change, and tf.function would compile the step for each: only "
    "pass tensors, or decorate the step yourself"
)
_IN_GRAPHS = ("keras.activations.", "keras.losses.", "keras.ops.", "keras.random.")
_NOT = ("tensorflow.Variable", "tensorflow.data.", "tensorflow.io.", "tensorflow.print",
        "tensorflow.py_function", "tensorflow.numpy_function", "tensorflow.train.")  # fmt: skip
_OF_PYTHON = frozenset({"dict", "enumerate", "len", "list", "range", "reversed", "tuple", "zip"})
_METHODS = frozenset({"apply", "apply_gradients", "gradient", "update_state"})
_IN_MODELS = frozenset({"append", "numpy"})


def python_in(names: Names, step: Step) -> Iterator[Unfit]:
    """Python code in a step, in the functions that it calls, and in its models."""
    for loop in step.loops:
        for name, given in step.given(loop).items():
            if name == step.own or name in step.shared():
                continue
            if not isinstance(value_of(names, given), ast.Call | ast.Constant):
                yield Unfit(given, ast.unparse(given), _VALUES)
    functions = called_by(names, step.function)
    for function in functions:
        for statement in function.body:
            yield from _in_statement(names, statement, functions)
    for owner in names.class_attributes:
        for method in owner.body if is_part(names, owner) else ():
            if isinstance(method, ast.FunctionDef) and method.name == "call":
                yield from _in_model(names, method)


def _in_statement(
    names: Names, statement: ast.stmt, functions: list[ast.FunctionDef]
) -> Iterator[Unfit]:
    match statement:
        case ast.With(items=items) if all(is_tape(names, item) for item in items):
            for inner in statement.body:
                yield from _in_statement(names, inner, functions)
            return
        case ast.Assign(targets=targets) if all(map(_is_local, targets)):
            pass
        case ast.AugAssign(target=ast.Name()) | ast.Return() | ast.Expr():
            pass
        case _:
            yield Unfit(statement, ast.unparse(statement).partition("\n")[0], _ONCE)
            return
    for node in ast.walk(statement):
        if isinstance(node, ast.Call):
            yield from _in_call(names, node, functions)
        elif isinstance(node, ast.NamedExpr | ast.Yield | ast.YieldFrom | ast.Await | ast.IfExp):
            yield Unfit(node, ast.unparse(node), _ONCE)


def _is_local(target: ast.expr) -> bool:
    if isinstance(target, ast.Tuple | ast.List):
        return all(map(_is_local, target.elts))
    return isinstance(target, ast.Name)


def _in_call(names: Names, call: ast.Call, functions: list[ast.FunctionDef]) -> Iterator[Unfit]:
    name = names.qualified(call.func) or ""
    said = ast.unparse(call.func)
    if name.startswith("tensorflow.random.") and ".stateless_" not in name:
        yield Unfit(call, name, _DRAWS)
    elif not _is_in_graphs(names, call.func, name, functions):
        yield Unfit(call, said, _ONCE)


def _is_in_graphs(
    names: Names, called: ast.expr, name: str, functions: list[ast.FunctionDef]
) -> bool:
    """Whether a call is TensorFlow's, a model's or a loss's, or of a function that is checked,
    too."""
    if isinstance(called, ast.Name) and not names.lookup(called):
        return called.id in _OF_PYTHON
    if (known := in_keras(name)) is not None:
        return known.startswith(_IN_GRAPHS)
    if name:
        return name.startswith("tensorflow.") and not name.startswith(_NOT)
    match called:
        case ast.Attribute(attr=attr) if attr in _METHODS:
            return True
        case ast.Name():
            bound = names.lookup(called)
            if all(b.node in functions for b in bound):
                return True
            return _is_of_keras(names, value_of(names, called)) or bound[0].kind == "param"
        case ast.Attribute(value=ast.Name() as owner, attr=attr):
            held = names.owner_class(owner)
            if any(f.name == attr and names.parents.get(f) is held for f in functions):
                return True
            return held is not None and _is_of_keras(names, value_of(names, called))
        case ast.Call():  # `keras.losses.MeanSquaredError()(y, x)`
            return in_keras(names.qualified(called.func) or "") is not None
    return False


def _is_of_keras(names: Names, made: ast.expr) -> bool:
    """Whether a call creates a Keras object, whose own `call` is checked separately."""
    if not isinstance(made, ast.Call):
        return False
    if in_keras(names.qualified(made.func) or "") is not None:
        return True
    bound = [b.node for b in names.lookup(made.func)] if isinstance(made.func, ast.Name) else []
    return bool(bound) and all(
        (isinstance(b, ast.ClassDef) and is_part(names, b)) or _returns_keras(names, b)
        for b in bound
    )


def _returns_keras(names: Names, function: ast.AST) -> bool:
    returned = (
        [n.value for n in ast.walk(function) if isinstance(n, ast.Return)]
        if isinstance(function, ast.FunctionDef)
        else []
    )
    return bool(returned) and all(v is not None and _is_of_keras(names, value_of(names, v))
                                  for v in returned)  # fmt: skip


def _in_model(names: Names, method: ast.FunctionDef) -> Iterator[Unfit]:
    """Python code in a model's `call` that a graph would not repeat; Keras may compile models as
    well."""
    for node in ast.walk(method):
        match node:
            case ast.Call(func=ast.Name(id="print" | "float" | "int" | "bool")):
                yield Unfit(node, ast.unparse(node.func), _ONCE)
            case ast.Call(func=ast.Attribute(attr=name)) if name in _IN_MODELS:
                yield Unfit(node, ast.unparse(node.func), _ONCE)
            case ast.Attribute(ctx=ast.Store()):
                yield Unfit(node, ast.unparse(node), _ONCE)
