"""Defaults: the values of options, attributes and parameters that nothing else sets."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import chain
from typing import Any, Protocol

from migrator.analysis.project.looked_up_files import ProgramPlace, Site
from migrator.analysis.project.name_index import unit
from migrator.analysis.syntax.annotations import is_type, whole_type
from migrator.analysis.syntax.names import Binding
from migrator.analysis.syntax.nodes import argument, dotted, parameters

Values = frozenset[Any] | None  # None: anything
_MANY, _DEEP = 6, 12
_COMPARED: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not,
}  # fmt: skip
_CONVERTED: dict[str, Callable[[Any], Any]] = {"bool": bool, "int": int, "str": str}
# Functions that return an object with their arguments as attributes.
_MAKE = frozenset({"dict", "replace", "update", "set_defaults", "partial", "create", "merge"})
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Reached(Protocol):
    """What is asked of the code that a program reaches; see `reachability.Reach`."""

    def ask(self, *key: Any) -> Any: ...
    def is_live(self, place: ProgramPlace, node: ast.AST) -> bool: ...
    def is_computed(self, name: str) -> bool: ...
    def is_entry(self, place: ProgramPlace) -> bool: ...
    def passes_on(self, place: ProgramPlace, decorator: ast.expr) -> bool: ...
    def with_word(self, name: str) -> list[ProgramPlace]: ...
    def sites(self, name: str) -> Sequence[Site]: ...
    def definitions(self, name: str) -> Sequence[tuple[ProgramPlace, ast.AST]]: ...


class Defaults:
    """The values in a program that is started without options, from all code that it reaches."""

    def __init__(self, reach: Reached) -> None:
        self.reach = reach
        self._made_by: dict[ast.ClassDef, Sequence[Site]] = {}

    def may_be(self, place: ProgramPlace, test: ast.expr, answer: bool, depth: int = 0) -> bool:
        """Whether a condition may be true or false."""
        if not self.may_be_on_target(place, test, answer):
            return False
        match test:
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return self.may_be(place, operand, not answer, depth)
            case ast.BoolOp(op=op, values=values):
                every = all if isinstance(op, ast.And) is answer else any
                return every(self.may_be(place, value, answer, depth) for value in values)
        values_ = self._values(place, test, depth)
        return values_ is None or any(bool(value) is answer for value in values_)

    def may_be_on_target(self, place: ProgramPlace, test: ast.expr, answer: bool) -> bool:
        """The same with any options, on a TPU machine."""
        return place.answer(test) in (None, answer)

    # ---- expressions ----------------------------------------------------------------------------

    def _values(self, place: ProgramPlace, node: ast.expr, depth: int = 0) -> Values:
        if depth > _DEEP:
            return None
        match node:
            case ast.Constant(value=value):
                return frozenset({value})
            case ast.Name():
                return self._of_name(place, node)
            case ast.Attribute(attr=name):
                facts = place.file.facts
                known = facts is None or facts.names.qualified(node) is not None
                return None if known else self._asked("attribute", name)
            case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=str(name)), *_]):
                default = argument(node, 2)
                given = self._values(place, default, depth + 1) if default else frozenset()
                return _union([self._asked("attribute", name), given])
            case ast.Call(func=ast.Name(id=name), args=[only], keywords=[]) if name in _CONVERTED:
                return _applied(_CONVERTED[name], self._values(place, only, depth + 1))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return _applied(operator.neg, self._values(place, operand, depth + 1))
            case ast.UnaryOp(op=ast.Not()) | ast.BoolOp():
                answers = {a for a in (True, False) if self.may_be(place, node, a, depth + 1)}
                is_known = isinstance(node, ast.UnaryOp) or True not in answers
                return frozenset(answers) if is_known else None
            case ast.IfExp(test=test, body=body, orelse=orelse):
                parts = ((True, body), (False, orelse))
                return _union(
                    self._values(place, part, depth + 1)
                    for answer, part in parts
                    if self.may_be(place, test, answer, depth + 1)
                )
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARED:
                two = (self._values(place, side, depth + 1) for side in (left, right))
                return _applied(_COMPARED[type(op)], *two)
        return None

    def _asked(self, *key: Any) -> Values:
        found: Values = self.reach.ask(*key)
        return found

    def _of_name(self, place: ProgramPlace, node: ast.Name) -> Values:
        facts = place.file.facts
        if facts is None or facts.names.qualified(node) is not None:
            return None
        bindings = facts.names.lookup(node)
        return self._asked("variable", place, tuple(bindings)) if bindings else None

    def variable(self, place: ProgramPlace, bindings: Sequence[Binding]) -> Values:
        """The values of a name, from all its bindings in a scope."""
        return _union(self._of_bindings(place, bindings))

    def _of_bindings(self, place: ProgramPlace, bindings: Sequence[Binding]) -> Iterator[Values]:
        if any(b.kind != "param" and (b.kind != "assign" or b.value is None) for b in bindings):
            yield None
        for binding in bindings:
            if binding.kind == "param":
                yield self._of_parameter(place, binding.node)
            elif binding.value is not None and self.reach.is_live(place, binding.value):
                yield self._values(place, binding.value)

    def _of_parameter(self, place: ProgramPlace, parameter: ast.AST) -> Values:
        function = place.parents.get(parameter)
        while isinstance(function, ast.arguments):
            function = place.parents.get(function)
        if not isinstance(function, Function) or not isinstance(parameter, ast.arg):
            return None
        return self._asked("parameter", place, function, parameter)

    # ---- attributes and options -----------------------------------------------------------------

    def attribute(self, name: str) -> Values:
        """The values of an attribute of any object, from all code that sets one of this name."""
        return _union(self._of_attribute(name))

    def _of_attribute(self, name: str) -> Iterator[Values]:
        if name == "local_rank":
            yield None  # a launcher gives it to each process
        places = self.reach.with_word(name)
        indices = (place.file.name_index for place in places)
        if any(there is None or there.definitions.get(name) for there in indices):
            yield None  # a notebook's cell, a method
        is_given = False
        for place in places:
            if self._is_key(place, name):
                yield None  # maybe of a table that becomes attributes
            for node in place.index.stores.get(name, ()):
                for values in self._given(place, node, name):
                    is_given = True
                    if self.reach.is_live(place, node):
                        yield values()
        if not is_given:
            yield None

    def _is_key(self, place: ProgramPlace, name: str) -> bool:
        """Whether a name is a key of a table, or is listed, in reached code."""
        there = place.file.name_index
        listed = (
            text
            for text in (there.texts.get(name, ()) if there is not None else ())
            if isinstance(place.parents.get(text), ast.Dict | ast.List | ast.Tuple | ast.Set)
        )
        return any(self.reach.is_live(place, text) for text in listed)

    def keyword(self, name: str) -> Values:
        """Values that `**arguments` may give a parameter: of all keywords or keys of that name."""
        return _union(self._of_keyword(name))

    def _of_keyword(self, name: str) -> Iterator[Values]:
        places = self.reach.with_word(name)
        if any(place.file.name_index is None for place in places):
            yield None
        for place in places:
            if self._is_key(place, name):
                yield None
            for node in place.index.stores.get(name, ()):
                if isinstance(node, ast.keyword) and self.reach.is_live(place, node):
                    yield self._values(place, node.value)

    def _given(
        self, place: ProgramPlace, node: ast.AST, name: str
    ) -> Iterator[Callable[[], Values]]:
        above = place.parents.get(node)
        match node:
            case ast.Attribute(ctx=ast.Del()):
                return
            case ast.Attribute():
                match above:
                    case ast.Assign(targets=targets, value=value) if node in targets:
                        yield partial(self._values, place, value)
                    case ast.AnnAssign(value=None):
                        return
                    case ast.AnnAssign(value=ast.expr() as value):
                        yield partial(self._values, place, value)
                    case _:
                        yield lambda: None
            case ast.Assign(value=ast.expr() as value) | ast.AnnAssign(value=ast.expr() as value):
                yield partial(self._values, place, value)
            case ast.keyword(value=value):
                if isinstance(above, ast.Call) and self._makes(above):
                    yield partial(self._values, place, value)
            case ast.Call(func=ast.Name(id="setattr"), args=[_, _, value]):
                yield partial(self._values, place, value)
            case ast.Call():
                yield partial(self._option, place, node)

    def _makes(self, call: ast.Call) -> bool:
        """Whether a call creates an object with its arguments as attributes, or may."""
        callee = (dotted(call.func) or str(getattr(call.func, "attr", ""))).rpartition(".")[2]
        made = [node for _, node in self.reach.definitions(callee)]
        if not made:
            return callee in _MAKE or callee[:1].isupper()
        classes = [node for node in made if isinstance(node, ast.ClassDef)]
        return any(
            all(getattr(part, "name", "") != "__init__" for part in node.body) for node in classes
        )

    def _option(self, place: ProgramPlace, call: ast.Call) -> Values:
        """The default of `add_argument`."""
        action, default = argument(call, None, "action"), argument(call, None, "default")
        said = action.value if isinstance(action, ast.Constant) else None
        names = [a.value for a in call.args if isinstance(a, ast.Constant)]
        required = argument(call, None, "required")
        is_positional = not names or not str(names[0]).startswith("-")
        if is_positional or (required is not None and not _is_false(required)):
            return None
        if default is None:
            return frozenset({{"store_true": False, "store_false": True}.get(str(said))})
        values = self._values(place, default)
        if values is not None and argument(call, None, "type") is not None:
            if any(isinstance(value, str) for value in values):
                return None  # the type converts it
        return values

    # ---- parameters -----------------------------------------------------------------------------

    def parameter(self, place: ProgramPlace, function: Function, parameter: ast.arg) -> Values:
        """The values of a parameter, from its default and all reached calls."""
        reach = self.reach
        decorators = function.decorator_list
        if unit(place.index, function) is not function or reach.is_entry(place):
            return None
        if not all(reach.passes_on(place, decorator) for decorator in decorators):
            return None
        owner = place.parents.get(function)
        is_made = isinstance(owner, ast.ClassDef) and function.name == "__init__"
        if function.name.startswith("__") and not is_made:
            return None
        if parameter in (function.args.vararg, function.args.kwarg):
            return None
        if reach.is_computed(function.name):
            return None
        all_of = [one for one, _ in parameters(function.args)]
        default = next(value for one, value in parameters(function.args) if one is parameter)
        static = any(dotted(d) == "staticmethod" for d in decorators)
        bound = 1 if isinstance(owner, ast.ClassDef) and not static else 0
        index: int | None = all_of.index(parameter) - bound
        if parameter in function.args.kwonlyargs:
            index = None
        if index is not None and index < 0:
            return None
        if isinstance(owner, ast.ClassDef) and is_made:
            sites = self._makers(owner)
        else:
            sites = reach.sites(function.name)
        given = self._of_calls(sites, index, parameter.arg, is_made)
        values = [self._values(place, default)] if default is not None else []
        return _union(chain(values, given))

    def _of_calls(
        self, sites: Sequence[Site], index: int | None, name: str, is_made: bool
    ) -> Iterator[Values]:
        """What calls give a parameter; anything if its function is used otherwise."""
        calls: list[tuple[ProgramPlace, ast.Call, ast.AST]] = []
        for place, node in sites:
            call = place.parents.get(node) if node is not None else None
            if isinstance(call, ast.Call) and call.func is node:
                calls.append((place, call, node))
            elif node is None or (
                not (is_made and _is_only_a_type(place.parents, node))
                and self.reach.is_live(place, node)
            ):
                yield None
        for place, call, node in calls:
            if self.reach.is_live(place, node):
                yield self._passed(place, call, index, name)

    def _makers(self, owner: ast.ClassDef) -> Sequence[Site]:
        """Where objects of a class, or of one derived from it, are created."""
        if owner not in self._made_by:
            names, queue = {owner.name}, [owner.name]
            while queue:
                for place, node in self.reach.sites(queue.pop()):
                    derived = place.parents.get(node) if node is not None else None
                    if isinstance(derived, ast.ClassDef) and node in derived.bases:
                        if derived.name not in names:
                            names.add(derived.name)
                            queue.append(derived.name)
            found = [site for name in sorted(names) for site in self.reach.sites(name)]
            within = (self._initialised.get(name, ()) for name in (*sorted(names), ""))
            self._made_by[owner] = [*found, *chain.from_iterable(within)]
        return self._made_by[owner]

    @cached_property
    def _initialised(self) -> dict[str, list[Site]]:
        """Where `__init__` is used, by the class around it; "" outside of any."""
        found: dict[str, list[Site]] = {}
        for place, node in self.reach.sites("__init__"):
            at = node
            while at is not None and not isinstance(at, ast.ClassDef):
                at = place.parents.get(at)
            found.setdefault(at.name if at is not None else "", []).append((place, node))
        return found

    def _passed(self, place: ProgramPlace, call: ast.Call, index: int | None, name: str) -> Values:
        for keyword in call.keywords:
            if keyword.arg == name:
                return self._values(place, keyword.value)
        if any(keyword.arg is None for keyword in call.keywords):
            return self._asked("keyword", name)
        if index is None:
            return frozenset()
        if any(isinstance(given, ast.Starred) for given in call.args[: index + 1]):
            return None
        return self._values(place, call.args[index]) if index < len(call.args) else frozenset()


def _union(found: Iterable[Values]) -> Values:
    whole: set[Any] = set()
    for values in found:
        if values is None:
            return None
        whole |= values
        if len(whole) > _MANY:
            return None
    return frozenset(whole)


def _applied(function: Callable[..., Any], *values: Values) -> Values:
    found: list[tuple[Any, ...]] = [()]
    for one in values:
        if one is None:
            return None
        found = [(*before, value) for before in found for value in one]
    try:
        return frozenset(function(*given) for given in found)
    except (TypeError, ValueError):
        return None


def _is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and not node.value


def _is_only_a_type(parents: Mapping[ast.AST, ast.AST], node: ast.AST) -> bool:
    """Whether a class is only named as a base, in an annotation or in isinstance."""
    whole = whole_type(parents, node)
    parent = parents.get(whole)
    return is_type(parent, whole) or (isinstance(parent, ast.ClassDef) and whole in parent.bases)
