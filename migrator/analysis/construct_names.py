"""What is a construct by its name alone: what the rules ask for, and what a project replaces."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from migrator.analysis.prefilter import Tokens


class Source(Protocol):
    """What a framework says of its names; see `migrator.frameworks.framework`."""

    @property
    def packages(self) -> tuple[str, ...]: ...
    @property
    def libraries(self) -> tuple[str, ...]: ...
    @property
    def by_shape(self) -> frozenset[str]: ...


@dataclass(frozen=True)
class Vocabulary:
    """The names that count as constructs."""

    names: frozenset[str] = frozenset()  # by their full name
    prefixes: tuple[str, ...] = ()  # what such names begin with
    methods: frozenset[str] = frozenset()  # that are called
    keywords: frozenset[str] = frozenset()  # of calls
    variables: frozenset[str] = frozenset()  # of the environment
    stars: tuple[str, ...] = ()  # modules that a star import takes everything from
    imports: frozenset[str] = frozenset()  # what an import loses beside names, as `Rule.imports`
    libraries: tuple[str, ...] = ()  # whose names do not count where their import may fail
    # Where the framework's own names come from. Their last words (`load`) are common: a file is
    # only looked into for them if it names one of these. Their modules stay imported.
    packages: tuple[str, ...] = ()
    own: frozenset[str] = frozenset()  # keys of [tool.tpu-migrate.replace]

    @staticmethod
    def of_keys(
        keys: Iterable[tuple[str, str]], imports: Iterable[str], framework: Source
    ) -> Vocabulary:
        """What rules say by the kinds and keys that they register for."""
        by_kind: dict[str, set[str]] = {}
        for kind, key in keys:
            by_kind.setdefault(kind, set()).add(key)
        named = (by_kind.get("name", set()) | by_kind.get("store", set())) - {"*"}
        heads = tuple(f"{library}." for library in framework.libraries)
        stars = sorted(key.removesuffix("*") for key in by_kind.get("star", ()))
        return Vocabulary(
            frozenset(key for key in named - framework.by_shape if not key.endswith("*")),
            tuple(sorted(key[:-1] for key in named if key.endswith("*"))),
            frozenset(by_kind.get("method", set()) - framework.by_shape),
            frozenset(by_kind.get("keyword", set()) - framework.by_shape),
            frozenset(by_kind.get("variable", ())),
            tuple(stars),
            frozenset(imports) | named & framework.by_shape,
            tuple(head for head in heads if any(key.startswith(head) for key in named)),
            framework.packages,
        )

    def includes(self, qualname: str) -> bool:
        """Whether a name is a construct, by its full name."""
        return qualname in self.names or qualname.startswith(self.prefixes)

    def lends(self, imported: str) -> bool:
        """Whether an import of this name is there for constructs: it goes with its last use."""
        if not imported:
            return False
        inner = f"{imported}."
        if imported in self._imported or inner.startswith(self.prefixes):
            return True
        return imported in self._above

    @cached_property
    def _imported(self) -> Set[str]:
        return self.names | self.own | self.imports

    @cached_property
    def _above(self) -> Set[str]:
        """What holds constructs by their full names: `apex` and `apex.amp` of `apex.amp.scale`."""
        keys = (*self.names, *self.own, *self.prefixes)
        return frozenset(
            key[:end]
            for key in keys
            if not key.startswith(self.packages)
            for end, letter in enumerate(key)
            if letter == "."
        )

    def may_be_in(self, source: bytes) -> bool:
        """A cheap test: False for a file that can hold none of them."""
        if any(word in source for word in self._anywhere):
            return True
        imported = imports_of(source)
        if any(package.encode() in source for package in self.packages):
            if any(keyword.encode() in source for keyword in self.keywords):
                return True
            if self._of_framework is not None and self._of_framework.may_be_in(source, imported):
                return True
        return any(
            library in source and words.may_be_in(source, imported)
            for library, words in self._of_libraries.items()
        )

    @cached_property
    def _anywhere(self) -> Set[bytes]:
        """What a file has some of that has names of the project, variables or whole libraries."""
        whole = (p.rstrip(".") for p in self.prefixes if "." not in p.rstrip("."))
        words = (*map(_last_word, self.own), *self.variables, *whole)
        return frozenset(map(str.encode, words))

    @cached_property
    def _names(self) -> Sequence[str]:
        """Names, and what names begin with."""
        alone = (name for name in self.names if not name.startswith(self.prefixes))
        return *alone, *(prefix.rstrip(".") for prefix in self.prefixes)

    @cached_property
    def _of_framework(self) -> _LastWords | None:
        names = (name for name in self._names if name.startswith(self.packages))
        words = {*map(_last_word, names), *self.methods}
        return _LastWords(words) if words else None

    @cached_property
    def _of_libraries(self) -> dict[bytes, _LastWords]:
        found: dict[bytes, set[str]] = {}
        for name in self._names:
            if not name.startswith(self.packages):
                library = name.partition(".")[0].encode()
                found.setdefault(library, set()).add(_last_word(name))
        return {library: _LastWords(words) for library, words in found.items()}


# Imports, with what they have in parentheses, where comments may have some, too.
_IMPORTS = re.compile(rb"import\b(?:[^\n(\\]++|\\[\s\S])*+(?:\((?:[^)#]++|#[^\n]*+)*+)?")
STAR = re.compile(rb"import(?<=\bimport)\s*\*")  # letters first: fast
_WORD = re.compile(rb"\w+")
_OTHERS = (b"re", b"np", b"json", b"yaml", b"pickle", b"torchaudio")  # libraries with such names


def imports_of(source: bytes) -> bytes:
    """What a file's imports say, one a line."""
    return b"\n".join(_IMPORTS.findall(source))


def imported_words(source: bytes) -> Set[bytes]:
    """All words of a file's imports: modules, names, and what they are called here."""
    return frozenset(_WORD.findall(imports_of(source)))


class _LastWords:
    """The last words of names, looked for where a file can have such a name."""

    def __init__(self, words: Iterable[str]) -> None:
        self.words = sorted(map(str.encode, words))
        one = b"(?:%b)\\b" % b"|".join(self.words)
        # in a notebook, too, where a line ends with `\n`
        self._anywhere = re.compile(rb"(?:\b|(?<=\\n))%b" % one)
        # `torch.load`, `getattr(torch, "load")`, not `json.load`; letters first: fast
        no_others = b"".join(rb"(?<!\b%b\.)" % name for name in _OTHERS)
        self._of_another = Tokens(
            rb"\.%b%b" % (no_others, one), rb"getattr\([^,\n]*,[\s\\]*[\"']%b" % one
        )

    def are_in(self, text: bytes) -> bool:
        return self._anywhere.search(text) is not None

    def may_be_in(self, source: bytes, imported: bytes) -> bool:
        """Whether a file that mentions their package may use one."""
        if self._of_another.are_in(source) or self.are_in(imported):
            return True
        return STAR.search(source) is not None and self.are_in(source)


def _last_word(name: str) -> str:
    return name.rpartition(".")[2]
