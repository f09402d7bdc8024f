"""The code of a project that a program can reach through names, started without options.

A function is reached if reached code contains its name, as an identifier, an attribute or a string;
a method, if its class is reached as well. Code that runs when a file is imported is reached. A
branch isn't if the defaults of options and attributes decide its condition (`default_values.py`),
or a TPU machine does (`devices/machine_conditions.py`). Types are ignored: a name refers to all
functions and methods of that name.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from migrator.analysis.project.decorators import only_wraps
from migrator.analysis.project.default_values import Defaults, Values
from migrator.analysis.project.looked_up_files import LookedUpPlaces, ProgramPlace, Site
from migrator.analysis.syntax.names import DEFINITIONS
from migrator.analysis.syntax.nodes import dotted

_LARGEST, _DEEPEST = 4000, 120  # of lookups: beyond, everything is reached
# Bases outside of a project that call no method on their own, or only these.
_PLAIN = frozenset({
    "object", "ABC", "Generic", "Protocol", "NamedTuple", "Enum", "IntEnum", "str", "int", "dict",
    "list", "Exception", "ValueError", "RuntimeError", "TypedDict",
})  # fmt: skip
_CALLED = frozenset({
    "forward", "backward", "extra_repr", "state_dict", "load_state_dict", "train", "eval", "apply",
    "parameters", "named_parameters", "buffers", "named_buffers", "children", "named_children",
    "modules", "named_modules", "to", "cuda", "cpu", "half", "float", "double", "type", "compile",
    "requires_grad_", "zero_grad", "share_memory", "get_extra_state", "set_extra_state", "step",
    "setup_context", "jvp", "vmap", "_apply", "_save_to_state_dict", "_load_from_state_dict",
    "_named_members", "_get_name", "_call_impl", "_replicate_for_data_parallel",
})  # fmt: skip
_OF_TORCH = frozenset({"Module", "Function", "Dataset", "IterableDataset", "Sampler", "Optimizer"})
_DECORATORS = ("torch.", "functools.", "contextlib.", "abc.", "typing.", "typing_extensions.",
               "dataclasses.", "warnings.")  # fmt: skip
_REGISTRIES = ("torch.library.", "functools.singledispatch", "torch.overrides.", "torch.fx.wrap")
_BUILT_IN = ("property", "staticmethod", "classmethod")
_ACCESSORS = ("setter", "getter", "deleter")

Key = tuple[Any, ...]


class Reach:
    """What one program reaches, through the names in its files."""

    def __init__(
        self,
        files: Sequence[Path],
        places: LookedUpPlaces,
        is_started: Callable[[Path], bool],
        holds: Callable[[Path, str], bool],
        with_options: bool = False,
    ) -> None:
        """`holds` tells whether a name in a file is defined by the project.

        `with_options`: for any options that the program may be started with.
        """
        self._places = places
        self._by_path = {path: places.of(path) for path in files}
        self._order = {place: number for number, place in enumerate(self._by_path.values())}
        self._is_started, self._holds = is_started, holds
        self.defaults, self._with_options = Defaults(self), with_options
        self._known: dict[Key, Any] = {}
        self._readers: dict[Key, dict[Key, None]] = {}
        self._changed: list[Key] = []  # keys whose readers have to be evaluated again
        self._asking: list[Key] = []
        self._with_word: dict[str, list[ProgramPlace]] = {}
        self._sites: dict[str, Sequence[Site]] = {}
        self._definitions: dict[str, Sequence[tuple[ProgramPlace, ast.AST]]] = {}
        self._entries: dict[ProgramPlace, bool] = {}
        self._starred = [place for place in self._order if place.may_bring_all]

    def holds(self, path: Path) -> bool:
        """Whether a file is one of the program's."""
        return path in self._by_path

    def reaches(self, path: Path, node: ast.AST) -> bool:
        """Whether the program reaches a node in one of its files."""
        place = self._by_path.get(path)
        if place is None:
            return True
        # Reached code only grows: True is certain before all is known.
        while not (answer := self.is_live(place, node)) and self._changed:
            changed, self._changed = self._changed, []
            for key in dict.fromkeys(k for c in changed for k in self._readers.pop(c, ())):
                before = self._known[key]
                after = self._known[key] = self._evaluated(key)
                if after != before:
                    self._changed.append(key)
        return answer

    def forget(self) -> None:
        """Drop what is known. It is found again if it is asked for."""
        for known in (self._known, self._readers, self._with_word, self._sites, self._definitions):
            known.clear()
        self._changed.clear()
        self.defaults = Defaults(self)

    def ask(self, *key: Any) -> Any:
        """What is known so far: reached code, and possible values, only grow."""
        if key not in self._known:
            everything = True if key[0] in ("unit", "name", "module") else None
            if len(self._asking) > _DEEPEST or len(self._known) > _LARGEST:
                return everything
            nothing = self._known[key] = False if everything else frozenset()
            self._known[key] = self._evaluated(key)
            if self._known[key] != nothing and key in self._readers:
                self._changed.append(key)  # some have read it while it was being computed
        if self._asking and self._known[key] is not True and self._known[key] is not None:
            self._readers.setdefault(key, {})[self._asking[-1]] = None
        return self._known[key]

    def _evaluated(self, key: Key) -> bool | Values:
        self._asking.append(key)
        try:
            match key:
                case "unit", place, node:
                    return self._is_reached(place, node)
                case "name", name:
                    return self._is_named(name)
                case "module", name:
                    return self._is_value(name)
                case "attribute", name:
                    return self.defaults.attribute(name)
                case "keyword", name:
                    return self.defaults.keyword(name)
                case "variable", place, bindings:
                    return self.defaults.variable(place, bindings)
                case _, place, function, parameter:
                    return self.defaults.parameter(place, function, parameter)
        finally:
            self._asking.pop()
        raise AssertionError(key)

    # ---- places ---------------------------------------------------------------------------------

    def is_live(self, place: ProgramPlace, node: ast.AST) -> bool:
        """Whether the program reaches a node, as far as is known."""
        way = place.way(node)
        if way is None:  # from a text derived from the file's
            return True
        within, questions = way
        if not self.ask("unit", place, within):
            return False
        may_be = self.defaults.may_be_on_target if self._with_options else self.defaults.may_be
        return all(may_be(place, test, outcome) for test, outcome in questions)

    def with_word(self, name: str) -> list[ProgramPlace]:
        """The files that contain a word."""
        if name not in self._with_word:
            found = self._places.with_word(name) & self._order.keys()
            self._with_word[name] = sorted(found, key=self._order.__getitem__)
        return self._with_word[name]

    def sites(self, name: str) -> Sequence[Site]:
        """Where a name is used, also under another name that an import gives it.

        None stands for a file that isn't Python.
        """
        if name not in self._sites:
            self._sites[name] = [*self._used(name)]
        return self._sites[name]

    def _used(self, name: str, depth: int = 0) -> Iterator[Site]:
        others: set[str] = set()
        for place in self.with_word(name):
            for node in place.uses(name):
                yield place, node
            others.update(place.index.aliases.get(name, ()))
        for other in sorted(others - {name}) if depth < 3 else ():
            yield from self._used(other, depth + 1)

    def definitions(self, name: str) -> Sequence[tuple[ProgramPlace, ast.AST]]:
        if name not in self._definitions:
            self._definitions[name] = [
                (place, node)
                for place in self.with_word(name)
                if (there := place.file.name_index) is not None
                for node in there.definitions.get(name, ())
            ]
        return self._definitions[name]

    # ---- functions, classes and methods ---------------------------------------------------------

    def _is_named(self, name: str) -> bool:
        return any(
            node is None or (self.is_live(place, node) and not self._is_foreign(place, node))
            for place, node in self.sites(name)
        ) or self.is_computed(name)

    def is_computed(self, name: str) -> bool:
        """Whether a name is one of those that reached code computes: `getattr(self, "f_" + x)`."""
        return any(self.is_live(place, call) for place, call in self._computing(name))

    def _computing(self, name: str) -> Iterator[tuple[ProgramPlace, ast.Call]]:
        for place, begin, call in self._computed:
            if isinstance(begin, str):
                if name.startswith(begin):
                    yield place, call
            elif any(getattr(method, "name", "") == name for method in begin.body):
                yield place, call

    @cached_property
    def _computed(self) -> Sequence[tuple[ProgramPlace, str | ast.ClassDef, ast.Call]]:
        """Where names of attributes are computed."""
        places = self.with_word("getattr")
        return [(p, begin, call) for p in places for begin, call in p.index.computed]

    def _is_foreign(self, place: ProgramPlace, node: ast.AST) -> bool:
        """Whether a name belongs to another library, judging by the file's imports."""
        known = place.foreign.get(node)
        if known is None:
            facts = place.file.facts if isinstance(node, ast.Name | ast.Attribute) else None
            meaning = facts.names.qualified(node) if facts is not None else None
            known = place.foreign[node] = (
                meaning is not None and "." in meaning and not meaning.startswith(".")
                and not self._holds(place.path, meaning)
            )  # fmt: skip
        return known

    def _is_reached(self, place: ProgramPlace, node: ast.AST) -> bool:
        there = place.file.name_index
        if there is None or not isinstance(node, DEFINITIONS) or self.is_entry(place):
            return True
        outer = there.parents.get(node)
        while outer is not None and not isinstance(outer, (*DEFINITIONS, ast.Module)):
            outer = there.parents.get(outer)
        if not all(self.passes_on(place, decorator) for decorator in node.decorator_list):
            return outer is None or bool(self.ask("unit", place, outer))
        if isinstance(outer, ast.ClassDef):
            if not self.ask("unit", place, outer):
                return False
            if node.name.startswith("__") or self._is_called_by_base(outer, node.name):
                return True
        elif there.enumerates or self._is_given_away(place, node.name):
            return True
        kept = isinstance(node, ast.ClassDef) and self._registers(node)
        return kept or bool(self.ask("name", node.name))

    def is_entry(self, place: ProgramPlace) -> bool:
        """Whether functions of a file are called from outside: by pytest, a command, torch.hub."""
        if place not in self._entries:
            is_called = self._places.is_test(place.path) or place.path.stem == "hubconf"
            self._entries[place] = is_called or self._is_started(place.path)
        return self._entries[place]

    def passes_on(self, place: ProgramPlace, decorator: ast.expr) -> bool:
        """Whether a decorator only returns or wraps its function."""
        name = decorator.func if isinstance(decorator, ast.Call) else decorator
        if isinstance(name, ast.Attribute) and name.attr in _ACCESSORS:
            return True
        facts = place.file.facts
        meaning = facts.names.qualified(name) if facts is not None else None
        if meaning is None and isinstance(name, ast.Name) and name.id in _BUILT_IN:
            return True
        if meaning is not None and meaning.startswith(_DECORATORS):
            return not meaning.startswith(_REGISTRIES)
        last = (dotted(name) or "").rpartition(".")[2]
        made = [node for _, node in self.definitions(last)] if last else []
        return bool(made) and all(map(only_wraps, made))

    def _is_called_by_base(
        self, owner: ast.ClassDef, name: str, seen: frozenset[str] = frozenset()
    ) -> bool:
        """Whether a class outside of the project may call a method of a class derived from it."""
        for base in owner.bases:
            base = base.value if isinstance(base, ast.Subscript) else base
            last = (dotted(base) or "").rpartition(".")[2]
            made = [node for _, node in self.definitions(last) if isinstance(node, ast.ClassDef)]
            own = [node for node in made if node is not owner]
            if own and last not in seen:
                if any(self._is_called_by_base(node, name, seen | {last}) for node in own):
                    return True
            elif not own and last not in _PLAIN and (last not in _OF_TORCH or name in _CALLED):
                return True
        return False

    def _registers(self, made: ast.ClassDef, seen: frozenset[str] = frozenset()) -> bool:
        """Whether a class, or one of its bases, may keep a registry of such classes."""
        if any(k.arg == "metaclass" and dotted(k.value) not in ("ABCMeta", "abc.ABCMeta")
               for k in made.keywords):  # fmt: skip
            return True
        if any(getattr(node, "name", "") == "__init_subclass__" for node in made.body):
            return True
        if any(True for _ in self.sites("__subclasses__")):
            return True
        for base in made.bases:
            last = (dotted(base) or "").rpartition(".")[2]
            for _, node in self.definitions(last) if last not in seen else ():
                if isinstance(node, ast.ClassDef) and self._registers(node, seen | {last}):
                    return True
        return False

    def _is_given_away(self, place: ProgramPlace, name: str) -> bool:
        """Whether a named module is used as a value: its user may read any name."""
        brings = (p for p in self.with_word(name) if name in p.index.brought)
        stars = (p for p in self._starred if p.folder in place.above)
        modules = dict.fromkeys(p.module for p in chain([place], brings, stars))
        return any(self.ask("module", module) for module in modules)

    def _is_value(self, module: str) -> bool:
        """Whether a module is used as a value, other than for reading its names."""
        return any(
            node is not None and place.is_value(node) and self.is_live(place, node)
            for place, node in self.sites(module)
        )


def around(parents: Mapping[ast.AST, ast.AST], node: ast.AST) -> Sequence[ast.AST]:
    """The statements of the innermost branch, or the innermost function, that contains a node."""
    below = node
    while (parent := parents.get(below)) is not None:
        if isinstance(parent, ast.If) and below is not parent.test:
            return parent.body if below in parent.body else parent.orelse
        if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef):
            return (parent,)
        if isinstance(parent, ast.IfExp) and below is not parent.test:
            return (below,)
        below = parent
    return (node,)
