"""The instructions of code, the same on each Python, and the names that it uses, by kind of use.

`optimizer.step()` has nothing to do with a number that is called `step`.
"""

import dis
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from types import CodeType
from typing import Any

_GLOBAL = (
    "LOAD_GLOBAL", "STORE_GLOBAL", "DELETE_GLOBAL", "LOAD_NAME", "STORE_NAME", "DELETE_NAME",
    "LOAD_FROM_DICT_OR_GLOBALS",  # since Python 3.12
)  # fmt: skip


_OF_ONE = re.compile("(?:LOAD|STORE)_FAST")


@dataclass(frozen=True)
class Operation:
    """An instruction of at most one local variable."""

    kind: str
    name: Any  # that it uses, or its argument
    text: str  # the argument, as `dis` shows it
    is_target: bool  # of a jump


def operations_of(code: CodeType) -> list[Operation]:
    """What ``code`` does. Since Python 3.13, one instruction may load or store two variables."""
    found = []
    for each in dis.get_instructions(code):
        if each.opname in ("CACHE", "NOP"):
            continue
        kinds, names = [each.opname], (each.argval,)
        if isinstance(each.argval, tuple) and _OF_ONE.match(each.opname):
            kinds, names = _OF_ONE.findall(each.opname), each.argval
        targets = (each.is_jump_target, False)
        parts = zip(kinds, names, targets, strict=False)
        found += [Operation(kind, name, each.argrepr, first) for kind, name, first in parts]
    return found


@dataclass(frozen=True)
class BytecodeNames:
    """Names in some code: of variables and attributes, and of methods that it only calls."""

    variables: frozenset[str] = frozenset()
    attributes: frozenset[str] = frozenset()
    called: frozenset[str] = frozenset()

    def matter(self, name: Any, value: object) -> bool:
        """Whether the code may use a variable or attribute with this name and value."""
        if name in self.attributes or name in self.variables:
            return True
        return name in self.called and callable(value)


NONE = BytecodeNames()


@cache
def names_of(code: CodeType) -> BytecodeNames:
    """The names in ``code``, without those in nested functions."""
    variables, attributes, called = set(), set(), set()
    for instruction in dis.get_instructions(code):
        kind, name = instruction.opname, instruction.argval
        if kind in _GLOBAL:
            variables.add(name)
        elif kind == "LOAD_METHOD" or (kind == "LOAD_ATTR" and _is_call(instruction.arg)):
            called.add(name)
        elif instruction.opcode in dis.hasname:
            attributes.add(name)
    return BytecodeNames(frozenset(variables), frozenset(attributes), frozenset(called))


def _is_call(argument: int | None) -> bool:
    """Whether LOAD_ATTR stands for LOAD_METHOD, as since Python 3.12."""
    return sys.version_info >= (3, 12) and bool((argument or 0) & 1)


def union(names: Iterable[BytecodeNames]) -> BytecodeNames:
    """The union of them."""
    some = list(names)
    return BytecodeNames(
        frozenset().union(*(n.variables for n in some)),
        frozenset().union(*(n.attributes for n in some)),
        frozenset().union(*(n.called for n in some)),
    )
