"""The codes of diagnostics that no rule has: files that stay, and constructs that nobody knows."""

from __future__ import annotations

from dataclasses import dataclass

SYNTAX = "ERR001"
ENCODING = "ERR002"
INTERNAL = "ERR003"
TOO_LARGE = "ERR004"
UNREADABLE = "ERR005"
UNKNOWN = "GEN001"  # no rule answers for the construct
IDLE = "SUP001"  # a comment that switches nothing off


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
    todo: str  # what a person does about it


_OTHERS = (
    Code(
        SYNTAX,
        "syntax",
        "the file is not valid Python, or not a notebook",
        """Nothing can be said of what can not be parsed, so the file stays as it is, and all
others are migrated. It is read by the grammar of the Python that runs tpu-migrate: code for
Python 2 (`print x`), a file with the marks of a merge conflict, a template with placeholders, a
notebook that is no JSON. A file without a word of GPUs is not parsed, and is not named.""",
        """Mend the file, run tpu-migrate by a Python that knows the syntax, or leave the file out:
`--exclude PATTERN`, or `exclude = ["PATTERN"]` in `pyproject.toml`.""",
    ),
    Code(
        ENCODING,
        "encoding",
        "the bytes of the file are not in the encoding that it names",
        """Python files are UTF-8, or what their first lines say (`# -*- coding: latin-1 -*-`);
notebooks, shell scripts, requirements and configurations are UTF-8. A file that can not be decoded
could not be written back byte by byte, so it stays as it is. A Python file is named here even where
no word of GPUs is seen in it.""",
        "Save the file as UTF-8, name its real encoding in the first line, or leave it out.",
    ),
    Code(
        INTERNAL,
        "internal",
        "tpu-migrate has a fault, or met code that it can not rewrite",
        """The file stays as it is, and all others are migrated. Before a file is written, its new
text is parsed, and compared with the old one: outside of what was to be edited, both must be the
same code. A result that is something else or does not parse, a file that does not survive being
parsed and written, or an exception in a rule ends here, with one line that says what happened.""",
        """Please report it, with the line that is printed, `tpu-migrate --version`, and the file
or a few lines that do the same. Until then `--ignore CODE` may switch off the rule that is at
fault, and `--exclude PATTERN` the file.""",
    ),
    Code(
        TOO_LARGE,
        "too-large",
        "the file is too large to be source that a person wrote",
        """A Python file or a script above 4 MiB, or a notebook above 256 MiB, is generated or is
data; to parse it would take minutes and gigabytes. It stays as it is.""",
        """Generate it anew from migrated sources, clear the outputs of the notebook, or leave it
out by `--exclude PATTERN`, so that the exit code is 0 again.""",
    ),
    Code(
        UNREADABLE,
        "unreadable",
        "the file can not be opened",
        """No permission, a link that points nowhere or to itself, a file that went away while
tpu-migrate ran. The message has the reason that the operating system gives.""",
        "Make it readable, remove the link, or leave it out by `--exclude PATTERN`.",
    ),
    Code(
        UNKNOWN,
        "unknown-construct",
        "a GPU construct that no rule knows",
        """What counts as a GPU construct is decided in one place, by names; each of them has to
end as rewritten, kept or reported. A name that is newer than the rules, or that only exists inside
of PyTorch, is reported so that nothing is passed over in silence.""",
        """Look up what the name does on CUDA, and what the target has instead. A table in
`pyproject.toml` can teach the tool a name for the whole project (rule USR001).""",
    ),
    Code(
        IDLE,
        "idle-comment",
        "a comment that ignores nothing",
        """`# tpu-migrate: ignore[CODE]` counts for what begins or ends on its line. A code that no
rule has, a misspelt word, or a line without anything to change would leave the comment without an
effect, in silence.""",
        "Correct the code or the word, move the comment to the construct, or remove it.",
    ),
)
OTHERS = {code.code: code for code in _OTHERS}
FAMILIES = (
    Family("GEN", "What no rule knows", 900),
    Family("ERR", "Files that stay", 910),
    Family("SUP", "Comments", 920),
)
