"""Steps: the statements that train, as a function of their own, for targets that compile a step.

A step is a run of statements in one block that ends with an optimizer's step. What is nothing but
computation moves; what brings data in front of it, and what reads a value behind it, stays where it
is, in its order. Where it can not be shown that the numbers stay the same, nothing is moved, and
the reason is given.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from migrator.computation import Computation
from migrator.edits import Edit, Replace
from migrator.flow import Kind
from migrator.names import Names, dotted
from migrator.training import (
    is_backward,
    is_model,
    is_optimizer_step,
    is_scaler,
    reads,
)


class NotMovable(Exception):
    """Why the statements stay where they are."""


@dataclass(frozen=True)
class Step:
    """What moves into a function, and how the function is called in its place."""

    statements: Sequence[ast.stmt]
    call: ast.stmt  # the one of them that the call takes the place of
    anchor: ast.stmt  # what the function stands in front of
    parameters: Sequence[str]
    arguments: Sequence[str]
    results: Sequence[str]
    targets: Sequence[str]
    behind: Sequence[str]  # lines behind the call
    edits: Sequence[Edit]  # of the statements that move
    receiver: str  # whose step() it ends with, "" for several
    function: ast.FunctionDef | None = None  # it is the whole body of one: that is compiled


class _Role(Enum):
    MOVES = auto()
    STEPS = auto()  # moves, and holds the step of an optimizer
    SPLITS = auto()  # `seen = out.mean().item()`: the tensor moves, its value is read behind
    READS = auto()  # comes behind
    BRINGS = auto()  # data that the CPU draws: comes in front


@dataclass
class _Region:
    """The statements between two obstacles, from the top."""

    statements: Sequence[ast.stmt]
    roles: Sequence[_Role]
    why: str  # what is in the way above

    def of(self, *roles: _Role) -> list[ast.stmt]:
        return [s for s, r in zip(self.statements, self.roles, strict=True) if r in roles]

    def below(self, start: int) -> _Region:
        return _Region(self.statements[start:], self.roles[start:], self.why)


def find_step(code: Computation, call: ast.Call) -> Step:
    """The step that ends with the optimizer's step `call`.

    Raises:
        NotMovable: with what is in the way.
    """
    names = code.names
    assert isinstance(call.func, ast.Attribute)
    at = names.statement(call)
    assert at is not None
    if not isinstance(at, ast.Expr):
        raise NotMovable("the optimizer's step is part of an expression")
    if call.args and not is_scaler(code.flow, call.func.value):
        raise NotMovable("the optimizer's step has a closure")
    loop = _loop(names, at)
    while isinstance(loop, ast.For) and _stored([loop.target]) & set(_loaded(call.func)):
        loop = _loop(names, loop)  # for optimizer in optimizers: optimizer.step()
    if loop is None and not _runs_repeatedly(names, at):
        raise NotMovable("it runs once")
    region = _region(code, at)
    while not any(map(_trains, region.statements)):
        parent = names.parents.get(at)
        if region.why or not isinstance(parent, ast.If | ast.With | ast.For) or parent is loop:
            raise NotMovable(region.why or "there is no backward pass in front of it")
        obstacle = code.obstacle(parent)
        if obstacle:
            raise NotMovable(obstacle)
        at, region = parent, _region(code, parent)
    below = _moved_with(code, at)
    if below is not None:
        raise NotMovable(f"it moves with the step in line {below}")
    return _nearest(code, region)


def _nearest(code: Computation, region: _Region) -> Step:
    """The shortest run of statements that is complete in itself."""
    stops = [
        start
        for start in range(len(region.statements) - 1, -1, -1)
        if start == 0 or region.roles[start - 1] in (_Role.STEPS, _Role.BRINGS)
    ]
    reason: NotMovable | None = None
    for start in stops:
        part = region.below(start)
        if any(map(_trains, part.of(_Role.MOVES, _Role.STEPS))):
            try:
                return _Builder(code, part).step()
            except NotMovable as why:
                reason = why
    raise reason or NotMovable(region.why or "there is no backward pass in front of it")


def _moved_with(code: Computation, at: ast.stmt) -> int | None:
    """The line of a later step in the same block that can only move together with this one."""
    for later in following(code.names, at):
        for call in _step_calls(code, later)[:1]:
            with_this = _region(code, later)
            if at in with_this.statements and not code.obstacle(later):
                try:
                    found = _nearest(code, with_this)
                except NotMovable:
                    continue
                if at in found.statements:
                    return call.lineno
    return None


def _step_calls(code: Computation, statement: ast.stmt) -> list[ast.Call]:
    return [
        node
        for node in ast.walk(statement)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "step"
        and is_optimizer_step(code.names, code.flow, node)
    ]


# ---- which statements ---------------------------------------------------------------------------


def _region(code: Computation, at: ast.stmt) -> _Region:
    """All statements around `at` that may move or may be passed by."""
    block = _block(code.names, at)
    last = block.index(at)
    receivers = {_owner(call.func) for call in _step_calls(code, at)}
    loop, around = _around(code.names, at)
    counters = _counters(code.names, loop, around) if around is not None else set()
    while last + 1 < len(block) and _belongs(code, block[last + 1], receivers):
        if counters & set(_loaded(block[last + 1])):
            break
        last += 1
    statements = list(block[block.index(at) : last + 1])
    roles = [_Role.STEPS, *(_Role.MOVES for _ in statements[1:])]
    for statement in reversed(block[: block.index(at)]):
        role, why = _role(code, statement, statements, roles)
        if role is None:
            return _Region(statements, roles, why)
        statements.insert(0, statement)
        roles.insert(0, role)
    return _Region(statements, roles, "")


def _role(
    code: Computation, statement: ast.stmt, below: list[ast.stmt], roles: list[_Role]
) -> tuple[_Role | None, str]:
    why = code.obstacle(statement)
    if not why and not (isinstance(statement, ast.AugAssign) and _can_wait(code, statement)):
        return (_Role.STEPS if _step_calls(code, statement) else _Role.MOVES), ""
    stored, loaded = _stored([statement]), set(_loaded(statement))
    moving = [s for s, r in zip(below, roles, strict=True) if r not in (_Role.READS, _Role.BRINGS)]
    used_below = {name for s in moving for name in _loaded(s)}
    if _can_wait(code, statement) and not stored & (used_below | _stored(moving)):
        if not loaded & _written(moving) and _Role.BRINGS not in roles:
            return _Role.READS, ""
    if not why:
        return _Role.MOVES, ""
    if _read_expression(statement) is not None and not stored & used_below:
        assert isinstance(statement, ast.Assign)
        tensor = _read_expression(statement)
        assert tensor is not None
        alone = ast.copy_location(ast.Assign(statement.targets, tensor), statement)
        if not code.obstacle(alone):
            return _Role.SPLITS, ""
    if isinstance(statement, ast.Assign) and code.is_data(statement.value):
        if all(isinstance(t, ast.Name) for t in statement.targets):
            return _Role.BRINGS, why
    return None, why


_WAITING_METHODS = frozenset({
    "append", "extend", "update", "item", "add_scalar", "add_scalars", "set_postfix", "write",
    "set_description", "set_postfix_str", "info", "debug", "log", "format", "tolist", "numpy",
    "cpu", "join",
})  # fmt: skip
_WAITING_FUNCTIONS = frozenset({"print", "float", "int", "bool", "str", "format"})


def _can_wait(code: Computation, statement: ast.stmt) -> bool:
    """Prints, meters, totals: they look at values of the step, and change nothing that it uses."""
    if isinstance(statement, ast.If):
        return not any(_parts(n) for n in ast.walk(statement.test)) and all(
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
                if not reading and dotted(function) not in _WAITING_FUNCTIONS:
                    library = code.names.qualified(function) or ""
                    if code.call_obstacle(node) and not library.startswith(("math.", "numpy.")):
                        return False
            case ast.NamedExpr() | ast.Await() | ast.Yield() | ast.Lambda():
                return False
    return True


def _is_trained(code: Computation, node: ast.Name | ast.Attribute) -> bool:
    """True for a model or an optimizer, whose values are others behind the step."""
    if isinstance(node, ast.Name) and code.names.owner_class(node) is not None:
        return False  # self
    return bool(code.flow.kind(node) & _TRAINERS) or is_model(code.flow, node)


def _parts(node: ast.AST) -> bool:
    return isinstance(node, ast.Call | ast.Await | ast.NamedExpr)


_TRAINERS = Kind.MODULE | Kind.OPTIMIZER | Kind.SCALER | Kind.SCHEDULER


def _read_expression(statement: ast.stmt) -> ast.expr | None:
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
            later = [s for s in following(code.names, statement) if _step_calls(code, s)]
            return dotted(owner) in receivers or not later
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr="update", value=owner), args=[])):
            return is_scaler(code.flow, owner)
    return False


def _trains(statement: ast.stmt) -> bool:
    return any(map(is_backward, ast.walk(statement)))


def _block(names: Names, statement: ast.stmt) -> list[ast.stmt]:
    parent = names.parents.get(statement, names.tree)
    for name in ("body", "orelse", "finalbody"):
        block = getattr(parent, name, None)
        if isinstance(block, list) and statement in block:
            return block
    raise NotMovable("the optimizer's step is not in a block of statements")


def following(names: Names, statement: ast.stmt) -> list[ast.stmt]:
    """The statements behind one, in its block."""
    block = _block(names, statement)
    return block[block.index(statement) + 1 :]


def _loop(names: Names, at: ast.AST) -> ast.stmt | None:
    """The innermost loop of the same function around a statement."""
    for above in names.ancestors(at):
        if isinstance(above, ast.For | ast.While):
            return above
        if isinstance(above, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            return None
    return None


def _runs_repeatedly(names: Names, at: ast.AST, depth: int = 3) -> bool:
    """False for what a program runs once: at its top, or in a function called from there."""
    function = names.function(at)
    if function is None or function.name == "main":
        return False
    calls = [
        n for n in names.order
        if isinstance(n, ast.Name | ast.Attribute) and names.call_of(n)
        and (n.id if isinstance(n, ast.Name) else n.attr) == function.name
    ]  # fmt: skip
    return not calls or any(
        _loop(names, call) is not None or (depth > 0 and _runs_repeatedly(names, call, depth - 1))
        for call in calls
    )


def _owner(function: ast.expr) -> str:
    return (dotted(function.value) or "") if isinstance(function, ast.Attribute) else ""


# ---- what goes in, and what comes out -----------------------------------------------------------


@dataclass
class _Builder:
    """Makes a step of a region, or finds out why that would change the numbers."""

    code: Computation
    region: _Region
    edits: list[Edit] = field(default_factory=list)

    def step(self) -> Step:
        names = self.code.names
        self.of_self: dict[str, str] = {}
        function = self._whole_function()
        moved, call = self._cut()
        loop, around = _around(names, call)
        assert around is not None
        anchor = around if loop is not None else call
        self._attributes(moved)
        needed, surely = _needed(moved, set())
        assigned = _stored(moved)
        flags = self._flags(moved, _counters(names, loop, around))
        in_flags = {n for _, test in flags for n in ast.walk(test)}
        needed = [n for n in needed if self._is_loaded(n, moved, in_flags)]
        parameters = [n for n in needed if self._varies(n, around, loop, moved)]
        self._check_parameters(parameters, assigned, moved, call, loop, around)
        self._check_backward(moved, assigned)
        self._check_changes(moved, surely)
        splits = self._split(moved)
        carried = self._carried(parameters, assigned, call, loop)
        results = self._results(moved, surely, [*parameters], carried, call, loop, splits)
        taken = set(parameters) | assigned | set(needed)
        names_of_flags = list(_new_names("update", len(flags), taken))
        for name, (_, test) in zip(names_of_flags, flags, strict=True):
            self.edits.append(Replace(test, name))
        return Step(
            statements=moved,
            call=call,
            anchor=anchor,
            parameters=[*parameters, *names_of_flags],
            arguments=[
                *parameters,
                *(f"{n}={ast.unparse(t)}" for n, (_, t) in zip(names_of_flags, flags, strict=True)),
            ],
            results=results,
            targets=[self.of_self.get(name, name) for name in results],
            behind=[f"{name} = {name}.item()" for name in splits],
            edits=self.edits,
            receiver=self._receiver(moved),
            function=function,
        )

    def _whole_function(self) -> ast.FunctionDef | None:
        """The function whose body the region is, where nothing has to be changed in it."""
        names = self.code.names
        function = names.parents.get(self.region.statements[0])
        if not isinstance(function, ast.FunctionDef) or function.decorator_list:
            return None
        body = function.body[1:] if ast.get_docstring(function) is not None else function.body[:]
        last = body[-1]
        if isinstance(last, ast.Return):
            value = last.value
            body.pop()
            parts = value.elts if isinstance(value, ast.Tuple) else [value]
            if not all(isinstance(part, ast.Name | None) for part in parts):
                return None
        moved = self.region.of(_Role.MOVES, _Role.STEPS)
        if moved != body or _counters(names, None, function) & set(_loaded(function)):
            return None
        if any(isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)
               for n in ast.walk(function)):  # fmt: skip
            return None
        self._check_backward(moved, _stored(moved))
        self._check_changes(moved, _needed(moved, set())[1])
        return function

    def _cut(self) -> tuple[list[ast.stmt], ast.stmt]:
        """What moves, and where the call stands: behind all that brings data."""
        moves = self.region.of(_Role.MOVES, _Role.STEPS, _Role.SPLITS)
        kept = moves[:]
        for statement in moves:
            if self.code.is_move(statement) or statement in self.region.of(_Role.SPLITS):
                kept.remove(statement)
            elif not _zeroes(statement):  # gradients set to zero have nothing to do with the data
                break
        order = list(self.region.statements)
        brings = [order.index(s) for s in self.region.of(_Role.BRINGS)]
        brings += [order.index(s) for s in moves if s not in kept]
        first = max([*brings, -1])
        behind = [s for s in kept if order.index(s) > first]
        if not behind:
            raise NotMovable(self.region.why or "it has no computation of its own")
        call = next((s for s in behind if not _zeroes(s)), behind[0])
        self._check_order(kept, order)
        return kept, call

    def _check_order(self, moved: list[ast.stmt], order: list[ast.stmt]) -> None:
        """What is drawn in front depends on nothing that moves, and nothing above uses it."""
        for statement in self.region.of(_Role.BRINGS):
            above = [s for s in moved if order.index(s) < order.index(statement)]
            below = [s for s in moved if order.index(s) > order.index(statement)]
            others = [s for s in self.region.of(_Role.BRINGS) if s is not statement]
            mine = _stored([statement])
            if (
                set(_loaded(statement)) & _written(moved)
                or mine & {name for s in above for name in _loaded(s)}
                or mine & (_stored(moved) | _stored(others))
                or not below
            ):
                raise NotMovable(self.code.obstacle(statement))

    def _attributes(self, moved: list[ast.stmt]) -> None:
        """`self.loss = …` becomes a variable of the step, which is kept behind it."""
        stored = [
            node
            for s in moved
            for node in ast.walk(s)
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        ]
        if not stored:
            return
        if any(map(self.code.calls_own_methods, moved)):
            line = stored[0].lineno
            raise NotMovable(f"line {line} keeps a value that a method may look at")
        used = {n.id for s in moved for n in ast.walk(s) if isinstance(n, ast.Name)}
        for target in dict.fromkeys(ast.unparse(node) for node in stored):
            name = target.rpartition(".")[2]
            local = next(_new_names(name, 1, used))
            self.of_self[local] = target
        local_of = {target: local for local, target in self.of_self.items()}
        first = {ast.unparse(n): _at(n) for n in reversed(stored)}
        for node in (n for s in moved for n in ast.walk(s)):
            if isinstance(node, ast.Attribute) and ast.unparse(node) in local_of:
                target = ast.unparse(node)
                if isinstance(node.ctx, ast.Load) and _at(node) < first[target]:
                    raise NotMovable(f"{target} goes from one round to the next")
                self.edits.append(Replace(node, local_of[target]))
        for statement in moved:
            for node in ast.walk(statement):
                if isinstance(node, ast.If | ast.For) and any(s in stored for s in ast.walk(node)):
                    raise NotMovable(f"line {node.lineno} keeps a value in some rounds only")

    def _flags(self, moved: list[ast.stmt], counters: set[str]) -> list[tuple[ast.If, ast.expr]]:
        """Conditions on the number of the round: they come as arguments."""
        stored = _stored(moved)
        found = []
        for node in (n for s in moved for n in ast.walk(s)):
            if isinstance(node, ast.If) and counters & set(_loaded(node.test)):
                if stored & set(_loaded(node.test)):
                    raise NotMovable(f"the condition in line {node.lineno} is part of the step")
                found.append((node, node.test))
        return found

    def _is_loaded(self, name: str, moved: list[ast.stmt], but: set[ast.AST]) -> bool:
        return any(
            isinstance(n, ast.Name) and n.id == name and n not in but
            for s in moved
            for n in ast.walk(s)
        )

    def _varies(
        self, name: str, around: ast.stmt, loop: ast.stmt | None, moved: list[ast.stmt]
    ) -> bool:
        """Whether a name may mean something else at the next call: then it is an argument."""
        if loop is not None:
            return name in _stored([around])
        bindings = self.code.names.scopes[around].bindings.get(name, ())
        if not bindings or all(isinstance(b.value, ast.Constant) for b in bindings):
            return False
        return not _is_fixture(self.code, name, moved)

    def _check_parameters(
        self,
        parameters: list[str],
        assigned: set[str],
        moved: list[ast.stmt],
        call: ast.stmt,
        loop: ast.stmt | None,
        around: ast.stmt,
    ) -> None:
        names, why = self.code.names, self.region.why
        counters = _counters(names, loop, around)
        graphs = _with_graph(self.code, around, moved)
        known = _surely_known(names, call)
        for name in parameters:
            if name in counters:
                raise NotMovable(f"it uses {name}, which counts: a program for each value")
            if name not in known:
                raise NotMovable(f"{name} may have no value in front of it")
            if name in graphs and not _only_detached(name, moved):
                raise NotMovable(
                    why or f"{name} is computed outside of it (line {graphs[name]}), and its "
                    "gradient would be lost"
                )  # fmt: skip
        for name in self._carried(parameters, assigned, call, loop):
            if not self._is_detached_first(name, moved):
                raise NotMovable(f"{name} goes from one round to the next")

    def _carried(
        self, parameters: list[str], assigned: set[str], call: ast.stmt, loop: ast.stmt | None
    ) -> list[str]:
        """What a step hands to itself in the next round."""
        if loop is None:
            return []
        fresh = _stored(_in_front(self.code.names, call, loop))
        return [name for name in parameters if name in assigned - fresh]

    def _is_detached_first(self, name: str, moved: list[ast.stmt]) -> bool:
        """`states = detach(states)` in front of all else that uses the states."""
        uses = [n for n in _in_order(moved) if isinstance(n, ast.Name) and n.id == name]
        first = next((n for n in uses if isinstance(n.ctx, ast.Load)), None)
        statement = self.code.names.statement(first) if first is not None else None
        if not isinstance(statement, ast.Assign) or name not in _stored([statement]):
            return False
        block = self.code.names.parents[statement]
        if any(_at(n) < _at(statement) or block not in self.code.names.ancestors(n) for n in uses):
            return False
        parts: list[ast.AST] = [statement.value]
        for call in ast.walk(statement.value):
            if isinstance(call, ast.Call):
                definition = self.code.flow.called_definition(call)
                parts += [definition] if isinstance(definition, ast.FunctionDef) else []
        return any(
            isinstance(n, ast.Attribute) and n.attr in ("detach", "data")
            for part in parts
            for n in ast.walk(part)
        )

    def _check_backward(self, moved: list[ast.stmt], assigned: set[str]) -> None:
        """What backward() is called on has to be made here, with all that leads to it."""
        made, kept = assigned, set(self.of_self.values())
        if not any(map(self.code.has_graph, moved)):
            line = next(_at(n)[0] for s in moved for n in ast.walk(s) if is_backward(n))
            raise NotMovable(f"what backward() is called on (line {line}) is made elsewhere")
        for node in (n for s in moved for n in ast.walk(s)):
            if not is_backward(node):
                continue
            assert isinstance(node, ast.Attribute)
            inside = {ast.unparse(n) for n in ast.walk(node.value) if isinstance(n, ast.Attribute)}
            calls = any(
                isinstance(n, ast.Call) and is_model(self.code.flow, n.func)
                for n in ast.walk(node.value)
            )
            if not calls and not made & set(_loaded(node.value)) and not kept & inside:
                raise NotMovable(
                    self.region.why
                    or f"what backward() is called on (line {node.lineno}) is made elsewhere"
                )

    def _check_changes(self, moved: list[ast.stmt], surely: set[str]) -> None:
        for statement in moved:
            for name in self.code.changed(statement):
                if name not in surely:
                    raise NotMovable(f"line {statement.lineno} keeps a value in {name}")

    def _split(self, moved: list[ast.stmt]) -> list[str]:
        found = []
        for statement in (s for s in self.region.of(_Role.SPLITS) if s in moved):
            assert isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)
            tensor = _read_expression(statement)
            assert tensor is not None
            self.edits.append(Replace(statement.value, "{tensor}", {"tensor": tensor}))
            found.append(statement.targets[0].id)
        return found

    def _results(
        self,
        moved: list[ast.stmt],
        surely: set[str],
        parameters: list[str],
        carried: list[str],
        call: ast.stmt,
        loop: ast.stmt | None,
        splits: list[str],
    ) -> list[str]:
        names = self.code.names
        order = dict.fromkeys(
            n.id if isinstance(n, ast.Name) else ast.unparse(n)
            for n in _in_order(moved)
            if isinstance(n, ast.Name | ast.Attribute) and isinstance(n.ctx, ast.Store)
        )
        local_of = {target: local for local, target in self.of_self.items()}
        found = []
        for name in order:
            if name in local_of:
                found.append(local_of[name])
                continue
            later = _reads_later(names, name, call, loop, moved)
            if name in splits or later or name in carried:
                if name not in surely and name not in parameters:
                    raise NotMovable(f"{name} has a value in some rounds only")
                self._check_graph(name, later, moved)
                found.append(name)
        return found

    def _check_graph(self, name: str, later: list[ast.Name], moved: list[ast.stmt]) -> None:
        """A result has no graph: another backward pass through it would lose gradients."""
        names = self.code.names
        inside = {id(n) for s in moved for n in ast.walk(s)}
        scope = names.scope_of(moved[0])
        others = [
            n for n in names.order
            if (is_backward(n) or names.qualified(n) == "torch.autograd.grad")
            and id(n) not in inside and names.scope_of(n) is scope
        ]  # fmt: skip
        if not others:
            return
        seen: set[ast.Name] = set()
        uses = later[:]
        while uses:
            use = uses.pop()
            statement = names.statement(use)
            if use in seen or statement is None or _is_harmless(names, use) or reads(statement):
                continue
            seen.add(use)
            trained = any(n in others for n in ast.walk(statement))
            if trained or _keeps(statement):
                raise NotMovable(f"{name} is used again (line {use.lineno}), with its gradient")
            for made in _stored([statement]):
                loop = _loop(names, statement)
                uses += _reads_later(names, made, statement, loop, [statement])

    def _receiver(self, moved: list[ast.stmt]) -> str:
        calls = [call for s in moved for call in _step_calls(self.code, s)]
        last = max(calls, key=_at)
        if len({_owner(call.func) for call in calls}) > 1:
            return ""
        owner = last.args[0] if last.args else getattr(last.func, "value", None)
        return (dotted(owner) or "").rpartition(".")[2] if owner is not None else ""


def _keeps(statement: ast.stmt) -> bool:
    """`losses.append(loss)` and `return loss`: what becomes of it can not be seen."""
    match statement:
        case ast.Return():
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr="append" | "extend"))):
            return True
    return False


def _zeroes(statement: ast.stmt) -> bool:
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr="zero_grad"))):
            return True
    return False


def _needed(statements: Iterable[ast.stmt], known: set[str]) -> tuple[list[str], set[str]]:
    """Names that are read before they surely have a value; and those that have one at the end."""
    needed: dict[str, None] = {}
    known = set(known)

    def read(*nodes: ast.AST | None) -> None:
        for node in nodes:
            if node is not None:
                needed.update(dict.fromkeys(n for n in _loaded(node) if n not in known))

    for statement in statements:
        match statement:
            case ast.With(items=items, body=body):
                for item in items:
                    read(item.context_expr)
                    known |= _stored([item])
                inner, known = _needed(body, known)
                needed.update(dict.fromkeys(inner))
            case ast.If(test=test, body=body, orelse=orelse):
                read(test)
                one, after_one = _needed(body, known)
                other, after_other = _needed(orelse, known)
                needed.update(dict.fromkeys([*one, *other]))
                known = after_one & after_other
            case ast.For(target=target, iter=source, body=body, orelse=orelse):
                read(source)
                inner, _ = _needed([*body, *orelse], known | _stored([target]))
                needed.update(dict.fromkeys(inner))
            case _:
                read(statement)
                known |= _stored([statement])
    return list(needed), known


def _surely_known(names: Names, at: ast.stmt) -> set[str]:
    """Names that have a value in front of a statement, whatever happened."""
    known: set[str] = set()
    statement: ast.stmt = at
    while True:
        parent = names.parents.get(statement)
        block = _block(names, statement)
        known |= _needed(block[: block.index(statement)], set())[1]
        for other in block[: block.index(statement)]:
            if isinstance(other, ast.Try):
                known |= _after_try(other)
            elif isinstance(other, ast.FunctionDef | ast.ClassDef):
                known.add(other.name)
        match parent:
            case ast.For(target=target):
                known |= _stored([target])
            case ast.With(items=items):
                known |= _stored(items)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                return known | set(names.scopes[parent].bindings) & {
                    a.arg for a in ast.walk(parent.args) if isinstance(a, ast.arg)
                }
        if not isinstance(parent, ast.stmt):
            return known
        statement = parent


def _after_try(statement: ast.Try) -> set[str]:
    """What has a value behind a `try`, however it ended."""
    _, after = _needed([*statement.body, *statement.orelse], set())
    for handler in statement.handlers:
        last = handler.body[-1]
        if not isinstance(last, ast.Raise | ast.Return | ast.Continue | ast.Break):
            after &= _needed(handler.body, set())[1]
    return after | _needed(statement.finalbody, set())[1]


def _is_new(names: Names, use: ast.Name, loop: ast.stmt) -> bool:
    """True where a name surely got a new value in the same round."""
    statement: ast.AST = names.statement(use) or use
    while statement is not loop:
        block = _block(names, statement)  # type: ignore[arg-type]
        if use.id in _needed(block[: block.index(statement)], set())[1]:  # type: ignore[arg-type]
            return True
        statement = names.parents[statement]
    return False


def _in_front(names: Names, call: ast.stmt, loop: ast.stmt) -> list[ast.AST]:
    """What gives names a new value in each round before the step."""
    found: list[ast.AST] = []
    statement: ast.AST = call
    while statement is not loop:
        block = _block(names, statement)  # type: ignore[arg-type]
        found += block[: block.index(statement)]  # type: ignore[arg-type]
        statement = names.parents[statement]
        if isinstance(statement, ast.For):
            found.append(statement.target)
    return found


def _with_graph(code: Computation, around: ast.stmt, moved: Sequence[ast.stmt]) -> dict[str, int]:
    """Names that get a value outside of a step which has a graph, and in which line.

    What is no more than a guess here, the runtime sees: it compiles no call with such an argument.
    """
    inside = {id(node) for statement in moved for node in ast.walk(statement)}
    found: dict[str, int] = {}
    target: ast.AST
    while True:
        before = len(found)
        for node in ast.walk(around):
            if id(node) in inside:
                continue
            match node:
                case ast.For(target=target, iter=value):
                    graph = bool(found.keys() & set(_loaded(value)))
                case ast.Assign(value=ast.expr() as value) | ast.AugAssign(value=value):
                    made = code.has_graph(value) or found.keys() & set(_kept_graph(value))
                    target, graph = node, bool(made) and not reads(node)
                case _:
                    continue
            if graph:
                line = getattr(node, "lineno", around.lineno)
                found.update((name, line) for name in _stored([target]) if name not in found)
        if len(found) == before:
            return found


def _kept_graph(value: ast.expr) -> list[str]:
    """Names in an expression of data, without those that are detached there."""
    if any(isinstance(n, ast.Attribute) and n.attr in _DETACHING for n in ast.walk(value)):
        return []
    return _loaded(value)


_DETACHING = ("detach", "data", "item", "numpy", "cpu", "tolist", "shape", "size", "dtype",
              "device", "ndim", "dim", "numel", "detach_")  # fmt: skip


def _only_detached(name: str, moved: Sequence[ast.stmt]) -> bool:
    """True where a step uses a name as `name.detach()`, `name.data` or for its shape alone."""
    loads = [
        n for s in moved for n in ast.walk(s)
        if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load)
    ]  # fmt: skip
    fine = [
        n.value for s in moved for n in ast.walk(s)
        if isinstance(n, ast.Attribute) and n.attr in _DETACHING
    ]  # fmt: skip
    return all(load in fine for load in loads)


def _is_harmless(names: Names, use: ast.Name) -> bool:
    """True where a value is read, detached or compared, so that no gradient goes through it."""
    parent = names.parents.get(use)
    if isinstance(parent, ast.Attribute) and parent.attr in _DETACHING:
        return True
    for above in names.ancestors(use):
        if isinstance(above, ast.Compare | ast.FormattedValue):
            return True
        if isinstance(above, ast.Call):
            function = above.func
            if isinstance(function, ast.Name) and function.id in _WAITING_FUNCTIONS:
                return True
            if isinstance(function, ast.Attribute) and function.attr in ("item", "format"):
                return True
        if isinstance(above, ast.Attribute) and above.attr in ("item", "detach", "data", "cpu"):
            return True
        if isinstance(above, ast.With) and any(
            "no_grad" in ast.unparse(item.context_expr) for item in above.items
        ):
            return True
        if isinstance(above, ast.For | ast.While | ast.FunctionDef):
            return False
    return False


def _is_fixture(code: Computation, name: str, moved: Sequence[ast.stmt]) -> bool:
    """True for a parameter that holds a model, an optimizer, a loss or settings."""
    for node in (n for s in moved for n in ast.walk(s)):
        if isinstance(node, ast.Name) and node.id == name:
            parent = code.names.parents.get(node)
            if code.flow.kind(node) & _TRAINERS or code.names.owner_class(node) is not None:
                return True
            if isinstance(parent, ast.Call) and parent.func is node:
                return True
            if isinstance(parent, ast.Attribute) and parent.attr in _OF_FIXTURES:
                return True
    return bool(_SETTINGS.search(name))


_OF_FIXTURES = ("zero_grad", "step", "parameters", "named_parameters", "unscale_", "train", "eval")
_SETTINGS = re.compile(r"^(?:args?|opts?|cfgs?|conf(?:ig)?|hparams?|hps?|settings|flags)$", re.I)


def _reads_later(
    names: Names, name: str, call: ast.stmt, loop: ast.stmt | None, moved: Sequence[ast.stmt]
) -> list[ast.Name]:
    """Where a value of the step is read outside of it, before another takes its place."""
    last = max(node.end_lineno or 0 for node in moved)
    inside = {id(node) for statement in moved for node in ast.walk(statement)}
    scope = names.scope_of(call)
    reads = [n for n in names.uses(name, scope) if id(n) not in inside]
    first = _at(call)
    later = [n for n in reads if _at(n) > first]
    targets = _stored([loop.target]) if isinstance(loop, ast.For) else set()
    ahead = [
        n
        for n in reads
        if loop is not None
        and loop in names.ancestors(n)
        and _at(n) <= first
        and name not in targets
        and not _is_new(names, n, loop)
    ]  # in the next round
    if ahead:
        return ahead + later
    for store in names.by_id.get(name, ()):
        if isinstance(store.ctx, ast.Store) and names.scope_of(store) is scope:
            if id(store) not in inside and _at(store) > (last, 0):
                later = [use for use in later if not _hides(names, store, use, call)]
    return later


def _hides(names: Names, store: ast.Name, use: ast.Name, call: ast.stmt) -> bool:
    """True where a use sees what `store` wrote, whatever a step in front of it made."""
    statement = names.statement(store)
    if not isinstance(statement, ast.Assign) or _at(use) <= _at(statement):
        return False
    if use in ast.walk(statement):
        return False
    block = _block(names, statement)
    at = next((s for s in block if call is s or call in ast.walk(s)), None)
    if at is None:  # in a branch: only for what follows in it
        return any(use in ast.walk(s) for s in block)
    between = block[block.index(at) + 1 : block.index(statement)]
    return not any(isinstance(n, ast.Break | ast.Continue) for s in between for n in ast.walk(s))


def _around(names: Names, at: ast.stmt) -> tuple[ast.stmt | None, ast.stmt | None]:
    """The innermost loop around a statement; and the outermost one, or the function."""
    loop = _loop(names, at)
    return loop, _outermost(names, loop) if loop is not None else names.function(at)


def _outermost(names: Names, loop: ast.stmt) -> ast.stmt:
    """The loop that no other loop of the same function holds."""
    at: ast.AST | None = loop
    outermost = loop
    while at is not None and not isinstance(at, ast.FunctionDef | ast.AsyncFunctionDef):
        if isinstance(at, ast.For | ast.While):
            outermost = at
        at = names.parents.get(at)
    return outermost


_COUNTER = re.compile(
    r"^(?:i|j|it|iters?|iteration|step|steps|epoch|ep|n_?iter|batch_?(?:idx|i|id|index)|global_?step"
    r"|(?:cur|current)_?(?:iter|epoch|step)|idx)$", re.I
)  # fmt: skip


def _counters(names: Names, loop: ast.stmt | None, around: ast.AST) -> set[str]:
    """Names that hold another number in every round."""
    found: set[str] = set()
    match loop:
        case None:
            bindings = names.scopes[around].bindings
            found |= {n for n in bindings if _COUNTER.match(n)}
        case ast.For(target=ast.Tuple(elts=[ast.Name(id=name), *_]), iter=ast.Call() as source):
            if "enumerate" in ast.unparse(source):
                found.add(name)
        case ast.For(target=ast.Name(id=name), iter=ast.Call(func=ast.Name(id="range"))):
            found.add(name)
    for node in ast.walk(around):
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            if isinstance(node.value, ast.Constant):
                found.add(node.target.id)
    return found


def _new_names(name: str, count: int, taken: set[str]) -> Iterator[str]:
    candidates = (f"{name}_{n}" if n > 1 else name for n in range(1, 1000))
    free = (candidate for candidate in candidates if candidate not in taken)
    return (next(free) for _ in range(count))


def _stored(nodes: Iterable[ast.AST]) -> set[str]:
    return {
        node.id
        for top in nodes
        for node in ast.walk(top)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


def _written(statements: Iterable[ast.stmt]) -> set[str]:
    """Names that statements store, or whose values they change in place."""
    found = _stored(statements)
    for node in (n for s in statements for n in ast.walk(s)):
        match node:
            case ast.Call(func=ast.Attribute(attr=method, value=ast.Name(id=name))):
                if method.endswith("_") and not method.endswith("__"):
                    found.add(name)
    return found


def _loaded(top: ast.AST) -> list[str]:
    """Names that are read, also those that are written by `+=`, but not those of own loops."""
    own: set[str] = set()
    for node in ast.walk(top):
        if isinstance(node, ast.For | ast.comprehension):
            own |= {n.id for n in ast.walk(node.target) if isinstance(n, ast.Name)}
    found = []
    for node in _in_order([top]):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id not in own:
            found.append(node.id)
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            found.append(node.target.id)
    return found


def _at(node: ast.AST) -> tuple[int, int]:
    return node.lineno, node.col_offset  # type: ignore[attr-defined]


def _in_order(nodes: Iterable[ast.AST]) -> list[ast.expr | ast.stmt]:
    """The nodes in the order in which they are written."""
    found = [
        node for top in nodes for node in ast.walk(top) if isinstance(node, ast.expr | ast.stmt)
    ]
    return sorted(found, key=_at)
