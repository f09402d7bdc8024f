"""Checkpoints: follow what a program does with the contents of a loaded file."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from migrator.analysis.project.program_files import (
    ProgramFile,
    attributes,
    is_decorated,
    is_overridden,
    mentions,
)
from migrator.analysis.syntax.names import Names, Scope
from migrator.analysis.syntax.nodes import argument, parameters
from migrator.analysis.values.value_kinds import ANY_DEVICE

_MOST = 400  # expressions to follow before giving up

# Methods of a state dict, a tensor or a key whose result is treated as the value itself.
_PASSED_ON = {
    "get", "pop", "setdefault", "copy", "items", "values", "float", "half", "double", "bfloat16",
    "int", "long", "type", "clone", "detach", "cpu", "contiguous", "view", "reshape", "permute",
    "transpose", "t", "squeeze", "unsqueeze", "flatten", "chunk", "narrow", "expand", "repeat",
    "replace", "split", "strip", "lstrip", "rstrip", "lower", "removeprefix", "removesuffix",
}  # fmt: skip
# Methods with a plain result or none; methods that only a single number or a string has.
_HARMLESS = {"keys", "size", "numel", "nelement", "dim", "tolist", "numpy", "is_floating_point",
             "clear", "update", "append"}  # fmt: skip
_OF_ONE = {"item", "startswith", "endswith", "isdigit"}
# Methods that copy a value to where their own tensors are.
_TAKES = {"load_state_dict", "copy_"}
_TELLS = {
    "info", "debug", "warning", "warn", "error", "critical", "exception", "log", "print", "write",
    "format", "add_scalar", "add_text", "set_description", "set_postfix",
}  # fmt: skip
_HARMLESS_FUNCTIONS = {"print", "len", "isinstance", "type", "str", "repr", "hasattr",
                       "torch.save", "torch.is_tensor", "pprint.pprint"}  # fmt: skip
_OF_ONE_FUNCTIONS = {"int", "float", "round", "range", "bool"}
_SAME_FUNCTIONS = {"dict", "list", "tuple", "sorted", "reversed", "enumerate", "zip", "iter",
                   "next", "set", "collections.OrderedDict", "copy.copy",
                   "copy.deepcopy"}  # fmt: skip
_TEXT_MODULES = ("re.", "os.", "logging.", "json.", "yaml.", "warnings.")
_FILLED = {"append", "extend", "update", "setdefault", "add", "insert"}
_NEW = {"dict", "list", "collections.OrderedDict", "collections.defaultdict"}


def is_only_state(at: ProgramFile, value: ast.expr) -> bool:
    """Whether a program only copies what `value` has loaded, or reads numbers and strings of it.

    It can then stay on the CPU: `load_state_dict` copies it to where the parameters are. Every use
    in the project's files is checked, in any order; if one is not understood, the answer is no.
    """
    evidence = _Evidence()
    return _Uses(at).harmless(value, evidence) and evidence.holds


@dataclass
class _Evidence:
    """Whether the uses of a value need it to be a single number, and whether one use shows that.

    A single number on the CPU works with tensors on any device.
    """

    needed: bool = False
    given: bool = False

    @property
    def holds(self) -> bool:
        return self.given or not self.needed


class _Uses:
    """All uses of one value; `at` is the file of an expression."""

    def __init__(self, start: ProgramFile) -> None:
        self.start = start
        self._seen: set[object] = set()
        self._holders: set[tuple[Scope, str]] = set()

    def harmless(self, value: ast.expr, evidence: _Evidence) -> bool:
        return self._use(self.start, value, evidence)

    def _use(self, at: ProgramFile, value: ast.AST, evidence: _Evidence) -> bool:
        """Whether the use of an expression that is the value is harmless."""
        if value in self._seen:
            return True
        self._seen.add(value)
        if len(self._seen) > _MOST:
            return False
        parent = at.names.parents.get(value)
        match parent:
            case ast.Expr() | ast.Delete() | ast.Assert() | ast.FormattedValue():
                return True
            case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test) if test is value:
                return True
            case ast.UnaryOp(op=ast.Not()):
                return True
            case ast.Tuple() | ast.List() if (pair := _unpacked(at, parent, value)) is not None:
                return self._bound(at, pair, evidence)
            case (ast.IfExp() | ast.BoolOp() | ast.Tuple() | ast.List() | ast.Set() | ast.Dict()
                  | ast.ListComp() | ast.DictComp() | ast.GeneratorExp()):  # fmt: skip
                return self._use(at, parent, evidence)
            case ast.NamedExpr(target=target):
                return self._bound(at, target, evidence) and self._use(at, parent, evidence)
            case ast.Assign(targets=targets):
                return all(self._bound(at, target, evidence) for target in targets)
            case ast.AnnAssign(target=target):
                return self._bound(at, target, evidence)
            case ast.For(target=target) | ast.comprehension(target=target):
                tested = isinstance(parent, ast.comprehension) and parent.iter is not value
                return tested or self._looped(at, target, value, evidence)
            case ast.Return():
                return self._returned(at, parent, evidence)
            case ast.Attribute():
                return self._attribute_of(at, parent, evidence)
            case ast.Subscript():
                return self._subscript(at, parent, value, evidence)
            case ast.Call() | ast.keyword():
                return self._argument(at, parent, value, evidence)
        return _computes(at.names, parent, value, evidence) or (
            isinstance(parent, ast.BinOp) and self._use(at, parent, evidence)
        )

    # ---- names, attributes, items ----------------------------------------------------------------

    def _bound(self, at: ProgramFile, target: ast.expr, evidence: _Evidence) -> bool:
        match target:
            case ast.Name():
                return self._name(at, target, evidence)
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                return all(self._bound(at, each, evidence) for each in elements)
            case ast.Attribute():
                return self._held(at, target.attr, evidence)
            case ast.Subscript():
                return self._filled(at, target.value, evidence)
        return False

    def _name(self, at: ProgramFile, name: ast.Name, evidence: _Evidence) -> bool:
        scope = at.scope(name)
        if scope is None or scope.is_class:
            return False
        if (scope, name.id) in self._holders:
            return True
        self._holders.add((scope, name.id))
        if scope is at.names.top and at.is_taken(name.id):
            return False
        uses = list(at.names.uses(name.id, scope))
        if not uses and scope is at.names.top:
            return False  # kept for other files
        return all(self._use(at, use, evidence) for use in uses)

    def _held(self, at: ProgramFile, attribute: str, evidence: _Evidence) -> bool:
        """Every attribute of that name, of any object."""
        if attribute in self._seen:
            return True
        self._seen.add(attribute)
        reads = [
            (f, node)
            for f in at.files(attribute, beside=False)
            for node in attributes(f.names, attribute)
        ]
        return bool(reads) and all(self._use(f, node, evidence) for f, node in reads)

    def _filled(self, at: ProgramFile, holder: ast.expr, evidence: _Evidence) -> bool:
        """A dict or list that the value is put into: it must be one that the program has made."""
        while isinstance(holder, ast.Subscript):
            holder = holder.value
        if isinstance(holder, ast.Attribute):
            return self._held(at, holder.attr, evidence)
        if not isinstance(holder, ast.Name):
            return False
        scope = at.scope(holder)
        known = scope is not None and (scope, holder.id) in self._holders
        if not known and not all(_is_new(at.names, b.value) for b in at.names.lookup(holder)):
            return False
        return self._name(at, holder, evidence)

    def _looped(
        self, at: ProgramFile, target: ast.expr, value: ast.AST, evidence: _Evidence
    ) -> bool:
        """`for k, v in state.items()`: keys are strings."""
        while isinstance(value, ast.Call) and value.args and not _is_items(value):
            if isinstance(target, ast.Tuple) and at.names.qualified(value.func) == "enumerate":
                target = target.elts[-1]
            value = value.args[0]
        match target:
            case ast.Tuple(elts=[_, held]) if _is_items(value):
                return self._bound(at, held, evidence)
        return self._bound(at, target, evidence)

    def _subscript(
        self, at: ProgramFile, node: ast.Subscript, value: ast.AST, evidence: _Evidence
    ) -> bool:
        if node.value is not value:
            of_holder = isinstance(node.value, ast.Name) and (
                (at.scope(node.value), node.value.id) in self._holders
            )
            evidence.needed = True
            evidence.given |= of_holder  # a key of it
            return True
        return not isinstance(node.ctx, ast.Load) or self._entry(at, node)

    def _entry(self, at: ProgramFile, entry: ast.expr) -> bool:
        """`state["epoch"]`, `state.get("epoch")`"""
        evidence = _Evidence()
        return self._use(at, entry, evidence) and evidence.holds

    def _attribute_of(self, at: ProgramFile, node: ast.Attribute, evidence: _Evidence) -> bool:
        call = at.names.call_of(node)
        if call is None:
            return node.attr in ("shape", "dtype", "ndim") or (
                node.attr in ("data", "T") and self._use(at, node, evidence)
            )
        if node.attr == "cuda":
            return True
        if node.attr == "to":
            place = argument(call, 0, "device")
            moves = bool(at.flow.kind(place) & ANY_DEVICE)
            return moves or self._use(at, call, evidence)
        if node.attr in ("get", "pop"):
            return self._entry(at, call)
        if node.attr in _PASSED_ON:
            return self._use(at, call, evidence)
        evidence.given |= node.attr in _OF_ONE
        return node.attr in _HARMLESS | _OF_ONE

    # ---- functions -------------------------------------------------------------------------------

    def _argument(
        self, at: ProgramFile, parent: ast.Call | ast.keyword, value: ast.AST, evidence: _Evidence
    ) -> bool:
        call = at.names.parents.get(parent) if isinstance(parent, ast.keyword) else parent
        if not isinstance(call, ast.Call) or call.func is value:
            return False
        name = at.names.qualified(call.func) or ""
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        last = name.rpartition(".")[2]
        if name in _OF_ONE_FUNCTIONS or (name in ("max", "min") and len(call.args) > 1):
            evidence.given = True
            return True
        if name in _SAME_FUNCTIONS or method in ("get", "pop"):  # where the value is the default
            return self._use(at, call, evidence)
        if name.startswith(_TEXT_MODULES) or name in _HARMLESS_FUNCTIONS or method in _TELLS:
            return True
        if method in _TAKES or last == "consume_prefix_in_state_dict_if_present":
            return True
        function = at.definition(call.func)
        if function is not None:
            return self._given(at, call, parent, value, function, evidence)
        if isinstance(call.func, ast.Attribute) and method in _FILLED:
            return self._filled(at, call.func.value, evidence)
        return False

    def _given(
        self,
        at: ProgramFile,
        call: ast.Call,
        parent: ast.AST,
        value: ast.AST,
        function: tuple[ProgramFile, ast.AST],
        evidence: _Evidence,
    ) -> bool:
        """The parameter, of a function of the program, that receives the value."""
        there, node = function
        if not isinstance(node, ast.FunctionDef) or any(
            isinstance(each, ast.Starred) for each in call.args
        ):
            return False
        accepted = [each.arg for each, _ in parameters(node.args)]
        if isinstance(there.names.parents.get(node), ast.ClassDef):
            if is_overridden(at, node.name) or is_decorated(there.names, node):
                return False
            accepted = accepted[1:]
        variable = [each.arg for each in (node.args.vararg, node.args.kwarg) if each is not None]
        if isinstance(parent, ast.keyword):
            name = parent.arg
        else:
            place = next(i for i, each in enumerate(call.args) if each is value)
            name = accepted[place] if place < len(accepted) else None
        if name is None or name not in accepted or name in variable:
            return False
        scope = there.names.scopes[node]
        if (scope, name) in self._holders:
            return True
        self._holders.add((scope, name))
        return all(self._use(there, use, evidence) for use in there.names.uses(name, scope))

    def _returned(self, at: ProgramFile, statement: ast.Return, evidence: _Evidence) -> bool:
        """Every call of the function that returns the value; there must be at least one."""
        function = at.names.function(statement)
        if not isinstance(function, ast.FunctionDef) or is_decorated(at.names, function):
            return False
        if function in self._seen:
            return True
        self._seen.add(function)
        if any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(function)):
            return False
        is_method = isinstance(at.names.parents.get(function), ast.ClassDef)
        found = False
        for file in at.files(function.name):
            for node in mentions(file, function, is_method):
                found = True
                call = file.names.call_of(node)
                if call is None or not self._use(file, call, evidence):
                    return False
        return found


def _computes(names: Names, parent: ast.AST | None, value: ast.AST, evidence: _Evidence) -> bool:
    """Comparisons and arithmetic: right for a single number, wherever the other operand is."""
    match parent:
        case ast.Compare(ops=[ast.Is() | ast.IsNot()]):
            return True
        case ast.Compare(ops=[ast.In() | ast.NotIn()], left=left):
            evidence.given |= left is value
            return True
        case ast.Compare():
            evidence.needed = True
            evidence.given |= _is_test(names, parent)
            return True
        case ast.BinOp(op=ast.Mod(), left=ast.Constant(value=str())):
            return True
        case ast.BinOp(left=left, right=right):
            other = right if left is value else left
            if isinstance(other, ast.Constant) or isinstance(parent.op, ast.BitOr):
                return False  # its result is followed instead
            evidence.needed = True
            return True
        case ast.AugAssign() | ast.Slice():
            evidence.needed = True
            return True
    return False


def _is_test(names: Names, node: ast.AST) -> bool:
    """Whether a comparison is used as a truth value, which only a single number has."""
    parent = names.parents.get(node)
    while isinstance(parent, ast.BoolOp | ast.UnaryOp):
        node, parent = parent, names.parents.get(parent)
    return isinstance(parent, ast.If | ast.While | ast.IfExp | ast.Assert) and parent.test is node


def _unpacked(at: ProgramFile, node: ast.Tuple | ast.List, value: ast.AST) -> ast.expr | None:
    """The `b` that a value is assigned to in `a, b = …, value`."""
    match at.names.parents.get(node):
        case ast.Assign(targets=[ast.Tuple(elts=targets) | ast.List(elts=targets)]) if len(
            targets
        ) == len(node.elts):
            if not any(isinstance(each, ast.Starred) for each in [*targets, *node.elts]):
                return targets[node.elts.index(value)] if isinstance(value, ast.expr) else None
    return None


def _is_items(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and (
        node.func.attr == "items"
    )  # fmt: skip


def _is_new(names: Names, value: ast.expr | None) -> bool:
    """Whether an expression creates a dict or list that nothing else holds."""
    match value:
        case ast.Dict() | ast.List() | ast.DictComp() | ast.ListComp():
            return True
        case ast.Call(func=ast.Attribute(attr="state_dict" | "copy")):
            return True
        case ast.Call(func=function):
            return names.qualified(function) in _NEW
    return False
