"""Functions that only code calls which never runs on a TPU machine: `if HAS_XPU: ipex_init()`.

What nothing calls isn't one of them: whoever uses the project may.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from migrator.analysis.devices.machine_conditions import never_runs
from migrator.analysis.syntax.names import DEFINITIONS

if TYPE_CHECKING:
    from migrator.analysis.project.facts import ProjectFacts

_WRAPS = ("functools.", "torch.", "contextlib.")


def is_never_called(here: ProjectFacts, node: ast.AST) -> bool:
    """Whether a node is in a function or class of this file that is only named in such code."""
    definition = _outermost(here, node)
    return definition is not None and _is_dead(here, definition)


def _outermost(here: ProjectFacts, node: ast.AST) -> ast.AST | None:
    """The function or class of the module that a node is in."""
    parents = here.cache.places.of(here.path).parents
    found = None
    at: ast.AST | None = node
    while at is not None:
        found = at if isinstance(at, DEFINITIONS) else found
        at = parents.get(at)
    return found


def _is_dead(here: ProjectFacts, definition: ast.AST) -> bool:
    known, name = here.cache.never_called, str(getattr(definition, "name", ""))
    key = (here.path, name)
    if key not in known:
        before = dict(known)
        known[key] = True  # as far as what it calls itself is concerned
        if not (_only_wraps(here, definition) and _is_only_named_in_vain(here, name)):
            for each in known.keys() - before.keys():  # what was found as if it were
                del known[each]
            known[key] = False
    return known[key]


def _only_wraps(here: ProjectFacts, definition: ast.AST) -> bool:
    facts = here.cache.facts(here.path)
    decorators = getattr(definition, "decorator_list", [])
    called = (each.func if isinstance(each, ast.Call) else each for each in decorators)
    return facts is not None and all(
        (facts.names.qualified(each) or "").startswith(_WRAPS) for each in called
    )


def _is_only_named_in_vain(here: ProjectFacts, name: str) -> bool:
    cache, is_named = here.cache, False
    for path in dict.fromkeys((*here.modules_around(), *here.importers_below())):
        words = cache.file(path).words
        if cache.places.is_test(path) or not {name, "getattr"} & words:
            continue
        begins = (begin for begin, _ in cache.places.of(path).index.computed)
        if any(isinstance(begin, str) and name.startswith(begin) for begin in begins):
            return False
        for use in cache.places.of(path).uses(name) if name in words else ():
            if use is None:
                return False  # in a file that can't be read
            outer = _outermost(here.of(path), use)
            if path == here.path and getattr(outer, "name", "") == name:
                continue
            is_named = True
            if not _is_in_vain(here.of(path), use, outer):
                return False
    return is_named


def _is_in_vain(there: ProjectFacts, use: ast.AST, outer: ast.AST | None) -> bool:
    facts = there.cache.facts(there.path)
    if facts is None:
        return False
    if there.cache.file(there.path).asks_machine and never_runs(facts.names, use) is not None:
        return True
    return outer is not None and _is_dead(there, outer)
