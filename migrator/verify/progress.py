"""What is shown of something that takes long, on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

Update = Callable[[float, str], None]  # seconds, and the last line of what runs


@contextmanager
def progress(console: Console | None, text: str) -> Iterator[Update | None]:
    """A spinner on a terminal, nothing elsewhere; what it gives shows how a run goes on."""
    if console is None or not console.is_terminal:
        yield None
        return
    from rich.markup import escape

    with console.status(escape(text)) as status:

        def update(seconds: float, line: str) -> None:
            status.update(f"{escape(text)}, {seconds:.0f} s  [dim]{escape(line[:100])}")

        yield update
