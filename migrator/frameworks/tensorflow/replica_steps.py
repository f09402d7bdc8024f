"""Steps of training loops on replicas: the changes they need, and code that prevents them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from migrator.analysis.syntax.memoize import once_in
from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.nodes import argument
from migrator.frameworks.tensorflow import replica_metrics
from migrator.frameworks.tensorflow.built_models import is_built
from migrator.frameworks.tensorflow.eager_steps import python_in
from migrator.frameworks.tensorflow.keras_names import in_keras
from migrator.frameworks.tensorflow.replica_losses import MEAN, NUMBER, SHARED, loss_kind, trainings
from migrator.frameworks.tensorflow.single_assignment import value_of
from migrator.frameworks.tensorflow.traced import called_by
from migrator.frameworks.tensorflow.training_loops import (
    NO_FUNCTION,
    Loop,
    Step,
    Unfit,
    steps,
)

ADDED_UP = (
    "before they are summed over the cores: sum them with "
    "tf.distribute.get_replica_context().all_reduce, clip, and give the optimizer each core's "
    "share"
)
_GRADIENTS = f"is given gradients that are changed {ADDED_UP}"
_UNBUILT = (
    "creates its variables in the first step, which a strategy does not allow: give the model "
    "an Input, or call it once in the strategy's scope"
)
SUMMED = (
    "its gradients are summed over the cores: divide the loss by "
    "tf.distribute.get_strategy().num_replicas_in_sync, unless it is a sum"
)
_UNSEEN = "is not created in this script: create it here, with one assignment"
_RETURNED = (
    "returns values not recognised as averages over a batch: only return the loss, and combine "
    "everything else with strategy.reduce"
)
_WHOLE = (
    "has the size of a whole batch, but each core has a part of it: divide it by "
    "tf.distribute.get_strategy().num_replicas_in_sync"
)
_DRAWN = (
    "would be drawn again by each core, but is drawn once for the whole batch here: pass it"
    " to the step"
)
_COMPARED = "may compare the examples of a batch, but each core has only a part of it"
_WRITES = "would write on each core: return the values from the step, and write them in the loop"
_ASSIGNS = (
    "would assign to a variable on each core: count in the loop, or give the variable an "
    "aggregation"
)
_METHODS = {"assign": _ASSIGNS, "assign_add": _ASSIGNS, "assign_sub": _ASSIGNS}
_SHAPED = ("tensorflow.random.", "tensorflow.ones", "tensorflow.zeros", "tensorflow.fill",
           "keras.random.", "keras.ops.ones", "keras.ops.zeros")  # fmt: skip
_TRAINED = ("trainable_variables", "trainable_weights")


@dataclass(frozen=True)
class Applied:
    """A call that passes gradients to an optimizer; all names are those of the step."""

    call: ast.Call
    optimizer: ast.expr
    variables: ast.expr


def applied(names: Names, function: ast.FunctionDef) -> Iterator[Applied | Unfit]:
    """The places where a step applies gradients unchanged from the tape."""
    for node in ast.walk(function):
        match node:
            case ast.Call(func=ast.Attribute(value=optimizer, attr="apply_gradients"), args=args):
                match args:
                    case [ast.Call(func=ast.Name(id="zip"), args=[gradients, variables])]:
                        pass
                    case _:
                        yield Unfit(node, ast.unparse(node.func), _GRADIENTS)
                        continue
            case ast.Call(func=ast.Attribute(value=optimizer, attr="apply"), args=args):
                if len(args) != 2:
                    continue
                gradients, variables = args
            case _:
                continue
        value = names.only_value(gradients)
        if isinstance(value, ast.Call) and getattr(value.func, "attr", "") == "gradient":
            yield Applied(node, optimizer, names.only_value(variables))
        else:
            yield Unfit(node, ast.unparse(node.func), _GRADIENTS)


def _is_known_outside(names: Names, step: Step, node: ast.expr) -> bool:
    """Whether all names of an expression have a meaning where the step is called."""
    own = names.scopes[step.function].bindings
    inner = {n for n in ast.walk(node) if isinstance(n, ast.Name)}
    return not any(n.id in own and not _is_parameter(names, n) for n in inner)


def unbuilt(names: Names, step: Step, loop: Loop) -> Iterator[tuple[ast.expr, ast.Call | None]]:
    """Models that may have no variables before the first step, with the call that creates them."""
    given = step.given(loop)
    for each in applied(names, step.function):
        for model in _models(each.variables) if isinstance(each, Applied) else ():
            if is_built(names, _outside(names, model, given)):
                continue
            calls = (
                node for node in ast.walk(step.function)
                if isinstance(node, ast.Call) and ast.unparse(node.func) == ast.unparse(model)
                and node.args
                and isinstance(node.args[0], ast.Name) and node.args[0].id in step.shared()
                and _is_parameter(names, node.args[0])
                and all(isinstance(k.value, ast.Constant) for k in node.keywords)
            )  # fmt: skip
            yield model, next(calls, None)


def trained(names: Names, step: Step) -> Iterator[tuple[ast.expr, ast.expr]]:
    """The models and optimizers that a step trains, and the call that creates each (itself if
    unknown)."""
    given = step.given(step.loops[0])
    for each in applied(names, step.function):
        if isinstance(each, Unfit):
            continue
        optimizers = [each.optimizer] if _is_held(names, each.optimizer) else []
        for model in (*_models(each.variables), *optimizers):
            yield model, value_of(names, _outside(names, model, given))


def _outside(names: Names, node: ast.expr, given: dict[str, ast.expr]) -> ast.expr:
    """The caller's expression for a parameter of a step."""
    is_given = isinstance(node, ast.Name) and _is_parameter(names, node)
    return given.get(node.id, node) if is_given and isinstance(node, ast.Name) else node


def _is_held(names: Names, node: ast.expr) -> bool:
    """Whether it is a name, or an attribute of `self`."""
    match node:
        case ast.Name():
            return True
        case ast.Attribute(value=ast.Name() as owner):
            return names.owner_class(owner) is not None
    return False


def makers(names: Names) -> set[ast.Call]:
    """The calls that create the objects trained by steps of loops."""
    return _makers(names, names.tree)


@once_in
def _makers(names: Names, tree: ast.AST) -> set[ast.Call]:
    own = (step for step in steps(names) if isinstance(step, Step))
    made = (value for step in own for _, value in trained(names, step))
    return {value for value in made if isinstance(value, ast.Call)}


def _models(variables: ast.expr) -> Iterator[ast.expr]:
    match variables:
        case ast.Attribute(value=model, attr=name) if name in _TRAINED:
            yield model
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            yield from _models(left)
            yield from _models(right)


def _is_parameter(names: Names, name: ast.Name) -> bool:
    found = names.lookup(name)
    return len(found) == 1 and found[0].kind == "param"


# ---- what is as large as a batch -----------------------------------------------------------------


def whole_sizes(names: Names, step: Step) -> Iterator[ast.expr | Unfit]:
    """Sizes of whole batches in shapes of tensors that a step creates."""
    sizes = [argument(c, 0, "batch_size") for loop in step.loops for c in loop.batched]
    own = {s.id for s in sizes if isinstance(s, ast.Name)}
    numbers = {v.value for s in sizes if s is not None
               if isinstance(v := names.only_value(s), ast.Constant)}  # fmt: skip
    for function in called_by(names, step.function):
        known: set[ast.AST] = set()
        for node in ast.walk(function):
            if not isinstance(node, ast.Call):
                continue
            name = names.qualified(node.func) or ""
            known |= {k.value for k in node.keywords if k.arg == "global_batch_size"}
            if not (in_keras(name) or name).startswith(_SHAPED):
                continue
            shape = argument(node, 0, "shape", "dims")
            if not isinstance(shape, ast.List | ast.Tuple):
                continue
            first = shape.elts[0] if shape.elts else shape
            value = names.only_value(first)
            if isinstance(first, ast.Name) and first.id in own:
                known.add(first)
                yield first
            elif isinstance(value, ast.Constant) and value.value in numbers:
                yield first
            elif isinstance(value, ast.Constant | ast.List | ast.Tuple) and ".random." in name:
                yield Unfit(node, name, _DRAWN)
        for node in ast.walk(function):
            if isinstance(node, ast.Name) and node.id in own and node not in known:
                if isinstance(node.ctx, ast.Load) and not _is_parameter(names, node):
                    yield Unfit(node, node.id, _WHOLE)


# ---- what a step returns -------------------------------------------------------------------------


def results(names: Names, step: Step) -> list[str] | Unfit:
    """How each value returned by a step is combined: "SUM" or "MEAN"; empty if nothing reads it."""
    if all(isinstance(names.parents.get(loop.call), ast.Expr) for loop in step.loops):
        return []
    found = [n for n in ast.walk(step.function) if isinstance(n, ast.Return)]
    if len(found) != 1 or found[0].value is None or found[0] is not step.function.body[-1]:
        return Unfit(step.function, step.function.name, _RETURNED)
    value = found[0].value
    joined = []
    for each in value.elts if isinstance(value, ast.Tuple) else [value]:
        found_kind = loss_kind(names, each)
        if found_kind not in (SHARED, MEAN, NUMBER):
            return Unfit(each, step.function.name, _RETURNED)
        joined.append("SUM" if found_kind == SHARED else "MEAN")
    return joined


# ---- what keeps a step as it is ------------------------------------------------------------------


def unfit(names: Names, step: Step) -> Iterator[Unfit]:
    """Everything that makes a step compute something else on several replicas than on one."""
    for training in trainings(names):
        if training.function is step.function and not is_shared_out(names, training.loss):
            yield Unfit(training.loss, "the loss", SUMMED)
    places = [*applied(names, step.function)]
    yield from (each for each in places if isinstance(each, Unfit))
    for part, value in trained(names, step):
        if not isinstance(value, ast.Call):
            yield Unfit(part, ast.unparse(part), _UNSEEN)
    if not places:
        yield Unfit(
            step.function, step.function.name, _GRADIENTS if step.decorator else NO_FUNCTION
        )
    elif step.decorator is None:
        yield from python_in(names, step)
    for each in places:
        if isinstance(each, Applied) and not all(
            _is_known_outside(names, step, part) for part in (each.optimizer, each.variables)
        ):
            yield Unfit(each.call, ast.unparse(each.call.func), _UNBUILT)
    for loop in step.loops:
        for model, call in unbuilt(names, step, loop):
            if call is None:
                yield Unfit(step.function, ast.unparse(model), _UNBUILT)
    yield from (size for size in whole_sizes(names, step) if isinstance(size, Unfit))
    joined = results(names, step)
    if isinstance(joined, Unfit):
        yield joined
    yield from replica_metrics.given(names, step)
    for function in called_by(names, step.function):
        yield from replica_metrics.unfit_in(names, function)
        yield from _misplaced(names, function)


def _misplaced(names: Names, function: ast.FunctionDef) -> Iterator[Unfit]:
    for node in ast.walk(function):
        if isinstance(node, ast.Global | ast.Nonlocal):
            yield Unfit(node, node.names[0], _ASSIGNS)
        if not isinstance(node, ast.Call):
            continue
        name = names.qualified(node.func) or ""
        if name.startswith("tensorflow.summary."):
            yield Unfit(node, name, _WRITES)
        elif name in ("tensorflow.matmul", "tensorflow.linalg.matmul"):
            if any(k.arg == "transpose_b" for k in node.keywords):
                yield Unfit(node, name, _COMPARED)
        elif isinstance(node.func, ast.Attribute) and not name:
            if reason := _METHODS.get(node.func.attr, ""):
                yield Unfit(node, ast.unparse(node.func), reason)


def is_shared_out(names: Names, loss: ast.expr) -> bool:
    """Whether a loss already is, or can be, divided by the number of replicas."""
    known = loss_kind(names, loss)
    return (known == MEAN and isinstance(loss, ast.Name)) or known in (SHARED, NUMBER)
