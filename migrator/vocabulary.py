"""What is a construct by its name alone: what the rules ask for, and what a project replaces."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol


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
        anywhere, with_package = self._tokens
        if anywhere is not None and anywhere.search(source):
            return True
        if with_package is None or not any(name.encode() in source for name in self.packages):
            return False
        return with_package.search(source) is not None

    @property
    def letters(self) -> tuple[bytes, ...]:
        """What any file that can hold one of them has some of."""
        return tuple(word.encode() for word in (*sorted(self._words[0]), *self.packages))

    @cached_property
    def _tokens(self) -> tuple[re.Pattern[bytes] | None, re.Pattern[bytes] | None]:
        anywhere, with_package = self._words
        return _any_of(anywhere, "{}"), _any_of(filter(str.isidentifier, with_package), _WORD)

    @cached_property
    def _words(self) -> tuple[Set[str], Set[str]]:
        """Words that are in a file with one of them: anywhere, and where a package is named."""
        named = {name for name in self.names if not name.startswith(self.prefixes)}
        named.update(prefix.rstrip(".") for prefix in self.prefixes)
        packaged = {name for name in named if name.startswith(self.packages)}
        anywhere = {*_last_words(self.own | named - packaged), *self.variables}
        return anywhere, {*_last_words(packaged), *self.methods, *self.keywords}


_WORD = r"(?:\b|(?<=\\n))(?:{})\b"  # in a notebook, too, where a line ends with `\n`


def _last_words(names: Iterable[str]) -> Iterator[str]:
    return (name.rpartition(".")[2] for name in names)


def _any_of(words: Iterable[str], pattern: str) -> re.Pattern[bytes] | None:
    listed = "|".join(map(re.escape, sorted(words)))
    return re.compile(pattern.format(listed).encode()) if listed else None
