"""Configuration: which numbers are part of it, by the words in their names."""

from __future__ import annotations

import ast

from migrator.analysis.ranks.rank_expressions import RankExpressions
from migrator.analysis.syntax.nodes import dotted

_OPTIONS = frozenset({
    "args", "cfg", "config", "conf", "opt", "opts", "options", "hps", "h", "hparams", "hyp",
    "flags", "params", "parser",
})  # fmt: skip
CONFIGURED = frozenset({
    "batch", "batches", "batchsize", "bs", "bsz", "workers", "worker", "lr", "rate", "epochs",
    "epoch", "accumulation", "accum", "accumulate", "nodes", "node", "world",
})  # fmt: skip
OF_BATCHES = frozenset({
    "batch", "batches", "batchsize", "bs", "bsz", "samples", "per", "node", "nodes", "world",
})  # fmt: skip
COUNTED = frozenset({"steps", "step", "iters", "iterations", "samples", "per"})
ACCUMULATED = frozenset({"accumulation", "accum", "accumulate"})
COMPUTED = frozenset({
    "loss", "losses", "acc", "accuracy", "metric", "metrics", "grad", "grads", "correct", "top1",
    "top5", "sum", "mean", "avg", "tensor", "output", "outputs", "running", "error", "score",
})  # fmt: skip
WRAPPERS = frozenset({"int", "float", "round", "max", "min", "math.ceil", "math.floor", "str"})


def is_configured(ranks: RankExpressions, node: ast.expr) -> bool:
    """Whether a number is part of the program's configuration."""
    match node:
        case ast.Constant():
            return True
        case ast.BinOp():
            return is_configured(ranks, node.left) and is_configured(ranks, node.right)
        case ast.UnaryOp():
            return is_configured(ranks, node.operand)
        case ast.IfExp():
            return is_configured(ranks, node.body) and is_configured(ranks, node.orelse)
        case ast.Call() if ranks.is_world(node) or ranks.is_rank(node):
            return True
        case ast.Call(func=ast.Name(id="len"), args=[ast.Name() | ast.Attribute() as of]):
            return not words_of(of) & {"sampler", "batch", "x", "output", "outputs"}
        case ast.Call() if dotted(node.func) in WRAPPERS:
            return all(is_configured(ranks, each) for each in node.args)
        case ast.Subscript(value=ast.Attribute() | ast.Name() as of, slice=ast.Constant()):
            return (dotted(of) or "").partition(".")[0].lower() in _OPTIONS
        case ast.Name() | ast.Attribute():
            if ranks.is_world(node) or ranks.is_rank(node):
                return True
            words = words_of(node)
            if words & COMPUTED:
                return False
            root = (dotted(node) or "").partition(".")[0].lower()
            own = "self.config" in (dotted(node) or "") or "self.args" in (dotted(node) or "")
            options = isinstance(node, ast.Attribute) and (root in _OPTIONS or own)
            return options or bool(words & CONFIGURED)
    return False


def words_of(node: ast.AST) -> set[str]:
    last = (dotted(node) or "").rpartition(".")[2]
    return set(last.lower().strip("_").split("_"))
