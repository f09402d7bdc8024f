"""Which statements around an optimizer's step may move, and which may be passed by."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from migrator.analysis.syntax.names import dotted
from migrator.analysis.training.loops import following, is_model, is_optimizer_step, is_scaler
from migrator.analysis.values.kinds import Kind
from migrator.steps.blocks import block_of, counter_names, loops_of
from migrator.steps.computation import Computation
from migrator.steps.values import loaded_names, stored_names, written_names


class Role(Enum):
    MOVES = auto()
    STEPS = auto()  # moves, and holds the step of an optimizer
    SPLITS = auto()  # `seen = out.mean().item()`: the tensor moves, its value is read behind
    READS = auto()  # comes behind
    BRINGS = auto()  # data that the CPU draws: comes in front


@dataclass(frozen=True)
class Split:
    """A block of which a part moves."""

    rest: ast.With | ast.If  # what moves
    reads: Sequence[ast.stmt]  # of a `with`: come behind


@dataclass
class Region:
    """The statements between two obstacles, from the top."""

    statements: Sequence[ast.stmt]
    roles: Sequence[Role]
    why: str  # what is in the way above
    split: dict[ast.stmt, Split]  # blocks that move in part

    def of(self, *roles: Role) -> list[ast.stmt]:
        return [s for s, r in zip(self.statements, self.roles, strict=True) if r in roles]

    def below(self, start: int) -> Region:
        return Region(self.statements[start:], self.roles[start:], self.why, self.split)


def region_of(code: Computation, at: ast.stmt, at_split: Split | None = None) -> Region:
    """All statements around `at`, which may move in part, that may move or may be passed by."""
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
    for statement in reversed(block[: block.index(at)]):
        role, why = _role(code, statement, statements, roles)
        if role is None and (without := _lift(code, statement, statements, roles)) is not None:
            role, split[statement] = Role.MOVES, without
        if role is None:
            return Region(statements, roles, why, split)
        statements.insert(0, statement)
        roles.insert(0, role)
    return Region(statements, roles, "", split)


def _lift(
    code: Computation, statement: ast.stmt, below: list[ast.stmt], roles: list[Role]
) -> Split | None:
    """`with torch.no_grad(): seen += [ratio.mean().item()]` among computation."""
    if not isinstance(statement, ast.With) or Role.READS in roles:
        return None
    inner: list[ast.stmt] = []
    inner_roles: list[Role] = []
    for part in reversed(statement.body):
        role, _ = _role(code, part, [*inner, *below], [*inner_roles, *roles])
        if role is Role.READS and not isinstance(part, ast.AugAssign):
            return None
        if role not in (Role.READS, Role.MOVES):
            return None
        inner.insert(0, part)
        inner_roles.insert(0, role)
    kept = [s for s, role in zip(inner, inner_roles, strict=True) if role is Role.MOVES]
    found = [s for s, role in zip(inner, inner_roles, strict=True) if role is Role.READS]
    if not kept or not found:
        return None
    rest = ast.copy_location(ast.With(statement.items, kept), statement)
    return Split(rest, found) if not code.obstacle(rest) else None


def _role(
    code: Computation, statement: ast.stmt, below: list[ast.stmt], roles: list[Role]
) -> tuple[Role | None, str]:
    why = code.obstacle(statement)
    if not why and not (isinstance(statement, ast.AugAssign) and _can_wait(code, statement)):
        return (Role.STEPS if step_calls(code, statement) else Role.MOVES), ""
    stored, loaded = stored_names([statement]), set(loaded_names(statement))
    moving = [s for s, r in zip(below, roles, strict=True) if r not in (Role.READS, Role.BRINGS)]
    used_below = {name for s in moving for name in loaded_names(s)}
    looks = _can_wait(code, statement) and not any(
        code.is_weight(name) for name in _names(statement)
    )
    if looks and not stored & (used_below | stored_names(moving)):
        if not loaded & written_names(moving) and Role.BRINGS not in roles:
            return Role.READS, ""
    if not why:
        return Role.MOVES, ""
    if not isinstance(statement, ast.Assign):
        return None, why
    tensor = read_expression(statement)
    if tensor is not None and not stored & used_below:
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


def _can_wait(code: Computation, statement: ast.stmt) -> bool:
    """Prints, meters, totals: they look at values of the step, and change nothing that it uses."""
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


def _names(statement: ast.stmt) -> list[ast.Name]:
    return [n for n in ast.walk(statement) if isinstance(n, ast.Name)]


def _is_trained(code: Computation, node: ast.Name | ast.Attribute) -> bool:
    """True for a model or an optimizer, whose values are others behind the step."""
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
    """`optimizer.zero_grad()`, `scaler.update()`, an average of weights behind the step."""
    match statement:
        case ast.For() | ast.With():
            works_on_weights = any(
                isinstance(n, ast.Attribute) and n.attr in ("parameters", "named_parameters")
                for n in ast.walk(statement)
            )
            return works_on_weights and not code.obstacle(statement)
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr="zero_grad", value=owner))):
            later = [s for s in following(code.names, statement) if step_calls(code, s)]
            return dotted(owner) in receivers or not later
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr="update", value=owner), args=[])):
            return is_scaler(code.flow, owner)
    return False


def step_calls(code: Computation, statement: ast.AST) -> list[ast.Call]:
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
