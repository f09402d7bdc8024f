"""Requirements in non-Python files: where one is written, and how to write more there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from migrator.formats.embedded_text import REQUIREMENT


@dataclass(frozen=True)
class Entry:
    """A requirement's text, without quotes."""

    start: int
    end: int
    text: str
    function: str = REQUIREMENT  # its kind
    joint: str = "\n"  # separates two requirements written in its place
    line: tuple[int, int] | None = None  # for conda: its whole line, deleted if it moves to pip
    tail: str = ""  # the rest of that line
    frame: tuple[str, str] = ("", "")  # goes around the text where the list is still empty
    inside: str = ""  # the quotes around it, if it is part of a command

    def held(self, text: str) -> str:
        """The text as written here: its quotes differ from those around it."""
        return text.replace("'", '"') if self.inside == "'" else text

    def lines(self, text: str) -> str:
        """Requirements (one a line), written as this file would, to replace this one."""
        before, after = self.frame
        return f"{before}{self.joint.join(text.split(chr(10)))}{after}"


@dataclass(frozen=True)
class PipList:
    """The pip list of a conda environment; new requirements go to its top."""

    at: int
    indent: str
    end: str  # newline
    head: str = ""  # creates the list if there is none

    def lines(self, moved: Sequence[tuple[list[str], str]]) -> str:
        """Lines for moved requirements, each with the rest of its original's line."""
        lines = [
            f"{self.indent}- {requirement}{tail if number == 0 else self.end}"
            for requirements, tail in moved
            for number, requirement in enumerate(requirements)
        ]
        return self.head + "".join(
            line if line.endswith("\n") else line + self.end for line in lines
        )


def valid(text: str) -> None:
    """No check: other text in its lists cannot break such a file."""
