"""What a step is: the statements that move, and how they are called."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from migrator.edits import Edit


class NotMovable(Exception):
    """Why the statements stay where they are, and what would let them move."""

    def __init__(
        self,
        why: str,
        remedy: str = "move that out of the code between the forward pass and step()",
    ) -> None:
        super().__init__(why)
        self.remedy = remedy


class Settled(NotMovable):
    """There is nothing to do for this one."""


@dataclass(frozen=True)
class Step:
    """What moves into a function, and how the function is called in its place."""

    statements: Sequence[ast.stmt]
    call: ast.stmt  # the one of them that the call takes the place of
    anchor: ast.stmt  # what the function stands in front of
    parameters: Sequence[str] = ()
    arguments: Sequence[str] = ()
    results: Sequence[str] = ()
    targets: Sequence[str] = ()
    behind: Sequence[str] = ()  # lines behind the call
    lifted: Sequence[ast.stmt] = ()  # parts of the statements that do not move: behind, too
    edits: Sequence[Edit] = ()  # of the statements that move
    # Statements of a block that stays, and under what they move.
    conditions: Mapping[ast.stmt, str] = field(default_factory=dict)
    receiver: str = ""  # whose step() it ends with, "" for several
    function: ast.FunctionDef | None = None  # it is the whole body of one: that is compiled
