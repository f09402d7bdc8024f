"""Read: `x.cuda(async=True)`, which no Python can parse since 3.7, as `non_blocking=True`."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache

from migrator.codes import OLD_ARGUMENT
from migrator.diagnostics import Diagnostic, Outcome, Range, Severity
from migrator.formats import python_source
from migrator.options import Options
from migrator.pipeline.result import Result

OLD, NEW = "async", "non_blocking"
_CALLS = ("cuda", "copy_", "to", "type")  # whose argument it was
_OLD = re.compile(rb"\basync[ \t]*=(?!=)")
_WHY = "async is a keyword since Python 3.7; PyTorch calls the argument non_blocking"


def renewed(source: bytes, options: Options) -> Result | None:
    """The file with the argument's new name; None if it has none, or is no Python with it, too."""
    if _OLD.search(source) is None or not options.enabled(OLD_ARGUMENT):
        return None
    return _renewed(source)


def as_read(source: bytes) -> bytes:
    """What other files read of it."""
    result = _renewed(source) if _OLD.search(source) is not None else None
    return result.source if result is not None else source


@lru_cache(maxsize=64)
def _renewed(source: bytes) -> Result | None:
    with suppress(SyntaxError, ValueError, RecursionError, MemoryError, tokenize.TokenError):
        decoded = python_source.decode(source)
        if _is_python(decoded.text):
            return None
        lines, found = [*io.StringIO(decoded.text)], [*_arguments(decoded.text)]
        for line, column in reversed(found):
            before, after = lines[line - 1][:column], lines[line - 1][column + len(OLD) :]
            lines[line - 1] = f"{before}{NEW}{after}"
        if found and _is_python(text := "".join(lines)):
            return Result(source, decoded.encode(text), tuple(map(_said, found)))
    return None


def _is_python(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


def _arguments(text: str) -> Iterator[tuple[int, int]]:
    """Where a call of PyTorch's is given `async=`: lines from 1 on, columns from 0 on.

    Raises ValueError where another call is: its argument has another new name.
    """
    before, last = "", None
    called: list[str] = []  # of each open bracket: the name in front
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.NL, tokenize.COMMENT):
            continue
        if token.string in ("(", "[", "{"):
            called.append(last.string if last is not None and token.string == "(" else "")
        elif token.string in (")", "]", "}") and called:
            called.pop()
        elif token.string == "=" and last is not None and last.string == OLD:
            if before in ("(", ","):
                if not called or called[-1] not in _CALLS:
                    raise ValueError(f"{OLD}= of another function")
                yield last.start
        before, last = last.string if last is not None else "", token


def _said(place: tuple[int, int]) -> Diagnostic:
    line, column = place
    where = Range(line, column + 1, line, column + 1 + len(OLD))
    return Diagnostic(
        where,
        OLD_ARGUMENT,
        Severity.INFO,
        _WHY,
        Outcome.REWRITTEN,
        f"{OLD}=",
        touched=(where,),
        name=OLD,
    )
