"""The program's own line of each operation, for profilers and for programs that are written.

JAX shows the innermost line that isn't its own. For an operator that would be one of torchax, and
one that is traced once and called at several places has the lines of its first call.
"""

import ast
import functools
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

from jax._src.source_info_util import register_exclusion
from torchax.tensor import Environment

from ..compilation.program_code import LIBRARIES


@functools.lru_cache(4096)
def at(code: CodeType, instruction: int) -> Callable[..., Any]:
    """Calls its first argument with the others, in a frame at this place of the program."""
    line, last, column, end = [*code.co_positions()][instruction // 2]
    line = line or code.co_firstlineno
    tree = ast.parse("lambda run, *arrays: run(*arrays)", mode="eval")
    for node in ast.walk(tree):
        if "lineno" in node._attributes:
            node.lineno, node.end_lineno = line, last or line  # type: ignore[attr-defined]
            node.col_offset, node.end_col_offset = column or 0, end or 0  # type: ignore[attr-defined]
    made = compile(tree, code.co_filename, "eval").co_consts
    (there,) = [constant for constant in made if isinstance(constant, CodeType)]
    return FunctionType(there.replace(co_name=code.co_name), {})


def install(env: Environment) -> None:
    """Let JAX leave out the lines of libraries."""
    for path in LIBRARIES:
        register_exclusion(path)
