"""Makes a step of a region: what goes in, what comes out, and whether the numbers stay."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TypeGuard

from migrator.analysis.syntax.nodes import dotted
from migrator.analysis.training.loops import calls_model, is_backward
from migrator.edits import Edit, Replace
from migrator.steps.blocks import COUNTER, counter_names, loops_of
from migrator.steps.computation import Computation
from migrator.steps.fixtures import is_fixture
from migrator.steps.graphs import is_detached_first, only_detached, trained_use, with_graph
from migrator.steps.region import (
    Region,
    Role,
    owner_name,
    read_expression,
    step_calls,
    zeroes,
)
from migrator.steps.step import NotMovable, Step
from migrator.steps.values import (
    in_order,
    loaded_names,
    needed_names,
    new_names,
    position,
    stored_names,
    surely_known,
    written_names,
)


@dataclass
class Builder:
    """Makes a step of a region, or finds out why that would change the numbers."""

    code: Computation
    region: Region
    edits: list[Edit] = field(default_factory=list)
    of_self: dict[str, str] = field(default_factory=dict)  # variables that stand for attributes

    def __post_init__(self) -> None:
        names = self.code.names
        self.loop, around = loops_of(names, self.region.statements[0])
        assert around is not None
        self.around = around  # the outermost loop, or the function
        self.counters = counter_names(names, self.loop, around)

    def step(self) -> Step:
        function = self._whole_function()
        statements, call = self._cut()
        split = self.region.split
        moved = [split[s].rest if s in split else s for s in statements]
        behind = [part for s in statements if s in split for part in split[s].reads]
        anchor = self.around if self.loop is not None else call
        self._attributes(moved)
        needed, surely = needed_names(moved, set())
        assigned = stored_names(moved)
        flags = self._flags(moved)
        in_flags = {n for _, test in flags for n in ast.walk(test)}
        used = {n for s in moved for n in ast.walk(s)} - in_flags
        named = {n.id for n in used if isinstance(n, ast.Name)}
        needed = [n for n in needed if n in named]
        parameters = [n for n in needed if self._varies(n, moved)]
        self._check_parameters(parameters, moved, call)
        carried = self._carried(parameters, assigned, moved, call)
        self._check_backward(moved, assigned)
        self._check_changes(moved, surely)
        splits = self._split(moved)
        wanted = {*splits, *carried}
        results = self._results(moved, behind, surely | set(parameters), wanted, call)
        taken = set(parameters) | assigned | set(needed)
        names_of_flags = list(new_names("update", len(flags), taken))
        conditions: dict[ast.stmt, str] = {}
        for name, (block, test) in zip(names_of_flags, flags, strict=True):
            if block in moved and block not in statements:  # it moves in part
                conditions |= dict.fromkeys(block.body, name)
            else:
                self.edits.append(Replace(test, name))
        for s in statements:
            if isinstance(s, ast.If) and s in split and not conditions.keys() & set(s.body):
                raise NotMovable(f"line {s.lineno} needs a value that is not known before the step")
        return Step(
            statements=[
                part
                for s in statements
                for part in (split[s].rest.body if isinstance(s, ast.If) and s in split else [s])
            ],
            conditions=conditions,
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
            lifted=behind,
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
        moved = self.region.of(Role.MOVES, Role.STEPS)
        if moved != body or counter_names(names, None, function) & set(loaded_names(function)):
            return None
        if any(isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)
               for n in ast.walk(function)):  # fmt: skip
            return None
        self._check_backward(moved, stored_names(moved))
        self._check_changes(moved, needed_names(moved, set())[1])
        return function

    def _cut(self) -> tuple[list[ast.stmt], ast.stmt]:
        """What moves, and where the call stands: behind all that brings data."""
        moves = self.region.of(Role.MOVES, Role.STEPS, Role.SPLITS)
        kept = moves[:]
        for statement in moves:
            if self._stays_in_front(statement):
                kept.remove(statement)
            elif not zeroes(statement):  # gradients set to zero have nothing to do with the data
                break
        order = list(self.region.statements)
        brings = [order.index(s) for s in self.region.of(Role.BRINGS)]
        brings += [order.index(s) for s in moves if s not in kept]
        first = max([*brings, -1])
        behind = [s for s in kept if order.index(s) > first]
        if not behind:
            raise NotMovable(self.region.why or "it computes nothing")
        call = next((s for s in behind if not zeroes(s)), behind[0])
        if isinstance(call, ast.If) and call in self.region.split:
            raise NotMovable(self.region.why or self.code.obstacle(call))
        for read in self.region.of(Role.READS):
            above = [s for s in kept if order.index(s) < order.index(read)]
            if order.index(read) < order.index(call):
                if set(loaded_names(read)) & written_names(above):
                    raise NotMovable(self.code.obstacle(read) or "a value is read inside it")
        self._check_order(kept, order)
        return kept, call

    def _stays_in_front(self, statement: ast.stmt) -> bool:
        """Data on its way to the step, what the number of the round says of it, a last read."""
        if self.code.is_move(statement) or statement in self.region.of(Role.SPLITS):
            return True
        return bool(self.counters & set(loaded_names(statement))) and self._draws(statement)

    def _draws(self, statement: ast.stmt) -> bool:
        """`x = data[i : i + n]`, `x, y = get_batch(i)`, or one of them in each branch."""
        match statement:
            case ast.If(body=body, orelse=orelse):
                return all(map(self._draws, [*body, *orelse]))
            case ast.Assign(value=value):
                drawn = self.code.is_data(value) or self.code.calls_own_function(value)
                return drawn and not self.code.has_graph(value)
        return False

    def _check_order(self, moved: list[ast.stmt], order: list[ast.stmt]) -> None:
        """What is drawn in front depends on nothing that moves, and nothing above uses it."""
        for statement in self.region.of(Role.BRINGS):
            above = [s for s in moved if order.index(s) < order.index(statement)]
            below = [s for s in moved if order.index(s) > order.index(statement)]
            others = [s for s in self.region.of(Role.BRINGS) if s is not statement]
            mine = stored_names([statement])
            if (
                set(loaded_names(statement)) & written_names(moved)
                or mine & {name for s in above for name in loaded_names(s)}
                or mine & (stored_names(moved) | stored_names(others))
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
            local = next(new_names(name, 1, used))
            self.of_self[local] = target
        local_of = {target: local for local, target in self.of_self.items()}
        made = {ast.unparse(n): self._behind(n) for n in sorted(stored, key=position, reverse=True)}
        for node in (n for s in moved for n in ast.walk(s)):
            if isinstance(node, ast.Attribute) and ast.unparse(node) in local_of:
                target = ast.unparse(node)
                adds = isinstance(self.code.names.parents.get(node), ast.AugAssign)
                if (adds or isinstance(node.ctx, ast.Load)) and position(node) < made[target]:
                    raise NotMovable(f"{target} is carried from one iteration to the next")
                self.edits.append(Replace(node, local_of[target]))
        for statement in moved:
            for node in ast.walk(statement):
                if isinstance(node, ast.If | ast.For) and any(s in stored for s in ast.walk(node)):
                    raise NotMovable(f"line {node.lineno} keeps a value only in some iterations")

    def _behind(self, target: ast.Attribute) -> tuple[int, int]:
        """Where a statement ends that keeps a value: what it reads is read before."""
        statement = self.code.names.statement(target)
        assert statement is not None and statement.end_lineno and statement.end_col_offset
        return statement.end_lineno, statement.end_col_offset

    def _flags(self, moved: list[ast.stmt]) -> list[tuple[ast.If, ast.expr]]:
        """Conditions on the number of the round: they come as arguments."""
        stored = stored_names(moved)
        found = []
        for node in (n for s in moved for n in ast.walk(s)):
            if isinstance(node, ast.If) and self.counters & set(loaded_names(node.test)):
                if stored & set(loaded_names(node.test)):
                    raise NotMovable(f"the condition in line {node.lineno} is part of the step")
                found.append((node, node.test))
        return found

    def _varies(self, name: str, moved: list[ast.stmt]) -> bool:
        """Whether a name may mean something else at the next call: then it is an argument."""
        if self.loop is not None:
            function = self.code.names.function(self.around)
            given = self.code.names.scopes[function].bindings if function is not None else {}
            counts = any(b.kind == "param" for b in given.get(name, ())) and COUNTER.match(name)
            return name in stored_names([self.around]) or bool(counts)  # def train(epoch)
        bindings = self.code.names.scopes[self.around].bindings.get(name, ())
        if not bindings or all(isinstance(b.value, ast.Constant) for b in bindings):
            return False
        return not is_fixture(self.code, name, moved)

    def _check_parameters(
        self, parameters: list[str], moved: list[ast.stmt], call: ast.stmt
    ) -> None:
        why = self.region.why
        graphs = with_graph(self.code, self.around, moved)
        known = surely_known(self.code.names, call, moved)
        for name in parameters:
            if name in self.counters:
                raise NotMovable(f"it uses {name}, a counter: each value would need a program")
            if name not in known:
                raise NotMovable(f"{name} may have no value before it")
            if name in graphs and not only_detached(name, moved):
                raise NotMovable(
                    why or f"{name} is computed outside of it (line {graphs[name]}), and its "
                    "gradient would be lost"
                )  # fmt: skip

    def _carried(
        self, parameters: list[str], assigned: set[str], moved: list[ast.stmt], call: ast.stmt
    ) -> list[str]:
        """What a step hands to itself in the next round."""
        if self.loop is None:
            return []
        fresh = surely_known(self.code.names, call, moved, within=self.loop)
        carried = [name for name in parameters if name in assigned - fresh]
        for name in carried:
            if not is_detached_first(self.code, name, moved):
                raise NotMovable(f"{name} is carried from one iteration to the next")
        return carried

    def _check_backward(self, moved: list[ast.stmt], assigned: set[str]) -> None:
        """What backward() is called on has to be made here, with all that leads to it."""
        made, kept = assigned, set(self.of_self.values())
        if not any(map(self.code.has_graph, moved)):
            line = next(position(n)[0] for s in moved for n in ast.walk(s) if is_backward(n))
            raise NotMovable(
                f"the source doesn't show which model backward() is for (line {line})",
                "call the model in these statements",
            )
        for node in (n for s in moved for n in ast.walk(s)):
            if not is_backward(node):
                continue
            assert isinstance(node, ast.Attribute)
            inside = {ast.unparse(n) for n in ast.walk(node.value) if isinstance(n, ast.Attribute)}
            calls = calls_model(self.code.flow, node.value)
            if not calls and not made & set(loaded_names(node.value)) and not kept & inside:
                raise NotMovable(
                    self.region.why
                    or f"backward() is for a value that is computed elsewhere (line {node.lineno})"
                )

    def _check_changes(self, moved: list[ast.stmt], surely: set[str]) -> None:
        for statement in moved:
            for name in self.code.changed(statement):
                if name not in surely:
                    raise NotMovable(f"line {statement.lineno} keeps a value in {name}")

    def _split(self, moved: list[ast.stmt]) -> list[str]:
        found = []
        for statement in (s for s in self.region.of(Role.SPLITS) if s in moved):
            assert isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)
            tensor = read_expression(statement)
            assert tensor is not None
            self.edits.append(Replace(statement.value, "{tensor}", {"tensor": tensor}))
            found.append(statement.targets[0].id)
        return found

    def _results(
        self,
        moved: list[ast.stmt],
        behind: list[ast.stmt],
        surely: set[str],
        wanted: set[str],
        call: ast.stmt,
    ) -> list[str]:
        """What comes out: what is `wanted`, kept in an object, or read outside of the step."""
        order = dict.fromkeys(
            n.id if isinstance(n, ast.Name) else ast.unparse(n)
            for n in in_order(moved)
            if isinstance(n, ast.Name | ast.Attribute) and isinstance(n.ctx, ast.Store)
        )
        local_of = {target: local for local, target in self.of_self.items()}
        found = []
        for name in order:
            if name in local_of:
                found.append(local_of[name])
                continue
            later = self.code.reads.later(name, call, self.loop, moved)
            later += [n for s in behind for n in ast.walk(s) if _is_load(n, name)]
            if later or name in wanted:
                if name not in surely:
                    raise NotMovable(f"{name} has a value only in some iterations")
                self._check_graph(name, later, moved, call)
                found.append(name)
        return found

    def _check_graph(
        self, name: str, later: list[ast.Name], moved: list[ast.stmt], call: ast.stmt
    ) -> None:
        """A result has no graph: another backward pass through it would lose gradients."""
        inside = {n for s in moved for n in ast.walk(s)}
        scope = self.code.names.scope_of(call)
        others = self.code.reads.backward(scope) - inside
        if not others:
            return
        use = trained_use(self.code, later, others)
        if use is not None:
            raise NotMovable(f"{name} is used again (line {use.lineno}), with its gradient")

    def _receiver(self, moved: list[ast.stmt]) -> str:
        calls = [call for s in moved for call in step_calls(self.code, s)]
        last = max(calls, key=position)
        if len({owner_name(call.func) for call in calls}) > 1:
            return ""
        owner = last.args[0] if last.args else getattr(last.func, "value", None)
        return (dotted(owner) or "").rpartition(".")[2] if owner is not None else ""


def _is_load(node: ast.AST, name: str) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
