"""A model that selects the last position itself: `return self.head(x[:, [-1], :])`"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.nodes import dotted, parameters


def last_positions(forward: ast.FunctionDef) -> Iterator[ast.Subscript]:
    """`x[:, [-1], :]` and `x[:, -1:]`"""
    for node in ast.walk(forward):
        if isinstance(node, ast.Subscript) and ast.unparse(node.slice).strip("()") in _LAST:
            yield node


_LAST = (":, [-1], :", ":, [-1]", ":, -1:", ":, -1:, :")


def is_returned(names: Names, kept: ast.expr, forward: ast.FunctionDef, call: ast.Call) -> bool:
    """Whether the result of `forward` is always computed from this one position.

    This means a result of modules, which is returned or assigned to the name in all returns; if
    there is a choice, in the branch that the call takes.
    """
    statement = names.statement(kept)
    if any(_changes_length(node) for node in ast.walk(forward)):
        return False
    value: ast.AST = kept
    while (above := names.parents[value]) is not statement:
        of_module = isinstance(above, ast.Call) and above.args[:1] == [value]
        if not of_module and not (isinstance(above, ast.Tuple) and above.elts[0] is value):
            return False
        value = above
    returns = [node for node in ast.walk(forward) if isinstance(node, ast.Return)]
    match statement:
        case ast.Return():
            results: list[ast.stmt] = [*returns]
        case ast.Assign([ast.Name(name)]) if returns:
            results = [r for r in returns if not _is_result(r.value, name)]
            results += [
                s
                for n in ast.walk(forward)
                if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store)
                if (s := names.statement(n)) is not None
            ]
        case _:
            return False
    if statement in forward.body:
        return results == [statement]
    choice = names.parents[statement]
    if not isinstance(choice, ast.If) or choice not in forward.body:
        return False
    then = statement in choice.body
    other = choice.orelse if then else choice.body
    if isinstance(statement, ast.Return):  # code after the choice isn't reached
        other = [*other, *forward.body[forward.body.index(choice) + 1 :]]
    elsewhere = {node for part in other for node in ast.walk(part)}
    if not all(result is statement or result in elsewhere for result in results):
        return False
    return _is_chosen(choice.test, then, forward, call)


def _changes_length(node: ast.AST) -> bool:
    """`torch.cat`, after which the last position may differ from that of the window"""
    called = node.func if isinstance(node, ast.Call) else None
    return called is not None and (dotted(called) or "").rpartition(".")[2] in _LONGER


_LONGER = ("cat", "concat", "concatenate", "hstack", "pad", "flip", "roll")


def _is_chosen(test: ast.expr, then: bool, forward: ast.FunctionDef, call: ast.Call) -> bool:
    """Whether a call with only one argument takes this branch of `x is None`."""
    match test:
        case ast.Compare(ast.Name(name), [ast.Is() | ast.IsNot() as op], [ast.Constant(None)]):
            pass
        case _:
            return False
    defaults = {parameter.arg: default for parameter, default in parameters(forward.args)}
    default = defaults.get(name)
    stored = any(
        isinstance(n, ast.Name) and n.id == name and not isinstance(n.ctx, ast.Load)
        for n in ast.walk(forward)
    )
    none = isinstance(default, ast.Constant) and default.value is None
    alone = len(call.args) + len(call.keywords) == 1
    return none and alone and not stored and isinstance(op, ast.Is) is then


def _is_result(value: ast.expr | None, name: str) -> bool:
    """`name` and `name, others`"""
    match value:
        case ast.Name(found) | ast.Tuple([ast.Name(found), *_]):
            return found == name
    return False
