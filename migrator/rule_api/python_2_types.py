"""Python's own names in place of old ones: each once in a choice, `(float, int, long)`."""

import ast

from migrator.rule_api import Context, Decision, Keep, Replace, Rewrite
from migrator.rule_api.upgrades import BUILTIN, Removed, removed, removed_builtins


def builtin(gone: Removed) -> str | None:
    """Python's own name that it stood for."""
    return gone.instead.removeprefix(BUILTIN) if gone.instead.startswith(BUILTIN) else None


def with_builtin(ctx: Context, node: ast.expr, name: str) -> Decision:
    """Python's own name in place of an old one; several of a choice are replaced at once."""
    choice = ctx.names.parent(node)
    plain = Rewrite([Replace(node, name)])
    if not isinstance(choice, ast.Tuple | ast.List | ast.Set) or not _is_choice(ctx, choice):
        return plain
    names = [_becomes(ctx, each) for each in choice.elts]
    if len(set(names)) == len(names) or choice.lineno != choice.end_lineno:
        return plain
    if node is not next(e for e, new in zip(choice.elts, names, strict=True) if _is_old(e, new)):
        return Keep("goes with what stands beside it")
    parts = dict(enumerate(choice.elts))
    kept = [n for n, new in enumerate(names) if new is None or new not in names[:n]]
    texts = [str(names[n]) if _is_old(parts[n], names[n]) else f"{{e{n}}}" for n in kept]
    holes = {f"e{n}": parts[n] for n in kept if not _is_old(parts[n], names[n])}
    inside = ", ".join(texts)
    match choice, ctx.names.parent(choice):
        case ast.Tuple(), ast.Call(func=ast.Name(id=asks), args=[value, _]) as call if (
            len(texts) == 1
        ):
            return Rewrite([Replace(call, f"{asks}({{of}}, {inside})", {**holes, "of": value})])
        case ast.Tuple(), _:
            text = f"({inside})" if texts[1:] else f"({inside},)"
        case ast.List(), _:
            text = f"[{inside}]"
        case _:
            text = f"{{{inside}}}"
    return Rewrite([Replace(choice, text, holes)])


def _is_choice(ctx: Context, choice: ast.expr) -> bool:
    """Whether the order and number of some types don't matter: `isinstance(x, (int, long))`."""
    match ctx.names.parent(choice):
        case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, types]):
            return types is choice
        case ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[types]):
            return types is choice
    return False


def _becomes(ctx: Context, node: ast.expr) -> str | None:
    """The name of Python's own that an element is, or becomes."""
    if isinstance(node, ast.Name) and not ctx.names.lookup(node):
        gone = removed_builtins().get(node.id)
        return node.id if gone is None else builtin(gone)
    gone = removed(ctx.names.qualified(node) or "")
    return builtin(gone) if gone is not None and gone.exact else None


def _is_old(node: ast.expr, name: str | None) -> bool:
    return name is not None and not (isinstance(node, ast.Name) and node.id == name)
