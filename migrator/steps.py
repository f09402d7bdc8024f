"""Steps: the statements of a loop that train, as a function of their own.

Found on the `ast`, for targets that compile a whole step. What leaves the loop must be nothing but
computation: a value that is read, a meter, a print stays where it is, in its order. What can not be
shown to be so is not moved, and the reason is given.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from migrator.flow import Flow, Kind
from migrator.names import Names, dotted
from migrator.training import is_model, is_optimizer_step


class NotMovable(Exception):
    """Why the statements stay in the loop."""


@dataclass(frozen=True)
class Step:
    """Consecutive statements of a loop's body; what goes in and what comes out, by name."""

    statements: Sequence[ast.stmt]
    outermost: ast.stmt  # the loop that the function stands in front of
    parameters: Sequence[str]
    results: Sequence[str]


_READS = frozenset({"item", "cpu", "numpy", "tolist", "print", "float", "int", "bool"})
_FORBIDDEN = (
    ast.Return, ast.Yield, ast.YieldFrom, ast.Await, ast.Break, ast.Continue, ast.Global,
    ast.Nonlocal, ast.Import, ast.ImportFrom, ast.Try, ast.Raise, ast.Assert, ast.Delete,
    ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.While, ast.NamedExpr,
)  # fmt: skip
_MOVABLE = (ast.Assign, ast.AugAssign, ast.Expr, ast.With, ast.For, ast.If)
_LOSS_NAME = re.compile(r"criter|loss|objective|^(?:mse|bce|ce|l1|kl)", re.I)
_VERB = re.compile(
    r"(?:save|load|log|print|update|plot|write|dump|eval|test|train|get|set|make|build|create|run)_"
)
_PURE = frozenset({"len", "range", "enumerate", "zip", "list", "tuple", "sum", "reversed", "min",
                   "max", "isinstance", "getattr", "hasattr", "abs", "dict", "super"})  # fmt: skip
# Methods of tensors, and of what takes part in a step, that do nothing else.
_METHODS = frozenset({
    "to", "cuda", "float", "half", "bfloat16", "double", "long", "detach", "clone", "contiguous",
    "view", "reshape", "flatten", "squeeze", "unsqueeze", "transpose", "permute", "t", "expand",
    "expand_as", "repeat", "mean", "sum", "std", "var", "norm", "pow", "sqrt", "exp", "log", "abs",
    "clamp", "clip", "max", "min", "argmax", "argmin", "softmax", "log_softmax", "sigmoid", "tanh",
    "relu", "square", "mul", "add", "sub", "div", "matmul", "mm", "bmm", "dot", "eq", "ne", "gt",
    "lt", "ge", "le", "masked_fill", "masked_select", "gather", "scatter", "index_select", "chunk",
    "split", "stack", "type", "type_as", "requires_grad_", "size", "dim", "numel", "new_zeros",
    "new_ones", "new_full", "zero_grad", "backward", "scale", "unscale_", "update", "parameters",
    "named_parameters", "keys", "values", "items", "log_prob", "entropy", "rsample", "cumsum",
    "neg", "logsumexp", "narrow", "select", "diag", "triu", "tril", "any", "all", "fill_", "zero_",
})  # fmt: skip
# What makes no graph of what it is given: moves and shapes of data.
_DATA = frozenset({
    "to", "cuda", "float", "half", "bfloat16", "double", "long", "view", "reshape", "squeeze",
    "unsqueeze", "transpose", "permute", "t", "contiguous", "size", "flatten", "type", "detach",
    "clone", "requires_grad_", "pop", "get",
})  # fmt: skip


def find_step(names: Names, flow: Flow, call: ast.Call) -> Step:
    """The step that ends with the optimizer's step `call`.

    Raises:
        NotMovable: with what is in the way.
    """
    at = names.statement(call)
    loop = names.parents.get(at) if at is not None else None
    if not isinstance(at, ast.Expr) or call.args[1:] or call.keywords:
        raise NotMovable("the optimizer's step is part of an expression, or has a closure")
    if not isinstance(loop, ast.For | ast.While) or at not in loop.body:
        raise NotMovable("the optimizer's step is not directly in a loop")
    steps = [s for s in ast.walk(loop) if _steps(names, flow, s)]
    if len(steps) > 1:
        raise NotMovable("the loop has several optimizer steps")
    if any(isinstance(inner, ast.For | ast.While) and at in ast.walk(inner) for inner in loop.body):
        raise NotMovable("the optimizer's step is not directly in a loop")
    if call.args and not is_optimizer_step(names, flow, call):
        raise NotMovable("the optimizer's step has a closure")
    last = loop.body.index(at)
    while last + 1 < len(loop.body) and _belongs(loop.body[last + 1]):
        last += 1
    first = last
    why = ""
    while first > 0:
        why = _in_the_way(names, flow, loop.body[first - 1])
        if why:
            break
        first -= 1
    region = loop.body[first : last + 1]
    if not any(_is_backward(node) for s in region for node in ast.walk(s)):
        raise NotMovable(why or "there is no backward pass in front of the optimizer's step")
    while first < last and _only_moves(names, loop.body[first]):
        first += 1  # data is moved in front of the step, and comes as an argument
    region = loop.body[first : last + 1]
    return _step(names, flow, loop, region, why)


def _steps(names: Names, flow: Flow, node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(attr="step")):
            return is_optimizer_step(names, flow, node) is not False
    return False


def _belongs(statement: ast.stmt) -> bool:
    """`optimizer.zero_grad()`, `scaler.update()` behind the step."""
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr="zero_grad"))):
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr="update", value=owner), args=[])):
            return "scaler" in (dotted(owner) or "").lower()
    return False


def _is_backward(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "backward"


def _in_the_way(names: Names, flow: Flow, statement: ast.stmt) -> str:
    """Why a statement can not be moved; "" where it is nothing but computation."""
    if not isinstance(
        statement, ast.Assign | ast.AugAssign | ast.Expr | ast.With | ast.For | ast.If
    ):
        return f"line {statement.lineno} is more than computation"
    for node in ast.walk(statement):
        if isinstance(node, _FORBIDDEN):
            return f"line {statement.lineno} is more than computation"
        if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store):
            return f"line {statement.lineno} keeps a value in an object"
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) > 40:
            return f"line {statement.lineno} is more than computation"
        if isinstance(node, ast.Call):
            why = _call_in_the_way(names, flow, node)
            if why:
                return f"line {node.lineno} {why}"
    if isinstance(statement, ast.Expr) and not isinstance(statement.value, ast.Call):
        return f"line {statement.lineno} is more than computation"
    return ""


def _body_in_the_way(names: Names, flow: Flow, function: ast.FunctionDef, depth: int) -> str:
    """The same for a function of this file that a step calls."""
    for node in ast.walk(function):
        if isinstance(node, _FORBIDDEN) and not isinstance(node, ast.Return | ast.FunctionDef):
            return f"calls {function.name}(), which may do more than compute"
        if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store):
            return f"calls {function.name}(), which keeps a value"
        if isinstance(node, ast.Call) and _call_in_the_way(names, flow, node, depth):
            return f"calls {function.name}(), which may do more than compute"
    return ""


def _call_in_the_way(names: Names, flow: Flow, call: ast.Call, depth: int = 2) -> str:
    function = call.func
    qualname = names.qualified(function) or ""
    name = function.attr if isinstance(function, ast.Attribute) else dotted(function) or ""
    if name in _READS and not (isinstance(function, ast.Attribute) and name in _METHODS):
        return f"reads a value ({name})"
    if qualname.startswith(("torch.", "math.", "tpu_runtime.")):
        random = qualname.startswith(("torch.rand", "torch.normal", "torch.bernoulli"))
        return "draws random numbers" if random and not _names_device(call) else ""
    if name in _PURE and isinstance(function, ast.Name):
        return ""
    if flow.kind(function) & Kind.MODULE:
        return ""
    defined = flow.called_definition(call)
    if isinstance(defined, ast.FunctionDef) and depth:
        return _body_in_the_way(names, flow, defined, depth - 1)
    named = is_model(flow, function) or _LOSS_NAME.search(name)
    if named and not _VERB.match(name) and _is_variable(names, function):
        return ""
    if isinstance(function, ast.Attribute):
        if function.attr == "step":
            return "" if is_optimizer_step(names, flow, call) else "steps something else"
        if function.attr == "update":
            owner = dotted(function.value) or ""
            return "" if "scaler" in owner.lower() else "updates a meter"
        if function.attr in _METHODS:
            return ""
    return f"calls {name or 'a function'}(), which may do more than compute"


def _is_variable(names: Names, function: ast.expr) -> bool:
    """True for what holds a model or a loss, False for a function."""
    if names.qualified(function):
        return False
    root = function
    while isinstance(root, ast.Attribute):
        root = root.value
    if isinstance(function, ast.Attribute) and isinstance(root, ast.Name):
        owner = names.owner_class(root)
        if owner is not None:
            return not any(
                b.kind == "def" for b in names.scopes[owner].bindings.get(function.attr, ())
            )
        return True
    kinds = {b.kind for b in names.lookup(root)} if isinstance(root, ast.Name) else set()
    return not kinds & {"def", "class", "import"}


def _names_device(call: ast.Call) -> bool:
    return any(keyword.arg == "device" for keyword in call.keywords)


def _only_moves(names: Names, statement: ast.stmt) -> bool:
    """`x, y = x.to(device), y.to(device)`: data, no part of the model's work."""
    if not isinstance(statement, ast.Assign):
        return False
    return _is_data(names, statement.value)


def _is_data(names: Names, node: ast.expr) -> bool:
    """True for an expression that is made of data by moves and shapes alone: it has no graph."""
    match node:
        case ast.Name() | ast.Constant() | ast.Attribute():
            return True
        case ast.Tuple(elts=items) | ast.List(elts=items):
            return all(_is_data(names, item) for item in items)
        case ast.Subscript(value=value):
            return _is_data(names, value)
        case ast.Call(func=ast.Attribute(attr=method, value=value)) if method in _DATA:
            return _is_data(names, value)
        case ast.Call(func=function, args=args):
            made = names.qualified(function) or ""
            return (made.startswith("torch.") and made.count(".") == 1 and all(
                _is_data(names, a) for a in args
            )) or made.endswith(("Variable",))  # fmt: skip
    return False


def _step(
    names: Names, flow: Flow, loop: ast.For | ast.While, region: Sequence[ast.stmt], why: str
) -> Step:
    outermost = outermost_loop(names, loop)
    assigned = _stored(region)
    before_written: list[str] = []
    written: set[str] = set()
    for statement in region:
        for name in _loaded(statement):
            if name not in written and name not in before_written:
                before_written.append(name)
        written |= _stored([statement])
    in_loops = _stored([outermost])
    parameters = [n for n in before_written if n in in_loops]
    counters = _counters(names, loop, outermost)
    for name in parameters:
        if name in counters:
            raise NotMovable(f"it uses {name}, which counts: each value would be another program")
    graphs = _with_graph(names, outermost, region)
    for name in parameters:
        if name in graphs:
            raise NotMovable(
                why or f"{name} is computed outside of it (line {graphs[name]}), and its gradient "
                "would be lost"
            )  # fmt: skip
    begun = loop.body[: loop.body.index(region[0])]
    fresh = _stored(begun) | (_stored([loop.target]) if isinstance(loop, ast.For) else set())
    for name in sorted(assigned & set(parameters) - fresh):
        raise NotMovable(f"{name} goes from one round to the next")
    for node in (n for s in region for n in ast.walk(s)):
        if _is_backward(node):
            assert isinstance(node, ast.Attribute)
            made = _loaded(node.value)
            if not assigned & set(made) and not _calls_model(flow, node.value):
                raise NotMovable(
                    why or f"what backward() is called on (line {node.lineno}) is made elsewhere"
                )
    order = dict.fromkeys(n.id for n in _in_order(region) if isinstance(n, ast.Name))
    results = [n for n in order if n in assigned and _is_read_later(names, n, loop, region)]
    return Step(region, outermost, parameters, results)


def _with_graph(names: Names, outermost: ast.stmt, region: Sequence[ast.stmt]) -> dict[str, int]:
    """Names that a loop gives a value outside of the region which may have a graph: name, line."""
    inside = {id(node) for statement in region for node in ast.walk(statement)}
    found: dict[str, int] = {}
    target: ast.AST
    while True:
        before = len(found)
        for node in ast.walk(outermost):
            if id(node) in inside:
                continue
            match node:
                case ast.For(target=target, iter=value):
                    graph = bool(found.keys() & set(_loaded(value)))
                case ast.Assign(value=value):
                    data = _is_data(names, value) or isinstance(value, ast.Compare)
                    target, graph = node, not data or bool(found.keys() & set(_loaded(value)))
                case ast.AugAssign() | ast.AnnAssign() | ast.NamedExpr() | ast.withitem():
                    target, graph = node, True
                case _:
                    continue
            if graph:
                line = getattr(node, "lineno", outermost.lineno)
                found.update((name, line) for name in _stored([target]) if name not in found)
        if len(found) == before:
            return found


def _calls_model(flow: Flow, node: ast.AST) -> bool:
    return any(isinstance(n, ast.Call) and is_model(flow, n.func) for n in ast.walk(node))


def _is_read_later(names: Names, name: str, loop: ast.stmt, region: Sequence[ast.stmt]) -> bool:
    """Whether a value of the region is read outside of it, before another takes its place."""
    last = max(node.end_lineno or 0 for node in region)
    inside = {id(node) for statement in region for node in ast.walk(statement)}
    scope = names.scope_of(loop)
    reads = [n for n in names.uses(name, scope) if id(n) not in inside]
    later = [n for n in reads if n.lineno > last]
    ahead = [n for n in reads if n.lineno <= last and loop in names.ancestors(n)]
    targets = _stored([loop.target]) if isinstance(loop, ast.For) else set()
    if ahead and name not in targets:  # in the next round
        return True
    if not later:
        return False
    stores = sorted(
        (n for n in names.by_id.get(name, ()) if isinstance(n.ctx, ast.Store) and n.lineno > last
         and names.scope_of(n) is scope and id(n) not in inside),
        key=lambda n: (n.lineno, n.col_offset),
    )  # fmt: skip
    if not stores or min(n.lineno for n in later) <= stores[0].lineno:
        return True
    statement = names.statement(stores[0])
    block = names.parents.get(statement) if statement is not None else None
    return block is None or not all(block in names.ancestors(n) for n in later)


def outermost_loop(names: Names, loop: ast.stmt) -> ast.stmt:
    """The loop that no other loop of the same function holds."""
    at: ast.AST | None = loop
    outermost = loop
    while at is not None and not isinstance(at, ast.FunctionDef | ast.AsyncFunctionDef):
        if isinstance(at, ast.For | ast.While):
            outermost = at
        at = names.parents.get(at)
    return outermost


def _counters(names: Names, loop: ast.stmt, outermost: ast.stmt) -> set[str]:
    """Names that hold another number in every round of the loop."""
    found: set[str] = set()
    match loop:
        case ast.For(target=ast.Tuple(elts=[ast.Name(id=name), *_]), iter=ast.Call() as source):
            if "enumerate" in ast.unparse(source):
                found.add(name)
        case ast.For(target=ast.Name(id=name), iter=ast.Call(func=ast.Name(id="range"))):
            found.add(name)
    for node in ast.walk(outermost):
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            if isinstance(node.value, ast.Constant):
                found.add(node.target.id)
    return found


def _stored(statements: Iterable[ast.AST]) -> set[str]:
    return {
        node.id
        for statement in statements
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


def _loaded(statement: ast.AST) -> list[str]:
    """Names that a statement reads, also those that it writes by `+=`, but not its own loop's."""
    own: set[str] = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.For):
            own |= {n.id for n in ast.walk(node.target) if isinstance(n, ast.Name)}
        if isinstance(node, ast.comprehension):
            own |= {n.id for n in ast.walk(node.target) if isinstance(n, ast.Name)}
    found = []
    for node in _in_order([statement]):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id not in own:
            found.append(node.id)
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            found.append(node.target.id)
    return found


def _in_order(statements: Iterable[ast.AST]) -> list[ast.expr | ast.stmt]:
    """The nodes in the order in which they are written."""
    nodes = [
        node
        for statement in statements
        for node in ast.walk(statement)
        if isinstance(node, ast.expr | ast.stmt)
    ]
    return sorted(nodes, key=lambda node: (node.lineno, node.col_offset))
