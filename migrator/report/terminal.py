"""The console of every command: colours if they are wanted, and lines that nothing breaks."""

from __future__ import annotations

import codecs
import os
import re
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, TextIO

import click

if TYPE_CHECKING:  # importing rich takes too long for shell completion
    from rich.console import Console
    from rich.text import Text

# Lines in files and pipes aren't wrapped, so that programs and people can search them.
_UNBROKEN = 10_000
_NARROW = 30  # columns; narrower ones are left to the terminal
_CHOICES = {"auto": None, "always": True, "never": False}


def _chosen(context: click.Context, _parameter: click.Parameter, value: str) -> None:
    context.color = _CHOICES[value]


def color_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--color auto|always|never`, which `console` follows."""
    return click.option(
        "--color",
        type=click.Choice(list(_CHOICES)),
        default="auto",
        show_default=True,
        expose_value=False,
        is_eager=True,
        callback=_chosen,
        help="Colours; auto: on a terminal, unless NO_COLOR or FORCE_COLOR is set.",
    )(command)


def console(stderr: bool = False, *, shows_color: bool = False) -> Console:
    """A console as configured on the command line and in the environment.

    The first of these decides: `--color`, NO_COLOR, FORCE_COLOR (if they aren't empty),
    whether the stream is a terminal, or otherwise known to show colours. COLUMNS is the width;
    otherwise the terminal's own, or unlimited.
    """
    stream = sys.stderr if stderr else sys.stdout
    context = click.get_current_context(silent=True)
    color = context.color if context is not None else None
    if color is None and os.environ.get("NO_COLOR"):
        color = False
    if color is None and (shows_color or os.environ.get("FORCE_COLOR")):
        color = True
    terminal = stream.isatty()
    return _safe()(
        stderr=stderr,
        highlight=False,
        width=None if terminal or os.environ.get("COLUMNS") else _UNBROKEN,
        force_terminal=terminal or color is True,
        force_interactive=terminal and os.environ.get("TERM") != "dumb",
        force_jupyter=False,  # a notebook shows a stream in its own theme's colours
        no_color=color is False,
        color_system={None: "auto", True: "standard", False: None}[color],
    )


@cache
def _safe() -> type[Console]:
    from rich.console import Console
    from rich.segment import Segment

    class Safe(Console):
        """A console that obeys no control codes in text: from a program, a file name, or source."""

        def render(self, *arguments: Any, **options: Any) -> Iterable[Segment]:
            line = ""  # so far
            for segment in super().render(*arguments, **options):
                if segment.control is None:
                    text = spelled_out(segment.text)
                    if is_read_by_a_runner():
                        text = _unobeyed(line, text)
                    if text != segment.text:
                        segment = Segment(text, segment.style)
                    line = f"{line}{text}".rpartition("\n")[2][-_COMMAND:]
                yield segment

    return Safe


# A terminal's control characters except tabs and line ends, and characters that change direction.
_OBEYED = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def spelled_out(text: str) -> str:
    """Text whose control characters are spelled out, except for tabs and line ends."""
    return _OBEYED.sub(lambda match: repr(match[0])[1:-1], text)


# ---- the runners of workflows, which obey lines of a log -----------------------------------------

_COMMAND = 100  # characters of a line, in front of which blanks are passed over
_ANYWHERE = re.compile(r"##(?=(?:vso)?\[)")  # `##[` of GitHub, `##vso[` of Azure


def is_read_by_a_runner() -> bool:
    return bool(os.environ.get("GITHUB_ACTIONS") or os.environ.get("TF_BUILD"))


def _unobeyed(before: str, text: str) -> str:
    """Text behind `before` on its line, where no line starts as a command does."""
    first, *others = text.split("\n")
    lines = [first if before.strip(" :") else _uncolon(first), *map(_uncolon, others)]
    return _ANYWHERE.sub("## ", "\n".join(lines))


def _uncolon(said: str) -> str:
    return said.replace("::", ": :", 1) if said.lstrip().startswith("::") else said


@contextmanager
def obeying_nothing(*, err: bool = False) -> Iterator[None]:
    """Have a runner obey no line of an output meanwhile: source can hold its commands.

    In a file nobody obeys them, so nothing is added to one.
    """
    stream = sys.stderr if err else sys.stdout
    if not os.environ.get("GITHUB_ACTIONS") or _is_file(stream):
        yield
        return
    word = os.urandom(16).hex()
    print(f"::stop-commands::{word}", file=stream, flush=True)
    try:
        yield
    finally:
        print(f"::{word}::", file=stream, flush=True)


def _is_file(stream: TextIO) -> bool:
    try:
        return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError):
        return False


def line(*parts: str | tuple[str, str]) -> Text:
    """Styled text on one line that names and messages can't break."""
    from rich.text import Text

    return Text.assemble(
        *((printable(p[0]), p[1]) if isinstance(p, tuple) else printable(p) for p in parts)
    )


def say(to: Console, text: Text | str, indent: int = 4) -> None:
    """Print a paragraph: what is wider than a terminal goes on in further lines, indented.

    TargetApi stay whole: paths can be clicked, and commands copied.
    """
    from rich.text import Text

    text = Text(text) if isinstance(text, str) else text
    breaks = _breaks(text.plain, to.width, indent) if _wraps(to) else []
    for number, each in enumerate(text.divide(breaks)):
        each.rstrip()
        to.print(Text(" " * indent).append(each) if number else each, soft_wrap=True)


def fits(to: Console, text: Text) -> bool:
    """Whether `say` prints it as one line."""
    return text.cell_len <= to.width or not _wraps(to)


def _wraps(to: Console) -> bool:
    return to.width >= _NARROW and not to.is_dumb_terminal  # rich takes those for 80 columns


def _breaks(text: str, width: int, indent: int) -> list[int]:
    """Where further lines begin: at words."""
    from rich.cells import cell_len

    found: list[int] = []
    used = 0
    for match in re.finditer(r"(\s*)(\S+)", text):
        needed = cell_len(match[0])
        if used and used + needed > width:
            found.append(match.start(2))
            used, needed = indent, cell_len(match[2])
        used += needed
    return found


def printable(text: object) -> str:
    """A name or a message on one line that neither a terminal nor a workflow runner obeys."""
    said = "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(text))
    return _ANYWHERE.sub("## ", _uncolon(said))


def print_code(code: str, language: str, to: Console) -> None:
    """Code in colours, with its own lines: a terminal may wrap them, this program doesn't."""
    from rich.syntax import Syntax

    text = Syntax(code, language, theme="ansi_dark", background_color="default").highlight(code)
    text.rstrip()
    to.print(text, soft_wrap=True)


# ---- terminals that have no UTF-8 ----------------------------------------------------------------

_PLAIN = {
    "×": "x", "·": ".", "…": "...", "—": "-", "–": "-", "→": "->", "≤": "<=", "≥": ">=", "²": "^2",
    "³": "^3", "¹": "^1", "±": "+-", "µ": "u", "≈": "~", "’": "'", "“": '"', "”": '"', "•": "*",
    "✓": "ok", "−": "-", "█": "#", "━": "-", "╺": "-", "╸": "-",
}  # fmt: skip


def _spelled(error: UnicodeError) -> tuple[str | bytes, int]:
    """Characters that a terminal lacks, replaced by ones that it has."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    characters = error.object[error.start : error.end]
    plain = [_PLAIN.get(c) or c.encode("ascii", "backslashreplace").decode() for c in characters]
    return "".join(plain), error.end


def spell_out() -> None:
    """Make standard output and standard error accept every character, whatever their encoding."""
    codecs.register_error("tpu-migrate", _spelled)
    for stream in (sys.stdout, sys.stderr):
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors="tpu-migrate")
