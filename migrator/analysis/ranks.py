"""Ranks: what a program that starts a process for each device does with their number and its own.

On a target where one process drives all devices, data are those of all ranks together, and what is
computed from them is what the ranks would agree on. So a number of ranks keeps its meaning in a
program's configuration (a batch size, a learning rate), and is 1 where it undoes a sum over ranks.
What can not be told apart, or what only a process of its own can do, is an obstacle.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Set
from functools import cached_property

from migrator.analysis import hints, traces
from migrator.analysis.annotations import is_only_named
from migrator.analysis.exchanged import (
    ALONE,
    GATHERS,
    GROUP,
    HARMLESS,
    REDUCTIONS,
    SHARDING,
    UNDERSTOOD,
    WITH_PROCESSES,
)  # fmt: skip
from migrator.analysis.flow import Flow
from migrator.analysis.launched import Launched
from migrator.analysis.names import Names, argument, choices, dotted, number, said_name
from migrator.analysis.rank_uses import SAMPLER, SPAWN, Uses, is_named, parameter_name
from migrator.targets import RUNTIME

# Finds the function or class of a qualified name.
Definition = Callable[[str], ast.AST | None]
# What is in the way, and why.
Obstacle = tuple[ast.expr, str]

WRAPPER = "torch.nn.parallel.DistributedDataParallel"
SHARDED = ("torch.distributed.fsdp.FullyShardedDataParallel",)
COPIES = ("torch.nn.DataParallel", "torch.nn.parallel.DataParallel")
RPC = "torch.distributed.rpc.init_rpc"
STARTS = (
    "torch.distributed.init_process_group", SPAWN, WRAPPER,
    *SHARDED, RPC, "torch.distributed.init_device_mesh",
    "torch.distributed.device_mesh.init_device_mesh",
)  # fmt: skip
# Environment variables that a launcher sets, and what they are where there is one process.
ENVIRONMENT = {"RANK": "0", "LOCAL_RANK": "0", "GROUP_RANK": "0", "WORLD_SIZE": None,
               "LOCAL_WORLD_SIZE": None}  # fmt: skip


class Ranks:
    """The ranks of one file."""

    def __init__(self, names: Names, flow: Flow) -> None:
        self.names, self.flow = names, flow
        self._launch_obstacles: dict[tuple[frozenset[str], bool], list[Obstacle]] = {}

    # ---- what is what ---------------------------------------------------------------------

    @cached_property
    def start(self) -> ast.expr | None:
        """Where the file starts processes or replicas."""
        return self.starts[0] if self.starts else None

    @cached_property
    def starts(self) -> list[ast.expr]:
        """All that starts processes or replicas."""
        return [
            node
            for node in self._references()
            if self.names.call_of(node) and self.names.qualified(node) in STARTS
        ]

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
        """Whether an expression is the number of a rank, or of its device."""
        inner = choices(node)
        if inner:
            return any(self.is_rank(one, depth) for one in inner)
        if (environment(self.names, node) or "").endswith("RANK"):
            return True
        if isinstance(node, ast.Call) and self._gives(node, "rank"):
            return True
        return self._is_called(node, "rank") or self._holds(node, self.is_rank, depth)

    def names_kind(self, name: str, kind: str) -> bool:
        """Whether a name speaks of ranks, or of their number."""
        if kind == "rank":
            return hints.is_rank_name(name) or name.endswith("get_rank")
        return kind == "number of ranks" and (
            hints.is_world_size_name(name) or name.endswith(("get_world_size", "world_size"))
        )

    def is_asked_for(self, node: ast.Compare) -> bool:
        """`"RANK" in os.environ`"""
        return environment(self.names, node) is not None and isinstance(node.ops[0], ast.In)

    def _is_called(self, node: ast.AST, kind: str) -> bool:
        return self.names_kind(said_name(node), kind)

    def _gives(self, call: ast.Call, kind: str) -> bool:
        """Whether a function's name says that it returns this."""
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
        return bool(self._calls(SPAWN))

    @cached_property
    def copies(self) -> bool:
        """Whether a model is copied to several devices, in the source or in what it has become."""
        return any(
            (self.names.qualified(n) or "") in (*COPIES, f"{RUNTIME}.DataParallel")
            for n in self._references()
        )

    @cached_property
    def samples(self) -> bool:
        """Whether samples are divided among the ranks by torch's sampler."""
        return any(self.names.qualified(n) == SAMPLER for n in self._references())

    @cached_property
    def take_part(self) -> bool:
        """Whether the file has to do with ranks."""
        known = (GROUP, WRAPPER, SAMPLER, SPAWN)
        return any(
            (self.names.qualified(node) or "").startswith(known) for node in self._references()
        ) or any(environment(self.names, node) for node in self.names.order)

    def _references(self) -> list[ast.expr]:
        return self._all_references

    @cached_property
    def _all_references(self) -> list[ast.expr]:
        return [n for n in self.names.order if isinstance(n, ast.Attribute | ast.Name)]

    @cached_property
    def _by_name(self) -> dict[str, list[tuple[int, ast.expr]]]:
        """What a qualified name is found as, with its place among all references."""
        found: dict[str, list[tuple[int, ast.expr]]] = {}
        for place, node in enumerate(self._references()):
            if (name := self.names.qualified(node)) is not None:
                found.setdefault(name.removeprefix(GROUP), []).append((place, node))
        return found

    # ---- launchers --------------------------------------------------------------------------

    @cached_property
    def launched(self) -> Launched:
        return Launched(self)

    def asks_launcher(self, node: ast.AST) -> bool:
        """Whether an expression asks for a variable that a launcher may have set."""
        return environment(self.names, node) is not None and not isinstance(node, ast.Subscript)

    def needs_launcher(self, node: ast.AST) -> bool:
        """Whether an expression fails where no launcher has set a variable."""
        return environment(self.names, node) is not None and isinstance(node, ast.Subscript)

    def is_for_several(self, node: ast.AST) -> bool:
        """Whether an expression does something that only several processes do."""
        if not isinstance(node, ast.Name | ast.Attribute) or not isinstance(node.ctx, ast.Load):
            return False
        name, parent = self.names.qualified(node) or "", self.names.parents.get(node)
        if isinstance(parent, ast.Attribute) or _is_type_asked_for(node, parent):
            return False
        return name.startswith((GROUP, WRAPPER, SAMPLER, SPAWN)) and not name.startswith(
            f"{GROUP}is_"
        )

    # ---- what is exchanged ----------------------------------------------------------------

    def _calls(self, *functions: str) -> list[ast.Call]:
        found = sorted(
            (place for name in set(functions) for place in self._by_name.get(name, ())),
            key=lambda place: place[0],
        )
        calls = (self.names.call_of(node) for _, node in found)
        return [call for call in calls if call is not None]

    def reductions(self) -> list[ast.Call]:
        return self._calls(*REDUCTIONS)

    def gathers(self) -> list[ast.Call]:
        return self._calls(*GATHERS)

    @cached_property
    def _exchanged(self) -> dict[ast.AST | None, set[str]]:
        """Names of what a function reduces over the ranks, by function."""
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
        """Whether an expression is something that was summed over the ranks."""
        names = self._exchanged.get(self.names.function(node), set())
        for part in ast.walk(node):
            if isinstance(part, ast.Name | ast.Attribute) and dotted(part) in names:
                return True
            if isinstance(part, ast.Call) and self.flow.called_definition(part) in self._exchanged:
                return True
        return False

    @cached_property
    def undone(self) -> set[ast.AST]:
        """Numbers of ranks that undo a sum over them, or count what each of them brings."""
        found: set[ast.AST] = set()
        gathering = {self.names.function(call) for call in self.gathers()}
        for node in self.names.order:
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
        """The number of ranks itself, which may be put to 1."""
        return self.is_world(node) and not choices(number(node))

    def _undo(self, value: ast.expr, divisor: ast.expr, found: set[ast.AST]) -> None:
        divisor = number(divisor)
        if self._is_plain_world(divisor) and self.is_reduced(value):
            found.add(divisor)

    @cached_property
    def counts_copies(self) -> int | None:
        """Where results of copies on several GPUs are added up, or divided by their number."""
        for node in self.names.order:
            match node:
                case ast.BinOp(left=ast.Constant(value=str())):
                    continue  # "%d GPUs" % count is said, not computed
                case ast.BinOp(left=left, right=right):
                    if self.is_world(left) or self.is_world(right):
                        return node.lineno
                case ast.AugAssign(value=value) if self.is_world(value):
                    return node.lineno
                case ast.Call(func=ast.Attribute(attr="backward", value=ast.Call(func=summed))):
                    if isinstance(summed, ast.Attribute) and summed.attr == "sum":
                        return node.lineno
        return None

    # ---- what is in the way -----------------------------------------------------------------

    @cached_property
    def uses(self) -> Uses:
        return Uses(self)

    def obstacle(self, definition: Definition | None = None) -> tuple[int, str] | None:
        """The line and the reason why one process can not do what the ranks do.

        What goes to other files is followed by `definition`.
        """
        found = [*_lines(self._unknown(UNDERSTOOD)), *self.uses.obstacles]
        for passed in self.uses.passed:
            callee = definition(passed.function) if definition is not None else None
            name = parameter_name(callee, passed.place) if callee is not None else ""
            if not is_named(self, name, passed.kind):
                short = passed.function.rpartition(".")[2]
                reason = f"the {passed.kind} goes to {short}(), where it is not followed"
                found.append((passed.line, reason))
        return min(found, default=None)

    @cached_property
    def lone_obstacle(self) -> tuple[int, str] | None:
        """The line and the reason why one rank alone can not do what all do together.

        A launcher may start any number of ranks, so one will do, if nothing else says how many.
        """
        found = [*_lines(self._unknown(ALONE)), *self.uses.processes]
        found += self._counted_otherwise()
        return min(found, default=None)

    def _counted_otherwise(self) -> Iterator[tuple[int, str]]:
        """Ranks that the program starts itself, or counts by what the machine has."""
        for call in self._calls(SPAWN):
            yield call.lineno, "the program starts its ranks itself, as many as there are devices"
        for node in self._references():
            if self.names.qualified(node) != "torch.cuda.device_count":
                continue
            counted = self.names.call_of(node)
            match self.names.parents.get(counted) if counted is not None else None:
                case ast.BinOp(op=ast.Mod(), right=right) if right is counted:  # its device
                    continue
                case ast.Compare():
                    continue
            if counted is not None and self.uses.is_shown(counted):
                continue
            yield node.lineno, "device_count() may stand for the number of ranks"

    def launch_obstacles(self, exchanges: frozenset[str], *, is_renamed: bool) -> list[Obstacle]:
        """What the target can not start the processes of the ranks with, and why, in order.

        Args:
            exchanges: what else of torch.distributed the target has.
            is_renamed: whether what starts them is put into other words.
        """
        asked = exchanges, is_renamed
        if asked not in self._launch_obstacles:
            known = WITH_PROCESSES | exchanges
            found = [*self._unknown(known, of_xla=not is_renamed), *self._hooks()]
            if is_renamed:
                found += [*self.uses.children, *self._by_position()]
            self._launch_obstacles[asked] = sorted(found, key=lambda one: (one[0].lineno, one[1]))
        return self._launch_obstacles[asked]

    def _hooks(self) -> Iterator[Obstacle]:
        for node in self.names.order:
            if isinstance(node, ast.Attribute) and node.attr == "register_comm_hook":
                yield node, f"{node.attr} changes how ranks exchange gradients"

    def _by_position(self) -> Iterator[Obstacle]:
        """Calls that can not be put into other words."""
        for call in self._calls(SPAWN):
            count = argument(call, 2, "nprocs")
            for part in ast.walk(count) if count is not None else ():
                if isinstance(part, ast.Call) and not self.is_world(part) and not choices(part):
                    yield call, f"{ast.unparse(part)} may do more than count processes"
        for call in self._calls(WRAPPER):
            if len(call.args) > 3:
                yield call, "DistributedDataParallel has unnamed arguments behind the third"

    def _is_asked_for_backend(self, node: ast.expr, name: str) -> bool:
        """`dist.get_backend() == dist.Backend.NCCL`: no, as on any machine without GPUs."""
        return name.startswith(f"{GROUP}Backend.") and isinstance(
            self.names.parents.get(node), ast.Compare
        )

    def _unknown(self, understood: Set[str], of_xla: bool = True) -> Iterator[Obstacle]:
        """Functions and options of torch.distributed, and of torch_xla, that are not understood."""
        for node in self._references():
            name = self.names.qualified(node) or ""
            if name.startswith(traces.RANK_MODULES) and of_xla:
                if self.names.call_of(node) and not self.names.is_question(node):
                    yield node, f"{name} is not understood"
            if not name.startswith(GROUP) or isinstance(
                self.names.parents.get(node), ast.Attribute
            ):
                continue
            if not isinstance(getattr(node, "ctx", None), ast.Load):
                continue
            if is_only_named(self.names, node) or self._is_asked_for_backend(node, name):
                continue
            if name in SHARDED and understood is UNDERSTOOD:
                call = self.names.call_of(node)
                given = {k.arg for k in call.keywords} if call is not None else {"isinstance"}
                for option in sorted(str(option) for option in given - SHARDING):
                    yield node, f"{option} of FullyShardedDataParallel is not understood"
            elif name.removeprefix(GROUP).split(".")[0] not in understood:
                if not name.startswith(HARMLESS):
                    yield node, f"{name} is not understood"


def _lines(found: Iterator[Obstacle]) -> Iterator[tuple[int, str]]:
    return ((node.lineno, reason) for node, reason in found)


def environment(names: Names, node: ast.AST) -> str | None:
    """The launcher's variable that an expression reads: `os.environ["RANK"]`, `os.getenv(…)`."""
    match node:
        case ast.Subscript(value=owner, slice=ast.Constant(value=str(key)), ctx=ast.Load()):
            read = names.qualified(owner) == "os.environ"
        case ast.Call(func=func, args=[ast.Constant(value=str(key)), *_]):
            read = names.qualified(func) in ("os.environ.get", "os.getenv")
        case ast.Compare(
            left=ast.Constant(value=str(key)), ops=[ast.In() | ast.NotIn()], comparators=[owner]
        ):
            read = names.qualified(owner) == "os.environ"
        case _:
            return None
    return key if read and key in ENVIRONMENT else None


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
