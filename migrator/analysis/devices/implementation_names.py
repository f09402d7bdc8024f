"""Strings that name an implementation: `if impl == "cuda":`, where `impl` may also be "ref"."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.nodes import dotted

# TargetApi for code that computes the same in another way; no device of any framework is called so.
_IMPLEMENTATIONS = frozenset({
    "eager", "einsum", "flash", "jit", "keops", "loop", "math", "naive", "native", "numpy",
    "python", "pytorch", "ref", "reference", "sdpa", "slow", "torch", "triton", "vanilla",
    "xformers",
})  # fmt: skip
_LITERAL = ("typing.Literal", "typing_extensions.Literal")


def implementation_beside(names: Names, node: ast.expr) -> str | None:
    """What else may stand for a string that is compared with a name, if that is an implementation:
    such a comparison chooses code, and no device. So do `"cuda" if … else "ref"`, and a type."""
    match names.parent(node):
        case ast.IfExp() as choice if node is not choice.test:
            return next(_implementations(choice), None)
        case ast.Tuple() as several if isinstance(names.parent(several), ast.Subscript):
            of_type = names.parent(several)
            assert isinstance(of_type, ast.Subscript)
            is_literal = names.qualified(of_type.value) in _LITERAL
            return next(_implementations(several), None) if is_literal else None
    compared = _comparison(names, node)
    if compared is None or dotted(compared.left) is None:
        return None
    return next((text for text in _beside(names, compared) if text in _IMPLEMENTATIONS), None)


def asks_for_implementation(names: Names, node: ast.AST) -> bool:
    """Whether a question belongs to CUDA's implementation: `impl == "cuda" and x.is_cuda`, and
    `"cuda" if torch.cuda.is_available() else "ref"`. On a TPU, the answer stays no."""
    below = node
    for above in names.ancestors(node):
        match above:
            case ast.BoolOp(op=ast.And(), values=values):
                others = (value for value in values if value is not below)
                if any(_names_implementation(names, other) for other in others):
                    return True
            case ast.IfExp(test=test, body=body, orelse=orelse) if below is test:
                texts = {each.value for each in (body, orelse) if isinstance(each, ast.Constant)}
                return "cuda" in texts and any(_implementations(above))
            case ast.stmt():
                return False
        below = above
    return False


def _names_implementation(names: Names, test: ast.expr) -> bool:
    match test:
        case ast.Compare(ops=[ast.Eq()], comparators=[ast.Constant(value="cuda") as text]):
            return implementation_beside(names, text) is not None
    return False


def _implementations(node: ast.AST) -> Iterator[str]:
    for part in ast.iter_child_nodes(node):
        if isinstance(part, ast.Constant) and part.value in _IMPLEMENTATIONS:
            yield str(part.value)


def _comparison(names: Names, node: ast.expr) -> ast.Compare | None:
    """The comparison that a string is on the right of, by itself or in a list."""
    above = names.parent(node)
    if isinstance(above, ast.List | ast.Tuple | ast.Set):
        node, above = above, names.parent(above)
    if isinstance(above, ast.Compare) and above.comparators == [node]:
        return above
    return None


def _beside(names: Names, compared: ast.Compare) -> Iterator[str]:
    """All strings that the same name is compared with: a variable's in its function, an
    attribute's in the file."""
    name, function = dotted(compared.left), names.function(compared)
    for other in names.all(ast.Compare):
        same = dotted(other.left) == name and len(other.comparators) == 1
        if same and (isinstance(other.left, ast.Attribute) or names.function(other) is function):
            for part in ast.walk(other.comparators[0]):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.value
