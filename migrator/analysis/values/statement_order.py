"""Whether two statements may change places: whether nobody can tell in which order they ran.

Neither may read or write what the other writes. What a statement reads and writes are variables,
the objects that they hold, under any other name, too, and hidden state: random generators, output
and files, modes such as autocast. A call that isn't shown to only compute writes the object whose
method it is, its arguments, all that other code may hold, and hidden state. A statement that may
leave its block (`break`, `return`, `raise`) keeps its place among those that write.

What a subscript, an operator or an attribute of an unknown object does is taken to be reading.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.scopes import COMPREHENSIONS
from migrator.analysis.values.aliases import Aliases, Variable
from migrator.analysis.values.effects import Effects
from migrator.analysis.values.torch_functions import draws, sets_state

_LEAVING = (ast.Break, ast.Continue, ast.Return, ast.Raise, ast.Assert, ast.Yield, ast.YieldFrom,
            ast.Await)  # fmt: skip
_HIDDEN = frozenset({"torch", "numpy.random", "random", "modes", "output"})  # generators, modes, …
_LATER = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
Nodes = ast.AST | Collection[ast.AST]


@dataclass
class Access:
    """What code reads and writes; `objects` are represented by one of their variables."""

    reads: set[Variable] = field(default_factory=set)
    writes: set[Variable] = field(default_factory=set)
    objects_read: set[Variable] = field(default_factory=set)
    objects_written: set[Variable] = field(default_factory=set)
    hidden_read: set[str] = field(default_factory=set)
    hidden_written: set[str] = field(default_factory=set)
    unknown: bool = False  # it runs code that may do anything but reach what only its caller has
    leaves: bool = False

    @property
    def is_written(self) -> bool:
        return bool(self.writes or self.objects_written or self.hidden_written or self.unknown)


class StatementOrder:
    """Answers for one file; `is_tensor` says which values are tensors, beyond those of `effects`.

    Calls in `computing` are taken to only compute a new value: what a user vouches for.
    """

    def __init__(
        self,
        names: Names,
        effects: Effects,
        is_tensor: Callable[[ast.expr], bool] = lambda node: False,
        computing: Collection[ast.Call] = (),
    ) -> None:
        self._names = names
        self._aliases = Aliases(names, effects, is_tensor, computing)
        self._computes = self._aliases.computes

    def may_swap(self, first: Nodes | Access, second: Nodes | Access) -> bool:
        """Whether the order of two statements, or of two runs of some, makes no difference."""
        one = first if isinstance(first, Access) else self._access(first)
        other = second if isinstance(second, Access) else self._access(second)
        for a, b in ((one, other), (other, one)):
            if a.writes & (b.reads | b.writes):
                return False
            if a.objects_written & (b.objects_read | b.objects_written):
                return False
            if a.hidden_written & (b.hidden_read | b.hidden_written):
                return False
            if a.leaves and (b.is_written or b.leaves):
                return False
            if a.unknown and self._is_within_reach(b):
                return False
        return True

    def contents(self, *values: ast.expr) -> Access:
        """Reading what these hold, at another time than the variables themselves."""
        found = Access()
        for value in values:
            found.objects_read |= self._aliases.held_by(value)
        return found

    def may_come_first(self, part: ast.expr, statement: ast.stmt) -> bool:
        """Whether a part of a statement may be evaluated once, before the rest of it.

        Not in a loop's test, in a branch below another, or in code with variables of its own.
        """
        if isinstance(statement, ast.While):
            return False
        above = self._names.parents.get(statement)
        if isinstance(above, ast.If) and above.orelse == [statement]:
            if isinstance(statement, ast.If) and statement.col_offset == above.col_offset:
                return False  # `elif`
        for around in self._names.ancestors(part):
            if around is statement:
                break
            if isinstance(around, (*_LATER, *COMPREHENSIONS)):
                return False
        return self.may_swap(part, [*_earlier(part, statement, self._names)])

    def draws(self, node: ast.AST) -> Access:
        """The same as a statement, besides which it uses torch's generators."""
        found = self._access(node)
        found.hidden_read.add("torch")
        found.hidden_written.add("torch")
        return found

    def is_alone(self, value: ast.Name) -> bool:
        """Whether an object that a variable holds is new, and reached by this name only."""
        return self._aliases.is_alone(value)

    # ---- what code does --------------------------------------------------------------------------

    def _access(self, nodes: Nodes) -> Access:
        found = Access()
        for node in [nodes] if isinstance(nodes, ast.AST) else nodes:
            self._add(node, found)
        return found

    def _add(self, top: ast.AST, found: Access) -> None:
        for node in _evaluated(top):
            match node:
                case ast.Name():
                    self._add_name(node, found)
                case ast.Attribute() | ast.Subscript() if (
                    name := self._of_module(node)
                ) is not None:
                    (found.reads if isinstance(node.ctx, ast.Load) else found.writes).add(name)
                case (
                    ast.Attribute(ctx=ast.Store() | ast.Del(), value=owner)
                    | ast.Subscript(ctx=ast.Store() | ast.Del(), value=owner)
                ):
                    found.objects_written |= self._aliases.held_by(owner)
                case ast.AugAssign(target=ast.Name() as target):
                    found.reads.add(self._aliases.variable(target))
                    found.objects_written |= self._aliases.held_by(target)
                case (
                    ast.For(iter=source)
                    | ast.AsyncFor(iter=source)
                    | ast.comprehension(iter=source)
                ):
                    if self._aliases.may_run_out(source):
                        found.objects_written |= self._aliases.held_by(source)
                case ast.With() | ast.AsyncWith():
                    found.hidden_read.add("modes")
                    found.hidden_written.add("modes")
                case ast.Call():
                    self._add_call(node, found)
                case ast.BinOp() | ast.UnaryOp() | ast.Compare():
                    found.hidden_read.add("modes")
                case ast.Import() | ast.ImportFrom():
                    self._add_unknown(found)
                case _ if isinstance(node, _LEAVING):
                    found.leaves = True
                case ast.expr() if self._aliases.effects.first([node]) is not None:
                    self._add_unknown(found)

    def _of_module(self, node: ast.Attribute | ast.Subscript) -> Variable | None:
        """`torch.backends.cudnn.benchmark`, `os.environ["RANK"]`"""
        owner = node.value if isinstance(node, ast.Subscript) else node
        name = self._names.qualified(owner)
        return (-1, name) if name is not None and self._aliases.is_library(node) else None

    def _add_name(self, node: ast.Name, found: Access) -> None:
        if self._aliases.is_library(node) and isinstance(node.ctx, ast.Load):
            return
        variable = self._aliases.variable(node)
        if isinstance(node.ctx, ast.Load):
            found.reads.add(variable)
            found.objects_read |= self._aliases.held_by(node)
        else:
            found.writes.add(variable)

    def _add_call(self, call: ast.Call, found: Access) -> None:
        if self._names.qualified(call.func) == "print":
            found.hidden_read |= {"output"}
            found.hidden_written |= {"output"}
            return
        if self._computes(call):
            found.hidden_read.add("modes")
            if draws(self._names, call):
                found.hidden_read.add("torch")
                found.hidden_written.add("torch")
            return
        if sets_state(self._names.qualified(call.func)):
            found.hidden_read |= _HIDDEN
            found.hidden_written |= _HIDDEN
            return
        if generator := _generators(self._names, call):
            found.hidden_read.add(generator)
            found.hidden_written.add(generator)
            if not _shuffles(self._names, call):
                return
        else:
            self._add_unknown(found)
        for value in _given(call):
            found.objects_written |= self._aliases.held_by(value)

    @staticmethod
    def _add_unknown(found: Access) -> None:
        found.unknown = True
        found.hidden_read |= _HIDDEN
        found.hidden_written |= _HIDDEN

    def _is_within_reach(self, other: Access) -> bool:
        """Whether code that isn't known may read or write what another statement does."""
        if other.unknown or other.objects_written & self._aliases.outside:
            return True
        variables = other.reads | other.writes
        held = other.objects_read & self._aliases.outside
        return bool(held) or any(map(self._aliases.is_shared, variables))


def _earlier(part: ast.expr, statement: ast.stmt, names: Names) -> Iterator[ast.AST]:
    """The other parts of a statement that are evaluated before one."""
    below: ast.AST = part
    for around in names.ancestors(part):
        if isinstance(around, ast.IfExp) and below is not around.test:
            yield around.test
        elif isinstance(around, ast.AugAssign):
            yield around.target
        elif not isinstance(around, ast.Assign | ast.AnnAssign):
            for each in ast.iter_child_nodes(around):
                if each is below:
                    break
                yield each
        if around is statement:
            break
        below = around


def _generators(names: Names, call: ast.Call) -> str:
    """The generator that a function of NumPy or of Python's `random` uses."""
    name = names.qualified(call.func) or ""
    return next((m for m in ("numpy.random", "random") if name.startswith(f"{m}.")), "")


def _shuffles(names: Names, call: ast.Call) -> bool:
    return (names.qualified(call.func) or "").endswith(".shuffle")


def _given(call: ast.Call) -> Iterator[ast.expr]:
    """What a call may write: the object whose method it is, and its arguments."""
    yield call.func.value if isinstance(call.func, ast.Attribute) else call.func
    yield from call.args
    yield from (keyword.value for keyword in call.keywords)


def _evaluated(top: ast.AST) -> Iterator[ast.AST]:
    """A statement with all that it runs, without bodies that only run in a later call."""
    stack = [top]
    while stack:
        node = stack.pop()
        yield node
        if isinstance(node, ast.Lambda):
            stack += [*node.args.defaults, *filter(None, node.args.kw_defaults)]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            stack += [*node.decorator_list, *node.args.defaults]
            stack += filter(None, node.args.kw_defaults)
        else:
            stack.extend(ast.iter_child_nodes(node))
