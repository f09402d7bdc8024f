"""Training: where a program steps its optimizers, for any target. Found on the `ast`, never run.

`scheduler.step()`, `env.step()` and `self.step()` aren't an optimizer's step: the receiver's value
(flow) tells them apart, then its name; unclear cases are reported.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from migrator.analysis import name_heuristics
from migrator.analysis.syntax.memoize import once
from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.nodes import dotted, said_name
from migrator.analysis.values.flow import Flow
from migrator.analysis.values.value_kinds import Kind


def is_optimizer_step(names: Names, flow: Flow, call: ast.Call) -> bool | None:
    """Whether `x.step(…)` changes parameters; None if unknown."""
    assert isinstance(call.func, ast.Attribute)
    receiver = call.func.value
    kind = flow.kind(receiver)
    if kind & Kind.OPTIMIZER:
        return True
    if kind & Kind.SCHEDULER:
        return False
    owner = receiver.value if isinstance(receiver, ast.Subscript) else receiver  # optimizers["g"]
    name = (dotted(owner) or "").rpartition(".")[2]
    if is_scaler(flow, receiver):
        return bool(call.args)  # scaler.step(optimizer)
    if ast.dump(receiver) in flow.zeroed:
        return True
    if not name or name_heuristics.steps_otherwise(name):
        return False
    if name_heuristics.is_optimizer_name(name):
        return True
    return False if call.args else None


def is_of_an_optimizer(names: Names, call: ast.Call) -> bool:
    """Whether `self.base.step()` is part of an optimizer's own `step`, which its user calls."""
    method, owner = names.function(call), names.enclosing_class(call)
    if method is None or owner is None or method.name != "step" or method not in owner.body:
        return False
    inherits = any((dotted(base) or "").endswith("Optimizer") for base in owner.bases)
    return inherits or any(getattr(part, "name", "") == "zero_grad" for part in owner.body)


def is_scaler(flow: Flow, node: ast.expr) -> bool:
    """Whether an expression is a GradScaler."""
    owner = node.value if isinstance(node, ast.Subscript) else node
    name = (dotted(owner) or "").rpartition(".")[2]
    return bool(flow.kind(node) & Kind.SCALER) or "scaler" in name.lower()


def is_backward(node: ast.AST) -> bool:
    """`loss.backward`."""
    return isinstance(node, ast.Attribute) and node.attr == "backward"


@once
def trains(node: ast.AST) -> bool:
    """True for code with a backward pass."""
    return any(map(is_backward, ast.walk(node)))


def end_of_step(names: Names, call: ast.Call) -> ast.stmt:
    """The statement after which a step of the loop is complete.

    Not inside `if (i + 1) % n == 0:`, because each iteration's gradients have to be computed; not
    inside `for opt in optimizers:`, nor before an `else:` that changes parameters by hand; after
    the last of several steps in a row.
    """
    at = names.statement(call)
    assert at is not None
    parent = names.parents.get(at)
    stepped = {n.id for n in ast.walk(call.func) if isinstance(n, ast.Name)}
    while (
        isinstance(parent, ast.If) and (_counts(parent.test) or _changes_by_hand(parent, at))
    ) or (
        isinstance(parent, ast.For)
        and any(isinstance(n, ast.Name) and n.id in stepped for n in ast.walk(parent.target))
    ):
        at, parent = parent, names.parents.get(parent)
    for follower in following(names, at):
        if not _is_step(follower):
            break
        at = follower
    return at


_IN_PLACE = {"add_", "sub_", "mul_", "copy_", "addcmul_", "addcdiv_"}


def _changes_by_hand(branch: ast.If, step: ast.AST) -> bool:
    """Whether the other side of a branch has no step, and writes to tensors: `p.data.add_(…)`."""
    other = branch.orelse if step in branch.body else branch.body
    called = {
        node.func.attr
        for statement in other
        for node in ast.walk(statement)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }
    return not called.isdisjoint(_IN_PLACE) and "step" not in called


def speaks_of_training(tree: ast.AST) -> bool:
    """True for code that may train, judging only by names: a hint."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr="backward") | ast.Call(func=ast.Attribute(attr="train")):
                return True
            case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=called), *_]):
                if called in ("backward", "train"):
                    return True
            case ast.Attribute(attr="grad" | "backward" | "vjp", value=owner):
                if (dotted(owner) or "").rpartition(".")[2] in _DERIVES:
                    return True
            case ast.ImportFrom(module=str(module)) if module.rpartition(".")[2] in _DERIVES:
                return True
        if any(map(name_heuristics.speaks_of_training, _identifiers(node))):
            return True
    return False


_DERIVES = ("autograd", "func", "functorch")


def _identifiers(node: ast.AST) -> tuple[str, ...]:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.ClassDef(name=name):
            return (name,)
        case ast.alias(name=name):
            return (name,)
        case ast.ImportFrom(module=str(module)):
            return (module,)
    return ()


def stops_gradients(names: Names) -> bool:
    """True for code that turns gradients off, for a block or for a function."""
    blocks: list[ast.With | ast.AsyncWith] = [*names.all(ast.With), *names.all(ast.AsyncWith)]
    given = [item.context_expr for block in blocks for item in block.items]
    functions: list[ast.FunctionDef | ast.AsyncFunctionDef] = [*names.all(ast.FunctionDef)]
    functions += names.all(ast.AsyncFunctionDef)
    given += [decorator for function in functions for decorator in function.decorator_list]
    return any(_stops_gradients(names, part) for part in given)


_NO_GRADIENTS = ("torch.no_grad", "torch.inference_mode", "torch.autograd.no_grad",
                 "torch.autograd.inference_mode", "torch.set_grad_enabled")  # fmt: skip
READING_METHODS = frozenset({"item", "cpu", "numpy", "tolist"})
READING_FUNCTIONS = frozenset({"print", "float", "int", "bool"})
_READING_WHOLE = frozenset({"all", "any"})  # if called with a tensor


def rounds_without_gradients(names: Names, flow: Flow) -> Iterator[ast.For | ast.While]:
    """Loops that call a model in each iteration without recording gradients: the innermost ones.

    Loops of `forward` are part of a model.
    """
    found: dict[ast.AST, None] = {}
    for call in names.all(ast.Call) if stops_gradients(names) else ():
        loop, off = round_of(names, call)
        if loop is None or not off:
            continue
        if reaches_model(flow, call) and not runs_over_models(loop, call):
            found.setdefault(loop)
    for loop in found:
        if isinstance(loop, ast.For | ast.While) and not trains(loop):
            yield loop


def is_model(flow: Flow, function: ast.expr) -> bool:
    if not isinstance(function, ast.Name | ast.Attribute):
        return False
    if isinstance(function, ast.Attribute) and function.attr == "forward":
        return is_model(flow, function.value)
    if (flow.names.qualified(function) or "").startswith("torch."):
        return False  # torch.Generator
    name = (dotted(function) or "").rpartition(".")[2]
    return name_heuristics.is_model_name(name) or bool(flow.kind(function) & Kind.MODULE)


def reaches_model(flow: Flow, call: ast.Call, depth: int = 3) -> bool:
    """Whether a call is one of a model, or of a function of the file that calls one in no loop."""
    if is_model(flow, call.func):
        return depth == 3 or not name_heuristics.is_no_model_name(said_name(call.func))
    function = flow.called_definition(call) if depth else None
    return isinstance(function, ast.FunctionDef) and any(
        flow.names.function(inner) is function
        and round_of(flow.names, inner)[0] is None
        and reaches_model(flow, inner, depth - 1)
        for inner in ast.walk(function)
        if isinstance(inner, ast.Call)
    )


def may_step(names: Names, flow: Flow, call: ast.Call) -> bool:
    """`loss_scaler(loss, optimizer, …)` may go back and step, as timm's scaler does."""
    if names.qualified(call.func) or name_heuristics.is_action_name(said_name(call.func)):
        return False
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    optimizers = [
        each
        for each in given
        if flow.kind(each) & Kind.OPTIMIZER or name_heuristics.is_optimizer_name(said_name(each))
    ]
    return bool(optimizers) and any(
        name_heuristics.speaks_of_loss(said_name(each)) for each in given if each not in optimizers
    )


def round_of(names: Names, call: ast.Call) -> tuple[ast.AST | None, bool]:
    """The loop around a call, unless that is part of a model; and whether gradients are off."""
    function = names.function(call)
    if function is None:
        decorators: list[ast.expr] = []
    elif function.name in ("forward", "__call__"):
        return None, False
    else:
        decorators = function.decorator_list
    loop: ast.AST | None = None
    off = any(_stops_gradients(names, d) for d in decorators)
    for above in names.ancestors(call):
        if above is function:
            break
        if isinstance(above, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            return None, False
        if isinstance(above, ast.For | ast.While) and loop is None:
            loop = above
        if isinstance(above, ast.With):
            off = off or any(_stops_gradients(names, item.context_expr) for item in above.items)
    return loop, off


def _stops_gradients(names: Names, node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        if node.args and not (isinstance(node.args[0], ast.Constant) and not node.args[0].value):
            return False  # inference_mode(flag), set_grad_enabled(phase == "train")
        node = node.func
    return names.qualified(node) in _NO_GRADIENTS


def runs_over_models(loop: ast.AST, call: ast.Call) -> bool:
    """`for block in blocks: x = block(x)`"""
    if not isinstance(loop, ast.For):
        return False
    targets = {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)}
    return any(isinstance(n, ast.Name) and n.id in targets for n in ast.walk(call.func))


def brings_batches(flow: Flow, source: ast.expr) -> bool:
    """Whether a loop is over a DataLoader: `enumerate(loader)`."""
    parts = (n for n in ast.walk(source) if isinstance(n, ast.Name | ast.Attribute | ast.Call))
    return any(flow.kind(part) & Kind.LOADER for part in parts)


def may_bring_batches(flow: Flow, source: ast.expr) -> bool:
    """The same, where a name may tell it."""
    parts = (n for n in ast.walk(source) if isinstance(n, ast.Name | ast.Attribute))
    return brings_batches(flow, source) or any(
        name_heuristics.is_loader_name(said_name(n)) for n in parts
    )


def end_of_round(names: Names, flow: Flow, loop: ast.For | ast.While) -> ast.stmt | None:
    """The statement after which a boundary goes; None if none is needed.

    Not before the last call of a model, and before the first statement that reads a value.
    """
    block: list[ast.stmt] = loop.body
    at = _last_model_call(flow, block)
    while isinstance(at, ast.With):
        inner = _last_model_call(flow, at.body)
        if not any(map(reads, at.body[at.body.index(inner) + 1 :])):
            break
        block, at = at.body, inner
    if reads(at):
        return None
    for statement in block[block.index(at) + 1 :]:
        if reads(statement) or isinstance(statement, ast.Break | ast.Continue | ast.Return):
            break
        at = statement
    return at


def _last_model_call(flow: Flow, block: list[ast.stmt]) -> ast.stmt:
    return next((s for s in reversed(block) if calls_model(flow, s)), block[0])


def calls_model(flow: Flow, node: ast.AST) -> bool:
    return any(isinstance(n, ast.Call) and reaches_model(flow, n) for n in ast.walk(node))


@once
def reads(statement: ast.AST) -> bool:
    """True for a statement that reads the values of tensors."""
    for node in ast.walk(statement):
        match node:
            case ast.Call(func=ast.Attribute(attr=name)) if name in READING_METHODS:
                return True
            case ast.Call(func=ast.Name(id=name), args=args) if name in READING_FUNCTIONS:
                if not all(isinstance(argument, ast.Constant) for argument in args):
                    return True
            case ast.Call(func=ast.Name(id=name), args=[ast.Name() | ast.Attribute()]):
                if name in _READING_WHOLE:
                    return True
    return False


def following(names: Names, statement: ast.stmt) -> list[ast.stmt]:
    """The statements after one, in its block."""
    block = names.block(statement)
    return block[block.index(statement) + 1 :] if block else []


def _is_step(statement: ast.stmt) -> bool:
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr="step"))):
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr="update"), args=args, keywords=[])):
            # `scaler.update()`, `ema.update(model)`; a meter gets a time, or a value already read;
            # it reads its argument (`metric_logger.update(loss=loss)`)
            return all(isinstance(each, ast.Name | ast.Attribute) for each in args)
    return False


def _counts(test: ast.expr) -> bool:
    return any(isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mod) for n in ast.walk(test))
