"""Where a program creates models and optimizers, which has to happen in a strategy's scope.

Variables belong to the strategy in whose scope they are created. So a call that creates some has to
be in the scope, directly or inside of a function that is called there.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from migrator.analysis.syntax.names import DEFINITIONS, Names
from migrator.analysis.syntax.scripts import starts_a_cell
from migrator.frameworks.tensorflow.keras_names import in_keras
from migrator.frameworks.tensorflow.replica_metrics import host_metrics
from migrator.frameworks.tensorflow.replica_steps import makers
from migrator.frameworks.tensorflow.traced import is_part

if TYPE_CHECKING:
    from migrator.analysis.project.facts import ProjectFacts

_MAKERS = (
    "keras.Input", "keras.Model", "keras.Sequential", "keras.Variable", "keras.applications.",
    "keras.layers.", "keras.metrics.", "keras.models.", "keras.optimizers.",
)  # fmt: skip
_NONE = (
    "keras.applications.imagenet_utils.", "keras.optimizers.schedules.",
    "keras.models.save_model",
)  # fmt: skip
_VARIABLES = ("tensorflow.Variable", "tensorflow.train.Checkpoint")
_TRAINS = frozenset({
    "evaluate", "experimental_distribute_dataset", "fit", "fit_generator", "predict",
    "predict_on_batch", "test_on_batch", "train_on_batch",
})  # fmt: skip
_GAP = 2  # other statements between two that create something, in one block
_BLOCKS = (ast.If, ast.For, ast.While, ast.With, ast.Try)
_Ask = Callable[[ast.Call, int], bool]
_DEPTH = 6  # length of a chain of calls that is followed


@dataclass
class Making:
    """The objects that the statements of a file create, also through files that it imports."""

    names: Names
    project: ProjectFacts | None = None
    _makes: dict[ast.AST, bool] = field(default_factory=dict)
    _trains: dict[ast.AST, bool] = field(default_factory=dict)

    def runs(self) -> list[list[ast.stmt]]:
        """Runs of neighbouring statements that belong in one scope."""
        return [run for body in self._bodies() for run in self._in_block(body)]

    def _bodies(self) -> Iterator[Sequence[ast.stmt]]:
        """Blocks that need a scope; functions that only create something are called in one
        instead."""
        yield self.names.tree.body
        for node in self.names.order:
            if isinstance(node, ast.FunctionDef):
                owner = self.names.enclosing_class(node)
                if owner is not None and is_part(self.names, owner):
                    continue
                if self.trains(node):
                    yield node.body

    def _in_block(self, body: Sequence[ast.stmt]) -> Iterator[list[ast.stmt]]:
        run: list[ast.stmt] = []
        gap: list[ast.stmt] = []
        for statement in body:
            breaks = isinstance(statement, (*DEFINITIONS, ast.Import, ast.ImportFrom))
            makes = not breaks and self.makes(statement)
            if makes and isinstance(statement, _BLOCKS) and self.trains(statement):
                yield from [run] if run else []
                run, gap = [], []
                for inner in _blocks(statement):
                    yield from self._in_block(inner)
            elif makes:
                run, gap = [*run, *gap, statement], []
            elif breaks or starts_a_cell(statement) or self._is_far(statement, run, gap):
                yield from [run] if run else []
                run, gap = [], []
            elif run:
                gap.append(statement)
        if run:
            yield run

    def _is_far(self, statement: ast.stmt, run: list[ast.stmt], gap: list[ast.stmt]) -> bool:
        """Whether the next statement needs a block of its own."""
        if self.trains(statement) or isinstance(statement, _BLOCKS):
            return True
        if any(call in host_metrics(self.names) for call in _calls(statement)):
            return True
        return len(gap) >= _GAP and not _names_in(statement) & _bound_in(run)

    # ---- what a statement does ------------------------------------------------------------------

    def makes(self, node: ast.AST, depth: int = 0) -> bool:
        """Whether a statement, directly or through calls, creates something with variables.

        Functions that also train are left out: they contain scopes of their own.
        """
        return self._any(node, self._makes, self._call_makes, depth)

    def trains(self, node: ast.AST, depth: int = 0) -> bool:
        """Whether a statement trains, evaluates or predicts."""
        return self._any(node, self._trains, self._call_trains, depth)

    def _any(self, node: ast.AST, known: dict[ast.AST, bool], ask: _Ask, depth: int) -> bool:
        if node not in known:
            known[node] = False  # for recursive functions
            known[node] = any(ask(call, depth) for call in _calls(node))
        return known[node]

    def _call_makes(self, call: ast.Call, depth: int) -> bool:
        name = self.names.qualified(call.func) or ""
        known = in_keras(name)
        if call in host_metrics(self.names):
            return False
        if call in makers(self.names):
            return True
        if known is not None:
            return known.startswith(_MAKERS) and not known.startswith(_NONE)
        if name in _VARIABLES:
            return True
        match call.func:
            case ast.Attribute(attr="compile"):
                return not name and bool(call.args or call.keywords)
        own = [b for b in self._called(call, depth) if b is None or not self.trains(b, depth + 1)]
        return any(b is None or self.makes(b, depth + 1) for b in own) or self._elsewhere(
            name, depth
        )

    def _call_trains(self, call: ast.Call, depth: int) -> bool:
        match call.func:
            case ast.Attribute(attr=name) if name in _TRAINS:
                return True
        if self.names.qualified(call.func) == "tensorflow.GradientTape":
            return True
        return any(
            body is not None and self.trains(body, depth + 1) for body in self._called(call, depth)
        )

    def _called(self, call: ast.Call, depth: int) -> Iterator[ast.AST | None]:
        """The bodies that a call runs; None for a Keras class, which has variables."""
        if depth >= _DEPTH:
            return
        match call.func:
            case ast.Name():
                for bound in self.names.lookup(call.func):
                    yield from self._bodies_of(bound.node)
            case ast.Attribute(value=ast.Name() as owner, attr=name):
                kind = self.names.owner_class(owner)
                value = self.names.only_value(owner)
                if (
                    kind is None
                    and isinstance(value, ast.Call)
                    and isinstance(value.func, ast.Name)
                ):
                    found = [b.node for b in self.names.lookup(value.func)]
                    kind = next((n for n in found if isinstance(n, ast.ClassDef)), None)
                for statement in kind.body if kind is not None else ():
                    if isinstance(statement, ast.FunctionDef) and statement.name == name:
                        yield statement

    def _bodies_of(self, node: ast.AST) -> Iterator[ast.AST | None]:
        if isinstance(node, ast.FunctionDef):
            yield node
        elif isinstance(node, ast.ClassDef):
            if is_part(self.names, node):
                yield None
            for statement in node.body:
                if isinstance(statement, ast.FunctionDef) and statement.name == "__init__":
                    yield statement

    def _elsewhere(self, name: str, depth: int) -> bool:
        """Whether a function or class of another project file creates something."""
        module, _, last = name.rpartition(".")
        if self.project is None or not module or depth >= _DEPTH:
            return False
        path = self.project.resolve(module)
        facts = self.project.cache.facts(path) if path is not None else None
        if path is None or facts is None:
            return False
        there = Making(facts.names, self.project.of(path))
        there._trains = _NothingTrains()  # it has no scope of its own
        found = (s for s in facts.names.tree.body if getattr(s, "name", None) == last)
        bodies = [body for statement in found for body in there._bodies_of(statement)]
        return any(body is None or there.makes(body, depth + 1) for body in bodies)


class _NothingTrains(dict[ast.AST, bool]):
    """The facts of a file in which nothing counts as training."""

    def __contains__(self, node: object) -> bool:
        return True

    def __missing__(self, node: ast.AST) -> bool:
        return False


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    """The calls in a statement, or in a function's body, without those in nested functions."""
    stack: list[ast.AST] = [*node.body] if isinstance(node, ast.FunctionDef) else [node]
    while stack:
        at = stack.pop()
        if isinstance(at, ast.Call):
            yield at
        if not isinstance(at, (*DEFINITIONS, ast.Lambda)):
            stack.extend(ast.iter_child_nodes(at))


def _blocks(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        if inner := getattr(statement, name, None):
            yield inner
    for handler in getattr(statement, "handlers", ()):
        yield handler.body


def _names_in(statement: ast.stmt) -> set[str]:
    return {n.id for n in ast.walk(statement) if isinstance(n, ast.Name)}


def _bound_in(run: list[ast.stmt]) -> set[str]:
    return {
        n.id
        for s in run
        for n in ast.walk(s)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
