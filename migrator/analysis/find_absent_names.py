"""Names that a program takes from a package, and that its pinned version does not have.

`installed/` has the names of the packages that targets run with, written by
benchmarks/installed_names.py. A module that is not in a list is taken to have every name.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Set
from difflib import get_close_matches
from functools import cache
from pathlib import Path

from migrator.analysis.find_removed_names import removed, removed_from
from migrator.analysis.syntax.canonical import spellings
from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.nodes import imported_names
from migrator.construct import Construct
from migrator.targets import targets

FOLDER = Path(__file__).with_name("installed")
PACKAGES = ("torch", "torchvision", "numpy", "scipy", "PIL", "pandas", "keras", "tensorflow")
_LISTED_WITH = {"tensorflow": "keras"}  # tensorflow.keras, and no other module of it


@cache
def _sets() -> Set[tuple[str, ...]]:
    """The lists of each target."""
    return {target.environment.names for target in targets().values()}


@cache
def _modules(name: str) -> Mapping[str, str]:
    """The modules of a list, each with its names, apart by spaces."""
    lines = (FOLDER / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    found: dict[str, str] = {}
    if lines[0].startswith("= "):
        found = dict(_modules(lines.pop(0)[2:]))
    for line in lines:
        module, _, names = line.partition(" ")
        if names.startswith(("+", "-")):  # what differs from the other list
            new = {name[1:] for name in names.split() if name[0] == "+"}
            gone = {name[1:] for name in names.split() if name[0] == "-"}
            names = " ".join(set(found.get(module, "").split()) - gone | new)
        found[module] = names
    return found


@cache
def _names(package: str, module: str) -> Set[str] | None:
    """The names of a module; None if they are not known."""
    names = _modules(package).get(module)
    return frozenset(names.split(" ")) if names else None


@cache
def absent(qualname: str, package: str) -> str | None:
    """The part of a full name that a list does not have: `torch.nn.Foo` of `torch.nn.Foo.bar`."""
    at, *rest = qualname.split(".")
    for part in rest:
        names = _names(package, at)
        if part.startswith("__"):
            return None
        if names is not None and part not in names:
            return f"{at}.{part}"
        at = f"{at}.{part}"
    return None


def package_of(qualname: str) -> str:
    """The package whose list has a name."""
    head = qualname.partition(".")[0]
    return _LISTED_WITH.get(head, head)


def missing(qualname: str, installed: tuple[str, ...]) -> str | None:
    """The name that does not exist under any of its spellings in what is installed."""
    head = package_of(qualname)
    package = next((each for each in installed if each.startswith(f"{head}-")), None)
    if package is None or removed(qualname) is not None:
        return None
    found = [absent(each, package) for each in spellings(qualname)]
    return found[0] if all(found) else None


def _is_missing(qualname: str) -> bool:
    return any(missing(qualname, installed) is not None for installed in _sets())


def near(qualname: str) -> list[str]:
    """What its module has: this name itself, or else names like it (`torch.cuda.Streem`)."""
    module, _, name = qualname.rpartition(".")
    lists = sorted({package for installed in _sets() for package in installed})
    known = set().union(*(_names(package, module) or () for package in lists))
    found = [name] if name in known else get_close_matches(name, sorted(known), 2, 0.8)
    return [f"{module}.{each}" for each in found]


def find(names: Names, node: ast.AST) -> Iterator[Construct]:
    """A use of such a name through its module, or an import of it."""
    if isinstance(node, ast.Attribute):
        qualname = names.qualified(node) if isinstance(node.ctx, ast.Load) else None
        if qualname is None or not qualname.startswith(PACKAGES):
            return
        through = names.qualified(node.value)  # what takes its place has this name
        if _is_missing(qualname) and (through is None or removed(through) is None):
            yield Construct("absent", qualname, node)
    elif isinstance(node, ast.Import | ast.ImportFrom):
        for name, alias in imported_names(node):
            if alias.name != "*" and removed_from(name) is None and _is_missing(name):
                yield Construct("absent", name, alias)


# ---- a cheap test --------------------------------------------------------------------------------

_HEADS = "|".join(PACKAGES)
_IMPORT = re.compile(rf"\bimport[ \t]+((?:{_HEADS})[\w.]*)(?:[ \t]+as[ \t]+(\w+))?".encode())
_FROM = re.compile(
    rf"\bfrom[ \t]+((?:{_HEADS})[\w.]*)[ \t]+import[ \t]*(\([^)]*\)|[^\n;\\(]*)".encode()
)
_TAKEN = re.compile(rb"(\w+)(?:\s+as\s+(\w+))?")
_COMMENT = re.compile(rb"#[^\n]*")


def may_be_in(source: bytes) -> bool:
    """Whether a file may have such a name, judging by its imports and what follows their names."""
    local: dict[str, str] = {}
    for module, name in _IMPORT.findall(source):
        full = module.decode()
        if _is_missing(full):
            return True
        local |= {name.decode(): full} if name else {full.partition(".")[0]: full.partition(".")[0]}
    for module, text in _FROM.findall(source):
        for taken, name in _TAKEN.findall(_COMMENT.sub(b"", text)):
            full = f"{module.decode()}.{taken.decode()}"
            if _is_missing(full):
                return True
            local[(name or taken).decode()] = full
    if not local:
        return False
    used = re.compile(rf"(?<![\w.])({'|'.join(local)})((?:\.\w+)+)".encode())
    return any(
        _is_missing(local[n.decode()] + rest.decode()) for n, rest in set(used.findall(source))
    )
