"""What the repository itself compares a function with, or has beside it in PyTorch."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from migrator.analysis.syntax.names import Names

from .kernel import KernelCall
from .search import Definition, Search, Use, bound_before, on_one_line, values

_COMPARES = re.compile(r"(?:^|_)(?:all_?close|assert_close|assert_almost_equal|allequal)")
_REFERENCE = re.compile(
    r"(?:^|_)(?:ref|reference|torch|pytorch|naive|native|eager|slow|golden|baseline|python|py)(?=_|$)"
)
_NO_NAME = re.compile(
    r"(?:^|_)(?:triton|cuda|gpu|fused|kernel|fn|func|function|fwd|forward|fw|impl|op|call|apply)(?=_|$)"
)
_MOST = 3
_LAYERS = 3  # of functions and modules around a function
_DEEPEST = 4


def references(search: Search, path: Path, definition: Definition) -> Sequence[KernelCall]:
    """Of a function: what tests compare it with, then functions that are named as its reference."""
    found: dict[tuple[Path, int], KernelCall] = {}
    known = layer = [(path, definition)]
    for _ in range(_LAYERS):
        uses = [use for at, each in layer for use in search.uses(at, each)]
        layer = [each for each in _around(uses) if each not in known]
        known = [*known, *layer]
        of_kernel = {each.name for _, each in known}
        for place in (place for use in uses for place in compared(use)):
            if of_kernel.isdisjoint(re.findall(r"\w+", " ".join((place.code, *place.values)))):
                found.setdefault((place.path, place.line), place)
        if found:
            break
    for place in named(search, definition.name):
        found.setdefault((place.path, place.line), place)
    return sorted(found.values(), key=_is_hardly_one)[:_MOST]


def _is_hardly_one(place: KernelCall) -> bool:
    """Whether no name speaks of a reference: it may be another kernel."""
    words = re.findall(r"\w+", " ".join((place.code, *place.values)).lower())
    return not any(map(_REFERENCE.search, words))


def _around(uses: Sequence[Use]) -> list[tuple[Path, Definition]]:
    """The functions and classes that the uses are in, but for tests."""
    found = ((use.path, use.definition()) for use in uses)
    return [*{d: (p, d) for p, d in found if d is not None and not is_test(d)}.values()]


def is_test(definition: Definition) -> bool:
    return definition.name.lower().startswith("test")


def compared(use: Use) -> Iterator[KernelCall]:
    """The other side of a comparison in the function that a use is in."""
    functions = [a for a in use.around() if isinstance(a, ast.FunctionDef)]
    inside: ast.AST = functions[-1] if functions else use.names.tree
    for node in ast.walk(inside):
        if (
            not isinstance(node, ast.Call | ast.BinOp)
            or getattr(node, "lineno", 0) < use.node.lineno
        ):
            continue
        sides = _sides(use.names, node)
        if sides is None:
            continue
        of_use = [_comes_from(use.names, side, use.node, 0) for side in sides]
        if of_use.count(True) == 1:
            yield from _place(use, sides[of_use.index(False)])


def _sides(names: Names, node: ast.Call | ast.BinOp) -> tuple[ast.expr, ast.expr] | None:
    """Both values that a comparison compares: `assert_close(a, b)`, `(a - b).abs()`."""
    match node:
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=[one, other, *_]):
            return (one, other) if _COMPARES.search(name) else None
        case ast.BinOp(left=ast.Name() as one, op=ast.Sub(), right=ast.Name() as other):
            above = names.parents.get(node)
            called = above.func if isinstance(above, ast.Call) else above
            is_size = isinstance(called, ast.Attribute) and called.attr in ("abs", "norm")
            return (one, other) if is_size else None
    return None


def _comes_from(names: Names, value: ast.AST, wanted: ast.AST, depth: int) -> bool:
    """Whether a value is computed with a name: by itself, or through what is assigned before."""
    for node in ast.walk(value):
        if node is wanted:
            return True
        if isinstance(node, ast.Name) and depth < _DEEPEST:
            binding = bound_before(names, node, node.lineno)
            if binding is not None and binding.kind in ("assign", "item") and binding.value:
                if _comes_from(names, binding.value, wanted, depth + 1):
                    return True
    return False


def _place(use: Use, side: ast.expr) -> Iterator[KernelCall]:
    """The expression that the other side is."""
    shown, names = side, use.names
    for _ in range(_DEEPEST):
        if not isinstance(shown, ast.Name):
            break
        binding = bound_before(names, shown, shown.lineno)
        if binding is None or binding.kind not in ("assign", "item") or binding.value is None:
            break
        shown = binding.value
    if isinstance(shown, ast.Call | ast.BinOp):
        code = on_one_line(ast.unparse(shown))
        yield KernelCall(use.path, shown.lineno, code, values(names, shown), "compared with")


def named(search: Search, name: str) -> Iterator[KernelCall]:
    """Functions that are called like a reference of it: `ref_add`, `add_torch`, `naive_softmax`."""
    base = _base(name)
    if not base:
        return
    for path, names in search.files_with(base):
        for function in names.all(ast.FunctionDef):
            if _REFERENCE.search(function.name) and _base(function.name) == base != function.name:
                said = f"{function.name}({on_one_line(ast.unparse(function.args))})"
                yield KernelCall(path, function.lineno, said, (), "a reference, by its name,")


def _base(name: str) -> str:
    """What is left of a name without the words that say how it is computed."""
    return _NO_NAME.sub("", _REFERENCE.sub("", name.lower())).strip("_")
