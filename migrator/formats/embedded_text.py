"""Non-Python text inside a Python module, represented as calls that contain it.

Rules treat commands and requirements like everything else, and change the strings; afterwards
the calls become text again.
"""

from __future__ import annotations

import ast
import json
import re
import tokenize
from typing import Protocol

from migrator.diagnostics import Range

CELL = "__cell__"  # above a cell of a notebook, with its number
COMMAND = "__command__"  # a line for a shell: `__command__("pip install torch")`
REQUIREMENT = "__requirement__"  # a line of requirements.txt
SETTING = "__setting__"  # a line of a YAML or JSON configuration
TEXT = "__text__"  # a line of text in YAML: either settings, or prose
DEPENDENCY = "__dependency__"  # a requirement of a project that others install
EXTRA = "__extra__"  # the place of its extra for TPUs
CONSTRAINT = "__constraint__"  # a line of a constraints file, which installs nothing
COMPILED = "__compiled__"  # a whole lock list, generated from a project's requirements
CONDA = "__conda__"  # a package that conda installs
BUILD = "__build__"  # a requirement for building the project
PYTHON = "__python__"  # the Python versions that a project supports
TABLE = "__table__"  # `torch = "^2.0"` in a table of Poetry, pipenv or pixi
SOURCE = "__source__"  # `torch = { index = "x" }`: where uv gets a package from
PIXI = "__pixi__"  # a conda package installed by pixi
TIMED = "__timed__"  # a magic in front of a statement: `__timed__("%time "); f()`
FILE = "__file__"  # a cell that writes a file, which is migrated separately
OTHER = "__other__"  # only searched for GPU words: a cell of `%%bash`
REQUIRED = (REQUIREMENT, DEPENDENCY, EXTRA, CONSTRAINT, COMPILED, CONDA, BUILD, PYTHON, TABLE,
            SOURCE, PIXI)  # fmt: skip
FUNCTIONS = (COMMAND, *REQUIRED, SETTING, TEXT, OTHER)
_CALL = re.compile(
    rf"(?P<function>{'|'.join((*FUNCTIONS, TIMED, FILE))})"
    r'\((?P<text>"(?:[^"\\]|\\.)*")\)(?P<goes_on>; (?=\S))?'
)
_TIMES_NOTHING = re.compile(rf'^{TIMED}\("%[^%"][^"\n]*"\)(?:\n|\Z)', re.MULTILINE)


class Located(Protocol):
    """Something with a position in a file."""

    def located(self, where: Range) -> Range:
        """A range of its own text as a range of the file."""


class Document(Located, Protocol):
    """A file that contains code but isn't a Python module."""

    @property
    def module(self) -> str:
        """Its contents, as one Python module."""

    def with_module(self, module: str) -> str:
        """The file's text with the contents of a module that was derived from this one's.

        Raises ValueError if a part is missing.
        """


def is_embedded(node: ast.AST | None) -> bool:
    """Whether it is a call that contains text."""
    return (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS
    )


def holds_text(token: tokenize.TokenInfo) -> bool:
    """The same for a token: a string in a line that is such a call."""
    call = token.line.lstrip().startswith(tuple(f"{function}(" for function in FUNCTIONS))
    return token.type == tokenize.STRING and call


def text_of(node: ast.AST, parent: ast.AST | None) -> str | None:
    """The text that a string represents; None for a string of the program's own."""
    return str(node.value) if isinstance(node, ast.Constant) and is_embedded(parent) else None


def call(function: str, text: str) -> str:
    """Text as a statement."""
    return f"{function}({json.dumps(text)})"


def comment(text: str) -> str:
    """Text that is only kept as context."""
    return f"# {json.dumps(text)}"


def restored(code: str) -> str:
    """Python with the texts in place of the calls.

    A magic is removed with its statement; if a statement is required there, it times nothing.
    """

    def text(match: re.Match[str]) -> str:
        said = str(json.loads(match["text"]))
        return f"{said}pass" if match["function"] == TIMED and not match["goes_on"] else said

    return _CALL.sub(text, _TIMES_NOTHING.sub("", code))
