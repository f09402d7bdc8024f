"""Expressions of one file that have to do with ranks: which are ranks or their number, what is
exchanged between ranks, and what undoes a sum over them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import chain

from migrator.analysis import name_heuristics
from migrator.analysis.ranks.vocabulary import (
    COPIES,
    ENVIRONMENT,
    GATHERS,
    GROUP,
    REDUCTIONS,
    SAMPLER,
    SPAWNS,
    STARTS,
    WRAPPER,
    environment,
)
from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.nodes import argument, choices, dotted, number, said_name
from migrator.analysis.values.flow import Flow
from migrator.targets import RUNTIME


class RankExpressions:
    """What the expressions of one file have to do with ranks."""

    def __init__(self, names: Names, flow: Flow) -> None:
        self.names, self.flow = names, flow

    # ---- what is what ---------------------------------------------------------------------

    @cached_property
    def start(self) -> ast.expr | None:
        """Where the file starts processes or replicas."""
        return self.starts[0] if self.starts else None

    @cached_property
    def starts(self) -> list[ast.expr]:
        """All that starts processes or replicas."""
        meant = self.names.meant
        return [node for node, name in meant if name in STARTS and self.names.call_of(node)]

    def is_world(self, node: ast.AST, depth: int = 0) -> bool:
        """Whether an expression is the number of ranks or devices."""
        inner = choices(node)
        if inner:
            return any(self.is_world(one, depth) for one in inner)
        if environment(self.names, node) in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"):
            return True
        if isinstance(node, ast.Call) and self._gives(node, "number of ranks"):
            return True
        return self._is_called(node, "number of ranks") or self._holds(node, self.is_world, depth)

    def is_rank(self, node: ast.AST, depth: int = 0) -> bool:
        """Whether an expression is a rank, or the index of its device."""
        inner = choices(node)
        if inner:
            return any(self.is_rank(one, depth) for one in inner)
        if (environment(self.names, node) or "").endswith("RANK"):
            return True
        if isinstance(node, ast.Call) and self._gives(node, "rank"):
            return True
        return self._is_called(node, "rank") or self._holds(node, self.is_rank, depth)

    def names_kind(self, name: str, kind: str) -> bool:
        """Whether a name suggests a rank, or the number of ranks."""
        if kind == "rank":
            return name_heuristics.is_rank_name(name) or name.endswith("get_rank")
        return kind == "number of ranks" and (
            name_heuristics.is_world_size_name(name)
            or name.endswith(("get_world_size", "world_size"))
        )

    def is_asked_for(self, node: ast.Compare) -> bool:
        """`"RANK" in os.environ`"""
        return environment(self.names, node) is not None and isinstance(node.ops[0], ast.In)

    def _is_called(self, node: ast.AST, kind: str) -> bool:
        return self.names_kind(said_name(node), kind)

    def _gives(self, call: ast.Call, kind: str) -> bool:
        """Whether a function's name suggests that it returns this."""
        name = self.names.qualified(call.func) or dotted(call.func) or ""
        last = name.rpartition(".")[2]
        if kind == "rank":
            return last in ("get_rank", "get_local_rank", "local_rank", "rank")
        return last in ("get_world_size", "world_size", "device_count")

    def _holds(self, node: ast.AST, asked: Callable[[ast.AST, int], bool], depth: int) -> bool:
        """Whether a name is assigned such a value."""
        if not isinstance(node, ast.Name) or depth > 5 or self.names.qualified(node):
            return False
        values = [b.value for b in self.names.lookup(node) if b.kind == "assign"]
        return any(value is not None and asked(value, depth + 1) for value in values)

    @cached_property
    def spawns(self) -> bool:
        """Whether the file itself starts a process for each device."""
        return bool(self.calls(*SPAWNS))

    @cached_property
    def copies(self) -> bool:
        """Whether a model is copied to several devices, in the source or in what it has become."""
        copying = (*COPIES, f"{RUNTIME}.DataParallel")
        return any(name in copying for _, name in self.names.meant)

    @cached_property
    def samples(self) -> bool:
        """Whether samples are divided among the ranks by torch's sampler."""
        return any(name == SAMPLER for _, name in self.names.meant)

    @cached_property
    def take_part(self) -> bool:
        """Whether the file concerns ranks."""
        known, names = (GROUP, WRAPPER, SAMPLER, *SPAWNS), self.names
        variables = (node for node in names.all(ast.Constant) if node.value in ENVIRONMENT)
        return any(name.startswith(known) for _, name in names.meant) or any(
            environment(names, names.parents[node]) for node in variables
        )

    @cached_property
    def _by_name(self) -> dict[str, list[tuple[int, ast.expr]]]:
        """The nodes of each qualified name, with their position among all of them."""
        found: dict[str, list[tuple[int, ast.expr]]] = {}
        for place, (node, name) in enumerate(self.names.meant):
            found.setdefault(name.removeprefix(GROUP), []).append((place, node))
        return found

    # ---- launchers --------------------------------------------------------------------------

    def asks_launcher(self, node: ast.AST) -> bool:
        """Whether an expression tests for a variable that a launcher may have set."""
        return environment(self.names, node) is not None and not isinstance(node, ast.Subscript)

    def needs_launcher(self, node: ast.AST) -> bool:
        """Whether an expression fails if no launcher has set a variable."""
        return environment(self.names, node) is not None and isinstance(node, ast.Subscript)

    def is_for_several(self, node: ast.AST) -> bool:
        """Whether an expression does something that only makes sense for several processes."""
        if not isinstance(node, ast.Name | ast.Attribute) or not isinstance(node.ctx, ast.Load):
            return False
        name, parent = self.names.qualified(node) or "", self.names.parents.get(node)
        if isinstance(parent, ast.Attribute) or _is_type_asked_for(node, parent):
            return False
        return name.startswith((GROUP, WRAPPER, SAMPLER, *SPAWNS)) and not name.startswith(
            f"{GROUP}is_"
        )

    # ---- what is exchanged ----------------------------------------------------------------

    def calls(self, *functions: str) -> list[ast.Call]:
        if self.names.words.isdisjoint(name.rpartition(".")[2] for name in functions):
            return []
        found = sorted(
            (place for name in set(functions) for place in self._by_name.get(name, ())),
            key=lambda place: place[0],
        )
        calls = (self.names.call_of(node) for _, node in found)
        return [call for call in calls if call is not None]

    def reductions(self) -> list[ast.Call]:
        return self.calls(*REDUCTIONS)

    def gathers(self) -> list[ast.Call]:
        return self.calls(*GATHERS)

    @cached_property
    def _exchanged(self) -> dict[ast.AST | None, set[str]]:
        """Names that a function reduces over the ranks, by function."""
        found: dict[ast.AST | None, set[str]] = {}
        for call in self.reductions():
            tensor = argument(call, 0, "tensor")
            while isinstance(tensor, ast.Attribute) and tensor.attr in ("data", "grad"):
                tensor = tensor.value
            if isinstance(tensor, ast.Subscript):
                tensor = tensor.value
            name = dotted(tensor) if tensor is not None else None
            names = found.setdefault(self.names.function(call), set())
            names.update({name} if name else ())
        return found

    def is_reduced(self, node: ast.expr) -> bool:
        """Whether an expression is a value that was summed over the ranks."""
        names = self._exchanged.get(self.names.function(node), set())
        for part in ast.walk(node):
            if isinstance(part, ast.Name | ast.Attribute) and dotted(part) in names:
                return True
            if isinstance(part, ast.Call) and self.flow.called_definition(part) in self._exchanged:
                return True
        return False

    @cached_property
    def undone(self) -> set[ast.AST]:
        """Numbers of ranks that undo a sum over ranks, or count each rank's contribution."""
        found: set[ast.AST] = set()
        gathering = {self.names.function(call) for call in self.gathers()}
        every = self.names.all
        for node in chain(every(ast.BinOp), every(ast.AugAssign), every(ast.Call)):
            match node:
                case ast.BinOp(left=left, op=ast.Div() | ast.FloorDiv(), right=right):
                    self._undo(left, right, found)
                case ast.AugAssign(target=left, op=ast.Div() | ast.FloorDiv(), value=right):
                    self._undo(left, right, found)
                case ast.Call(func=ast.Attribute(attr="div_" | "div", value=left), args=[right]):
                    self._undo(left, right, found)
                case ast.Call(func=func, args=[left, right]):
                    if self.names.qualified(func) in ("torch.div", "torch.true_divide"):
                        self._undo(left, right, found)
                case ast.Call(func=ast.Name(id="range"), args=[only]):
                    if self._is_plain_world(only) and self.names.function(node) in gathering:
                        found.add(only)
                case ast.BinOp(left=left, op=ast.Mult(), right=right):
                    for one, other in ((left, right), (right, left)):
                        listed = isinstance(one, ast.List)
                        counts = listed and self.names.function(node) in gathering
                        counts = counts or _is_length_of_sampler(one)
                        if counts and self._is_plain_world(other):
                            found.add(other)
        return found

    def _is_plain_world(self, node: ast.expr) -> bool:
        """The number of ranks itself, which may be set to 1."""
        return self.is_world(node) and not choices(number(node))

    def _undo(self, value: ast.expr, divisor: ast.expr, found: set[ast.AST]) -> None:
        divisor = number(divisor)
        if self._is_plain_world(divisor) and self.is_reduced(value):
            found.add(divisor)

    @cached_property
    def counts_copies(self) -> Sequence[int]:
        """The lines where results of copies on several GPUs are added up, or divided by their
        number."""
        return sorted({node.lineno for node in self._counting_copies()})

    def _counting_copies(self) -> Iterator[ast.expr | ast.stmt]:
        for node in self.names.order:
            match node:
                case ast.BinOp() if _is_text(node):
                    continue  # "%d GPUs" % count is only printed
                case ast.BinOp(left=left, right=right):
                    if self.is_world(left) or self.is_world(right):
                        yield node
                case ast.AugAssign(value=value) if self.is_world(value):
                    yield node
                case ast.Call(func=ast.Attribute(attr="backward", value=ast.Call(func=summed))):
                    if isinstance(summed, ast.Attribute) and summed.attr == "sum":
                        yield node


def _is_text(node: ast.expr) -> bool:
    """`"%d GPUs" % count`, `"GPUs: " + str(count) + "."`"""
    match node:
        case ast.BinOp(left=left, right=right):
            return _is_text(left) or (isinstance(node.op, ast.Add) and _is_text(right))
        case ast.Call(func=ast.Name(id="str" | "repr")):
            return True
        case ast.Constant(value=str()) | ast.JoinedStr():
            return True
    return False


def _is_type_asked_for(node: ast.AST, parent: ast.AST | None) -> bool:
    """`isinstance(model, DistributedDataParallel)`"""
    return (
        isinstance(parent, ast.Call)
        and dotted(parent.func) == "isinstance"
        and node in parent.args[1:]
    )


def _is_length_of_sampler(node: ast.expr) -> bool:
    match node:
        case ast.Call(func=ast.Name(id="len"), args=[of]):
            return "sampler" in (dotted(of) or "").rpartition(".")[2]
    return False
