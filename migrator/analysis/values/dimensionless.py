"""Tensors without a dimension: losses, and what is computed from them and numbers alone.

Older versions gave them one dimension, so that programs take their number by `loss.data[0]`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from migrator.analysis.syntax.names import Binding
from migrator.analysis.syntax.nodes import argument
from migrator.analysis.values.callees import Callees

_LOSS_CLASS = re.compile(r"torch\.nn\.(?!AdaptiveLogSoftmax)\w+Loss(?:2d)?")
# Losses as functions, with the arguments that are tensors; then come those that say what to return.
_LOSSES = {
    **dict.fromkeys((
        "ctc_loss", "gaussian_nll_loss", "margin_ranking_loss", "cosine_embedding_loss",
        "triplet_margin_loss",
    ), 3),
    **dict.fromkeys((
        "binary_cross_entropy", "binary_cross_entropy_with_logits", "cross_entropy",
        "hinge_embedding_loss", "huber_loss", "kl_div", "l1_loss", "mse_loss", "multi_margin_loss",
        "multilabel_margin_loss", "multilabel_soft_margin_loss", "nll_loss", "poisson_nll_loss",
        "smooth_l1_loss", "soft_margin_loss",
    ), 2),
}  # fmt: skip
# Over all elements, if they are told nothing else.
_REDUCING = frozenset({"max", "mean", "median", "min", "norm", "prod", "std", "sum", "var"})
# What these return has the same dimensions as their object, or their first argument.
_EACH = frozenset({
    "abs", "clamp", "clone", "contiguous", "cpu", "cuda", "detach", "double", "exp", "float",
    "half", "log", "neg", "pow", "sigmoid", "sqrt", "tanh", "to",
})  # fmt: skip
_IN_PLACE = frozenset({"add_", "div_", "mul_", "sub_"})
_SAME_MODULE = frozenset({"cuda", "cpu", "double", "eval", "float", "half", "to", "train"})
_COUNTS = ("len", "int", "float", "abs", "round")
_READS = ("item", "size", "numel", "dim")
_DEEPEST = 20


@dataclass(frozen=True, eq=False)
class Dimensionless(Callees):
    """Those of one file, as far as the source shows them."""

    def holds(self, node: ast.expr | None, seen: frozenset[object] = frozenset()) -> bool:
        """Whether a value is a number, or a tensor without a dimension.

        A value that depends on itself (`loss = loss + x`) is one if all it depends on is.
        """
        if node in seen:
            return True
        if node is None or len(seen) > _DEEPEST:
            return False
        seen |= {node}
        match node:
            case ast.Constant(value=value):
                return isinstance(value, int | float)
            case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=inner):
                return self.holds(inner, seen)
            case ast.BinOp(left=left, right=right):
                return self.holds(left, seen) and self.holds(right, seen)
            case ast.IfExp(body=body, orelse=orelse):
                return self.holds(body, seen) and self.holds(orelse, seen)
            case ast.Attribute(attr="data", value=inner):
                return self.holds(inner, seen)
            case ast.Name() | ast.Attribute():
                bound = self.bindings(node)
                if bound:
                    return all(self._is_bound(each, seen) for each in self._reaching(node, bound))
                return isinstance(node, ast.Attribute) and self._is_option(node)
            case ast.Call():
                return self._is_result(node, seen)
        return False

    def _reaching(self, node: ast.expr, bound: Sequence[Binding]) -> Sequence[Binding]:
        """The bindings that a variable may have where it is read.

        A statement of the function itself that gives it a value hides those above.
        """
        function, statement = self.names.function(node), self.names.statement(node)
        if not isinstance(node, ast.Name) or function is None or statement not in function.body:
            return bound
        above = function.body[: function.body.index(statement)]
        for at in range(len(above) - 1, -1, -1):
            match above[at]:
                case ast.Assign(targets=[ast.Name(id=name)]) if name == node.id:
                    hidden = {part for each in above[:at] for part in ast.walk(each)}
                    return [each for each in bound if each.node not in hidden]
        return bound

    def _is_bound(self, binding: Binding, seen: frozenset[object]) -> bool:
        match binding.kind:
            case "assign":
                return self.holds(binding.value, seen)
            case "other":
                changed = self.names.parents.get(binding.node)
                return isinstance(changed, ast.AugAssign) and self.holds(changed.value, seen)
            case "item" if isinstance(binding.value, ast.Call):
                returned = [*self._returned(binding.value.func)]
                place = binding.index
                return bool(returned) and all(
                    there._holds_at(value, place, seen) for there, value in returned
                )
            case "param":
                given = self._given(binding)
                return bool(given) and all(self.holds(value, seen) for value in given)
        return False

    def _holds_at(self, value: ast.expr | None, place: int | None, seen: frozenset[object]) -> bool:
        """Whether a part of a tuple, or each of what is put into a list, is one."""
        match value:
            case ast.Tuple(elts=parts):
                return place is not None and place < len(parts) and self.holds(parts[place], seen)
            case ast.Name():
                bound = self.bindings(value)
                if not all(isinstance(b.value, ast.List) and not b.value.elts for b in bound):
                    return False
                uses = self.names.uses(value.id, self.names.scope_of(value))
                return bool(bound) and all(self._puts_one(use, seen) for use in uses)
        return False

    def _puts_one(self, use: ast.expr, seen: frozenset[object]) -> bool:
        """Whether a list is only returned, or is given a value that is one."""
        match above := self.names.parents.get(use):
            case ast.Return():
                return True
            case ast.Attribute(attr="append"):
                call = self.names.call_of(above)
                return call is not None and len(call.args) == 1 and self.holds(call.args[0], seen)
        return False

    def _is_option(self, node: ast.Attribute) -> bool:
        """Whether an attribute is an option of the command line that is a number."""
        option = self.flow.command_line_option(node.attr)
        kind = argument(option, None, "type") if option is not None else None
        return kind is not None and self.names.qualified(kind) in ("int", "float")

    def _is_result(self, call: ast.Call, seen: frozenset[object]) -> bool:
        name = self.names.qualified(call.func) or ""
        last = name.rpartition(".")[2]
        if name in _COUNTS:
            return True
        if name.startswith("torch.nn.functional.") and last in _LOSSES:
            return _is_reduced(call, _LOSSES[last])
        if name in ("torch.autograd.Variable", "torch.Tensor.detach") or (
            name == f"torch.{last}" and last in _EACH
        ):
            return bool(call.args) and self.holds(call.args[0], seen)
        if name == f"torch.{last}" and (last in _REDUCING or last == "dot"):
            return len(call.args) == (2 if last == "dot" else 1) and not call.keywords
        if not name and isinstance(call.func, ast.Attribute):
            method, owner = call.func.attr, call.func.value
            if method in _REDUCING and not call.args and not call.keywords:
                return not self._is_own(method)
            if method in _REDUCING and _is_of_first(call) and _is_row(owner):
                return not self._is_own(method)
            if method in _READS:
                return bool(call.args) or method != "size"
            if method in _IN_PLACE and not self._is_own(method):
                return self.holds(owner, seen)
            if method in _EACH and not self._is_own(method):
                return self.holds(owner, seen)
        if all(map(self._gives_loss, self.values(call.func))):
            return True
        returned = [*self._returned(call.func)]
        return bool(returned) and all(there.holds(value, seen) for there, value in returned)

    def _is_own(self, method: str) -> bool:
        """Whether a class of the program has a method of the name of a tensor's."""
        defining = self.project.defining(method) if self.project is not None else ()
        return method in self.names.owners or any(True for _ in defining)

    def _gives_loss(
        self, function: ast.expr | None, seen: frozenset[ast.expr] = frozenset()
    ) -> bool:
        """Whether a value is one of PyTorch's losses, which returns its mean or sum."""
        if function is None or function in seen:
            return function is not None  # `loss = loss.cuda()`: what it was
        seen |= {function}
        match made := _without_moves(function):
            case ast.Name() if made is not function:
                given = self.values(made)
                known = not seen.issuperset(given)
                return known and all(self._gives_loss(each, seen) for each in given)
            case ast.Call(func=named) as call:
                name = self.names.qualified(named) or ""
                return _LOSS_CLASS.fullmatch(name) is not None and _is_reduced(call, 1)
            case ast.IfExp(body=body, orelse=orelse):
                return self._gives_loss(body, seen) and self._gives_loss(orelse, seen)
        return False

    # ---- functions of the program ------------------------------------------------------------

    def _given(self, binding: Binding) -> Sequence[ast.expr]:
        """What a function of this file is given for a parameter, if all its calls are known."""
        function = self.names.parents.get(binding.node)
        if not isinstance(function, ast.FunctionDef) or function not in self.names.tree.body:
            return ()
        taken = self.project.taken_names() if self.project is not None else ()
        places = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
        assert isinstance(binding.node, ast.arg)
        name = binding.node.arg
        if function.name in taken or name not in places:
            return ()
        found: list[ast.expr] = []
        for use in self.names.uses(function.name, self.names.top):
            call = self.names.call_of(use)
            value = argument(call, places.index(name), name) if call is not None else None
            if (value := value or binding.value) is None:
                return ()
            found.append(value)
        return found

    def _returned(self, function: ast.expr) -> Iterator[tuple[Self, ast.expr | None]]:
        """What a function of the program returns, or a module's forward pass, and in which file."""
        found: Sequence[tuple[Self, ast.FunctionDef] | None] = self.definitions(function)
        for each in found or [self.forward_of(value) for value in self.values(function)]:
            there, definition = each or (self, None)
            if definition is None or definition.decorator_list or _is_generator(definition):
                yield there, None
                continue
            for part in there.names.order:
                if isinstance(part, ast.Return) and there.names.function(part) is definition:
                    yield there, part.value

    def values(self, node: ast.expr, depth: int = 0) -> Sequence[ast.expr | None]:
        """All that a name may stand for; otherwise the expression itself."""
        values: list[ast.expr | None] = []
        for each in self.bindings(node) if depth < _DEEPEST else ():
            given = self._given(each) if each.kind == "param" else ()
            assigned = [each.value] if each.kind == "assign" and each.value is not None else ()
            for value in given or assigned:
                values += self.values(value, depth + 1)
            if not given and not assigned:
                values.append(None)
        return values or [node]

    def forward_of(self, made: ast.expr | None) -> tuple[Self, ast.FunctionDef] | None:
        """The forward pass of a module of the program: `FocalLoss(2)`, `FocalLoss().cuda()`."""
        made = _without_moves(made)
        if not isinstance(made, ast.Call):
            return None
        local = self.flow.definition(made.func)
        there, definition = (self, local) if local else self.imported(made.func) or (self, None)
        if not isinstance(definition, ast.ClassDef) or not there.flow.is_module_class(definition):
            return None
        return there._method(definition, "forward")


def _without_moves(module: ast.expr | None) -> ast.expr | None:
    """`FocalLoss()` of `FocalLoss().cuda()`"""
    while isinstance(module, ast.Call) and isinstance(module.func, ast.Attribute):
        if module.func.attr not in _SAME_MODULE:
            break
        module = module.func.value
    return module


def _is_reduced(call: ast.Call, tensors: int) -> bool:
    """Whether a loss is asked for its mean or its sum, over all elements."""
    starred = any(isinstance(each, ast.Starred) for each in call.args)
    if starred or len(call.args) > tensors or any(k.arg in (None, "reduce") for k in call.keywords):
        return False
    asked = argument(call, None, "reduction")
    return asked is None or (isinstance(asked, ast.Constant) and asked.value in ("mean", "sum"))


def _is_of_first(call: ast.Call) -> bool:
    """`x.sum(0)`, which keeps no dimension of a row"""
    given = [*call.args, *(k.value for k in call.keywords if k.arg == "dim")]
    plain = len(given) == 1 == len(call.args) + len(call.keywords)
    return plain and isinstance(given[0], ast.Constant) and given[0].value == 0


def _is_row(node: ast.expr) -> bool:
    """`x.view(-1).float()`"""
    match node:
        case ast.Call(func=ast.Attribute(attr="view" | "reshape"), args=[shape]):
            return isinstance(shape, ast.UnaryOp) and ast.unparse(shape) == "-1"
        case ast.Call(func=ast.Attribute(attr=method, value=owner)) if method in _EACH:
            return _is_row(owner)
    return False


def _is_generator(function: ast.FunctionDef) -> bool:
    return any(isinstance(part, ast.Yield | ast.YieldFrom) for part in ast.walk(function))
