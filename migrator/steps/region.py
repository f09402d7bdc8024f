"""Which statements around an optimizer's step may move, and which may be skipped over."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from migrator.analysis.syntax.nodes import dotted
from migrator.analysis.syntax.once import once_in
from migrator.analysis.training.loops import following, is_model, is_optimizer_step, is_scaler
from migrator.analysis.values.kinds import Kind
from migrator.diagnostics import first_of
from migrator.steps.blocks import block_of, counter_names, loops_of
from migrator.steps.computation import Computation
from migrator.steps.values import loaded_names, stored_names, written_names

_NAMED = 5  # lines in a message


class Role(Enum):
    MOVES = auto()
    STEPS = auto()  # moves; contains an optimizer step
    SPLITS = auto()  # `seen = out.mean().item()`: the tensor moves, `.item()` follows the step
    READS = auto()  # goes after the step
    BRINGS = auto()  # random data drawn on the CPU: goes before the step


@dataclass(frozen=True)
class Split:
    """A block that moves in part."""

    rest: ast.With | ast.If  # the part that moves
    reads: Sequence[ast.stmt]  # of a `with`: go after the step


@dataclass
class Region:
    """The statements between two obstacles, top to bottom."""

    statements: Sequence[ast.stmt]
    roles: Sequence[Role]
    why: str  # the obstacle above
    split: dict[ast.stmt, Split]  # blocks that move in part

    def of(self, *roles: Role) -> list[ast.stmt]:
        return [s for s, r in zip(self.statements, self.roles, strict=True) if r in roles]


@dataclass
class _Below:
    """What was found below a statement: the roles there, and the names in what moves."""

    roles: set[Role] = field(default_factory=set)
    used: set[str] = field(default_factory=set)
    stored: set[str] = field(default_factory=set)
    written: set[str] = field(default_factory=set)

    def add(self, statement: ast.stmt, role: Role) -> None:
        self.roles.add(role)
        if role not in (Role.READS, Role.BRINGS):
            self.used.update(loaded_names(statement))
            self.stored |= stored_names([statement])
            self.written |= written_names([statement])

    def copy(self) -> _Below:
        return _Below(set(self.roles), set(self.used), set(self.stored), set(self.written))


def regions(code: Computation, at: ast.stmt, at_split: Split | None) -> Iterator[Region]:
    """Candidate regions around `at` (which may move in part), shortest first.

    Each ends below another optimizer's step or a statement that draws data; the last one is the
    longest.
    """
    block = block_of(code.names, at)
    last = block.index(at)
    receivers = {owner_name(call.func) for call in step_calls(code, at)}
    loop, around = loops_of(code.names, at)
    counters = counter_names(code.names, loop, around) if around is not None else set()
    while not at_split and last + 1 < len(block) and _belongs(code, block[last + 1], receivers):
        if counters & set(loaded_names(block[last + 1])):
            break
        last += 1
    statements = list(block[block.index(at) : last + 1])
    roles = [Role.STEPS, *(Role.MOVES for _ in statements[1:])]
    split = {at: at_split} if at_split is not None else {}
    below = _Below()
    for statement, role in zip(statements, roles, strict=True):
        below.add(statement, role)
    above: list[tuple[ast.stmt, Role]] = []
    why = ""
    for statement in reversed(block[: block.index(at)]):
        found, why = _role(code, statement, below)
        if found is None and (without := _lift(code, statement, below)) is not None:
            found, split[statement] = Role.MOVES, without
        if found is None:
            break
        if found in (Role.STEPS, Role.BRINGS):
            yield _region(above, statements, roles, "", split)
        above.append((statement, found))
        below.add(statement, found)
    else:
        why = ""
    if why and (further := _further(code, block[: block.index(statement) + 1], below)):
        named = first_of([f"line {number}" for number in further], _NAMED)
        why += f" (also in the way: {named})"
    yield _region(above, statements, roles, why, split)


def _further(code: Computation, statements: Sequence[ast.stmt], below: _Below) -> list[int]:
    """Lines that are in the way besides the first obstacle, which the last statement has, up to
    the model's call."""
    *above, last = statements
    first = next((i for i, s in enumerate(above) if code.has_graph(s)), len(above))
    below = below.copy()
    lines = [line for line, _ in code.obstacles(last)]
    found = set(lines[1:]) - set(lines[:1])
    for statement in reversed(above[first:]):
        role, _ = _role(code, statement, below)
        if role is None and _lift(code, statement, below) is None:
            found.update(line for line, _ in code.obstacles(statement))
        else:
            below.add(statement, role or Role.MOVES)
    return sorted(found)


def _region(
    above: Sequence[tuple[ast.stmt, Role]], statements: Sequence[ast.stmt], roles: Sequence[Role],
    why: str, split: dict[ast.stmt, Split],
) -> Region:  # fmt: skip
    """The region; `above` is in reverse order."""
    return Region(
        [*(s for s, _ in reversed(above)), *statements],
        [*(r for _, r in reversed(above)), *roles],
        why,
        dict(split),
    )


def _lift(code: Computation, statement: ast.stmt, below: _Below) -> Split | None:
    """Split off the reads of `with torch.no_grad(): seen += [ratio.mean().item()]`."""
    if not isinstance(statement, ast.With) or Role.READS in below.roles:
        return None
    below = below.copy()
    inner: list[tuple[ast.stmt, Role]] = []
    for part in reversed(statement.body):
        role, _ = _role(code, part, below)
        if role is Role.READS and not isinstance(part, ast.AugAssign):
            return None
        if role not in (Role.READS, Role.MOVES):
            return None
        inner.insert(0, (part, role))
        below.add(part, role)
    kept = [s for s, role in inner if role is Role.MOVES]
    found = [s for s, role in inner if role is Role.READS]
    if not kept or not found:
        return None
    rest = ast.copy_location(ast.With(statement.items, kept), statement)
    return Split(rest, found) if not code.obstacle(rest) else None


def _role(code: Computation, statement: ast.stmt, below: _Below) -> tuple[Role | None, str]:
    why = code.obstacle(statement)
    if not why and not (isinstance(statement, ast.AugAssign) and _can_wait(code, statement)):
        return (Role.STEPS if step_calls(code, statement) else Role.MOVES), ""
    stored, loaded = stored_names([statement]), set(loaded_names(statement))
    if _looks(code, statement) and not stored & below.used and not stored & below.stored:
        if not loaded & below.written and Role.BRINGS not in below.roles:
            return Role.READS, ""
    if not why:
        return Role.MOVES, ""
    if not isinstance(statement, ast.Assign):
        return None, why
    tensor = read_expression(statement)
    if tensor is not None and not stored & below.used:
        alone = ast.copy_location(ast.Assign(statement.targets, tensor), statement)
        if not code.obstacle(alone):
            return Role.SPLITS, ""
    if code.is_data(statement.value) and all(isinstance(t, ast.Name) for t in statement.targets):
        return Role.BRINGS, why
    return None, why


_WAITING_METHODS = frozenset({
    "append", "extend", "update", "item", "add_scalar", "add_scalars", "set_postfix", "write",
    "set_description", "set_postfix_str", "info", "debug", "log", "format", "tolist", "numpy",
    "cpu", "join",
})  # fmt: skip


_LIBRARIES = ("math.", "numpy.", "time.")
WAITING_FUNCTIONS = frozenset({"print", "float", "int", "bool", "str", "format"})


@once_in
def _can_wait(code: Computation, statement: ast.stmt) -> bool:
    """Prints, meters, totals: they read values of the step and change nothing that it uses."""
    if isinstance(statement, ast.If):
        acts = (ast.Call, ast.Await, ast.NamedExpr)
        return not any(isinstance(n, acts) for n in ast.walk(statement.test)) and all(
            _can_wait(code, s) for s in [*statement.body, *statement.orelse]
        )
    if not isinstance(statement, ast.Assign | ast.AugAssign | ast.Expr):
        return False
    for node in ast.walk(statement):
        match node:
            case ast.Attribute(ctx=ast.Store()) | ast.Attribute(attr="grad" | "parameters"):
                return False
            case ast.Attribute(attr="param_groups" | "state_dict" | "get_last_lr"):
                return False
            case ast.Name(ctx=ast.Load()) | ast.Attribute() if _is_trained(code, node):
                return False
            case ast.Call(func=ast.Attribute(attr="step" | "backward" | "zero_grad")):
                return False
            case ast.Call(func=function):
                reading = isinstance(function, ast.Attribute) and function.attr in _WAITING_METHODS
                if is_model(code.flow, function):
                    return False
                if not reading and dotted(function) not in WAITING_FUNCTIONS:
                    library = code.names.qualified(function) or ""
                    if code.call_obstacle(node) and not library.startswith(_LIBRARIES):
                        return False
            case ast.NamedExpr() | ast.Await() | ast.Yield() | ast.Lambda():
                return False
    return True


TRAINERS = Kind.MODULE | Kind.OPTIMIZER | Kind.SCALER | Kind.SCHEDULER


@once_in
def _looks(code: Computation, statement: ast.stmt) -> bool:
    """The same, if no value that it reads is changed by the step."""
    names = (n for n in ast.walk(statement) if isinstance(n, ast.Name))
    return _can_wait(code, statement) and not any(_is_weight(code, name) for name in names)


def _is_weight(code: Computation, name: ast.Name) -> bool:
    """`w = model.weight`: its values change with the step."""
    return any(
        binding.value is not None
        and not isinstance(binding.value, ast.Name)
        and code.is_data(binding.value)
        and any(
            isinstance(part, ast.Attribute)
            and is_model(code.flow, part.value)
            and not (isinstance(part.value, ast.Name) and code.names.owner_class(part.value))
            for part in ast.walk(binding.value)
        )
        for binding in code.names.lookup(name)
    )


def _is_trained(code: Computation, node: ast.Name | ast.Attribute) -> bool:
    """A model or an optimizer: the step changes its values."""
    if isinstance(node, ast.Name) and code.names.owner_class(node) is not None:
        return False  # self
    return bool(code.flow.kind(node) & TRAINERS) or is_model(code.flow, node)


def read_expression(statement: ast.stmt) -> ast.expr | None:
    """`out.mean()` of `seen = out.mean().item()`."""
    match statement:
        case ast.Assign(
            targets=[ast.Name()],
            value=ast.Call(func=ast.Attribute(attr="item", value=tensor), args=[]),
        ):
            return tensor
    return None


def _belongs(code: Computation, statement: ast.stmt, receivers: set[str]) -> bool:
    """`optimizer.zero_grad()`, `scaler.update()`, averaging weights after the step."""
    match statement:
        case ast.For() | ast.With():
            works_on_weights = any(
                isinstance(n, ast.Attribute) and n.attr in ("parameters", "named_parameters")
                for n in ast.walk(statement)
            )
            return works_on_weights and not code.obstacle(statement)
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr="zero_grad", value=owner))):
            later = (step_calls(code, s) for s in following(code.names, statement))
            return dotted(owner) in receivers or not any(later)
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr="update", value=owner), args=[])):
            return is_scaler(code.flow, owner)
    return False


@once_in
def step_calls(code: Computation, statement: ast.AST) -> list[ast.Call]:
    """The optimizer steps in a statement."""
    return [
        node
        for node in ast.walk(statement)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "step"
        and is_optimizer_step(code.names, code.flow, node)
    ]


def owner_name(function: ast.expr) -> str:
    return (dotted(function.value) or "") if isinstance(function, ast.Attribute) else ""


def zeroes(statement: ast.stmt) -> bool:
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr="zero_grad"))):
            return True
    return False
