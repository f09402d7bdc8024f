"""Progress of long operations: on a terminal continuously, in a log once per run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import Console

Update = Callable[[float, str], None]  # seconds, and the last line of what runs


@contextmanager
def progress(console: Console | None, text: str) -> Iterator[Update | None]:
    """A spinner on a terminal, nothing elsewhere; the yielded function updates it."""
    if console is None or not console.is_terminal:
        yield None
        return
    from rich.markup import escape

    with console.status(escape(text)) as status:

        def update(seconds: float, line: str) -> None:
            status.update(f"{escape(text)}, {seconds:.0f} s  [dim]{escape(line[:100])}")

        yield update


class Runs:
    """The runs of one verification: how many there are, and about how long the rest will take.

    Without a terminal, a line goes to standard error as each run begins and ends. Without a
    console, nothing is printed.
    """

    def __init__(self, console: Console | None) -> None:
        self.console = console
        # expected seconds of the coming runs, by name; None: of one that mostly compiles
        self.coming: dict[str, float | None] = {}
        self.ended: list[tuple[float, float]] = []  # expected and actual seconds
        self.begun = 0

    def expect(self, seconds: Mapping[str, float | None], why: str = "") -> None:
        """Announce how many runs there will be, how long they will take, and why they are added."""
        self.coming |= seconds
        number = len(self.coming)
        because = f", because {why}" if why else ""
        self._say(f"{number} more run{'s' * (number != 1)}, {self._rest}{because}", always=True)

    @property
    def left(self) -> float:
        """Remaining seconds, as far as known, scaled by how long the finished runs took.

        They may have been quick because caches were filled, which makes compiling no quicker: so
        the rest is halved at most.
        """
        rest = sum(seconds or 0.0 for seconds in self.coming.values())
        expected = sum(seconds for seconds, _ in self.ended)
        return rest * max(0.5, sum(took for _, took in self.ended) / expected) if expected else rest

    @property
    def _rest(self) -> str:
        times = self.coming.values()
        known = [about(self.left)] if any(seconds is not None for seconds in times) else []
        return " and ".join([*known, *["the time to compile"] * (None in times)])

    @contextmanager
    def run(self, name: str, text: str) -> Iterator[Update | None]:
        """One run; ``text`` describes it."""
        self.begun += 1
        number = f"run {self.begun}"
        if self.coming:
            number += f" of {self.begun - 1 + len(self.coming | {name: None})}"
        left = f" (left: {self._rest})" if self.coming else ""
        self._say(f"{number}: {text}{left}")
        start = time.monotonic()
        with progress(self.console, f"{number}: {text}{left}") as update:
            yield update
        took = time.monotonic() - start
        self._say(f"{number} took {took:.0f} s")
        if (expected := self.coming.pop(name, None)) is not None:
            self.ended.append((expected, took))

    def _say(self, line: str, always: bool = False) -> None:
        if self.console is None:
            return
        if not self.console.is_terminal:
            click.echo(line, err=True)
        elif always:
            self.console.print(line, style="dim", highlight=False)


def about(seconds: float) -> str:
    """A rough time, rounded accordingly."""
    if seconds < 55:
        return f"about {max(5, 5 * round(seconds / 5))} s"
    minutes = round(seconds / 60)
    return f"about {minutes} minute{'s' * (minutes != 1)}"
