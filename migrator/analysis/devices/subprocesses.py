"""Child processes and threads: which of them use the device.

Only this file is examined. Children that stay on the CPU (data loaders, games, metrics) don't
matter here, and nothing is reported about them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Set
from functools import cached_property
from typing import Protocol

from migrator.analysis import foreign_code
from migrator.analysis.syntax.names import Binding, Names
from migrator.analysis.syntax.nodes import argument, dotted
from migrator.analysis.values.flow import Flow
from migrator.analysis.values.inference import Inference
from migrator.analysis.values.value_kinds import Kind
from migrator.construct import Construct
from migrator.targets import RUNTIME

_MODULES = ("torch.multiprocessing", "multiprocessing", "multiprocessing.context")
_PROCESSES = {f"{module}.Process" for module in _MODULES}
_POOLS = {
    *(f"{module}.Pool" for module in _MODULES), "multiprocessing.pool.Pool",
    "concurrent.futures.ProcessPoolExecutor",
}  # fmt: skip
_CONTEXTS = {f"{module}.get_context" for module in _MODULES}
_THREADS = {"threading.Thread"}
# Position of the function among the arguments.
_THREAD_CALLS = {
    "asyncio.to_thread": 0, "threading.Timer": 1, "_thread.start_new_thread": 0,
    "_thread.start_new": 0,
}  # fmt: skip
_THREAD_POOLS = {
    "concurrent.futures.ThreadPoolExecutor", "multiprocessing.pool.ThreadPool",
    "multiprocessing.dummy.Pool",
}  # fmt: skip
_PARALLEL = {"joblib.Parallel", "joblib.parallel.Parallel"}
_DELAYED = {"joblib.delayed", "joblib.parallel.delayed"}
_IN_THREADS = {("backend", "threading"), ("prefer", "threads"), ("require", "sharedmem")}
_RUN, _SHARING = "run_in_executor", ("share_memory", "share_memory_")
# TargetApi without which a file has no children.
_WORDS = {_RUN, *_SHARING} | {
    name.rpartition(".")[2]
    for names in (_PROCESSES, _POOLS, _CONTEXTS, _THREADS, _THREAD_CALLS, _THREAD_POOLS, _PARALLEL)
    for name in names
}
_ON_A_POOL = frozenset({
    "map", "map_async", "imap", "imap_unordered", "starmap", "starmap_async", "apply",
    "apply_async", "submit",
})  # fmt: skip
_BOUND = ("assign", "with")
_READS = ("cpu", "item", "numpy", "tolist")
_TARGETS = (f"{RUNTIME}.", *foreign_code.PARTS)
_QUESTIONS = ("torch.cuda.is_available", "torch.cuda.device_count")


class ProjectImports(Protocol):
    """The imports of a file from its own project."""

    def imports_gpu_code(self) -> bool: ...


class ChildProcesses:
    """The child processes of a file, and whether its GPU constructs show that they use the
    device."""

    def __init__(
        self,
        names: Names,
        flow: Flow,
        device_uses: Iterable[Construct],
        project: ProjectImports | None = None,
    ) -> None:
        self._project = project
        self._names = names
        self._flow = flow
        self._known = Inference(False)
        self._bound: dict[int, list[ast.expr]] = {}
        self._in_place: Set[str | None] | None = None
        self._device_uses = device_uses

    @cached_property
    def _device(self) -> set[ast.AST]:
        """The nodes that are a device, or code for one."""
        said = (*self._names.all(ast.Constant), *self._names.all(ast.Attribute))
        return {
            *(c.node for c in self._device_uses if not c.key.startswith(_QUESTIONS)),
            *(node for node in said if self._is_migrated(node)),
        }

    def constructs(self) -> Iterator[Construct]:
        """Children and threads that use the device, and shared memory of the device."""
        if self._names.words.isdisjoint(_WORDS):
            return
        for node in self._names.order:
            if isinstance(node, ast.Call):
                given = self._started(node)
                if any(self.runs_on_device(part) for part in given):
                    yield Construct("child", "start", node)
                elif any(self.runs_on_device(part) for part in self._threaded(node)):
                    yield Construct("child", "thread", node)
                elif given and self._is_unknown(node, given[0]):
                    yield Construct("child", "unknown", node)
                elif isinstance(node.func, ast.Attribute) and node.func.attr in _SHARING:
                    if self.uses_device_in(node.func.value):
                        yield Construct("child", "memory", node)
            elif isinstance(node, ast.ClassDef):
                for base in node.bases:
                    name = self._names.qualified(base)
                    if name in _PROCESSES | _THREADS and self.uses_device_in(node):
                        yield Construct("child", "thread" if name in _THREADS else "start", base)

    def _started(self, call: ast.Call) -> list[ast.expr]:
        """The function that a new process or pool runs, followed by its arguments."""
        if self._makes(call, "Process", _PROCESSES):
            return _target(call)
        if isinstance(call.func, ast.Attribute) and call.func.attr in _ON_A_POOL:
            if self._comes_from(call.func.value, "Pool", _POOLS):
                return [*call.args, *(k.value for k in call.keywords)]
        return []

    def _threaded(self, call: ast.Call) -> list[ast.expr]:
        """The function that a new thread or pool runs, followed by its arguments."""
        name = self._names.qualified(call.func)
        if name in _THREADS:
            return _target(call)
        given = [*call.args, *(k.value for k in call.keywords)]
        if name in _THREAD_CALLS:
            return [*call.args[_THREAD_CALLS[name] :], *given[len(call.args) :]]
        makers = self._values(call.func) or [call.func]
        if any(isinstance(m, ast.Call) and self._is_parallel_in_threads(m) for m in makers):
            return [part for value in given for part in self._delayed(value)]
        if isinstance(call.func, ast.Attribute):
            if call.func.attr == _RUN:
                return given[1:]
            if call.func.attr in _ON_A_POOL and self._comes_from(
                call.func.value, "", _THREAD_POOLS
            ):
                return given
        return []

    def _is_parallel_in_threads(self, call: ast.Call) -> bool:
        """`joblib.Parallel(prefer="threads")`"""
        return self._names.qualified(call.func) in _PARALLEL and any(
            isinstance(k.value, ast.Constant) and (k.arg, k.value.value) in _IN_THREADS
            for k in call.keywords
        )

    def _delayed(self, node: ast.expr) -> Iterator[ast.expr]:
        """The functions and their arguments in `(delayed(f)(x) for x in xs)`."""
        for part in ast.walk(node):
            match part:
                case ast.Call(func=ast.Call(func=maker, args=[function])) if (
                    self._names.qualified(maker) in _DELAYED
                ):
                    yield from [function, *part.args, *(k.value for k in part.keywords)]

    def _is_migrated(self, node: ast.AST) -> bool:
        """Whether an expression is what a migration writes for a device."""
        match node:
            case ast.Constant(value=str(text)) if text in foreign_code.DEVICES:
                return True
            case ast.Attribute(attr=name):
                called = self._names.qualified(node) or ""
                return called.startswith(_TARGETS) and name not in ("is_available", "device_count")
        return False

    def _is_unknown(self, call: ast.Call, function: ast.expr) -> bool:
        """Whether tensors may be passed to a function of another file, in a program that uses a
        device."""
        if not (self._names.qualified(call.func) or "").startswith("torch.multiprocessing."):
            return False
        if not isinstance(function, ast.Name | ast.Attribute) or self._functions(function):
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
                return name != "get_context" and self._comes_from(owner, "get_context", _CONTEXTS)
        return False

    def _comes_from(self, node: ast.expr, name: str, known: set[str]) -> bool:
        """Whether an expression is the result of such a call, or a name bound to one."""
        values = self._values(node) or [node]
        return any(isinstance(v, ast.Call) and self._makes(v, name, known) for v in values)

    def _values(self, node: ast.expr) -> list[ast.expr]:
        """The values that a name or an attribute is bound to, as far as this file shows."""
        values: list[ast.expr | None] = []
        match node:
            case ast.Name():
                return self._bound_to(self._names.lookup(node))
            case ast.Attribute(value=owner, attr=name):
                values += self._names.dotted_assignments.get(dotted(node) or "", [])
                classes = [c for c in self._classes(owner) if isinstance(c, ast.ClassDef)]
                for each in classes:
                    values += self._names.class_attributes[each].get(name, [])
                    values += [b.value for b in self._names.scopes[each].bindings.get(name, ())]
        return [value for value in values if value is not None]

    def _bound_to(self, bindings: list[Binding]) -> list[ast.expr]:
        if id(bindings) not in self._bound:
            values = [b.value for b in bindings if b.kind in _BOUND]
            self._bound[id(bindings)] = [value for value in values if value is not None]
        return self._bound[id(bindings)]

    def _classes(self, node: ast.expr) -> Iterator[ast.AST]:
        """The classes of this file that an object may be an instance of: `self`, `Trainer()`, a
        variable."""
        if isinstance(node, ast.Name):
            owner = self._names.owner_class(node)
            if owner is not None:
                yield owner
            else:
                yield from self._flow.made(self._names.lookup(node))
            return
        for value in [node, *self._values(node)] if not isinstance(node, ast.Call) else [node]:
            if isinstance(value, ast.Call):
                made = self._flow.called_definition(value)
                if isinstance(made, ast.ClassDef):
                    yield made

    def _functions(self, node: ast.expr, depth: int = 0) -> list[ast.AST]:
        """The functions of this file that an expression may refer to, and their bound arguments."""
        if isinstance(node, ast.Lambda):
            return [node]
        definition = self._flow.definition(node)
        if definition is not None:
            return [definition]
        if isinstance(node, ast.Call):
            if self._names.qualified(node.func) != "functools.partial":
                return []
            given = [*node.args, *(k.value for k in node.keywords)]
            return [part for value in given for part in self._functions(value, depth) or [value]]
        found: list[ast.AST] = []
        if isinstance(node, ast.Attribute):
            for each in self._classes(node.value):
                methods = self._names.scopes[each].bindings.get(node.attr, ())
                found += [b.node for b in methods if b.kind == "def"]
        if depth < 4:
            for value in self._values(node):
                found += self._functions(value, depth + 1)
        return found

    def runs_on_device(self, node: ast.expr) -> bool:
        """Whether a child gets data on the device, or runs a function that uses it."""
        return any(map(self.uses_device_in, self._functions(node) or [node]))

    def uses_device_in(self, code: ast.AST) -> bool:
        """Whether a value is on the device, or is code that uses it, directly or through calls in
        this file."""
        return self._known.of((code, "uses"), lambda: self._looks_used(code))

    def _looks_used(self, code: ast.AST) -> bool:
        is_value = isinstance(code, ast.expr) and not isinstance(code, ast.Lambda)
        parts = list(_unread(code) if is_value else ast.walk(code))
        return any(map(self._names_device, parts)) or any(
            self.uses_device_in(called)
            for node in parts
            if isinstance(node, ast.Call)
            for called in self._functions(node.func)
        )

    def _names_device(self, node: ast.AST) -> bool:
        """Whether a name is a construct, a device, or something that was moved to one."""
        if node in self._device:
            return True
        if not isinstance(node, ast.Name | ast.Attribute) or not isinstance(node.ctx, ast.Load):
            return False
        if dotted(node) in self._moved_in_place():
            return True
        values = self._values(node)
        key = id(values) if isinstance(node, ast.Name) else node
        return bool(values) and self._known.of(key, lambda: any(map(self._holds_device, values)))

    def _holds_device(self, value: ast.expr) -> bool:
        """Whether a value is a device that is rewritten, or was moved to one."""
        return self._moves(value) or bool(
            self._flow.kind(value) & (Kind.DEVICE | Kind.DEVICE_STRING)
            and any(part in self._device for part in ast.walk(value))
        )

    def _moved_in_place(self) -> Set[str | None]:
        """The objects that statements such as `model.cuda()` move."""
        if self._in_place is not None:
            return self._in_place
        self._in_place = frozenset()  # while they are being collected
        known, self._known = self._known, Inference(False)
        self._in_place = {
            dotted(move.func.value)
            for move in self._names.order
            if isinstance(move, ast.Call)
            and isinstance(move.func, ast.Attribute)
            and move.func.attr in ("cuda", "to")
            and isinstance(self._names.parents.get(move), ast.Expr)
            and self._device_in(move)
        } - {None}
        self._known = known
        return self._in_place

    def _device_in(self, call: ast.Call) -> bool:
        """Whether a call names the device, directly or by a variable."""
        return call.func in self._device or any(
            self._names_device(part)
            for given in [*call.args, *(k.value for k in call.keywords)]
            for part in ast.walk(given)
        )

    def _moves(self, node: ast.expr) -> bool:
        """Whether the call itself shows that its result is on the device."""
        return isinstance(node, ast.Call) and self._known.of(
            node, lambda: any(map(self._names_device, _unread(node)))
        )


def _target(call: ast.Call) -> list[ast.expr]:
    """The function that `Process(…)` or `Thread(…)` runs."""
    parts = [argument(call, 1, "target"), argument(call, 3, "args"), argument(call, 4, "kwargs")]
    return [part for part in parts if part is not None]


def _unread(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a value, except those that are copied to the host: `model(x).cpu()`."""
    match node:
        case ast.Call(func=ast.Attribute(attr=name)) if name in _READS:
            return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _unread(child)
