"""The position of a program in its loops, by their own counters: `epoch 0, batch 3`."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

# The first and last line of a loop's body, the first line of its function (0: of none), counters.
Loop = tuple[int, int, int, list[str]]


class Loops:
    """The loops of the files seen so far."""

    def __init__(self, is_own: Callable[[str], object]) -> None:
        self.is_own = is_own
        self.files: dict[str, list[Loop]] = {}

    def here(self) -> str:
        """The counters of all loops around the current line, the outermost first."""
        found: list[str] = []
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if self.is_own(frame.f_code.co_filename):
                found[:0] = self._counters(frame)
            frame = frame.f_back
        return ", ".join(found)

    def _counters(self, frame: FrameType) -> Iterator[str]:
        code = frame.f_code
        function = 0 if code.co_name == "<module>" else code.co_firstlineno
        for begin, end, inside, names in self._loops(code.co_filename):
            if inside == function and begin <= frame.f_lineno <= end:
                for name in names:
                    value = frame.f_locals.get(name)
                    if type(value) is int:
                        yield f"{name} {value}"

    def _loops(self, file: str) -> list[Loop]:
        if file not in self.files:
            try:
                tree = ast.parse(Path(file).read_bytes())
            except (OSError, SyntaxError, ValueError):
                tree = ast.Module([], [])
            self.files[file] = sorted(_loops_of(tree, 0))
        return self.files[file]


def _loops_of(node: ast.AST, function: int) -> Iterator[Loop]:
    for child in ast.iter_child_nodes(node):
        inside = function
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            inside = min([child.lineno, *(d.lineno for d in child.decorator_list)])
        if isinstance(child, ast.For):
            last = child.body[-1]
            names = [n.id for n in ast.walk(child.target) if isinstance(n, ast.Name)]
            yield child.body[0].lineno, last.end_lineno or last.lineno, function, names
        yield from _loops_of(child, inside)
