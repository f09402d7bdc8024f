"""Text that is no Python, inside a Python module: as calls that hold it.

Rules see commands and requirements as they see everything else, and change the strings; afterwards
the calls become the text again.
"""

from __future__ import annotations

import ast
import json
import re
import tokenize
from typing import TYPE_CHECKING, Protocol

from migrator.diagnostics import Range

if TYPE_CHECKING:
    from migrator.analysis.syntax.names import Names

CELL = "__cell__"  # what stands above a cell of a notebook, with its number
COMMAND = "__command__"  # a line for a shell: `__command__("pip install torch")`
REQUIREMENT = "__requirement__"  # a line of requirements.txt
SETTING = "__setting__"  # a line of a configuration in YAML or JSON
TEXT = "__text__"  # a line of a text in YAML: it may be read as settings, or by a person
DEPENDENCY = "__dependency__"  # the same of a project that others install
EXTRA = "__extra__"  # where its extra for TPUs stands, or would
CONSTRAINT = "__constraint__"  # the same of constraints, which install nothing
COMPILED = "__compiled__"  # a whole list that a tool made of what a project asks for
CONDA = "__conda__"  # a package that conda installs
BUILD = "__build__"  # a requirement of what builds the project
PYTHON = "__python__"  # the Pythons that a project is for
TABLE = "__table__"  # `torch = "^2.0"` in a table of Poetry's, of pipenv's or of pixi's
SOURCE = "__source__"  # `torch = { index = "x" }`: where uv takes a package from
PIXI = "__pixi__"  # a package that pixi takes from conda
TIMED = "__timed__"  # a magic in front of a statement: `__timed__("%time "); f()`
FILE = "__file__"  # a cell that writes a file, which is migrated as one of its own
OTHER = "__other__"  # what is looked into for the words of GPUs alone: a cell of `%%bash`
REQUIRED = (REQUIREMENT, DEPENDENCY, EXTRA, CONSTRAINT, COMPILED, CONDA, BUILD, PYTHON, TABLE,
            SOURCE, PIXI)  # fmt: skip
_FUNCTIONS = (COMMAND, *REQUIRED, SETTING, TEXT, OTHER)
_CALL = re.compile(
    rf"(?P<function>{'|'.join((*_FUNCTIONS, TIMED, FILE))})"
    r'\((?P<text>"(?:[^"\\]|\\.)*")\)(?P<goes_on>; (?=\S))?'
)
_TIMES_NOTHING = re.compile(rf'^{TIMED}\("%[^%"][^"\n]*"\)(?:\n|\Z)', re.MULTILINE)


class Located(Protocol):
    """What has its place in a file."""

    def located(self, where: Range) -> Range:
        """A range of its own text as one of the file."""


class Document(Located, Protocol):
    """A file that holds code and is not a Python module."""

    @property
    def module(self) -> str:
        """What is in it, as one Python module."""

    def with_module(self, module: str) -> str:
        """The file's text with what a module holds that was made from this one's.

        Raises ValueError where a part is missing.
        """


def is_embedded(node: ast.AST | None) -> bool:
    """Whether it is a call that holds text."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in _FUNCTIONS
    )


def holds_text(token: tokenize.TokenInfo) -> bool:
    """The same of a token: a string in a line that is such a call."""
    call = token.line.lstrip().startswith(tuple(f"{function}(" for function in _FUNCTIONS))
    return token.type == tokenize.STRING and call


def text_of(node: ast.AST, parent: ast.AST | None) -> str | None:
    """The text that a string stands for; None for a string of the program's own."""
    return str(node.value) if isinstance(node, ast.Constant) and is_embedded(parent) else None


def spoken(names: Names) -> frozenset[str]:
    """All words of the texts in a module: names that are used there are used."""
    calls = (names.parents[n] for function in _FUNCTIONS for n in names.by_id.get(function, ()))
    return frozenset(word for call in calls for word in re.findall(r"\w+", ast.unparse(call)))


def call(function: str, text: str) -> str:
    """Text as a statement."""
    return f"{function}({json.dumps(text)})"


def comment(text: str) -> str:
    """Text that only its surroundings are about."""
    return f"# {json.dumps(text)}"


def restored(code: str) -> str:
    """Python with the texts in the place of the calls.

    A magic whose statement is gone goes, too; where something has to stand, it times nothing.
    """

    def text(match: re.Match[str]) -> str:
        said = str(json.loads(match["text"]))
        return f"{said}pass" if match["function"] == TIMED and not match["goes_on"] else said

    return _CALL.sub(text, _TIMES_NOTHING.sub("", code))
