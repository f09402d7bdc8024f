"""The runtime that is written beside a program: of its files, those that the program needs.

All is told by the runtime's own source. The imports of a file say which others it needs;
`__init__.py` says which file a name comes from, and what `setup` installs. A file with `NEEDED_BY`
has words there: programs with none of them do nothing that it is for. What is left out fails with
an error or is slow where it is used after all; what would change numbers is only left out where
nothing in the program can lead to it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Set
from dataclasses import dataclass
from fnmatch import translate
from functools import cache, cached_property
from pathlib import Path

from migrator.targets import Target
from migrator.targets.wheel import runtime_files

INIT = "__init__.py"
# Statements at the beginning of a line: top-level ones. (Parsing all files would take 0.1 s.)
_IMPORT = re.compile(rb"^from \.(\w*) import (\([^)]*\)|[^\n]*)", re.M)
_NEEDED_BY = re.compile(rb"^NEEDED_BY = (\([^)]*\)|\"[^\n]*)", re.M)
_NAME = re.compile(r"\w+")
_PLAIN = re.compile(r"[^*?\[]+")


@dataclass(frozen=True)
class Needs:
    """Facts about a program: the words of its code, and the names of the runtime that it uses."""

    words: Set[str]
    names: Set[str]

    def __add__(self, other: Needs) -> Needs:
        """For two programs: common code only if both have nothing else."""
        words = self.words | other.words
        return Needs(words - {USUAL} if UNUSUAL in words else words, self.names | other.names)


# Words for code that only calls models of common layers (analysis/usual.py), and for all other
# code.
USUAL, UNUSUAL = "<usual>", "<unusual>"
NOTHING = Needs(frozenset(), frozenset())


class Bundle:
    """The files of a runtime, by their path inside the package."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files

    def of(self, needs: Needs | None, there: Collection[str] = ()) -> dict[str, bytes]:
        """The files for a program; all of them for None.

        `there` are the names of files in an existing copy that other programs may use: they stay.
        """
        if needs is None or not self._says_who_needs_it:
            return self.files
        wanted = {name.removesuffix(".py") for name in there} & self._modules.keys()
        wanted |= {self._origins[name] for name in needs.names & self._origins.keys()}
        wanted |= self._always | (needs.names & self._modules.keys())
        words = needs.words - {USUAL} if there else needs.words  # others may be less common
        wanted |= {
            module
            for module, (plain, pattern) in self._needed_by.items()
            if not words.isdisjoint(plain) or any(map(pattern.match, words))
        }
        kept = self._closed(wanted)
        if kept == self._modules.keys():
            return self.files
        trimmed = {f"{module}.py": self.files[f"{module}.py"] for module in sorted(kept)}
        return {INIT: self._without(self._modules.keys() - kept), **trimmed}

    # ---- who needs whom -------------------------------------------------------------------------

    @cached_property
    def _says_who_needs_it(self) -> bool:
        """Not for a portable program: it finds out at run time which names a TPU needs."""
        nested = any("/" in name for name in self.files)
        return not nested and any(map(_NEEDED_BY.search, self.files.values()))

    @cached_property
    def _init(self) -> ast.Module:
        return ast.parse(self.files[INIT])

    @cached_property
    def _modules(self) -> dict[str, bytes]:
        names = (name for name in self.files if name != INIT)
        return {name.removesuffix(".py"): self.files[name] for name in names}

    @cached_property
    def _imports(self) -> dict[str, set[str]]:
        """The files that a file imports when it is imported."""
        return {
            module: {name for found in _IMPORT.findall(content) for name in _imported(*found)}
            & self._modules.keys()
            for module, content in self._modules.items()
        }

    def _closed(self, modules: Iterable[str]) -> set[str]:
        found: set[str] = set()
        queue = list(modules)
        while queue:
            module = queue.pop()
            if module not in found:
                found.add(module)
                queue += self._imports[module]
        return found

    @cached_property
    def _needed_by(self) -> dict[str, tuple[set[str], re.Pattern[str]]]:
        """By file, the words of programs that need it: literal ones, and patterns."""
        needed_by = {}
        for module, content in self._modules.items():
            if found := _NEEDED_BY.search(content):
                words = set(str(ast.literal_eval(found[1].decode())).split())
                plain = {word for word in words if _PLAIN.fullmatch(word)}
                patterns = map(translate, sorted(words - plain))
                needed_by[module] = plain, re.compile("|".join(patterns) or "(?!)")
        return needed_by

    @cached_property
    def _origins(self) -> dict[str, str]:
        """The files that define the public names."""
        return {
            alias.asname or alias.name: node.module
            for node in self._init.body
            if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module is not None
            for alias in node.names
        }

    @cached_property
    def _always(self) -> set[str]:
        """The files every program needs: everything installed, except files with conditions."""
        installed = {
            alias.name
            for node in self._init.body
            if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module is None
            for alias in node.names
        }
        functions = (n for n in self._init.body if isinstance(n, ast.FunctionDef))
        called = {n.id for f in functions for n in ast.walk(f) if isinstance(n, ast.Name)}
        origins = {self._origins[name] for name in called & self._origins.keys()}
        return (installed & self._modules.keys()) - self._needed_by.keys() | origins

    # ---- what is left of `__init__.py` ----------------------------------------------------------

    def _without(self, modules: Set[str]) -> bytes:
        """`__init__.py` without some modules: each of its names is on a separate line."""
        gone = modules | {name for name, module in self._origins.items() if module in modules}
        imports, names = self._said
        dropped = {n for module, lines in imports if module in modules for n in lines}
        dropped |= {line for name, line in names if name in gone}
        lines = self.files[INIT].splitlines(keepends=True)
        return b"".join(line for number, line in enumerate(lines, 1) if number not in dropped)

    @cached_property
    def _said(self) -> tuple[list[tuple[str, range]], list[tuple[str, int]]]:
        """The modules that it imports from, and the names in it, each with its lines."""
        imports: list[tuple[str, range]] = []
        names: list[tuple[str, int]] = []
        for node in ast.walk(self._init):
            match node:
                case ast.ImportFrom(level=1, module=str(module)):
                    imports.append((module, range(node.lineno, (node.end_lineno or 0) + 1)))
                case (
                    ast.alias(name=name)
                    | ast.Name(id=name, ctx=ast.Load())
                    | ast.Constant(value=str(name))
                ):
                    names.append((name, node.lineno))
        return imports, names


def _imported(module: bytes, names: bytes) -> list[str]:
    return [module.decode()] if module else _NAME.findall(names.decode())


def bundle(target: Target) -> Bundle:
    """A target's runtime; that of a portable program chooses, with the target's inside of it."""
    return _bundle(target.runtime, target.asks_runtime)


@cache
def _bundle(runtime: Path | None, chooses: bool) -> Bundle:
    return Bundle(runtime_files(runtime, chooses))
