"""A small program that still fails: statements are taken out one after another."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

Block = list[ast.stmt]


def shrunk(text: str, fails: Callable[[str], bool]) -> str:
    """The program without all statements that it fails without."""
    text = ast.unparse(ast.parse(text))
    while True:
        smaller = next((t for t in _smaller(text) if fails(t)), None)
        if smaller is None:
            return text
        text = smaller


def _blocks(tree: ast.AST) -> list[Block]:
    return [
        block
        for node in ast.walk(tree)
        for name in ("body", "orelse", "finalbody")
        if isinstance(block := getattr(node, name, None), list) and block
    ]


def _smaller(text: str) -> Iterator[str]:
    """Programs with something taken out: at first much, then single statements."""
    seen = {text}
    blocks = _blocks(ast.parse(text))
    changes = [(n, at, 4) for n, block in enumerate(blocks) for at in range(0, len(block), 4)]
    changes += [(n, at, 1) for n, block in enumerate(blocks) for at in reversed(range(len(block)))]
    changes += [(n, at, 0) for n, block in enumerate(blocks) for at in range(len(block))]
    for number, at, count in changes:
        tree = ast.parse(text)
        block = _blocks(tree)[number]
        if count:
            if len(block[at : at + count]) < count:
                continue
            del block[at : at + count]
        else:
            inner = getattr(block[at], "body", None)  # instead of a block, what is in it
            if not isinstance(inner, list) or isinstance(block[at], ast.FunctionDef | ast.ClassDef):
                continue
            block[at : at + 1] = inner
        if not block:
            block.append(ast.Pass())
        candidate = ast.unparse(ast.fix_missing_locations(tree))
        if candidate not in seen:
            seen.add(candidate)
            yield candidate
