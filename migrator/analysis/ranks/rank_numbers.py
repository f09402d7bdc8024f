"""Numbers: how a number of ranks, a rank and a batch size are used.

Data are those of all ranks together, so these may only be configuration: arguments of samplers,
loaders and process groups, arithmetic whose result has a configured name, tests for rank 0,
seeds, devices, and text. Each use is either understood, or an obstacle.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from migrator.analysis import name_heuristics
from migrator.analysis.ranks.configuration import (
    ACCUMULATED,
    COMPUTED,
    CONFIGURED,
    COUNTED,
    OF_BATCHES,
    WRAPPERS,
    is_configured,
    words_of,
)
from migrator.analysis.ranks.rank_expressions import RankExpressions
from migrator.analysis.ranks.vocabulary import LOADER, SAMPLER, SPAWNS
from migrator.analysis.syntax.nodes import argument, dotted, number, parameters, said_name

_SAYS = re.compile(r"print|log|info|debug|warn|write|format|description|postfix|display", re.I)
_GROUP = "torch.distributed.init_process_group"


@dataclass(frozen=True)
class Passed:
    """A value that is passed to a function of another file."""

    line: int
    function: str  # its qualified name
    place: int | str  # of the argument: position or keyword
    kind: str  # world, rank or batch size


class Numbers:
    """The numbers of one file."""

    def __init__(self, ranks: RankExpressions) -> None:
        self.ranks, self.names, self.flow = ranks, ranks.names, ranks.flow
        self.passed: list[Passed] = []  # found by `obstacles`

    def obstacles(self) -> Iterator[tuple[int, str]]:
        """Lines and reasons."""
        for node in self.names.order:
            if isinstance(node, ast.expr):
                kind = self._kind(node)
                if kind:
                    reason = self._followed(node, kind)
                    if reason:
                        yield node.lineno, reason

    # ---- which values are looked at -----------------------------------------------------------

    def _kind(self, node: ast.expr) -> str:
        """The kind of a value where it is read."""
        stored = not isinstance(getattr(node, "ctx", ast.Load()), ast.Load)
        if stored or number(node) in self.ranks.undone:
            return ""
        parent = self.names.parents.get(node)
        if isinstance(parent, ast.Call) and node in parent.args:
            if dotted(parent.func) in ("int", "float") and self._kind(parent):
                return ""  # the whole expression is checked
        if isinstance(node, ast.Name | ast.Attribute):
            if self.names.call_of(node) is not None:
                return ""
        if name_heuristics.is_batch_size_name(said_name(node)):
            return "" if self._is_of_data(node) else "batch size"
        if self.ranks.is_world(node):
            return "number of ranks"
        return "rank" if self.ranks.is_rank(node) else ""

    def _is_of_data(self, node: ast.expr) -> bool:
        """Whether it is measured: `batch_size = images.shape[0]` is that of the whole batch."""
        if not isinstance(node, ast.Name):
            return False
        values = [b.value for b in self.names.lookup(node)]
        return bool(values) and all(
            value is not None
            and any(
                isinstance(part, ast.Attribute) and part.attr in ("shape", "size")
                for part in ast.walk(value)
            )
            for value in values
        )

    # ---- where they go ------------------------------------------------------------------------

    def _followed(self, node: ast.expr, kind: str) -> str:
        """Why the use of a value is an obstacle; "" if it isn't."""
        if self._is_about_seeds(node) or self.is_shown(node):
            return ""
        text = ast.unparse(node)
        top: ast.AST = node
        arithmetic = counted = False
        while True:
            parent = self.names.parents.get(top)
            match parent:
                case ast.BinOp(left=ast.Constant(value=str()), op=ast.Mod()):
                    return self._said(parent, f"{text} is part of a string that is used")
                case ast.BinOp(left=left, right=right):
                    other = right if left is top else left
                    if not is_configured(self.ranks, other):
                        return f"{ast.unparse(parent)} computes with the {kind}"
                    arithmetic = True
                    counted = counted or "len(" in ast.unparse(other)
                case ast.UnaryOp(op=ast.USub()):
                    arithmetic = True
                case ast.Call() if dotted(parent.func) in WRAPPERS and top in parent.args:
                    others = [x for x in parent.args if x is not top]
                    if not all(is_configured(self.ranks, x) for x in others):
                        return f"{ast.unparse(parent)} computes with the {kind}"
                case ast.IfExp() if top is not parent.test:
                    pass
                case _:
                    break
            top = parent
        return self._ends(node, top, parent, kind, arithmetic, counted)

    def _ends(
        self, node: ast.expr, top: ast.AST, parent: ast.AST | None, kind: str,
        arithmetic: bool, counted: bool,
    ) -> str:  # fmt: skip
        text = ast.unparse(top)
        match parent:
            case ast.Assign(targets=[target]) | ast.AnnAssign(target=target):
                return self._named(target, kind, arithmetic, counted, text)
            case ast.AugAssign(target=target):
                return self._named(target, kind, True, counted, text)
            case ast.Tuple() as items:
                return self._unpacked(items, top, kind, text)
            case ast.List():
                keyword = self.names.parents.get(parent)
                if isinstance(keyword, ast.IfExp):
                    keyword = self.names.parents.get(keyword)
                devices = isinstance(keyword, ast.keyword) and "device" in (keyword.arg or "")
                return "" if devices and kind == "rank" else f"{text} goes into a list"
            case ast.Compare():
                return self._compared(parent, top, kind)
            case ast.BoolOp() | ast.UnaryOp() | ast.If() | ast.While() | ast.IfExp() | ast.Assert():
                return ""
            case ast.Expr():
                return ""
            case ast.keyword() | ast.Call():
                return self._given(top, parent, kind, arithmetic)
            case ast.FormattedValue():
                return self._in_text(parent, kind, text)
            case ast.Return():
                function = self.names.function(node)
                name = function.name if function is not None else ""
                known = is_named(self.ranks, name, kind)
                return "" if known else f"{text} is returned by {name}()"
            case ast.Dict(keys=keys, values=values):
                pairs = zip(keys, values, strict=True)
                key = next((k for k, v in pairs if v is top), None)  # None: it is a key itself
                named = isinstance(key, ast.Constant) and is_named(self.ranks, str(key.value), kind)
                return "" if named and not arithmetic else f"{text} goes into a dict"
            case ast.Subscript() if "device" in ast.unparse(parent.value) or "gpu" in ast.unparse(
                parent.value
            ):
                return ""
            case ast.arguments():
                return ""
        return f"{text} is used in a way that can't be followed"

    def _named(self, target: ast.AST, kind: str, arithmetic: bool, counted: bool, text: str) -> str:
        """A value that is assigned to a name."""
        match target:
            case ast.Subscript(value=ast.Attribute(attr="environ"), slice=ast.Constant(value=key)):
                if is_named(self.ranks, str(key).lower(), kind) or key == "CUDA_VISIBLE_DEVICES":
                    return ""
        last = (dotted(target) or "").rpartition(".")[2]
        if not last:
            return f"{text} is put into {ast.unparse(target)}"
        words = words_of(target)
        if arithmetic:
            if words & COMPUTED and not words & ACCUMULATED:
                return f"{last} is computed from the {kind}"
            kinds = ("rank", "number of ranks")
            known = last if any(self.ranks.names_kind(last, kind) for kind in kinds) else ""
            if kind == "rank":
                known = known or (last if "device" in last else "")
            elif kind == "batch size":  # otherwise it would have to be tracked under another name
                configured = words & (CONFIGURED | COUNTED) - OF_BATCHES
                known = last if configured or is_named(self.ranks, last, kind) else ""
            elif words & (CONFIGURED | (COUNTED if counted else set())):
                known = last
            return "" if known else f"{last} is computed from the {kind}"
        if isinstance(target, ast.Name) and kind != "batch size":
            return ""  # is tracked
        same = is_named(self.ranks, last, kind)
        return "" if same or (kind == "rank" and "device" in last) else f"{last} is the {kind}"

    def _unpacked(self, items: ast.Tuple, value: ast.AST, kind: str, text: str) -> str:
        """`rank, world = get_rank(), get_world_size()`; the arguments of spawn."""
        outer = self.names.parents.get(items)
        index = next(i for i, item in enumerate(items.elts) if item is value)
        if isinstance(outer, ast.Assign) and isinstance(outer.targets[0], ast.Tuple):
            targets = outer.targets[0].elts
            if len(targets) == len(items.elts):
                return self._named(targets[index], kind, False, False, text)
        call = self.names.parents.get(outer) if isinstance(outer, ast.keyword) else outer
        if isinstance(call, ast.Call) and self.names.qualified(call.func) in SPAWNS:
            function = argument(call, 0, "fn")
            return self._parameter(call, function, index + 1, kind, text)
        if isinstance(outer, ast.BinOp) and isinstance(outer.op, ast.Mod):
            return self._said(outer, f"{text} is part of a string that is used")
        return f"{text} goes into a tuple"

    def _compared(self, node: ast.Compare, value: ast.AST, kind: str) -> str:
        others = [x for x in (node.left, *node.comparators) if x is not value]
        for other in others:
            items = other.elts if isinstance(other, ast.List | ast.Tuple | ast.Set) else [other]
            constant = all(isinstance(_positive(x), ast.Constant) for x in items)
            world = kind == "number of ranks" and all(map(self.ranks.is_world, items))
            configured = kind == "batch size" and all(is_configured(self.ranks, x) for x in items)
            configured |= kind == "number of ranks" and bool(words_of(other) & {"gpu", "gpus"})
            if not constant and not world and not configured:
                return f"{ast.unparse(node)} compares with the {kind}"
        return ""

    def _given(
        self, value: ast.AST, parent: ast.keyword | ast.Call, kind: str, arithmetic: bool
    ) -> str:
        """A value that is passed as an argument."""
        call = parent if isinstance(parent, ast.Call) else self.names.parents.get(parent)
        text = ast.unparse(value)
        if not isinstance(call, ast.Call):
            return f"{text} is passed to something that can't be followed"
        place: int | str = (
            (parent.arg or "**") if isinstance(parent, ast.keyword)
            else next((i for i, x in enumerate(call.args) if x is value), -1)
        )  # fmt: skip
        if place == -1:
            return f"{text} has a method called"
        name = self.names.qualified(call.func) or dotted(call.func) or ""
        last = call.func.attr if isinstance(call.func, ast.Attribute) else name.rpartition(".")[2]
        if name in (_GROUP, SAMPLER, *SPAWNS) or _SAYS.search(last):
            return self._said(call, "") if last == "format" else ""
        if kind == "batch size" or arithmetic:
            if place == "batch_size" or (name == LOADER and place in (1, "num_workers")):
                return ""
            if place == "lr" or last == "add_argument":
                return ""
        if last == "add_argument":
            return ""
        if kind == "rank":
            device = last in ("to", "cuda", "device", "set_device", "set_device_index")
            device = device or name.startswith(("torch.cuda.", "torch.nn.parallel."))
            if device or "seed" in last or place in ("device", "device_id", "device_ids"):
                return ""
            if place == "output_device":
                return ""
        return self._parameter(call, call.func, place, kind, text)

    def _parameter(
        self, call: ast.Call, function: ast.expr | None, place: int | str, kind: str, text: str
    ) -> str:
        """A value that is passed to a function of the project, under the parameter's name."""
        if function is None:
            return f"{text} is passed to something that can't be followed"
        bindings = self.names.lookup(function) if isinstance(function, ast.Name) else []
        if isinstance(function, ast.Name) and len(bindings) == 1:
            if bindings[0].kind in ("def", "class"):
                return self._by_name(bindings[0].node, place, kind, text)
        found = self.flow.called_definition(call) if function is call.func else None
        if found is not None:
            return self._by_name(found, place, kind, text)
        name = self.names.qualified(function)
        if name and not name.startswith(("torch.", "builtins.")) and "." in name:
            self.passed.append(Passed(call.lineno, name, place, kind))
            return ""
        if isinstance(place, str) and is_named(self.ranks, place, kind):
            owner = function.value if isinstance(function, ast.Attribute) else None
            if owner is not None and dotted(owner) == "self":
                return ""
        return f"{text} is passed to {ast.unparse(function)}(), which can't be followed"

    def _by_name(self, definition: ast.AST, place: int | str, kind: str, text: str) -> str:
        found = parameter_name(definition, place)
        if found and is_named(self.ranks, found, kind):
            return ""
        return f"{text} is passed as the parameter {found or place}, which can't be followed"

    def _in_text(self, value: ast.FormattedValue, kind: str, text: str) -> str:
        """A part of an f-string: of printed text, or of a device's name."""
        whole = self.names.parents.get(value)
        if isinstance(whole, ast.JoinedStr):
            before = whole.values[: next(i for i, v in enumerate(whole.values) if v is value)]
            ending = before[-1].value if before and isinstance(before[-1], ast.Constant) else ""
            if str(ending).endswith(":") and kind == "rank" and " " not in str(ending):
                return ""
            return self._said(whole, f"{text} is part of a string that is used")
        return f"{text} is part of a string that is used"

    def _said(self, node: ast.AST, reason: str) -> str:
        """The reason; "" if a text is only printed, or names a device."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            if isinstance(owner, ast.Constant) and str(owner.value).startswith("cuda"):
                return ""
            reason = reason or "a string with the number of ranks is used"
        for ancestor in self.names.ancestors(node):
            if isinstance(ancestor, ast.Call):
                name = str(dotted(ancestor.func) or getattr(ancestor.func, "attr", ""))
                if _SAYS.search(name.rpartition(".")[2]) and not name.endswith("format"):
                    return ""
            if isinstance(ancestor, ast.Raise | ast.Assert):
                return ""
            if isinstance(ancestor, ast.stmt):
                break
        return reason

    def is_shown(self, node: ast.expr) -> bool:
        """Whether a statement only prints or logs."""
        match self.names.statement(node):
            case ast.Expr(value=ast.Call(func=func) as call) if node is not call:
                name = str(dotted(func) or getattr(func, "attr", ""))
                return _SAYS.search(name.rpartition(".")[2]) is not None
        return False

    def _is_about_seeds(self, node: ast.expr) -> bool:
        statement = self.names.statement(node)
        if not isinstance(statement, ast.Assign | ast.AugAssign | ast.Expr | ast.Return):
            return False
        match statement:
            case ast.Expr(value=ast.Call(func=func)):
                return "seed" in (dotted(func) or "").rpartition(".")[2]
            case (
                ast.Assign(targets=[target], value=value)
                | ast.AugAssign(target=target, value=value)
            ):
                simple = ast.Name | ast.Attribute | ast.Constant | ast.BinOp | ast.operator
                parts = (p for p in ast.walk(value) if not isinstance(p, ast.expr_context))
                numbers = all(isinstance(p, simple | ast.Call) for p in parts)
                return numbers and "seed" in (dotted(target) or "").rpartition(".")[2]
        return False


def parameter_name(definition: ast.AST, place: int | str) -> str:
    """The name of a parameter of a function, or of a class's `__init__`; "" if unknown."""
    bound = 0
    if isinstance(definition, ast.ClassDef):
        made = [n for n in definition.body if isinstance(n, ast.FunctionDef)]
        definition = next((n for n in made if n.name == "__init__"), definition)
        bound = 1
    if not isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef):
        return ""
    names = [parameter.arg for parameter, _ in parameters(definition.args)]
    if isinstance(place, str):
        return place if place in names else ""
    bound = 1 if names[:1] == ["self"] else bound
    return names[place + bound] if place + bound < len(names) else ""


def is_named(ranks: RankExpressions, name: str, kind: str) -> bool:
    """Whether a name suggests a value of this kind."""
    if kind == "batch size":
        return name_heuristics.is_batch_size_name(name)
    return ranks.names_kind(name, kind)


def _positive(node: ast.expr) -> ast.expr:
    return node.operand if isinstance(node, ast.UnaryOp) else node
