"""Data: samples that are divided among ranks, losses, and exchanges between ranks."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from migrator.analysis.ranks.rank_expressions import RankExpressions
from migrator.analysis.ranks.vocabulary import LOADER, SAMPLER
from migrator.analysis.syntax.nodes import argument, dotted, number


class Data:
    """The data of one file."""

    def __init__(self, ranks: RankExpressions) -> None:
        self.ranks, self.names, self.flow = ranks, ranks.names, ranks.flow

    def obstacles(self) -> Iterator[tuple[int, str]]:
        """Lines and reasons why results for the data of all ranks together would differ."""
        for node in self.names.order:
            yield from self._divided(node)
        yield from self._reductions()

    def _divided(self, node: ast.AST) -> Iterator[tuple[int, str]]:
        match node:
            case ast.ClassDef(bases=bases) if any(
                (dotted(base) or "").endswith("Sampler") for base in bases
            ):
                yield node.lineno, f"{node.name} has its own way to divide samples among ranks"
            case ast.keyword(arg="reduction", value=ast.Constant(value="sum")):
                yield (
                    node.value.lineno,
                    "a loss is a sum: for the whole batch, it is that of all ranks",
                )
            case ast.keyword(arg="size_average", value=ast.Constant(value=False)):
                yield (
                    node.value.lineno,
                    "a loss is a sum: for the whole batch, it is that of all ranks",
                )
            case ast.keyword(arg="batch_sampler" | "sampler_cls"):
                yield node.value.lineno, "a batch sampler has its own way to divide samples"
            case ast.Attribute(attr="register_comm_hook" | "_set_static_graph"):
                yield node.lineno, f"{node.attr} changes how ranks exchange gradients"
            case ast.Call(func=ast.Attribute(attr="backward", value=loss)):
                if self._is_sum(loss):
                    yield (
                        node.lineno,
                        "a loss is a sum: for the whole batch, it is that of all ranks",
                    )
            case ast.Call():
                yield from self._loaders(node)

    def _is_sum(self, node: ast.expr | None, depth: int = 0) -> bool:
        """Whether a loss is a sum, or contains one; a quotient is taken for a mean."""
        match node:
            case ast.Call(func=ast.Attribute(attr="scale"), args=[loss]):  # a GradScaler's
                return self._is_sum(loss, depth)
            case ast.Call(func=func):
                name = str(dotted(func) or getattr(func, "attr", ""))
                return name.rpartition(".")[2] == "sum"
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult(), right=right):
                return self._is_sum(left, depth) or self._is_sum(right, depth)
            case ast.UnaryOp(operand=operand):
                return self._is_sum(operand, depth)
            case ast.Name() if depth < 5:
                values = [b.value for b in self.names.lookup(node) if b.kind == "assign"]
                return any(self._is_sum(value, depth + 1) for value in values)
        return False

    def _loaders(self, call: ast.Call) -> Iterator[tuple[int, str]]:
        name = self.names.qualified(call.func)
        if name == LOADER:
            shuffle = argument(call, 2, "shuffle")
            shuffled = isinstance(shuffle, ast.Constant) and shuffle.value is True
            if shuffled and argument(call, 3, "sampler") is None:
                yield call.lineno, "a loader without a sampler gives each rank its own order"
        if name == SAMPLER:
            parent = self.names.parents.get(call)
            while isinstance(parent, ast.IfExp | ast.BoolOp):
                parent = self.names.parents.get(parent)
            named = isinstance(parent, ast.Assign | ast.AnnAssign | ast.Return)
            if not named and not (isinstance(parent, ast.keyword) and parent.arg == "sampler"):
                yield call.lineno, "something other than a loader uses a DistributedSampler"
        iterated = dotted(call.func) in ("iter", "list", "len", "tuple") and call.args
        if iterated and isinstance(call.args[0], ast.Name):
            values = [b.value for b in self.names.lookup(call.args[0]) if b.kind == "assign"]
            if dotted(call.func) != "len" and any(
                isinstance(v, ast.Call) and self.names.qualified(v.func) == SAMPLER for v in values
            ):
                yield call.lineno, "something other than a loader uses a DistributedSampler"

    def _reductions(self) -> Iterator[tuple[int, str]]:
        for call in self.ranks.reductions():
            owner = self.names.enclosing_class(call)
            module = owner is not None and self.flow.is_module_class(owner)
            if module and not self._without_gradients(call):
                yield call.lineno, "a model's result is reduced, and used with gradients"
        for node in self.names.order:
            match node:
                case ast.BinOp(left=left, op=ast.Div() | ast.Mult() as op, right=right):
                    pairs = [(left, right)]
                    pairs += [(right, left)] if isinstance(op, ast.Mult) else []
                case ast.AugAssign(target=left, op=ast.Div() | ast.Mult(), value=right):
                    pairs = [(left, right)]
                case ast.Call(func=ast.Attribute(attr="div_" | "mul_" | "div" | "mul", value=left),
                              args=[right]):  # fmt: skip
                    pairs = [(left, right)]
                case ast.Call(func=ast.Attribute(attr="backward", value=left)):
                    if self.ranks.is_reduced(left):
                        yield node.lineno, "a loss is reduced, and used with gradients"
                    continue
                case _:
                    continue
            for value, factor in pairs:
                if self.ranks.is_reduced(value) and not self._is_known_factor(factor):
                    text = ast.unparse(factor)
                    yield node.lineno, f"whether {text} is a number of ranks is not clear"
        for call in self.ranks.gathers():
            if not self._has_room_for_one(call):
                yield call.lineno, "the gathered list is as long as the number of ranks"

    def _is_known_factor(self, node: ast.expr) -> bool:
        node = number(node)
        if isinstance(node, ast.Constant) or node in self.ranks.undone:
            return True
        return self.ranks.is_reduced(node)

    def _has_room_for_one(self, call: ast.Call) -> bool:
        """Whether the list that is gathered into was created here, with an entry per rank."""
        into = argument(call, 0, "tensor_list", "object_list", "gather_list", "object_gather_list")
        if not isinstance(into, ast.Name):
            return False
        function = self.names.function(call)
        values = [b.value for b in self.names.lookup(into) if b.kind == "assign"]
        return bool(values) and all(
            value is not None
            and self.names.function(value) is function
            and any(part in self.ranks.undone for part in ast.walk(value))
            for value in values
        )

    def _without_gradients(self, node: ast.AST) -> bool:
        for ancestor in self.names.ancestors(node):
            match ancestor:
                case ast.With(items=items):
                    if any("no_grad" in ast.unparse(item) for item in items):
                        return True
                case ast.FunctionDef(decorator_list=decorators):
                    return any("no_grad" in ast.unparse(d) for d in decorators)
        return False
