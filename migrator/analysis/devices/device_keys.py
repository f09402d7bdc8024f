"""Tables by device: dictionaries in which the names of devices are keys.

`rates["cuda"]` changes only together with `rates = {"cuda": …}` and `rates[x.device.type]`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.nodes import dotted
from migrator.analysis.values.flow import Flow
from migrator.analysis.values.value_kinds import CUDA_STRING

_READERS = ("get", "pop", "setdefault")
_ONLY_LOOK = (
    "print", "len", "enumerate", "zip", "list", "tuple", "set", "sorted", "itertools.product",
)  # fmt: skip


def table_of(names: Names, key: ast.expr) -> ast.expr | None:
    """The table that an expression is a key of: its name, or the table itself if it has none."""
    above = names.parents.get(key)
    while isinstance(above, ast.IfExp) and key is not above.test:
        key, above = above, names.parents.get(above)
    if isinstance(above, ast.Tuple | ast.List | ast.Set):
        key, above = above, names.parents.get(above)
        if not (isinstance(above, ast.Call) and dotted(above.func) == "dict.fromkeys"):
            return None
    match above:
        case ast.Subscript(value=table, slice=at) if at is key:
            return table
        case ast.Call(func=ast.Attribute(attr=attr, value=table), args=[first, *_]) if first is key:
            if attr in _READERS:
                return table
            return _new_table_name(names, above) if dotted(above.func) == "dict.fromkeys" else None
        case ast.Compare(left=left, ops=[ast.In() | ast.NotIn()], comparators=[table]):
            by_name = left is key and dotted(table) is not None
            return table if by_name and [*_table_values(names, table)] else None
        case ast.Dict(keys=keys) if key in keys:
            return _new_table_name(names, above)
    return None


def is_written_out(names: Names, table: ast.expr) -> bool:
    """Whether a table has the names of devices as keys where it is made, beside one another."""
    return dotted(table) is None or bool([*_table_values(names, table)])


def is_by_device(names: Names, flow: Flow, table: ast.expr) -> bool:
    """Whether a table is read or filled with devices as keys."""
    return any(
        flow.is_device(key) for key in _keys(names, table) if not isinstance(key, ast.Constant)
    )


_KINDS = ("cpu", "hpu", "mlu", "mps", "musa", "npu", "xla", "xpu")


def kinds_beside(names: Names, string: ast.expr) -> list[str]:
    """Other kinds of device in the places beside a string, in a table that the program keeps.

    `{"cuda": …, "cpu": …}`, `("cuda", "npu")`, and rows of a class: `NPU = ("npu", "hccl")`.
    """
    above = names.parents.get(string)
    match above:
        case ast.Dict(keys=keys) if string in keys:
            return _kinds(keys)
        case ast.Tuple(elts=elements) | ast.List(elts=elements) | ast.Set(elts=elements):
            row, place = names.parents.get(above), elements.index(string)
            if isinstance(row, ast.Assign) and (found := _kinds(elements)):
                return found
        case _:
            row, place = above, -1
    body = names.parents.get(row) if isinstance(row, ast.Assign) else None
    if not isinstance(body, ast.ClassDef):
        return []
    values = [each.value for each in body.body if isinstance(each, ast.Assign)]
    if place < 0:  # no tuple
        return _kinds(values)
    rows = [value.elts for value in values if isinstance(value, ast.Tuple | ast.List)]
    return _kinds(elements[place] for elements in rows if place < len(elements))


def _kinds(several: Iterable[ast.expr | None]) -> list[str]:
    found = {each.value for each in several if isinstance(each, ast.Constant)}
    return [kind for kind in _KINDS if kind in found]


def other_key(names: Names, flow: Flow, several: ast.expr) -> int | None:
    """The line where "cuda" stays as a key, if elements of a list may be keys beside it."""
    if not _may_be_keys(names, several):
        return None
    for node in names.all(ast.Constant):
        if isinstance(node.value, str) and CUDA_STRING.match(node.value):
            table = table_of(names, node)
            if table is not None and not is_by_device(names, flow, table):
                return node.lineno
    return None


def _new_table_name(names: Names, table: ast.expr) -> ast.expr:
    """The name that a new table gets."""
    match names.parents.get(table):
        case ast.Assign(targets=[target]) | ast.AnnAssign(target=target):
            return target
    return table


def _same(names: Names, table: ast.expr) -> Iterator[ast.expr]:
    """All mentions of a table that has a name."""
    if isinstance(table, ast.Name):
        bound = names.lookup(table)
        yield from (n for n in names.by_id.get(table.id, ()) if names.lookup(n) is bound)
    elif isinstance(table, ast.Attribute) and (name := dotted(table)):
        yield from (n for n in names.by_attribute.get(table.attr, ()) if dotted(n) == name)
    else:
        yield table


def _keys(names: Names, table: ast.expr) -> Iterator[ast.expr]:
    """What a table is read or filled with."""
    for use in _same(names, table):
        match names.parents.get(use):
            case ast.Subscript(value=value, slice=key) if value is use:
                yield key
            case ast.Attribute(attr=attr) as method if attr in _READERS:
                call = names.call_of(method)
                yield from call.args[:1] if call is not None else ()
            case ast.Compare(left=key, ops=[ast.In() | ast.NotIn()]) if key is not use:
                yield key
            case ast.Assign(value=ast.DictComp(key=key)):
                yield key


def _table_values(names: Names, table: ast.expr) -> Iterator[ast.AST]:
    """The values of a table that name its keys one by one."""
    for use in _same(names, table):
        match names.parents.get(use):
            case ast.Assign(value=value) | ast.AnnAssign(value=value):
                match value:
                    case ast.Dict(keys=[_, *_]):
                        yield value
                    case ast.Call(func=func) if dotted(func) == "dict.fromkeys":
                        yield value


def _may_be_keys(names: Names, several: ast.expr) -> bool:
    """Whether a list, or its elements in a loop, may be keys."""
    uses = [several]
    match names.parents.get(several):
        case ast.Assign(targets=[ast.Name() | ast.Attribute() as target]):
            uses += names.loads(target)
    for use in uses:
        above = names.parents.get(use)
        if isinstance(above, ast.Attribute) and above.attr in ("index", "count"):
            return True
        call = names.parents.get(above) if isinstance(above, ast.keyword) else above
        if isinstance(call, ast.Call):
            if names.qualified(call.func) not in _ONLY_LOOK:
                return True
            above = names.parents.get(call)
        if isinstance(above, ast.For | ast.comprehension):
            elements = (n for n in ast.walk(above.target) if isinstance(n, ast.Name))
            if any(_is_key(names, each) for name in elements for each in _same(names, name)):
                return True
    return False


def _is_key(names: Names, node: ast.expr) -> bool:
    match names.parents.get(node):
        case ast.Subscript(slice=at):
            return at is node
        case ast.Dict(keys=keys):
            return node in keys
        case ast.DictComp(key=key):
            return key is node
    return False
