"""Classes of training libraries, under any name that a program gives them."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from migrator.analysis.prefilter import Tokens
from migrator.analysis.syntax.annotations import is_only_named
from migrator.analysis.syntax.names import Binding, Names
from migrator.analysis.syntax.nodes import choices

if TYPE_CHECKING:
    from pathlib import Path

    from migrator.analysis.project.facts import ProjectFacts
    from migrator.analysis.project.file_facts import FileFacts

LIBRARIES = frozenset({
    "accelerate", "lightning", "lightning_fabric", "pytorch_lightning", "sentence_transformers",
    "transformers", "trl",
})  # fmt: skip
_KINDS = {
    # Classes that take the device when they are created.
    "accelerator": r"accelerate\.(?:\w+\.)*(?:Accelerator|PartialState|AcceleratorState)",
    "trainer": r"transformers\.(?:\w+\.)*(?:Seq2Seq)?Trainer|trl\.(?:\w+\.)*[A-Z]\w*Trainer"
    r"|sentence_transformers\.(?:\w+\.)*(?:Sparse|Cross)?(?:Encoder|SentenceTransformer)Trainer",
    # Functions that start processes, which then create one.
    "launcher": r"accelerate\.(?:\w+\.)*notebook_launcher",
    # Their settings; some of them name kernels or types that a TPU doesn't have.
    "arguments": r"transformers\.(?:\w+\.)*(?:Seq2Seq)?TrainingArguments"
    r"|trl\.(?:\w+\.)*[A-Z]\w*Config",
    "lightning": r"(?:pytorch_lightning|lightning|lightning_fabric)\.(?:\w+\.)*"
    r"(?:Trainer|Fabric|LightningCLI)(?:\.from_argparse_args)?",
}
# Without one of these words, a program creates nothing that takes settings.
_ENDINGS = ("Trainer", "TrainingArguments")  # of a word
_WORDS = (
    "Accelerator", "AcceleratorState", "PartialState", "Fabric", "notebook_launcher",
    "LightningCLI", "HfArgumentParser", "trl",
)  # fmt: skip
_TAKES_SETTINGS = re.compile("|".join((*(rf"\w*{word}" for word in _ENDINGS), *_WORDS)))
_MAY_TAKE_SETTINGS = Tokens(  # the same in the text of a file
    *(rf"{word}\b".encode() for word in _ENDINGS), *(rf"\b{word}\b".encode() for word in _WORDS)
)
_CLASS = re.compile("|".join(f"(?P<{kind}>{names})" for kind, names in _KINDS.items()))
_DEEPEST = 8


class Meaning(NamedTuple):
    """The kind of class that a call creates, and whether it is the library's own class.

    `own`: a class of the program's, derived from it.
    """

    kind: str
    plain: bool = True
    own: bool = False


class LibraryClasses:
    """How the names of one file relate to the classes of such libraries."""

    def __init__(self, names: Names, project: ProjectFacts | None = None) -> None:
        self.names, self.project = names, project
        self._of_project: dict[tuple[str, int], Meaning | None] = {}
        # Files of the project that mention them may provide some.
        self._brought = project is not None and any(
            not LIBRARIES.isdisjoint(project.cache.file(path).libraries)
            for path in project.reached()
        )
        self.spoken_of = self._brought or imports_any(names, LIBRARIES)

    @cached_property
    def take_settings(self) -> bool:
        """Whether the program may create something that takes settings: it may only load models."""
        if not self.spoken_of:
            return False
        if any(map(_TAKES_SETTINGS.fullmatch, set(_words(self.names)))):
            return True
        if self.project is None:
            return False
        files = (*self.project.reached(), *self.project.importers_above())
        return any(self.project.cache.file(path).has(_MAY_TAKE_SETTINGS) for path in files)

    def made_by(self, function: ast.expr, depth: int = 0) -> Meaning | None:
        """What a call of an expression creates, None if it isn't a class of such a library."""
        if not self.spoken_of or depth > _DEEPEST:
            return None
        qualname = self.names.qualified(function)
        if (made := _meaning_of_name(qualname or self._by_text(function))) is not None:
            return made
        match function:
            case ast.Attribute(attr="__init__", value=ast.Call(func=ast.Name(id="super"))):
                owner = self.names.enclosing_class(function)
                return self._of_bases(owner, depth) if owner is not None else None
            case ast.Attribute(attr="__init__" | "from_argparse_args", value=owner):
                return self.made_by(owner, depth + 1)
            case ast.IfExp() | ast.BoolOp():
                return self._some_of(choices(function), depth)
            case ast.NamedExpr(value=value):
                return self.made_by(value, depth + 1)
        if (given := bound_by(self.names, function)) is not None:
            made = self.made_by(given, depth + 1)
            return made and made._replace(plain=False)
        if isinstance(function, ast.Name) and (bound := self.names.lookup(function)):
            if (made := self._of_bindings(bound, depth)) is not None:
                return made
        elif isinstance(function, ast.Name):
            return self._starred(function.id, depth)
        return self._elsewhere(qualname, depth) if qualname is not None else None

    def _some_of(self, nodes: list[ast.expr], depth: int) -> Meaning | None:
        made = [self.made_by(node, depth + 1) for node in nodes]
        known = next(filter(None, made), None)
        return known and known._replace(plain=known.plain and all(known == each for each in made))

    def _of_bindings(self, bindings: list[Binding], depth: int) -> Meaning | None:
        made = [self._of_binding(binding, depth + 1) for binding in bindings]
        known = next(filter(None, made), None)
        return known and known._replace(plain=known.plain and all(known == each for each in made))

    def _of_binding(self, binding: Binding, depth: int) -> Meaning | None:
        match binding:
            case Binding(node=ast.ClassDef() as node):
                made = self._of_bases(node, depth)
                own = {"__init__", "__new__"} & self.names.scopes[node].bindings.keys()
                return made and made._replace(plain=made.plain and not own, own=True)
            case Binding(kind="item", value=ast.Tuple(elts=items), index=int(place)) if place < len(
                items
            ):
                return self.made_by(items[place], depth)
            case Binding(kind="assign" | "param", value=ast.expr() as value):
                return self.made_by(value, depth)
        return None

    def _of_bases(self, node: ast.ClassDef, depth: int) -> Meaning | None:
        made = (self.made_by(base, depth + 1) for base in node.bases)
        return next(filter(None, made), None)

    def _starred(self, name: str, depth: int) -> Meaning | None:
        for module in self.names.star_imports:
            made = _meaning_of_name(f"{module}.{name}") or self._elsewhere(
                f"{module}.{name}", depth
            )
            if made is not None:
                return made
        return None

    def _elsewhere(self, qualname: str, depth: int) -> Meaning | None:
        """The meaning of a name in the project file that defines it."""
        if self.project is None or not self._brought:
            return None
        asked = qualname, depth
        if asked not in self._of_project:
            found = self.project.origin(qualname)
            self._of_project[asked] = self._at_origin(*found, depth) if found is not None else None
        return self._of_project[asked]

    def _at_origin(
        self, facts: FileFacts, there: ProjectFacts, name: str, depth: int
    ) -> Meaning | None:
        known: dict[Path, LibraryClasses] = there.cache.of_framework
        if there.path not in known:
            known[there.path] = LibraryClasses(facts.names, there)
        other = known[there.path]
        bindings = facts.names.top.bindings.get(name)
        if not bindings:
            return other._starred(name, depth + 1)
        for binding in bindings:
            if binding.kind == "import" and binding.qualname and depth < _DEEPEST:
                if made := _meaning_of_name(binding.qualname) or other._elsewhere(
                    binding.qualname, depth + 1
                ):
                    return made
        return other._of_bindings(bindings, depth + 1)

    def is_said(self, node: ast.expr) -> bool:
        """Whether a name, an attribute or `getattr(…)` is a library's class, by its own name."""
        qualname = self.names.qualified(node)
        if _CLASS.fullmatch(qualname or self._by_text(node)):
            return True
        passed_on = self._elsewhere(qualname, 0) if qualname is not None else None
        if passed_on is not None:
            return not passed_on.own
        unbound = isinstance(node, ast.Name) and not self.names.lookup(node)
        return unbound and any(_meaning_of_name(f"{m}.{node.id}") for m in self.names.star_imports)  # type: ignore[attr-defined]

    def _by_text(self, node: ast.expr) -> str:
        """`getattr(accelerate, "Accelerator")`, `import_module("accelerate").Accelerator`"""
        match node:
            case ast.Attribute(
                value=ast.Call(func=function, args=[ast.Constant(value=str(module))]), attr=name
            ) if self.names.qualified(function) in ("importlib.import_module", "__import__"):
                return f"{module}.{name}"
            case ast.Call(
                func=ast.Name(id="getattr"), args=[owner, ast.Constant(value=str(name)), *_]
            ):
                return f"{self.names.qualified(owner)}.{name}"
        return ""

    def referred_to(self, node: ast.expr) -> Meaning | None:
        """The class that is named here by its own name, without being called or only mentioned."""
        above = self.names.parents.get(node)
        if not isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
            return None
        if isinstance(above, ast.Attribute | ast.ClassDef) or not self.is_said(node):
            return None
        if self.names.call_of(node) is not None or is_only_named(self.names, node):
            return None
        return self.made_by(node)


def bound_by(names: Names, node: ast.AST) -> ast.expr | None:
    """The function that `functools.partial(…)` calls."""
    if isinstance(node, ast.Call) and node.args:
        if names.qualified(node.func) == "functools.partial":
            return node.args[0]
    return None


def imports_any(names: Names, libraries: Collection[str]) -> bool:
    return any(module.partition(".")[0] in libraries for module in _modules(names))


def _words(names: Names) -> Iterator[str]:
    """The words in a file's names, imports and strings."""
    for node in names.order:
        match node:
            case ast.Name(id=text) | ast.Attribute(attr=text) | ast.Constant(value=str(text)):
                yield text.rpartition(".")[2]
    for statement in names.imports:
        if isinstance(statement, ast.ImportFrom):
            yield from (statement.module or "").split(".")
        for alias in statement.names:
            yield from alias.name.split(".")


def _modules(names: Names) -> Iterator[str]:
    for statement in names.imports:
        if isinstance(statement, ast.ImportFrom):
            yield statement.module or ""
        else:
            yield from (alias.name for alias in statement.names)
    for node in names.all(ast.Constant):  # import_module("accelerate")
        if isinstance(node.value, str):
            yield node.value if node.value in LIBRARIES else ""


def _meaning_of_name(qualname: str) -> Meaning | None:
    found = _CLASS.fullmatch(qualname)
    return Meaning(str(found.lastgroup)) if found is not None else None
