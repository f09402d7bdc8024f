"""Expressions: filling templates, changing calls, brackets where new code needs them."""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import Any

import libcst as cst

from migrator.edits import EditCall, EditImport
from migrator.tree.blocks import comments, own_line_comments

ATOMS = (cst.Name, cst.Attribute, cst.Call, cst.Subscript, cst.BaseString, cst.List, cst.Tuple,
          cst.Dict, cst.Set, cst.ListComp, cst.SetComp, cst.DictComp, cst.GeneratorExp,
          cst.BaseNumber, cst.Ellipsis)  # fmt: skip
_LOOSE = (cst.Lambda, cst.IfExp, cst.NamedExpr, cst.Yield)
_POSTFIX: dict[Any, str] = {
    cst.Attribute: "value",
    cst.Call: "func",
    cst.Subscript: "value",
    cst.Await: "expression",
}
_OPERANDS: dict[Any, tuple[str, ...]] = {
    cst.BinaryOperation: ("left", "right"), cst.BooleanOperation: ("left", "right"),
    cst.UnaryOperation: ("expression",), cst.Comparison: ("left",),
    cst.ComparisonTarget: ("comparator",), cst.IfExp: ("body", "test"),
}  # fmt: skip


def bracketed(node: Any, original: Any) -> Any:
    """The node with brackets around new children that would be read otherwise without them."""
    kind = type(node)
    if kind in _POSTFIX:
        field_name = _POSTFIX[kind]
        child = getattr(node, field_name)
        number = kind is cst.Attribute and isinstance(child, cst.BaseNumber)
        if child is not getattr(original, field_name, None):
            if number or not isinstance(child, ATOMS):
                return _with_brackets(node, field_name, child)
    for field_name in _OPERANDS.get(kind, ()):
        child = getattr(node, field_name)
        if child is getattr(original, field_name, None) or isinstance(child, ATOMS):
            continue
        weak = isinstance(child, cst.Comparison | cst.UnaryOperation | cst.BinaryOperation)
        negation = kind is cst.UnaryOperation and isinstance(node.operator, cst.Not)
        if weak and (kind in (cst.BooleanOperation, cst.IfExp) or negation):
            continue
        if kind is cst.IfExp and not isinstance(child, _LOOSE):
            continue
        if type(child) is type(getattr(original, field_name, None)) and not isinstance(
            child, _LOOSE
        ):
            continue  # only something inside of it is new
        node = _with_brackets(node, field_name, child)
    return node


def _with_brackets(node: Any, field_name: str, child: Any) -> Any:
    if child.lpar:
        return node
    bracketed = child.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    return node.with_changes(**{field_name: bracketed})


def edit_call(edit: EditCall, call: cst.Call) -> cst.Call:
    if edit.method is not None:
        assert isinstance(call.func, cst.Attribute)
        call = call.with_changes(func=call.func.with_changes(attr=cst.Name(edit.method)))
    if edit.function is not None:
        call = call.with_changes(func=parse(edit.function))
    arguments: list[ast.expr | ast.keyword] = [*edit.node.args, *edit.node.keywords]
    written = sorted(arguments, key=lambda a: (a.lineno, a.col_offset))
    args: list[cst.Arg] = []
    put = dict(edit.put)
    for node, arg in zip(written, call.args, strict=True):
        if node in edit.drop:
            if args:
                args[-1] = args[-1].with_changes(comma=_with_lines_of(arg, args[-1].comma))
            continue
        if isinstance(node, ast.keyword) and node.arg in put:
            arg = arg.with_changes(value=parse(put.pop(node.arg)))
        if isinstance(node, ast.keyword) and node.arg in edit.rename:
            arg = arg.with_changes(keyword=cst.Name(edit.rename[node.arg]))
        args.append(arg)
    last_comma = call.args[-1].comma if call.args else cst.MaybeSentinel.DEFAULT
    end = call.args[-1].whitespace_after_arg if call.args else cst.SimpleWhitespace("")
    if args:  # the bracket stays where it was, on a line of its own, say
        args[-1] = args[-1].with_changes(comma=last_comma, whitespace_after_arg=end)
    elif call.args:
        call = call.with_changes(whitespace_before_args=cst.SimpleWhitespace(""))
        last_comma = cst.MaybeSentinel.DEFAULT
    if edit.first is not None:
        comma = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
        first = cst.Arg(parse(edit.first), comma=comma if args else last_comma)
        args.insert(0, first)
    for name, value in put.items():
        new = cst.Arg(
            keyword=cst.Name(name),
            value=parse(value),
            equal=cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace("")),
            comma=last_comma,
            whitespace_after_arg=end,
        )
        if args:
            args[-1] = args[-1].with_changes(
                comma=_separator(call), whitespace_after_arg=cst.SimpleWhitespace("")
            )
        args.append(new)
    return call.with_changes(args=args)


def _with_lines_of(dropped: cst.Arg, comma: Any) -> Any:
    """The comma before an argument that goes, with the comments above the one behind it."""
    if not isinstance(dropped.comma, cst.Comma) or not isinstance(comma, cst.Comma):
        return comma
    behind, before = dropped.comma.whitespace_after, comma.whitespace_after
    if not isinstance(behind, cst.ParenthesizedWhitespace) or not any(own_line_comments(behind)):
        return comma
    if isinstance(before, cst.ParenthesizedWhitespace):
        lines = before.with_changes(empty_lines=[*before.empty_lines, *behind.empty_lines])
    else:  # both stood on one line
        lines = behind.with_changes(first_line=cst.TrailingWhitespace())
    return comma.with_changes(whitespace_after=lines)


def _separator(call: cst.Call) -> cst.Comma:
    """The comma between arguments, in the style of this call."""
    for arg in call.args[:-1]:
        if isinstance(arg.comma, cst.Comma) and not list(comments(arg.comma)):
            return arg.comma.deep_clone()
    ends_in_comma = bool(call.args) and isinstance(call.args[-1].comma, cst.Comma)
    return _comma_behind(call.whitespace_before_args if ends_in_comma else None)


def _comma_behind(space: object) -> cst.Comma:
    """A comma with the line end that stands behind an opening bracket."""
    if isinstance(space, cst.ParenthesizedWhitespace):
        line = cst.ParenthesizedWhitespace(indent=space.indent, last_line=space.last_line)
        return cst.Comma(whitespace_after=line)
    return cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))


def comma_in(node: cst.List | cst.Tuple | cst.Set) -> cst.Comma:
    """The comma between elements of a list, with a line end where each has a line of its own."""
    if isinstance(node, cst.Tuple):
        return _comma_behind(node.lpar[0].whitespace_after if node.lpar else None)
    opening = node.lbracket if isinstance(node, cst.List) else node.lbrace
    return _comma_behind(opening.whitespace_after)


def edit_import(edit: EditImport, node: Any) -> Any:
    kept = []
    for alias, there in zip(edit.node.names, node.names, strict=True):
        if alias in edit.rename:
            name, _, local = edit.rename[alias].partition(" as ")
            asname = cst.AsName(cst.Name(local)) if local else None
            if local and there.asname is not None:
                asname = there.asname.with_changes(name=cst.Name(local))
            kept.append(there.with_changes(name=parse(name), asname=asname))
        elif alias not in edit.drop:
            kept.append(there)
    kept[-1] = kept[-1].with_changes(comma=node.names[-1].comma)
    if edit.module is not None:
        node = node.with_changes(module=parse(edit.module), relative=())
    return node.with_changes(names=kept)


@lru_cache(maxsize=512)
def parse(code: str) -> cst.BaseExpression:
    return cst.parse_expression(code)


class _Fill(cst.CSTTransformer):
    def __init__(self, filling: dict[str, Any]) -> None:
        super().__init__()
        self.filling = filling

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> Any:
        return self.filling.get(updated_node.value, updated_node)

    def on_leave(self, original_node: Any, updated_node: Any) -> Any:
        return bracketed(super().on_leave(original_node, updated_node), original_node)


def fill(template: str, filling: dict[str, Any]) -> Any:
    code = template
    for name in filling:
        code = code.replace("{" + name + "}", f"_hole_{name}_")
    parsed = parse(code)
    if not filling:
        return parsed.deep_clone()
    return parsed.visit(_Fill({f"_hole_{name}_": node for name, node in filling.items()}))
