"""Requirements inside of other files: where one stands, and how more of them stand beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from migrator.formats.embedded import REQUIREMENT


@dataclass(frozen=True)
class Entry:
    """A requirement's text, without quotes."""

    start: int
    end: int
    text: str
    function: str = REQUIREMENT  # what it is
    joint: str = "\n"  # what stands between two in its place
    line: tuple[int, int] | None = None  # of one of conda's: its whole line, which goes if it moves
    tail: str = ""  # what stands behind it there
    frame: tuple[str, str] = ("", "")  # what is around the text, where nothing stands as yet
    inside: str = ""  # of which quotes, for a command that may have quotes, too

    def held(self, text: str) -> str:
        """Text in its place: quotes around it are not those in it."""
        return text.replace("'", '"') if self.inside == "'" else text

    def lines(self, text: str) -> str:
        """Requirements, one a line, as this file writes them in the place of this one."""
        before, after = self.frame
        return f"{before}{self.joint.join(text.split(chr(10)))}{after}"


@dataclass(frozen=True)
class PipList:
    """Where an environment of conda's lists what pip installs: new ones stand first there."""

    at: int
    indent: str
    end: str  # of a line
    head: str = ""  # what makes the list, where there is none

    def lines(self, moved: Sequence[tuple[list[str], str]]) -> str:
        """Lines for requirements, each with what stood behind the one in whose place they are."""
        lines = [
            f"{self.indent}- {requirement}{tail if number == 0 else self.end}"
            for requirements, tail in moved
            for number, requirement in enumerate(requirements)
        ]
        return self.head + "".join(
            line if line.endswith("\n") else line + self.end for line in lines
        )


def valid(text: str) -> None:
    """For files that can not be damaged by other text in their lists."""
