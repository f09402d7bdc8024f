"""Guards: what runs only where a question about CUDA is answered yes, and what CUDA has alone.

On a TPU the answer to `x.is_cuda` becomes yes, for the code that is rewritten behind it. A kernel
does not run there: in front of one the answer has to stay no, so that what the program does for
other devices runs.
"""

from __future__ import annotations

import ast
from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass

from migrator.analysis.devices.kernels import Kernels
from migrator.analysis.devices.questions import Place, end_of, place
from migrator.analysis.syntax.names import dotted


@dataclass(frozen=True)
class Guard:
    """What a question decides about, as spans of the source, and whether it asks of a tensor."""

    spans: Sequence[tuple[Place, Place]]
    of_tensor: bool

    def first(self, places: Sequence[Place], *kinds: str) -> Place | None:
        """The first of sorted places behind it."""
        for start, end in self.spans:
            for found in places[bisect_left(places, start) : bisect_left(places, end)]:
                if not kinds or found.kind in kinds:
                    return found
        return None


class Guards:
    """The guards of one file, in front of its kernels."""

    def __init__(self, kernels: Kernels) -> None:
        self.kernels = kernels
        self.places: list[Place] = []  # in what was looked through
        self._looked_from: dict[int, int] = {}  # by block: from where on

    def guard(self, node: ast.AST) -> Guard | None:
        """What is guarded by a question: the name of `is_available`, `x.is_cuda`, a string."""
        found = self.kernels.questions.asked(node)
        if found is None:
            return None
        asked, holds, of_tensor = found
        parts = self.kernels.questions.guarded(asked, holds)
        for block, start in parts:
            self._look(block, start)
        spans = [(place(block[i]), end_of(block[-1])) for block, i in parts if i < len(block)]
        return Guard(spans, of_tensor) if spans else None

    def _look(self, block: Sequence[ast.AST], start: int) -> None:
        """Find what stands in a block, from an index on, that was not looked through before."""
        end = self._looked_from.get(id(block), len(block))
        self._looked_from[id(block)] = min(start, end)
        for part in block[start:end]:
            for node in ast.walk(part):
                kind = self.kernels.kind(node)
                if kind:
                    found = place(node, kind, _label(node))
                    at = bisect_left(self.places, found)
                    if self.places[at : at + 1] != [found]:
                        insort(self.places, found)


def _label(node: ast.AST) -> str:
    """What a place is called in a message."""
    match node:
        case ast.Call(func=ast.Attribute(attr=name)):
            return f".{name}()"
        case ast.Import(names=[alias, *_]):
            return alias.name
        case ast.ImportFrom(module=module, names=[alias, *_]):
            return module or alias.name
    return dotted(node) or ast.unparse(node)
