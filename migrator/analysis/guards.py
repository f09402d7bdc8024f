"""Guards: what runs only where a question about CUDA is answered yes, and what CUDA has alone.

On a TPU the answer to `x.is_cuda` becomes yes, for the code that is rewritten behind it. A kernel
does not run there: in front of one the answer has to stay no, so that what the program does for
other devices runs. Names count as hints (`scan_cuda`, `_C`), which only ever keep an answer.
"""

from __future__ import annotations

import ast
import re
from bisect import bisect_left, insort
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from migrator.analysis import hints
from migrator.analysis.devices import AVAILABLE, device_call
from migrator.analysis.flow import Flow
from migrator.analysis.kinds import ANY_DEVICE, CUDA_STRING, Kind
from migrator.analysis.ladders import question
from migrator.analysis.libraries import MODULES
from migrator.analysis.names import Names, argument, dotted

if TYPE_CHECKING:
    from migrator.analysis.facts import ProjectFacts

_Definition = ast.FunctionDef | ast.ClassDef
_DEEPEST = 6  # definitions that are followed one from the other

# Libraries of operators that are PyTorch's own, or have them for each device.
_OPERATORS = frozenset({
    "aten", "prims", "prim", "torchvision", "torchaudio", "quantized", "c10d", "_c10d_functional",
    "c10d_functional", "higher_order", "profiler", "mkldnn", "xla", "load_library",
    "loaded_libraries", "import_module",
})  # fmt: skip
_LOADERS = ("torch.utils.cpp_extension.load", "ctypes.CDLL", "ctypes.PyDLL", "ctypes.cdll.")
_KERNELS = (*_LOADERS, "torch._scaled_", "torch._C._jit_get_operation", "triton.", "numba.cuda.")
_COMPILERS = ("triton.", "numba.cuda.", "cupy.")
_MENTIONED = re.compile(
    rb"cpp_extension|ctypes|torch\.ops|_scaled_|_C\b|_ext\b|_kernels\b|_cuda\b|numba|"
    + "|".join(sorted(MODULES)).encode()
)


@dataclass(frozen=True, order=True)
class Place:
    """Where something stands that decides what a guard means."""

    line: int
    column: int
    kind: str  # kernel; wrapper: a function that runs one; move: to the device
    text: str = ""


@dataclass(frozen=True)
class Guard:
    """What a question decides about, as spans of the source, and whether it asks of a tensor."""

    spans: Sequence[tuple[Place, Place]]
    of_tensor: bool

    def first(self, places: Sequence[Place], *kinds: str) -> Place | None:
        """The first of sorted places behind it."""
        for start, end in self.spans:
            for place in places[bisect_left(places, start) : bisect_left(places, end)]:
                if not kinds or place.kind in kinds:
                    return place
        return None


def place(node: ast.AST, kind: str = "", text: str = "") -> Place:
    return Place(node.lineno, node.col_offset, kind, text)  # type: ignore[attr-defined]


class Guards:
    """The guards of one file. What is `served` on the target is no kernel any more."""

    def __init__(
        self,
        names: Names,
        flow: Flow,
        project: ProjectFacts | None = None,
        served: Collection[ast.AST] = frozenset(),
    ) -> None:
        self.names, self.flow, self.project, self.served = names, flow, project, served
        self.places: list[Place] = []  # in what was looked through
        self._looked_from: dict[int, int] = {}  # by block: from where on
        self._runs: dict[ast.AST, bool] = {}
        self._brings: dict[ast.AST, bool] = {}
        # by the list of a name's bindings: whether a value is one, and its imports
        self._bound: dict[int, tuple[bool, list[ast.Import | ast.ImportFrom]]] = {}

    def guard(self, node: ast.AST) -> Guard | None:
        """What is guarded by a question: the name of `is_available`, `x.is_cuda`, a string."""
        found = self._question(node)
        if found is None:
            return None
        asked, holds, of_tensor = found
        parts = list(self._parts(asked, holds, not holds))
        for block, start in parts:
            self._look(block, start)
        spans = [(place(block[i]), _end(block[-1])) for block, i in parts if i < len(block)]
        return Guard(spans, of_tensor) if spans else None

    # ---- questions --------------------------------------------------------------------------

    def _question(self, node: ast.AST) -> tuple[ast.expr, bool, bool] | None:
        """What is asked as a whole, whether yes means CUDA, and whether it is asked of a tensor."""
        names = self.names
        match node:
            case ast.Attribute(attr="is_cuda"):
                return (node, True, True) if names.call_of(node) is None else None
            case ast.Attribute() | ast.Name():
                call = names.call_of(node)
                asks = call is not None and names.qualified(node) in AVAILABLE
                return (question(names, call), True, False) if call is not None and asks else None
            case ast.Constant(value=str(text)) if CUDA_STRING.match(text):
                return self._comparison(node)
        return None

    def _comparison(self, node: ast.expr) -> tuple[ast.expr, bool, bool] | None:
        named: ast.expr = device_call(self.names, node) or node
        above = self.names.parents.get(named)
        if isinstance(above, ast.Tuple | ast.List | ast.Set):
            if any(isinstance(e, ast.Constant) and e.value == "cpu" for e in above.elts):
                return None
            named, above = above, self.names.parents.get(above)
        match above:
            case ast.Compare(left=left, comparators=[other], ops=[op]):
                asked = other if left is named else left
                holds = not isinstance(op, ast.NotEq | ast.NotIn | ast.IsNot)
                return above, holds, self._is_of_tensor(asked)
            case ast.Call(func=ast.Attribute(attr="startswith", value=asked)):
                return above, True, self._is_of_tensor(asked)
        return None

    def _is_of_tensor(self, node: ast.AST) -> bool:
        """`x.device.type`, `str(x.device)`; not `self.device`, `args.device`"""
        return any(
            isinstance(part, ast.Attribute)
            and part.attr == "device"
            and not (isinstance(part.value, ast.Name) and part.value.id in _OWNERS)
            for part in ast.walk(node)
        )

    # ---- what they guard ----------------------------------------------------------------------

    def _parts(
        self, test: ast.AST, holds: bool, fails: bool, depth: int = 0
    ) -> Iterator[tuple[Sequence[ast.AST], int]]:
        """What runs only if a test `holds`, or `fails`: nodes of a block, from an index on."""
        names = self.names
        above = names.parents.get(test)
        while True:
            match above:
                case ast.UnaryOp(op=ast.Not()):
                    holds, fails = fails, holds
                case ast.BoolOp(op=op, values=values):
                    if holds if isinstance(op, ast.And) else fails:
                        yield values, values.index(test) + 1  # type: ignore[arg-type]
                    if not all(value is test or _asks_for_another(value) for value in values):
                        holds = holds and isinstance(op, ast.And)
                        fails = fails and isinstance(op, ast.Or)
                case ast.NamedExpr(target=target):
                    yield from self._of_uses(target, holds, fails, depth)
                case _:
                    break
            assert above is not None
            test, above = above, names.parents.get(above)
        if not holds and not fails:
            return
        match above:
            case ast.IfExp() if above.test is test:
                yield [above.body if holds else above.orelse], 0
            case ast.If(body=body, orelse=orelse) if above.test is test:
                yes, no = (body, orelse) if holds else (orelse, body)
                yield yes, 0
                if no and self._leaves(no):
                    yield self._behind(above)
                if _answers(no, False) or _answers(yes, True):
                    yield from self._of_calls(names.function(above), depth)
            case ast.While(body=body) if above.test is test and holds:
                yield body, 0
            case ast.Assert() if above.test is test and holds:
                yield self._behind(above)
            case ast.comprehension() if holds:
                whole = names.parents.get(above)
                parts = (getattr(whole, name, None) for name in ("elt", "key", "value"))
                yield [part for part in parts if part is not None], 0
            case ast.Assign(targets=targets):
                for each in targets:
                    yield from self._of_uses(each, holds, fails, depth)
            case ast.AnnAssign(target=ast.Name() | ast.Attribute() as stored):
                yield from self._of_uses(stored, holds, fails, depth)
            case ast.Return() if holds:
                yield from self._of_calls(names.function(above), depth)
            case ast.Call(func=func) if test in above.args:
                skips = (dotted(func) or "").rpartition(".")[2].lower()
                if skips == ("skipunless" if holds else "skipif"):
                    yield from self._of_mark(above)

    def _behind(self, statement: ast.stmt) -> tuple[Sequence[ast.AST], int]:
        block = self.names.block(statement)
        return block, self._index(block, statement) + 1 if block else 0

    def _index(self, block: Sequence[ast.stmt], statement: ast.stmt) -> int:
        """As `block.index`, in no time for a long one."""
        key = (statement.lineno, statement.col_offset)
        return bisect_left(block, key, key=lambda s: (s.lineno, s.col_offset))

    def _of_uses(
        self, target: ast.expr, holds: bool, fails: bool, depth: int
    ) -> Iterator[tuple[Sequence[ast.AST], int]]:
        for use in self.names.loads(target) if depth < 2 else ():
            yield from self._parts(use, holds, fails, depth + 1)

    def _of_calls(
        self, function: ast.FunctionDef | ast.AsyncFunctionDef | None, depth: int
    ) -> Iterator[tuple[Sequence[ast.AST], int]]:
        if function is None or depth >= 2:
            return
        uses: list[ast.expr] = list(self.names.by_id.get(function.name, ()))
        uses += self._attributes.get(function.name, ())
        for use in uses:
            if self.flow.definition(use) is function:
                yield from self._parts(self.names.call_of(use) or use, True, False, depth + 1)

    def _of_mark(self, mark: ast.Call) -> Iterator[tuple[Sequence[ast.AST], int]]:
        """What a decorator of a test skips."""
        above = self.names.parents.get(mark)
        uses: list[ast.expr] = [mark]
        if isinstance(above, ast.Assign):
            uses = [use for target in above.targets for use in self.names.loads(target)]
        for use in uses:
            match self.names.parents.get(use):
                case ast.FunctionDef(body=body) | ast.ClassDef(body=body):
                    yield body, 0

    def _leaves(self, body: list[ast.stmt]) -> bool:
        """Whether what stands behind statements is not reached from them."""
        if isinstance(body[-1], ast.Return | ast.Continue | ast.Break) or self.names.ends(body):
            return True
        match body[-1]:
            case ast.Expr(value=ast.Call(func=func)):
                return (dotted(func) or "").endswith((".skip", ".skipTest"))
        return False

    @cached_property
    def _attributes(self) -> dict[str, list[ast.expr]]:
        found: dict[str, list[ast.expr]] = {}
        for node in self.names.order:
            if isinstance(node, ast.Attribute):
                found.setdefault(node.attr, []).append(node)
        return found

    # ---- what CUDA has alone --------------------------------------------------------------------

    def _look(self, block: Sequence[ast.AST], start: int) -> None:
        """Find what stands in a block, from an index on, that was not looked through before."""
        end = self._looked_from.get(id(block), len(block))
        self._looked_from[id(block)] = min(start, end)
        for part in block[start:end]:
            for node in ast.walk(part):
                kind = self._kind(node, 0)
                if kind:
                    found = place(node, kind, _said(node))
                    at = bisect_left(self.places, found)
                    if self.places[at : at + 1] != [found]:
                        insort(self.places, found)

    def _kind(self, node: ast.AST, depth: int) -> str:
        """kernel, wrapper or move; "" for others"""
        match node:
            case ast.Call():
                return "move" if self._moves(node) else ""
            case _ if node in self.served:
                return ""
            case ast.Import() | ast.ImportFrom():
                guarded = self.names.is_guarded_import(node)
                return "kernel" if not guarded and self._brings_kernels(node) else ""
            case ast.Name(ctx=ast.Load()) | ast.Attribute(ctx=ast.Load()):
                if self._is_kernel(node):
                    return "kernel"
                return "wrapper" if self._is_wrapper(node, depth) else ""
        return ""

    def _is_kernel(self, node: ast.Name | ast.Attribute) -> bool:
        name = self.names.qualified(node) or ""
        if name.startswith("torch.ops."):
            return name.split(".")[2] not in _OPERATORS
        if name.startswith(_KERNELS):
            return True
        if name.startswith("torch."):
            return False
        if isinstance(node, ast.Name):
            return self._is_bound_to_kernel(node)
        if isinstance(node.value, ast.Name) and self.flow.definition(node) is None:
            owner = self.names.owner_class(node.value)
            held = self.names.class_attributes[owner].get(node.attr, ()) if owner else ()
            if any(self._is_loaded(value) for value in held):
                return True
        return self.names.call_of(node) is not None and hints.is_kernel_name(node.attr)

    def _is_bound_to_kernel(self, node: ast.Name) -> bool:
        bindings = self.names.lookup(node)
        if id(bindings) not in self._bound:  # a name that is assigned often is read often
            imports = [b.node for b in bindings if isinstance(b.node, ast.Import | ast.ImportFrom)]
            made = any(self._makes_kernel(b.node, b.value) for b in bindings)
            self._bound[id(bindings)] = (made, imports)
        made, imports = self._bound[id(bindings)]
        return made or any(self._imports_kernel(node, bound) for bound in imports)

    def _imports_kernel(self, node: ast.Name, bound: ast.Import | ast.ImportFrom) -> bool:
        if self.names.is_guarded_import(bound) and self._share_try(bound, node):
            return False
        parts = (self.names.qualified(node) or node.id).split(".")
        named = any(hints.is_kernel_name(part) for part in parts)
        # a file of the program is known by what is in it
        of_project = named and self._definition(node) is not None
        return (named and not of_project) or self._brings_kernels(bound)

    def _makes_kernel(self, bound: ast.AST, value: ast.expr | None) -> bool:
        if isinstance(bound, ast.FunctionDef):
            called = [d.func if isinstance(d, ast.Call) else d for d in bound.decorator_list]
            return any((self.names.qualified(d) or "").startswith(_COMPILERS) for d in called)
        return self._is_loaded(value)

    def _share_try(self, bound: ast.AST, node: ast.AST) -> bool:
        """Whether a use stands in the `try` of its import, which fails on a TPU machine."""
        around = {a for a in self.names.ancestors(bound) if isinstance(a, ast.Try)}
        return any(a in around for a in self.names.ancestors(node))

    def _is_loaded(self, value: ast.expr | None) -> bool:
        """Whether a value is an extension that is built or loaded here."""
        if not isinstance(value, ast.Call):
            return False
        if (self.names.qualified(value.func) or "").startswith(_LOADERS):
            return True
        texts = (a.value for a in value.args if isinstance(a, ast.Constant))
        if any(isinstance(t, str) and hints.is_kernel_name(t.rpartition(".")[2]) for t in texts):
            return True
        found = self._definition(value.func)
        return found is not None and any(
            (found[0].names.qualified(node) or "").startswith(_LOADERS)
            for node in ast.walk(found[1])
            if isinstance(node, ast.Name | ast.Attribute)
        )

    def _is_wrapper(self, node: ast.expr, depth: int) -> bool:
        """Whether a name is that of a function or class of the program that runs kernels."""
        found = self._definition(node)
        return found is not None and found[0]._runs_kernels(found[1], depth)

    def _definition(self, node: ast.expr) -> tuple[Guards, _Definition] | None:
        """The function or class of the program that a name means, if kernels may be in its file."""
        here = self.flow.definition(node)
        if isinstance(here, ast.FunctionDef | ast.ClassDef):
            return self, here
        module, _, name = (self.names.qualified(node) or "").rpartition(".")
        if self.project is None or not module or module.partition(".")[0] == "torch":
            return None
        path = self.project.resolve(module if module.strip(".") else f"{module}.")
        if path is None or not self._may_run_kernels(path):
            return None
        found = self.project.definition(f"{module}.{name}" if module.strip(".") else module + name)
        if found is None:
            return None
        facts, there, definition = found
        known = self.project.cache.guards
        if there.path not in known:
            known[there.path] = Guards(facts.names, facts.flow, there)
        return known[there.path], definition

    def _may_run_kernels(self, path: Path) -> bool:
        """A cheap answer for a file: False where neither it nor what it imports speaks of them."""
        assert self.project is not None
        known = self.project.cache.speaks_of_kernels
        if path not in known:
            reader = self.project.reader
            files = (path, *self.project.reached(path))
            known[path] = any(_MENTIONED.search(reader.read(f) or b"") for f in files)
        return known[path]

    def _runs_kernels(self, definition: _Definition, depth: int) -> bool:
        """Whether a function or class runs a kernel without asking, and moves nothing."""
        if definition not in self._runs:
            self._runs[definition] = False
            self._runs[definition] = depth < _DEEPEST and self._has_kernels(definition, depth + 1)
        return self._runs[definition]

    def _has_kernels(self, definition: _Definition, depth: int) -> bool:
        found = hints.is_kernel_name(definition.name)
        for statement in definition.body:
            for node in ast.walk(statement):
                kind = self._kind(node, depth)
                if kind == "move":
                    return False
                found = found or (bool(kind) and not self._is_guarded(node))
        return found

    def _is_guarded(self, node: ast.AST) -> bool:
        where = place(node)
        at = bisect_left(self._guarded, (where, where))
        return any(start <= where < end for start, end in self._guarded[:at])

    @cached_property
    def _guarded(self) -> list[tuple[Place, Place]]:
        """What the questions of this file guard."""
        spans = []
        for node in self.names.order:
            if isinstance(node, ast.Attribute | ast.Name | ast.Constant):
                found = self._question(node)
                if found is not None:
                    for block, start in self._parts(found[0], found[1], not found[1]):
                        if start < len(block):
                            spans.append((place(block[start]), _end(block[-1])))
        return sorted(spans)

    def _brings_kernels(self, node: ast.Import | ast.ImportFrom) -> bool:
        """Whether an import needs CUDA: a library for it, an extension, a file that needs one."""
        if node not in self._brings:
            self._brings[node] = self._needs_cuda(node)
        return self._brings[node]

    def _needs_cuda(self, node: ast.Import | ast.ImportFrom) -> bool:
        project = self.project
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        else:
            start = "." * node.level + (node.module or "")
            modules = [start]
            if node.level and project is not None and not node.module:
                for alias in node.names:  # from . import _C
                    compiled = alias.name.startswith("_") or hints.is_kernel_name(alias.name)
                    if compiled and project.resolve(f"{start}{alias.name}") is None:
                        return True
        return any(
            not MODULES.keys().isdisjoint((m, m.partition(".")[0])) or self._is_built(m)
            for m in modules
        )

    def _is_built(self, module: str) -> bool:
        """Whether a module is compiled, or a file of the project that imports what is for CUDA."""
        if self.project is not None and self.project.resolve(module) is not None:
            return self.project.needs_cuda(module)
        return any(map(hints.is_kernel_name, module.split(".")))

    def _moves(self, call: ast.Call) -> bool:
        """`x.cuda()`, `x.to(device)`; not `w.to(x.device)`, where a tensor says where"""
        if not isinstance(call.func, ast.Attribute) or call.func.attr not in ("to", "cuda"):
            return False
        if call.func.attr == "cuda":
            return not (self.names.qualified(call.func) or "").startswith("torch.cuda")
        device = argument(call, 0, "device")
        if device is None or self._is_of_tensor(device):
            return False
        if isinstance(device, ast.Constant):
            return isinstance(device.value, str | int)
        return bool(self.flow.kind(device) & (ANY_DEVICE | Kind.CPU)) or self.flow.is_device(device)


_OWNERS = ("self", "args", "opt", "opts", "cfg", "config")


def _asks_for_another(node: ast.expr) -> bool:
    """Whether a condition is about an accelerator of another kind."""
    names = (
        n.attr if isinstance(n, ast.Attribute) else getattr(n, "value", "") for n in ast.walk(node)
    )
    return any(isinstance(name, str) and hints.is_other_accelerator_name(name) for name in names)


def _answers(body: Sequence[ast.stmt], answer: bool) -> bool:
    """`return True`, or what is like False"""
    match body[-1] if body else None:
        case ast.Return(value=ast.Constant(value=value)):
            return value is True if answer else not value
    return False


def _end(node: ast.AST) -> Place:
    return Place(node.end_lineno, node.end_col_offset, "")  # type: ignore[attr-defined]


def _said(node: ast.AST) -> str:
    """What a place is called in a message."""
    match node:
        case ast.Call(func=ast.Attribute(attr=name)):
            return f".{name}()"
        case ast.Import(names=[alias, *_]):
            return alias.name
        case ast.ImportFrom(module=module, names=[alias, *_]):
            return module or alias.name
    return dotted(node) or ast.unparse(node)
