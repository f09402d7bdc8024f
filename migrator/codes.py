"""The codes of diagnostics that no rule has: files that stay, and constructs that nobody knows."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from difflib import get_close_matches

SYNTAX = "ERR001"
OLD_ARGUMENT = "UPG003"  # of the rule for old arguments; one of them is no Python any more
ENCODING = "ERR002"
INTERNAL = "ERR003"
TOO_LARGE = "ERR004"
UNREADABLE = "ERR005"
UNKNOWN = "GEN001"  # no rule answers for the construct
IDLE = "SUP001"  # a comment that switches nothing off
UPGRADES = "UPG"  # what the codes begin with that are about older versions, not about GPUs

FORMER = {"LIB010": UPGRADES}  # codes of former versions, and what rules they are now


def current(codes: Iterable[str]) -> tuple[str, ...]:
    """Codes, or what they begin with, with those of former versions as they are called now."""
    return tuple(FORMER.get(code, code) for code in codes)


def suggested_codes(code: str, known: Collection[str]) -> str:
    """The codes that may have been meant by one that is not `known`, or where all codes are."""
    family = [each for each in known if code[:3].upper() == each[:3]]
    near = get_close_matches(code.upper(), family or known, 3, 0.5)
    return f"; did you mean {', '.join(near)}?" if near else "; tpu-migrate rules lists them"


@dataclass(frozen=True)
class Family:
    """The title under which codes are listed that begin alike.

    Without one, the title is what they begin with.
    """

    prefix: str
    title: str
    place: int  # in the order in which a reader meets them


@dataclass(frozen=True)
class Code:
    """What a rule says of itself, for a code without a rule."""

    code: str
    name: str
    summary: str
    why: str
    todo: str  # what to do about it


_OTHERS = (
    Code(
        SYNTAX,
        "syntax",
        "the file is not valid Python, or not a notebook",
        """It can't be parsed, so it stays; all others are migrated. Usual reasons: code for Python
2 (`print x`), merge conflict marks, placeholders of a template, a notebook that is not JSON, or
syntax newer than the Python that runs tpu-migrate. Files that don't mention GPUs are not parsed,
and not named.""",
        """Fix the file, run tpu-migrate with a Python that knows the syntax, or exclude the file:
`--exclude PATTERN`, or `exclude = ["PATTERN"]` in `pyproject.toml`.""",
    ),
    Code(
        ENCODING,
        "encoding",
        "the bytes of the file are not in the encoding that it names",
        """Python files are UTF-8, or what their first lines say (`# -*- coding: latin-1 -*-`);
notebooks, shell scripts, requirements and configurations are UTF-8. A file that can't be decoded
could not be written back byte for byte, so it stays. A Python file is named even if it doesn't seem
to mention GPUs.""",
        "Save the file as UTF-8, name its real encoding in the first line, or exclude it.",
    ),
    Code(
        INTERNAL,
        "internal",
        "tpu-migrate has a fault, or met code that it can't rewrite",
        """The file stays; all others are migrated. Before a file is written, its new text is
parsed, and has to be the same code as the old one, apart from the edits. This code says that it is
not, that it does not parse, or that a rule raised an exception.""",
        """Please report it, with the printed line, `tpu-migrate --version`, and the file or a few
lines that show the fault. Meanwhile, `--ignore CODE` may switch off the rule that causes it, and
`--exclude PATTERN` skips the file.""",
    ),
    Code(
        TOO_LARGE,
        "too-large",
        "the file is too large to be handwritten source",
        """A Python file or a script above 4 MiB, or a notebook above 256 MiB, is generated or
data; parsing it would take minutes and gigabytes. It stays.""",
        """Generate it again from migrated sources, clear the notebook's outputs, or exclude it
with `--exclude PATTERN`, which makes the exit code 0 again.""",
    ),
    Code(
        UNREADABLE,
        "unreadable",
        "the file can't be opened",
        """No permission, a link that points nowhere or to itself, or a file that disappeared while
tpu-migrate ran. The message has the operating system's reason.""",
        "Make it readable, remove the link, or exclude it with `--exclude PATTERN`.",
    ),
    Code(
        UNKNOWN,
        "unknown-construct",
        "a GPU construct that no rule knows",
        """Every GPU construct has to be rewritten, kept or reported. A name that is newer than the
rules, or that only exists inside PyTorch, is reported here, so nothing is skipped silently.""",
        """Look up what the name does on CUDA, and what the target has instead. A table in
`pyproject.toml` can teach the tool a name for the whole project (rule USR001).""",
    ),
    Code(
        IDLE,
        "idle-comment",
        "a comment that ignores nothing",
        """`# tpu-migrate: ignore[CODE]` applies to what begins or ends on its line. With an unknown
code, a misspelt word, or nothing to change on the line, the comment would silently do nothing.""",
        "Correct the code or the word, move the comment to the construct, or remove it.",
    ),
)
OTHERS = {code.code: code for code in _OTHERS}
FAMILIES = (
    Family("GEN", "What no rule knows", 900),
    Family("ERR", "Files that stay", 910),
    Family("SUP", "Comments", 920),
)
