"""Guards: tests for CUDA around code that a TPU can't run.

On a TPU, `x.is_cuda` becomes true for the rewritten code behind it. But CUDA kernels don't run
there: if the test guards a kernel, it has to stay false, so that the program takes its path for
other devices.
"""

from __future__ import annotations

import ast
from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass

from migrator.analysis.devices.availability_checks import CodePlace, code_place, end_of
from migrator.analysis.devices.cuda_kernels import Kernels
from migrator.analysis.syntax.nodes import dotted

# What reads the memory of a tensor on the host, or brings it there.
_OF_HOST = frozenset({"numpy", "from_numpy", "data_ptr", "__array__", "dlpack", "cpu"})


@dataclass(frozen=True)
class Guard:
    """The code that a test decides about, as spans of the source, and whether it tests a tensor.

    `otherwise` is what runs in its place, if that runs on any device.
    """

    spans: Sequence[tuple[CodePlace, CodePlace]]
    of_tensor: bool
    otherwise: Sequence[ast.AST] = ()

    def first(self, places: Sequence[CodePlace], *kinds: str) -> CodePlace | None:
        """The first of some sorted places that is inside of it."""
        for start, end in self.spans:
            for found in places[bisect_left(places, start) : bisect_left(places, end)]:
                if not kinds or found.kind in kinds:
                    return found
        return None

    def reaches(self, one: CodePlace, other: CodePlace) -> bool:
        """Whether it runs to `one` first; the test stands behind `x` in `x if a and b else y`."""
        where = [next(n for n, span in enumerate(self.spans) if span[0] <= at < span[1])
                 for at in (one, other)]  # fmt: skip
        return (where[0], one) < (where[1], other)


class AvailabilityGuards:
    """The guards of one file that protect kernels."""

    def __init__(self, kernels: Kernels) -> None:
        self.kernels = kernels
        self.places: list[CodePlace] = []  # in the parts examined so far
        self._looked_from: dict[int, int] = {}  # by block: the index from which it was examined

    def guard(self, node: ast.AST) -> Guard | None:
        """The code that a test guards; `node` is the name of `is_available`, `x.is_cuda`, or a
        string."""
        found = self.kernels.questions.asked(node)
        if found is None:
            return None
        asked, holds, of_tensor = found
        parts = self.kernels.questions.guarded(asked, holds)
        for block, start in parts:
            self._look(block, start)
        spans = [(code_place(block[i]), end_of(block[-1])) for block, i in parts if i < len(block)]
        other = self.kernels.questions.otherwise(asked, holds) if spans else ()
        return Guard(spans, of_tensor, other if self._runs(other) else ()) if spans else None

    def _runs(self, code: Sequence[ast.AST]) -> bool:
        """Whether code for machines without CUDA runs with tensors of any device."""
        if not code or (isinstance(code[-1], ast.stmt) and self._fails(code)):
            return False
        parts = [part for node in code for part in ast.walk(node)]
        said = {getattr(part, "attr", getattr(part, "value", None)) for part in parts
                if isinstance(part, ast.Attribute | ast.Constant)}  # fmt: skip
        return said.isdisjoint(_OF_HOST) and not any(
            self.kernels.kind(part) in ("kernel", "wrapper") for part in parts
        )

    def _fails(self, code: Sequence[ast.AST]) -> bool:
        """Whether it raises an exception, at its end or as its first statement that leaves."""
        raises = (ast.Raise, ast.Assert)
        return any(isinstance(each, raises) for each in code) or self.kernels.names.ends(
            [each for each in code if isinstance(each, ast.stmt)]
        )

    def _look(self, block: Sequence[ast.AST], start: int) -> None:
        """Examine a block from an index on, except for parts that were examined before."""
        end = self._looked_from.get(id(block), len(block))
        self._looked_from[id(block)] = min(start, end)
        for part in block[start:end]:
            for node in ast.walk(part):
                kind = self.kernels.kind(node)
                if kind:
                    found = code_place(node, kind, _label(node))
                    at = bisect_left(self.places, found)
                    if self.places[at : at + 1] != [found]:
                        insort(self.places, found)


def _label(node: ast.AST) -> str:
    """The name of a place in messages."""
    match node:
        case ast.Call(func=ast.Attribute(attr=name)):
            return f".{name}()"
        case ast.Import(names=[alias, *_]):
            return alias.name
        case ast.ImportFrom(module=module, names=[alias, *_]):
            return module or alias.name
    return dotted(node) or ast.unparse(node)
