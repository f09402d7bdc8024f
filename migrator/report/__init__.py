"""Reports: how a run is presented. One file for each format."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from dataclasses import dataclass
from importlib import import_module
from json import dumps  # `json` is a report here
from pathlib import Path
from typing import TYPE_CHECKING

from migrator.errors import UsageError
from migrator.files.user_folders import resolved

if TYPE_CHECKING:
    from migrator.runs.run_report import Report

# What `--format` takes beside "console": each is a module here with `render(report, view) -> str`.
FORMATS = ("json", "github", "github-review", "gitlab", "markdown", "sarif")
_NAMED = ("github", "gitlab", "sarif")  # a service uses the file that they refer to
_BEYOND, _LONE = re.compile("[^\0-\x7f]+"), re.compile("[\ud800-\udfff]")
_COMMAND = re.compile(r"(##(?:vso)?)\[")
# The first characters of each: such a file may be overwritten.
_BEGINNING = re.compile(
    rb"""::(error|warning|notice|group) ?\S | tpu-migrate:\ \d | <!--\ tpu-migrate\ -->
    | \{\s+"event":\ "COMMENT",\s+"body":\ "tpu-migrate\  | \{\s+"version":.+\s+"target":
    | \{\s+"\$schema":\ "https://docs\.oasis-open\.org/sarif/
    | \[\]\s*\Z | \[\s+\{\s+"description":\ "[A-Z]+\d*:\ """,
    re.VERBOSE,
)


@dataclass(frozen=True)
class View:
    """Facts for a report that aren't part of the run's result."""

    exit_code: int = 0
    written: bool = False  # in place: the files already have the new content
    statistics: bool = False


def check(names: Collection[str], *, stdin: bool, diff_base: bool) -> None:
    """Refuse formats that need something that a run lacks, before anything is migrated.

    Args:
        stdin: the source is standard input without a name.
        diff_base: the base of the change is known.

    Raises:
        UsageError: one of them does.
    """
    if "github-review" in names and not diff_base:
        raise UsageError("--format github-review: add --diff-base REV, what the change is for")
    for name in _NAMED if stdin else ():
        if name in names:
            raise UsageError(f"--format {name}: add --stdin-filename PATH, what it is about")


def check_file(path: Path) -> None:
    """Refuse a path where a report would overwrite something, or can't be written.

    Raises:
        UsageError: source, a file that isn't a report, a folder that can't be written to.
    """
    if path.suffix in (".py", ".ipynb"):
        raise UsageError("that name is for source code; name another file")
    try:
        if path.is_dir() or not path.parent.is_dir():
            raise UsageError("cannot write a file there")
        if path.exists() and not path.is_file():
            return  # a pipe, or a terminal
        if path.exists() and path.stat().st_size and not _is_report(path):
            raise UsageError("exists and is not a report of tpu-migrate; name another file")
        if not os.access(resolved(path).parent, os.W_OK):
            raise UsageError(f"{path.parent} cannot be written to")
    except OSError as error:
        raise UsageError(error.strerror or str(error)) from None


def _is_report(path: Path) -> bool:
    with path.open("rb") as file:
        return _BEGINNING.match(file.read(400)) is not None


def as_json(document: object) -> str:
    """JSON that every reader accepts: half a character (a name that isn't UTF-8) becomes U+FFFD."""
    text = _LONE.sub("\N{REPLACEMENT CHARACTER}", dumps(document, indent=2, ensure_ascii=False))
    text = _COMMAND.sub(r"\1\\u005b", text)  # only texts hold it; a log may be read for commands
    return _BEYOND.sub(lambda match: dumps(match[0])[1:-1], text)


def write(path: Path, report: str) -> None:
    """Write a report in one step.

    Raises:
        UsageError: it cannot be written.
    """
    from migrator.files import staging  # not needed at every start

    content = report.encode("utf-8", "replace") + b"\n"
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(content)
        else:
            staging.write(path, content)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror or error}") from None


def render(name: str, report: Report, view: View) -> str:
    """A report in one of `FORMATS`.

    Raises:
        UsageError: the format needs something that is missing.
    """
    module = import_module(f"{__name__}.{name.replace('-', '_')}")
    text: str = module.render(report, view)
    return text
