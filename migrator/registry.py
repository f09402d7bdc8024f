"""The registry: all rules, and which of them are asked about a construct."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from functools import cache, cached_property
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

from migrator.analysis.construct_names import Vocabulary
from migrator.codes import FAMILIES, Family
from migrator.construct import Construct
from migrator.errors import UsageError
from migrator.frameworks import find_framework
from migrator.frameworks.framework import Framework
from migrator.plugins import imported, installed
from migrator.rule import Handler, Rule
from migrator.targets import rule_modules

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


class Registry:
    """All rules, with dispatch tables. Earlier rules are asked first."""

    def __init__(
        self,
        rules: Sequence[Rule],
        families: Iterable[Family] = (),
        origins: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self._in_order = rules
        self.rules = {rule.code: rule for rule in sorted(rules, key=lambda r: r.code)}
        self.origins = origins or {}  # by code: the names of the package that has the rule
        self.families = sorted(families, key=lambda family: family.place)
        self.exact: dict[tuple[str, str], list[tuple[Rule, Handler]]] = {}
        self.prefixes: list[tuple[str, str, Rule, Handler]] = []
        for rule in rules:
            for kind, key, handler in rule.handlers:
                if key.endswith("*"):
                    self.prefixes.append((kind, key[:-1], rule, handler))
                else:
                    self.exact.setdefault((kind, key), []).append((rule, handler))
        self.prefixes.sort(key=lambda entry: -len(entry[1]))

    @cache  # noqa: B019  there are as many as loaded packages
    def of(self, framework: str) -> Registry:
        """The rules for code of one framework."""
        rules = self._in_order
        return Registry([r for r in rules if r.of_python or r.framework in ("", framework)])

    def vocabulary(self, framework: Framework) -> Vocabulary:
        """The names of a framework that are constructs because a rule handles them."""
        rules = self.of(framework.name).rules.values()
        return Vocabulary.of_keys(
            [(kind, key) for rule in rules for kind, key, _ in rule.handlers],
            [name for rule in rules for name in rule.imports],
            framework,
        )

    @cached_property
    def for_native_code(self) -> Rule:
        return next(rule for rule in self.rules.values() if rule.for_native_code)

    @cached_property
    def for_launched_code(self) -> Rule:
        return next(rule for rule in self.rules.values() if rule.for_launched_code)

    @cached_property
    def for_written_files(self) -> Rule:
        return next(rule for rule in self.rules.values() if rule.for_written_files)

    @cached_property
    def foreign(self) -> Registry:
        """The rules that turn code for another target into GPU code."""
        return Registry([rule for rule in self.rules.values() if rule.foreign])

    @cached_property
    def kinds(self) -> Set[str]:
        """The kinds of constructs that rules handle."""
        return {kind for kind, _ in self.exact} | {kind for kind, *_ in self.prefixes}

    def handlers(self, construct: Construct) -> list[tuple[Rule, Handler]]:
        """The handlers of a construct, the most specific first."""
        found = list(self.exact.get((construct.kind, construct.key), ()))
        found += [
            (rule, handler)
            for kind, prefix, rule, handler in self.prefixes
            if kind == construct.kind and construct.key.startswith(prefix)
        ]
        return found


OWN = "tpu-migrate"  # where the built-in rules come from
GROUP = "tpu_migrate.rules"  # of entry points: modules and packages with rules


@cache
def registry() -> Registry:
    """The built-in rules, those of targets, and those of other installed packages.

    Raises:
        UsageError: an installed package cannot be used.
    """
    modules = [(importlib.import_module("migrator.rules"), None), *rule_modules()]
    own = {rule: point for module, point in modules for rule in _rules_in(module, Rule)}
    families = dict.fromkeys(
        [*FAMILIES, *(f for module, _ in modules for f in _rules_in(module, Family))]
    )
    others: list[Rule] = []
    origins = {rule.code: _origin(point) for rule, point in own.items()}
    for point in installed(GROUP):
        where = f"rules of {point.value}"
        try:
            found = _rules_in(module := imported(point), Rule)
        except Exception as error:
            raise UsageError(f"{where}: {type(error).__name__}: {error}") from error
        if not found:
            raise UsageError(f"{where}: there is no Rule at the top of a module")
        for rule in found:
            if rule.code in origins:
                raise UsageError(f"{where}: {rule.code} is a code of {origins[rule.code][0]}, too")
            origins[rule.code] = _origin(point)
        others += found
        families |= dict.fromkeys(_rules_in(module, Family))
    return Registry([*others, *own], families, origins)


def _origin(point: EntryPoint | None) -> Sequence[str]:
    """The names of the package that has a rule: its module, its entry point, its distribution."""
    if point is None:
        return (OWN,)
    package = point.dist.name if point.dist is not None else point.value
    return (point.value, point.name, package)


def check_packages() -> None:
    """Raise UsageError, as `registry` does, if any package with rules is installed."""
    if installed(GROUP):
        registry()


@cache
def vocabulary(framework: str, replaced: tuple[tuple[str, str], ...] = ()) -> Vocabulary:
    """The names that are constructs, with those that a project replaces. Raises like `registry`."""
    known = registry().vocabulary(find_framework(framework))
    return replace(known, own=frozenset(old for old, _ in replaced))


_T = TypeVar("_T")


def _rules_in(module: ModuleType, kind: type[_T]) -> list[_T]:
    """Each `Rule` or `Family` at the top of a module, or of the modules of a package."""
    modules = [module]
    for info in pkgutil.iter_modules(getattr(module, "__path__", ())):
        modules.append(importlib.import_module(f"{module.__name__}.{info.name}"))
    found = (value for m in modules for value in vars(m).values() if isinstance(value, kind))
    return list(dict.fromkeys(found))
