"""Code that needs the value of a tensor, so that Python waits for the device."""

from __future__ import annotations

import ast
from itertools import takewhile

from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.nodes import argument, dotted
from migrator.analysis.training.sync_points import Hot

CHECK_IN_MODEL = (
    "waits for the device to check a value, so the model can't be compiled as a whole: keep the "
    "condition (self.fine = …), and check it after the step, or check only while debugging"
)
_READS = ("torch.equal", "torch.allclose", "torch.is_nonzero")


def prints_tensor(hot: Hot, call: ast.Call) -> bool:
    """Whether `print(…)` gets the value of a tensor, maybe in an f-string."""
    texts = [a for a in call.args if isinstance(a, ast.JoinedStr)]
    values = [v.value for t in texts for v in t.values if isinstance(v, ast.FormattedValue)]
    return any(map(hot.is_tensor, [*call.args, *values]))


def is_asked(names: Names, node: ast.AST) -> bool:
    """Whether a branch tests a value, and so is what waits."""
    below = node
    for above in names.ancestors(node):
        if getattr(above, "test", None) is below:
            return True
        if isinstance(above, ast.stmt):
            break
        below = above
    return False


def reads_tensor_value(hot: Hot, test: ast.expr) -> bool:
    """Whether a condition is the value of a tensor."""
    match test:
        case ast.BoolOp(op=ast.And(), values=values) if any(_is_of_half(hot, v) for v in values):
            return False  # `x.dtype == torch.float16 and torch.isinf(x).any()`
        case ast.BoolOp(op=ast.And(), values=values):  # `step % 100 == 0 and loss > 5`
            each_time = takewhile(
                lambda value: reads_tensor_value(hot, value) or not _counts(value), values
            )
            return any(reads_tensor_value(hot, value) for value in each_time)
        case ast.BoolOp(values=values):
            return any(reads_tensor_value(hot, value) for value in values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return reads_tensor_value(hot, operand)
        case ast.Compare(left=left, comparators=others, ops=ops):
            if any(isinstance(op, ast.Is | ast.IsNot | ast.In | ast.NotIn) for op in ops):
                return False
            return any(hot.is_tensor(v) or _is_read(hot, v) for v in (left, *others))
        case ast.Call(func=ast.Attribute(attr="all" | "any", value=mask)) if hot.is_mask(mask):
            return True
        case ast.Call(func=function, args=[mask, *_]) if hot.names.qualified(function) in (
            "torch.all",
            "torch.any",
        ) and hot.is_mask(mask):
            return True
        case ast.Call():
            return hot.is_tensor(test) or _is_read(hot, test)
    return False


def _counts(test: ast.expr) -> bool:
    """`step % 100 == 0`, `not step % 100`: true in some iterations only."""
    match test:
        case ast.Compare(left=ast.BinOp(op=ast.Mod(), left=ast.Name())):
            return True
        case ast.UnaryOp(op=ast.Not(), operand=ast.BinOp(op=ast.Mod(), left=ast.Name())):
            return True
    return False


def is_checked_later(names: Names, node: ast.AST) -> bool:
    """Whether an assertion in a model can be checked when its step has been computed: no `try`
    around it may catch the error."""
    is_caught = any(isinstance(above, ast.Try) for above in names.ancestors(node))
    return isinstance(node, ast.Assert) and not is_caught


def only_checks(names: Names, node: ast.AST) -> bool:
    """Whether a branch only stops the program: `assert …`, `if …:` that prints, and raises."""
    match node:
        case ast.Assert():
            return True
        case ast.If(body=[*before, last], orelse=[]):
            return names.ends([last]) and all(_prints(names, each) for each in before)
    return False


def _prints(names: Names, statement: ast.stmt) -> bool:
    match statement:
        case ast.Expr(value=ast.Call(func=function)):
            name = function.attr if isinstance(function, ast.Attribute) else dotted(function)
            return name in ("print", "error", "warning", "info", "critical", "write")
    return False


def _is_of_half(hot: Hot, node: ast.expr) -> bool:
    match node:
        case ast.Compare(comparators=[ast.expr() as dtype]):
            return hot.names.qualified(dtype) in ("torch.float16", "torch.half")
    return False


def _is_read(hot: Hot, node: ast.expr) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(attr="item", value=owner)):
            return hot.is_tensor(owner)
        case ast.Call(func=ast.Name(id="bool" | "float" | "int"), args=[value]):
            return hot.is_tensor(value)
        case ast.Call(func=function) if hot.names.qualified(function) in _READS:
            first = argument(node, 0, "input")
            return first is not None and hot.may_be_tensor(first)
    return False
