"""Processes that a program starts by hand, or that a launcher other than torch's starts."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cached_property, partial

from migrator.analysis.devices.machine_conditions import never_runs
from migrator.analysis.ranks.rank_expressions import RankExpressions
from migrator.analysis.ranks.unrelated_processes import (
    CONTEXTS,
    PROCESSES,
    are_unrelated,
    definitions,
)
from migrator.analysis.ranks.vocabulary import HOOKS, SPAWNS, environment
from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.nodes import argument

_ENVIRONMENT = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
_LAUNCHERS = ("SLURM_", "OMPI_COMM_", "PMI_")
# The variables by which such launchers tell a process its rank.
_PLACES = re.compile(
    r"SLURM_(?:PROCID|LOCALID|NTASKS\w*|NPROCS|NODEID|(?:JOB_|STEP_)?(?:NODELIST|NUM_NODES))"
    r"|OMPI_COMM_WORLD_\w*(?:RANK|SIZE)|PMI_(?:RANK|SIZE)"
)

_OF_MPI = "mpi4py.MPI.COMM_WORLD"
JOBS = ("submitit.AutoExecutor", "submitit.SlurmExecutor")  # of Slurm, a process for each GPU
_OTHERS = frozenset((_OF_MPI, *JOBS))


class Processes:
    """The processes that one file starts."""

    def __init__(self, ranks: RankExpressions) -> None:
        self.ranks, self.names = ranks, ranks.names

    def obstacles(self) -> Iterator[tuple[int, str]]:
        """Lines and reasons that keep one process from replacing all of them."""
        yield from ((started.lineno, reason) for started, reason in self.children)
        yield from self._launchers()
        for node in self.names.order:
            yield from self._asked(node)

    @cached_property
    def in_the_way(self) -> list[tuple[int, str]]:
        """Lines and reasons that keep the processes from being started differently, in order."""
        hooks = ((node.lineno, reason) for node, reason in self.hooks())
        children = ((node.lineno, reason) for node, reason in self.children)
        return sorted([*hooks, *children, *self._launchers()])

    @cached_property
    def children(self) -> list[tuple[ast.expr, str]]:
        """Where the program starts processes by hand, and the obstacle there."""
        started = (found for n in self.names.order for found in self._starts(n))
        return [(node, why) for node, why in started if never_runs(self.names, node) is None]

    def hooks(self) -> Iterator[tuple[ast.expr, str]]:
        for node in self.names.order:
            if isinstance(node, ast.Attribute) and node.attr == "register_comm_hook":
                call = self.names.call_of(node)
                hook = argument(call, 1, "hook") if call is not None else None
                if hook is None or not (self.names.qualified(hook) or "").startswith(HOOKS):
                    yield node, f"{node.attr} changes how ranks exchange gradients"

    def _launchers(self) -> Iterator[tuple[int, str]]:
        for node in self.names.order:
            yield from self._other_launchers(node)

    def _starts(self, node: ast.AST) -> Iterator[tuple[ast.expr, str]]:
        """Processes started by hand that may be ranks."""
        match node:
            case ast.Attribute() | ast.Name():
                name = self.names.qualified(node) or ""
                if name in (*PROCESSES, *CONTEXTS):
                    if not are_unrelated(self.names, node, partial(definitions, self.names)):
                        yield node, f"{name} starts processes that do other work"
            case ast.Call() if self.names.qualified(node.func) in SPAWNS:
                join = argument(node, 3, "join")
                if isinstance(join, ast.Constant) and join.value is False:
                    yield node, "the program continues while its processes run"

    def _other_launchers(self, node: ast.AST) -> Iterator[tuple[int, str]]:
        """Horovod, Slurm and MPI."""
        match node:
            case ast.Import() | ast.ImportFrom():
                module = getattr(node, "module", None) or ""
                modules = [module, *(alias.name for alias in node.names)]
                if any(m.partition(".")[0] == "horovod" for m in modules):
                    yield node.lineno, "horovod starts processes itself"
            case ast.Constant(value=str(text)):
                if text.startswith(_LAUNCHERS) and not self._asks_for_torchrun:
                    yield node.lineno, f"{text} is set by another launcher"

    def _asked(self, node: ast.AST) -> Iterator[tuple[int, str]]:
        """Ranks and world sizes that are read in a way that is not understood."""
        match node:
            case ast.Attribute() | ast.Name():
                name = self.names.qualified(node) or ""
                last = name.rpartition(".")[2]
                asked = last in ("get_rank", "get_world_size") and "." in name
                if asked and self.names.call_of(node) is None:
                    yield node.lineno, f"{last} is passed on, not called"
            case ast.Constant(value=str(text)) if text in _ENVIRONMENT:
                if not self._is_read_or_set(node):
                    yield node.lineno, f"{text} is read in a way that can't be followed"

    @cached_property
    def _asks_for_torchrun(self) -> bool:
        """Whether the program checks for torchrun first; it is started as if by torchrun."""
        return any(
            isinstance(node, ast.Compare) and self.ranks.is_asked_for(node)
            for node in self.names.order
        )

    def _is_read_or_set(self, node: ast.Constant) -> bool:
        parent = self.names.parents.get(node)
        if parent is not None and (self.ranks.is_rank(parent) or self.ranks.is_world(parent)):
            return True
        stored = isinstance(parent, ast.Subscript) and isinstance(parent.ctx, ast.Store | ast.Del)
        return stored or isinstance(parent, ast.Expr | ast.FormattedValue | ast.Compare)


def asks_other_launcher(names: Names, node: ast.AST) -> bool:
    """Whether a string is a variable by which Slurm or MPI tell a process its rank.

    Or whether a name is mpi4py's communicator of all processes, or starts Slurm jobs.
    """
    if type(node) is ast.Constant:
        text = node.value
        return isinstance(text, str) and _PLACES.fullmatch(text) is not None
    if type(node) is ast.Attribute or (type(node) is ast.Name and type(node.ctx) is ast.Load):
        return names.qualified(node) in _OTHERS
    return False


def after_torchrun(names: Names, node: ast.AST) -> int | None:
    """Where torchrun is asked for, above the branch that another launcher's variable is for:
    `if "RANK" in os.environ: … elif "SLURM_PROCID" in os.environ: …`."""
    below = node
    for above in names.ancestors(node):
        if isinstance(above, ast.If) and (below is above.test or below in above.body):
            if _asks_for_other(names, above.test):
                tests = (branch.test for branch in _branches_above(names, above))
                asked = (each for test in tests for each in ast.walk(test))
                lines = (
                    each.lineno
                    for each in asked
                    if isinstance(each, ast.Compare) and environment(names, each) is not None
                )
                return next(lines, None)
        below = above
    return None


def _asks_for_other(names: Names, test: ast.expr) -> bool:
    """Whether a condition is true only if another launcher has set a variable."""
    match test:
        case ast.BoolOp(op=ast.And(), values=values):
            return any(_asks_for_other(names, value) for value in values)
        case ast.Compare(left=left, ops=[ast.In()], comparators=[there]):
            return asks_other_launcher(names, left) and names.qualified(there) == "os.environ"
    return False


def _branches_above(names: Names, branch: ast.If) -> Iterator[ast.If]:
    """The `if` and each `elif` that are tried before this one."""
    while isinstance(above := names.parent(branch), ast.If) and above.orelse == [branch]:
        branch = above
        yield branch
