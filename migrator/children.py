"""Child processes: which of those that a program starts use the device, or memory of it.

Only this file is looked into. Children that stay on the CPU (loaders of data, games, metrics) are
nobody's business, so nothing is said of them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from migrator.facts import ProjectFacts
from migrator.flow import Flow, Kind
from migrator.inventory import Construct, uses_device
from migrator.names import Names, argument, dotted
from migrator.targets import RUNTIME

_MODULES = ("torch.multiprocessing", "multiprocessing", "multiprocessing.context")
_PROCESSES = {f"{module}.Process" for module in _MODULES}
_POOLS = {
    *(f"{module}.Pool" for module in _MODULES), "multiprocessing.pool.Pool",
    "concurrent.futures.ProcessPoolExecutor",
}  # fmt: skip
_CONTEXTS = {f"{module}.get_context" for module in _MODULES}
_ON_A_POOL = frozenset({
    "map", "map_async", "imap", "imap_unordered", "starmap", "starmap_async", "apply",
    "apply_async", "submit",
})  # fmt: skip
_SHARING = ("share_memory", "share_memory_")
_TARGETS = (f"{RUNTIME}.", "torch_xla.")
_QUESTIONS = ("torch.cuda.is_available", "torch.cuda.device_count")


class Children:
    """The processes that a file starts, by what its GPU constructs say."""

    def __init__(
        self,
        names: Names,
        flow: Flow,
        constructs: Iterable[Construct],
        project: ProjectFacts | None = None,
    ) -> None:
        self._project = project
        self._names = names
        self._flow = flow
        self._device = {
            c.node for c in constructs if uses_device(c) and not c.key.startswith(_QUESTIONS)
        }
        self._device |= {node for node in names.order if self._is_migrated(node)}

    def constructs(self) -> Iterator[Construct]:
        """Children that use the device, and memory of it that is shared."""
        for node in self._names.order:
            if isinstance(node, ast.Call):
                given = self._started(node)
                if any(self._runs_on_device(part) for part in given):
                    yield Construct("child", "start", node)
                elif given and self._is_unknown(node, given[0]):
                    yield Construct("child", "unknown", node)
                elif isinstance(node.func, ast.Attribute) and node.func.attr in _SHARING:
                    if self._may_be_on_device(node.func.value):
                        yield Construct("child", "memory", node)
            elif isinstance(node, ast.ClassDef):
                for base in node.bases:
                    if self._names.qualified(base) in _PROCESSES and self._computes_in(node):
                        yield Construct("child", "start", base)

    def _started(self, call: ast.Call) -> list[ast.expr]:
        """What a new process, or one of a pool, is given: its function first."""
        if self._makes(call, "Process", _PROCESSES):
            parts = [argument(call, 1, "target"), argument(call, 3, "args")]
            parts.append(argument(call, 4, "kwargs"))
            return [part for part in parts if part is not None]
        if isinstance(call.func, ast.Attribute) and call.func.attr in _ON_A_POOL:
            if self._is(call.func.value, "Pool", _POOLS):
                return [*call.args, *(k.value for k in call.keywords)]
        return []

    def _is_migrated(self, node: ast.AST) -> bool:
        """Whether it is what a migration makes of a device."""
        match node:
            case ast.Constant(value="jax" | "xla"):
                return True
            case ast.Attribute(attr=name):
                called = self._names.qualified(node) or ""
                return called.startswith(_TARGETS) and name not in ("is_available", "device_count")
        return False

    def _is_unknown(self, call: ast.Call, function: ast.expr) -> bool:
        """Whether tensors may go to a function of another file, where the program uses a device."""
        if not (self._names.qualified(call.func) or "").startswith("torch.multiprocessing."):
            return False
        if not isinstance(function, ast.Name | ast.Attribute) or self._flow.definition(function):
            return False
        return bool(self._device) or (
            self._project is not None and self._project.imports_gpu_code()
        )

    def _makes(self, call: ast.Call, name: str, known: set[str]) -> bool:
        """Whether a call is `mp.Process(…)`, or `context.Process(…)`."""
        if self._names.qualified(call.func) in known:
            return True
        match call.func:
            case ast.Attribute(attr=attribute, value=owner) if attribute == name:
                return self._is(owner, "get_context", _CONTEXTS)
        return False

    def _is(self, node: ast.expr, name: str, known: set[str]) -> bool:
        """Whether an expression is, or a name is bound to, what such a call gives."""
        if isinstance(node, ast.Name):
            values = [binding.value for binding in self._names.lookup(node)]
        else:
            values = [node]
        return any(isinstance(v, ast.Call) and self._makes(v, name, known) for v in values)

    def _runs_on_device(self, node: ast.expr) -> bool:
        function = self._flow.definition(node)
        if function is not None:
            return self._computes_in(function)
        return any(
            self._may_be_on_device(part)
            for part in ast.walk(node)
            if isinstance(part, ast.Name | ast.Attribute | ast.Call)
        )

    def _computes_in(self, definition: ast.AST, seen: frozenset[ast.AST] = frozenset()) -> bool:
        """Whether a function, or one of this file that it calls, uses the device."""
        if definition in seen:
            return False
        for node in ast.walk(definition):
            if self._names_device(node):
                return True
            if isinstance(node, ast.Call):
                called = self._flow.called_definition(node)
                if called is not None and self._computes_in(called, seen | {definition}):
                    return True
        return False

    def _names_device(self, node: ast.AST) -> bool:
        """A construct, or the name of a variable that is a device."""
        if node in self._device:
            return True
        if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load):
            return False
        values = [b.value for b in self._names.lookup(node) if b.kind == "assign"]
        return any(
            value is not None
            and self._flow.kind(value) & (Kind.DEVICE | Kind.DEVICE_STRING)
            and any(part in self._device for part in ast.walk(value))
            for value in values
        )

    def _may_be_on_device(self, node: ast.expr) -> bool:
        """Whether a value is moved: where it is made, or in a statement of its own."""
        if any(map(self._names_device, ast.walk(node))):
            return True
        name = dotted(node)
        if name is None:
            return False
        bound = self._names.lookup(node) if isinstance(node, ast.Name) else []
        values = [b.value for b in bound if b.kind == "assign"]
        values += self._names.dotted_assignments.get(name, [])
        if any(self._moves(value) for value in values if value is not None):
            return True
        return any(
            dotted(move.func.value) == name and self._moves(move)
            for move in self._names.order
            if isinstance(move, ast.Call)
            and isinstance(move.func, ast.Attribute)
            and move.func.attr in ("cuda", "to")
            and isinstance(self._names.parents.get(move), ast.Expr)
        )

    def _moves(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Call) and any(map(self._names_device, ast.walk(node)))
