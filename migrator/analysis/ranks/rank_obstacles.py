"""Obstacles: what keeps a program's ranks from running as the target wants, and where."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Set
from functools import cached_property

from migrator.analysis import foreign_code
from migrator.analysis.devices.machine_conditions import never_runs
from migrator.analysis.ranks.divided_data import Data
from migrator.analysis.ranks.rank_expressions import RankExpressions
from migrator.analysis.ranks.rank_numbers import Numbers, is_named, parameter_name
from migrator.analysis.ranks.started_processes import Processes
from migrator.analysis.ranks.vocabulary import (
    ALONE,
    GROUP,
    HARMLESS,
    NOT_SHARDED_BY,
    PER_PARAMETER,
    PER_PARAMETER_SHARDING,
    SHARDED,
    SHARDING,
    SPAWNS,
    UNDERSTOOD,
    WITH_PROCESSES,
    WRAPPER,
    is_behind_gone,
    is_beside_sharded,
    is_known,
)
from migrator.analysis.syntax.annotations import is_only_named
from migrator.analysis.syntax.nodes import argument, choices
from migrator.targets.api_map import Devices

# Looks up the function or class with a qualified name.
Definition = Callable[[str], ast.AST | None]
# The obstacle, and the reason.
Cause = tuple[ast.expr, str]


class Obstacles:
    """The obstacles in one file."""

    def __init__(self, ranks: RankExpressions) -> None:
        self.ranks, self.names = ranks, ranks.names
        self.numbers, self.data, self.processes = Numbers(ranks), Data(ranks), Processes(ranks)
        self._to_launch: dict[tuple[bool, bool], list[Cause]] = {}

    @cached_property
    def _uses(self) -> list[tuple[int, str]]:
        parts = (self.numbers, self.data, self.processes)
        return [found for part in parts for found in part.obstacles()]

    def to_one_process(self, definition: Definition | None = None) -> tuple[int, str] | None:
        """The line and reason that keep one process from doing the work of all ranks.

        `definition` follows values into other files.
        """
        found = [*_lines(self._of_xla()), *_lines(self._unknown(UNDERSTOOD)), *self._uses]
        for passed in self.numbers.passed:
            callee = definition(passed.function) if definition is not None else None
            name = parameter_name(callee, passed.place) if callee is not None else ""
            if not is_named(self.ranks, name, passed.kind):
                short = passed.function.rpartition(".")[2]
                reason = f"the {passed.kind} is passed to {short}(), where it can't be followed"
                found.append((passed.line, reason))
        return min(found, default=None)

    @cached_property
    def to_one_rank(self) -> tuple[int, str] | None:
        """The line and reason that keep a single rank from doing the work of all.

        A launcher may start any number of ranks, so one is enough unless the program
        fixes the number.
        """
        found = [*_lines(self._of_xla()), *_lines(self._unknown(ALONE))]
        found += self.processes.in_the_way
        found += self._counted_otherwise()
        return min(found, default=None)

    def _counted_otherwise(self) -> Iterator[tuple[int, str]]:
        """Ranks that the program starts itself, or counts by the devices of the machine."""
        for call in self.ranks.calls(*SPAWNS):
            yield call.lineno, "the program starts its ranks itself, as many as there are devices"
        for node, name in self.names.meant:
            if name != "torch.cuda.device_count":
                continue
            counted = self.names.call_of(node)
            match self.names.parents.get(counted) if counted is not None else None:
                case ast.BinOp(op=ast.Mod(), right=right) if right is counted:  # its device
                    continue
                case ast.Compare():
                    continue
            if counted is not None and self.numbers.is_shown(counted):
                continue
            yield node.lineno, "device_count() may stand for the number of ranks"

    def to_launch(self, *, devices: Devices) -> list[Cause]:
        """What keeps the target from starting the rank processes, and why, in source order."""
        is_renamed = bool(devices.address)  # whether the call that starts them is rewritten
        asked = is_renamed, devices.native
        if asked not in self._to_launch:
            found = [] if is_renamed else [*self._of_xla()]
            if not devices.native:
                found += [*self._unknown(WITH_PROCESSES), *self.processes.hooks()]
            if is_renamed:
                found += [*self.processes.children, *self._by_position()]
            self._to_launch[asked] = sorted(found, key=lambda one: (one[0].lineno, one[1]))
        return self._to_launch[asked]

    def _by_position(self) -> Iterator[Cause]:
        """Calls that cannot be rewritten."""
        for call in self.ranks.calls(*SPAWNS):
            count = argument(call, 2, "nprocs")
            for part in ast.walk(count) if count is not None else ():
                if (
                    isinstance(part, ast.Call)
                    and not self.ranks.is_world(part)
                    and not choices(part)
                ):
                    yield call, f"{ast.unparse(part)} may do more than count processes"
        for call in self.ranks.calls(WRAPPER):
            if len(call.args) > 3:
                yield call, "DistributedDataParallel has more than three positional arguments"

    def _is_asked_for_backend(self, node: ast.expr, name: str) -> bool:
        """`dist.get_backend() == dist.Backend.NCCL`: false, as on any machine without GPUs."""
        return name.startswith(f"{GROUP}Backend.") and isinstance(
            self.names.parents.get(node), ast.Compare
        )

    def _of_xla(self) -> Iterator[Cause]:
        """Functions of torch_xla for ranks."""
        for node, name in self.names.meant:
            if name.startswith(foreign_code.RANK_MODULES):
                call = self.names.call_of(node)
                if call is not None and not self.names.is_question(node):
                    lost = _left_out(call) if name.endswith(".master_print") else None
                    why = f"the rewrite of {name} would drop {ast.unparse(lost)}" if lost else ""
                    yield node, why or f"{name} is not supported"

    def _unknown(self, understood: Set[str]) -> Iterator[Cause]:
        """Functions and options of torch.distributed that are not understood."""
        for node, name in self.names.meant:
            if not name.startswith(GROUP) or isinstance(
                self.names.parents.get(node), ast.Attribute
            ):
                continue
            if not isinstance(getattr(node, "ctx", None), ast.Load):
                continue
            if is_only_named(self.names, node) or self._is_asked_for_backend(node, name):
                continue
            if is_behind_gone(self.names, node) or never_runs(self.names, node) is not None:
                continue
            if name in SHARDED and understood is UNDERSTOOD:
                call = self.names.call_of(node)
                given = {k.arg for k in call.keywords} if call is not None else {"isinstance"}
                for option in sorted(str(option) for option in given - SHARDING):
                    yield node, f"{option} of FullyShardedDataParallel is not supported"
            elif name in SHARDED and understood is not ALONE:
                yield from self._sharded(node)
            elif not is_known(name, understood):
                launches = understood not in (UNDERSTOOD, ALONE)
                if launches and name == PER_PARAMETER:
                    yield from self._per_parameter(node)
                elif not name.startswith(HARMLESS) and not (launches and is_beside_sharded(name)):
                    yield node, f"{name} is not supported"

    def _sharded(self, node: ast.expr) -> Iterator[Cause]:
        """Uses of FullyShardedDataParallel that ranks on the target do not support."""
        if isinstance(self.names.parents.get(node), ast.ClassDef):
            yield node, "the program's own class divides parameters"
        if (call := self._wrapping(node)) is not None:
            for option in _given_options(call):
                if option.arg in NOT_SHARDED_BY:
                    yield node, f"{option.arg} of FullyShardedDataParallel is not supported"
            if call.func is node and len(call.args) > 1:
                yield node, "FullyShardedDataParallel has more than one positional argument"

    def _per_parameter(self, node: ast.expr) -> Iterator[Cause]:
        """Uses of fully_shard that ranks on the target do not support."""
        call = self._wrapping(node)
        for option in _given_options(call) if call is not None else ():
            if option.arg is None:
                yield (
                    node,
                    f"**{ast.unparse(option.value)} may contain options that are not supported",
                )
            elif option.arg not in ("module", "mp_policy", *PER_PARAMETER_SHARDING):
                yield node, f"{option.arg} of fully_shard is not supported"

    def _wrapping(self, node: ast.expr) -> ast.Call | None:
        """The call of a wrapper, or that of functools.partial with it."""
        match self.names.parents.get(node):
            case ast.Call(func=func, args=args) as call if func is node or (
                node in args and self.names.qualified(func) == "functools.partial"
            ):
                return call
        return None


def _given_options(call: ast.Call) -> Iterator[ast.keyword]:
    """The options of a call that are not None."""
    for option in call.keywords:
        if not (isinstance(option.value, ast.Constant) and option.value.value is None):
            yield option


def _lines(found: Iterator[Cause]) -> Iterator[tuple[int, str]]:
    return ((node.lineno, reason) for node, reason in found)


def _left_out(call: ast.Call) -> ast.expr | None:
    """What `master_print` is given that the `print` in its place isn't, if it is computed."""
    given = (k.value for k in call.keywords if k.arg in ("local", "fd"))
    return next((v for v in given if any(isinstance(p, ast.Call) for p in ast.walk(v))), None)
