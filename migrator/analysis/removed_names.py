"""Names that PyTorch, NumPy and others had, and no longer have in the versions that a TPU needs.

They are in removed_names.json, one a line, with what takes their place and the page that says so.
One that is `exact` is the same under its new name; the others take other arguments, or give
something else.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from migrator.analysis.prefilter import words_of
from migrator.analysis.syntax.canonical import canonical
from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.nodes import taken_by
from migrator.construct import Construct


@dataclass(frozen=True)
class Removed:
    """A function, class, constant or module that is gone."""

    name: str
    instead: str
    source: str
    exact: bool = False


@cache
def removed_names() -> dict[str, Removed]:
    text = Path(__file__).with_name("removed_names.json").read_text(encoding="utf-8")
    return {row["name"]: Removed(**row) for row in json.loads(text)}


def removed(qualname: str) -> Removed | None:
    """The name that is gone: this one, or the module that has it."""
    owner = _known().get(qualname.rpartition(".")[0])
    return _known().get(qualname) or (None if owner is None or owner.exact else owner)


@cache
def _known() -> dict[str, Removed]:
    """The names, also as `Names.qualified` spells them."""
    found = removed_names()
    return {str(canonical(name)): each for name, each in found.items()} | found


def find(names: Names, node: ast.AST) -> Iterator[Construct]:
    """A use of such a name through its module, or an import of it."""
    match node:
        case ast.Attribute():
            qualname = names.qualified(node)
            if qualname is not None and removed(qualname) is not None:
                yield Construct("removed", qualname, node)
        case ast.Call(args=[_], keywords=[]) if names.qualified(node.func) in _WITH_LOADER:
            yield Construct("loader", "yaml.load", node)
        case ast.Call() if names.qualified(node.func) == "torch.stft" and _gives_pairs(node):
            yield Construct("pairs", "torch.stft", node)
        case ast.ImportFrom(level=0, names=aliases):
            for alias in aliases:
                if removed(taken_by(node, alias)) is not None:
                    yield Construct("removed import", taken_by(node, alias), alias)
        case ast.Import(names=aliases):
            for alias in aliases:
                if removed(alias.name) is not None:
                    yield Construct("removed import", alias.name, alias)


def _gives_pairs(call: ast.Call) -> bool:
    """Whether a call of torch.stft doesn't say what it returns: once, real pairs."""
    said = {keyword.arg for keyword in call.keywords}
    starred = any(isinstance(each, ast.Starred) for each in call.args)
    return not starred and not said & {"return_complex", None} and len(call.args) < _RETURN_COMPLEX


_RETURN_COMPLEX = 10  # the place of this argument of torch.stft
# Functions of PyYAML that had a default loader.
_WITH_LOADER = ("yaml.load", "yaml.load_all")
_LOADS = re.compile(rb"yaml\.load(?<=\byaml\.load)(?:_all)?\((?:[^(),]|\([^()]*\))*\)")


# ---- a cheap test --------------------------------------------------------------------------------


def may_be_in(source: bytes) -> bool:
    """Whether a file may have such a name, judging by its words: `from m import x`, `m.x`."""
    if b"yaml" in source and _LOADS.search(source) is not None:
        return True
    if b"stft" in source and b"torch" in source:
        return True
    words = words_of(source)
    for module in dict.fromkeys(module for word, module in _words() if word in words):
        if any(short in source for short in module.called) and module.used.search(source):
            return True
        if module.begins in source and module.imported.search(source):
            return True
    return False


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
