"""Unified diffs for `git apply`."""

from __future__ import annotations

import difflib
import hashlib
import os
import re
import zlib
from base64 import b85encode
from collections.abc import Iterable, Iterator
from pathlib import Path

from migrator.diagnostics import Range, Safety
from migrator.files.discover import project_root
from migrator.files.user_folders import resolved
from migrator.report.findings import FileText
from migrator.report.hunks import Hunk
from migrator.runs.run_report import WHEEL, Report

_HEADER = re.compile(rb"@@ -(\d+)(?:,(\d+))? \S+ @@")


def unified(report: Report, root: Path | None = None, *, codes: bool = False) -> Iterator[bytes]:
    """The diff of a run in the files' own bytes, line by line, companions as new files.

    Paths are relative to `root`, as `git apply` expects. With `codes`, each part starts
    with the rules that made it.
    """
    base = root or _base(report)
    for file in report.changed:
        text = FileText(file)
        lines = _file(_name(file.path, base), text.content, text.told)
        yield from _with_codes(lines, text) if codes else lines
    for path, content in report.companions.items():
        before = path.read_bytes() if path.exists() else None
        write = _binary if path.suffix == WHEEL else _file
        yield from write(_name(path, base), before, content)


def _base(report: Report) -> Path:
    """The current folder if it contains the files, otherwise the top of their project."""
    here = Path.cwd().resolve()  # Windows resolves a junction's or a substituted drive's real name
    files = [resolved(f.path) for f in report.changed]
    if not files or all(here in file.parents for file in files):
        return here
    top = project_root(files[0])
    if all(top in file.parents for file in files):
        return top
    try:
        return Path(os.path.commonpath([file.parent for file in files]))
    except ValueError:  # on several drives of Windows
        return top


def _name(path: Path, base: Path) -> bytes:
    real = resolved(path)
    try:
        return os.fsencode(Path(os.path.relpath(real, resolved(base))).as_posix())
    except ValueError:  # on another drive of Windows
        return os.fsencode(real.as_posix())


def _file(name: bytes, before: bytes | None, after: bytes) -> Iterator[bytes]:
    here, there = _quoted(b"a/" + name), _quoted(b"b/" + name)
    if before is None:
        yield b"diff --git %b %b\nnew file mode 100644\n" % (here, there)
        here = b"/dev/null"
    old, new = _lines(before or b""), _lines(after)
    for line in difflib.diff_bytes(difflib.unified_diff, old, new, here, there):
        yield line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n"


def _binary(name: bytes, before: bytes | None, after: bytes) -> Iterator[bytes]:
    """What is no text, as git writes it."""
    yield b"diff --git %b %b\n" % (_quoted(b"a/" + name), _quoted(b"b/" + name))
    if before is None:
        yield b"new file mode 100644\n"
    yield b"index %b..%b%b\n" % (_blob(before), _blob(after), b"" if before is None else b" 100644")
    yield b"GIT binary patch\n"
    for content in (after, before or b""):
        packed = zlib.compress(content)
        yield b"literal %d\n" % len(content)
        for start in range(0, len(packed), 52):
            part = packed[start : start + 52]
            letter = chr(len(part) + (64 if len(part) <= 26 else 70))  # A to Z, a to z
            yield letter.encode() + b85encode(part, pad=True) + b"\n"
        yield b"\n"


def _blob(content: bytes | None) -> bytes:
    """Git's name for a content."""
    if content is None:
        return b"0" * 40
    return hashlib.sha1(b"blob %d\0%b" % (len(content), content)).hexdigest().encode()


def _with_codes(lines: Iterable[bytes], text: FileText) -> Iterator[bytes]:
    found = [
        (text.place(Range(h.start + 1, 1, max(h.end, h.start + 1), 1, h.cell)), h)
        for h in text.hunks
    ]
    for line in lines:
        if match := _HEADER.match(line):
            first = int(match[1])
            last = first + int(match[2] or 1)
            within = [h for at, h in found if at.line <= last and first <= at.end_line]
            names = dict.fromkeys(name for h in within for name in _names(h))
            line = b" ".join((match[0], ", ".join(names).encode())).rstrip() + b"\n"
        yield line


def _names(hunk: Hunk) -> list[str]:
    """The rules that made it; one whose edit may change results is marked as unsafe."""
    unsafe = {d.code for d in hunk.diagnostics if d.safety is Safety.UNSAFE}
    return [f"{code} ({Safety.UNSAFE})" if code in unsafe else code for code in hunk.codes] or [
        hunk.label
    ]


_LETTERS = dict(zip(b'\a\b\t\n\v\f\r"\\', b'abtnvfr"\\', strict=True))


def _quoted(name: bytes) -> bytes:
    """A name as git writes it: quoted like a C string, if it would break its line."""
    spelled = b"".join(map(_spelled, name))
    return name if spelled == name else b'"%b"' % spelled


def _spelled(byte: int) -> bytes:
    if byte in _LETTERS:
        return b"\\%c" % _LETTERS[byte]
    return b"\\%03o" % byte if byte < 32 or byte == 127 else b"%c" % byte


def _lines(content: bytes) -> list[bytes]:
    """Lines split as git does it: only at line feeds."""
    *lines, last = content.split(b"\n")
    return [line + b"\n" for line in lines] + ([last] if last else [])
