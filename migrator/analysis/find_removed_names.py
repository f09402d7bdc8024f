"""Uses of names that PyTorch, NumPy and others no longer have; see `analysis.upgrade_tables`."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property

from migrator.analysis.prefilter import words_of
from migrator.analysis.syntax.canonical import canonical
from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.nodes import imported_names
from migrator.analysis.upgrade_tables import Removed, removed_names
from migrator.construct import Construct


def removed(qualname: str) -> Removed | None:
    """The name that is gone: this one, or the module that has it."""
    owner = _known_names().get(qualname.rpartition(".")[0])
    return _known_names().get(qualname) or (None if owner is None or owner.exact else owner)


def removed_from(qualname: str) -> Removed | None:
    """A name that is imported and gone: also one of a module that has another name now."""
    module, _, name = qualname.rpartition(".")
    moved = _known_names().get(module)
    if (gone := removed(qualname)) is not None or moved is None or not moved.exact:
        return gone
    instead, exact = f"{moved.instead}.{name}", moved.instead != "builtins" or name in dir(builtins)
    return replace(moved, name=qualname, instead=instead, exact=exact)


@cache
def _known_names() -> dict[str, Removed]:
    """The names, also as `Names.qualified` spells them."""
    found = removed_names()
    return {str(canonical(name)): each for name, each in found.items()} | found


def find(names: Names, node: ast.AST) -> Iterator[Construct]:
    """A use of such a name through its module, or an import of it."""
    if isinstance(node, ast.Attribute):
        qualname = names.qualified(node)
        if qualname is not None and (gone := removed(qualname)) is not None:
            if gone.name == qualname or "." in gone.name:  # the import of a module says it
                yield Construct("removed", qualname, node)
    elif isinstance(node, ast.Import | ast.ImportFrom):
        known = removed if isinstance(node, ast.Import) else removed_from
        for name, alias in imported_names(node):
            if known(name) is not None:
                yield Construct("removed import", name, alias)


# ---- a cheap test --------------------------------------------------------------------------------


def may_be_in(source: bytes) -> bool:
    """Whether a file may have such a name, judging by its words: `from m import x`, `m.x`."""
    words = words_of(source)
    modules = _MODULE.findall(source)
    if any(module.decode() in removed_names() for module in modules):
        return True
    if any(module.decode() in _moved() for module in _FROM.findall(source)):
        return True
    for module in dict.fromkeys(module for word, module in _words() if word in words):
        if any(short in source for short in module.called) and module.used.search(source):
            return True
        if module.begins in source and module.imported.search(source):
            return True
    return False


@cache
def _moved() -> set[str]:
    """Names that may be those of modules that have another name now."""
    return {name for name, gone in removed_names().items() if gone.exact}


_FROM = re.compile(rb"\bfrom[ \t]+([\w.]+)[ \t]+import\b")
# The first module of an import, in a notebook, too.
_MODULE = re.compile(rb"(?:^|[\"n;:])[ \t]*(?:import|from)[ ]+(\w+)", re.MULTILINE)


@dataclass(frozen=True)
class _Module:
    """A module that had some names, as programs write it."""

    name: str
    names: str  # an alternation
    called: tuple[bytes, ...]  # with a dot behind it

    @property
    def begins(self) -> bytes:
        """How an import from it begins."""
        return f"from {self.name} import".encode()

    @cached_property
    def used(self) -> re.Pattern[bytes]:
        called = (re.escape(each.decode()) for each in self.called)
        # letters first: fast
        uses = (rf"{each}(?<=\b{each})(?:{self.names})\b" for each in called)
        return re.compile("|".join(uses).encode())

    @cached_property
    def imported(self) -> re.Pattern[bytes]:
        names = rf"[^\n;(]*\b(?:{self.names})\b|[ ]*\([^)]*\b(?:{self.names})\b"
        return re.compile(rf"{re.escape(self.begins.decode())}(?:{names})".encode())


# What modules are called in most programs.
_SHORT = {
    "numpy": ("np",), "pandas": ("pd",), "torchvision.transforms": ("T", "tf"),
    "torchvision.transforms.functional": ("TF", "F"), "scipy.signal": ("ss",),
}  # fmt: skip


@cache
def _words() -> list[tuple[bytes, _Module]]:
    """The last words of the names, as `words_of` has them, with their modules."""
    lasts: dict[str, list[str]] = {}
    for name in removed_names():
        module, _, last = name.rpartition(".")
        if module:
            lasts.setdefault(module, []).append(last)
    return [
        (f"\n{last}\n".encode(), module)
        for module, which in ((_module(m, "|".join(each)), each) for m, each in lasts.items())
        for last in which
    ]


def _module(module: str, which: str) -> _Module:
    word = module.rpartition(".")[2]
    called = tuple(f"{short}.".encode() for short in (word, *_SHORT.get(module, ())))
    return _Module(module, which, called)
