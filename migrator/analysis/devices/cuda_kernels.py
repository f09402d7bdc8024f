"""CUDA kernels, and the functions of the program that run them unconditionally.

Names serve as hints (`scan_cuda`, `_C`); a hint can only keep code as it is.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection
from pathlib import Path
from typing import Protocol, Self

from migrator.analysis import name_heuristics
from migrator.analysis.cuda_libraries import MODULES
from migrator.analysis.devices.availability_checks import Questions, is_of_tensor
from migrator.analysis.ranks.vocabulary import COPIES_FOR_A_CALL
from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.nodes import argument
from migrator.analysis.values.flow import Flow
from migrator.analysis.values.value_kinds import ANY_DEVICE, Kind

_Definition = ast.FunctionDef | ast.ClassDef
_DEEPEST = 6  # length of a chain of definitions that is followed

# Libraries whose operators are PyTorch's own, or exist for each device.
_OPERATORS = frozenset({
    "aten", "prims", "prim", "torchvision", "torchaudio", "quantized", "c10d", "_c10d_functional",
    "c10d_functional", "higher_order", "profiler", "mkldnn", "xla", "load_library",
    "loaded_libraries", "import_module",
})  # fmt: skip
_LOADERS = ("torch.utils.cpp_extension.load", "ctypes.CDLL", "ctypes.PyDLL", "ctypes.cdll.")
_KERNELS = (
    *_LOADERS, "torch._scaled_", "torch._C._jit_get_operation", "triton.", "numba.cuda.",
    COPIES_FOR_A_CALL,
)  # fmt: skip
_COMPILERS = ("triton.", "numba.cuda.", "cupy.")
MENTIONED = re.compile(
    rb"cpp_extension|data_parallel|ctypes|torch\.ops|_scaled_|_C\b|_ext\b|_kernels\b|_cuda\b|numba|"
    + rb"\b(?:%b)\b" % b"|".join(sorted(re.escape(m.encode()) for m in MODULES))
)


class KernelProgram(Protocol):
    """What the kernels of a file depend on in the rest of the project."""

    def resolve(self, module: str) -> Path | None:
        """The file of the project that a module name refers to, as imported from this file."""

    def needs_cuda(self, module: str) -> bool:
        """Whether importing a module of the project requires a CUDA library."""

    def speaks_of_kernels(self, path: Path) -> bool:
        """A cheap test: False means that neither the file nor its imports mention kernels."""

    def definition(
        self, qualname: str
    ) -> tuple[object, Self, ast.FunctionDef | ast.ClassDef] | None:
        """The definition of an imported function or class, and its file."""

    def assigned(self, qualname: str) -> tuple[object, Self, ast.expr] | None:
        """The value of an imported name that is bound once, and its file."""

    def kernels(self) -> Kernels | None:
        """The kernels of this file."""


class Kernels:
    """The kernels of one file. Those in `served` work on the target, and don't count."""

    def __init__(
        self,
        names: Names,
        flow: Flow,
        project: KernelProgram | None = None,
        served: Collection[ast.AST] = frozenset(),
    ) -> None:
        self.names, self.flow, self.project, self.served = names, flow, project, served
        self.questions = Questions(names, flow)
        self._runs: dict[ast.AST, bool] = {}
        self._brings: dict[ast.AST, bool] = {}
        # by a name's list of bindings: whether it is a kernel, and its imports
        self._bound: dict[int, tuple[bool, list[ast.Import | ast.ImportFrom]]] = {}
        self._local: dict[int, str] = {}  # by a name's bindings, if no import is one of them

    def kind(self, node: ast.AST, depth: int = 0) -> str:
        """ "kernel", "wrapper" or "move"; "" for anything else"""
        match node:
            case ast.Call():
                return "move" if self._moves(node) else ""
            case _ if node in self.served:
                return ""
            case ast.Import() | ast.ImportFrom():
                if self.names.is_guarded_import(node):
                    return ""
                brings = isinstance(node, ast.ImportFrom) and self._brings_wrapper(node, depth)
                return "kernel" if self._brings_kernels(node) else "wrapper" if brings else ""
            case ast.Name(ctx=ast.Load()):
                bindings = self.names.lookup(node)
                if not bindings or any(binding.kind == "import" for binding in bindings):
                    return self._kind_of_name(node, depth)
                known = self._local.get(id(bindings))  # the same for all its uses
                if known is None:
                    known = self._local[id(bindings)] = self._kind_of_name(node, depth)
                return known
            case ast.Attribute(ctx=ast.Load()):
                return self._kind_of_name(node, depth)
        return ""

    def _kind_of_name(self, node: ast.Name | ast.Attribute, depth: int) -> str:
        if self._is_kernel(node):
            return "kernel"
        return "wrapper" if self._is_wrapper(node, depth) else ""

    def _is_kernel(self, node: ast.Name | ast.Attribute) -> bool:
        name = self.names.qualified(node) or ""
        if name.startswith("torch.ops."):
            return name.split(".")[2] not in _OPERATORS
        if name.startswith(_KERNELS):
            return True
        if name.startswith("torch."):
            return False
        if self._is_loaded_elsewhere(node):
            return True
        if isinstance(node, ast.Name):
            return self._is_bound_to_kernel(node)
        if isinstance(node.value, ast.Name) and self.flow.definition(node) is None:
            owner = self.names.owner_class(node.value)
            held = self.names.class_attributes[owner].get(node.attr, ()) if owner else ()
            if any(self._is_loaded(value) for value in held):
                return True
        return self.names.call_of(node) is not None and name_heuristics.is_kernel_name(node.attr)

    def _is_bound_to_kernel(self, node: ast.Name) -> bool:
        bindings = self.names.lookup(node)
        if id(bindings) not in self._bound:  # a name with many bindings is also read often
            imports = [b.node for b in bindings if isinstance(b.node, ast.Import | ast.ImportFrom)]
            made = any(self._makes_kernel(b.node, b.value) for b in bindings)
            self._bound[id(bindings)] = (made, imports)
        made, imports = self._bound[id(bindings)]
        return made or any(self._imports_kernel(node, bound) for bound in imports)

    def _imports_kernel(self, node: ast.Name, bound: ast.Import | ast.ImportFrom) -> bool:
        if self.names.is_guarded_import(bound) and self._share_try(bound, node):
            return False
        parts = (self.names.qualified(node) or node.id).split(".")
        named = any(name_heuristics.is_kernel_name(part) for part in parts)
        # files of the program are judged by their content
        of_project = named and self._definition(node) is not None
        return (named and not of_project) or self._brings_kernels(bound)

    def _makes_kernel(self, bound: ast.AST, value: ast.expr | None) -> bool:
        if isinstance(bound, ast.FunctionDef):
            called = [d.func if isinstance(d, ast.Call) else d for d in bound.decorator_list]
            return any((self.names.qualified(d) or "").startswith(_COMPILERS) for d in called)
        return self._is_loaded(value)

    def _share_try(self, bound: ast.AST, node: ast.AST) -> bool:
        """Whether a use is in the `try` of its import, which fails on a TPU machine."""
        around = {a for a in self.names.ancestors(bound) if isinstance(a, ast.Try)}
        return any(a in around for a in self.names.ancestors(node))

    def _is_loaded(self, value: ast.expr | None) -> bool:
        """Whether a value is an extension that this file builds or loads."""
        if not isinstance(value, ast.Call):
            return False
        if (self.names.qualified(value.func) or "").startswith(_LOADERS):
            return True
        texts = (a.value for a in value.args if isinstance(a, ast.Constant))
        if any(
            isinstance(t, str) and name_heuristics.is_kernel_name(t.rpartition(".")[2])
            for t in texts
        ):
            return True
        found = self._definition(value.func)
        return found is not None and any(
            (found[0].names.qualified(node) or "").startswith(_LOADERS)
            for node in ast.walk(found[1])
            if isinstance(node, ast.Name | ast.Attribute)
        )

    def _is_wrapper(self, node: ast.expr, depth: int) -> bool:
        """Whether a name is a function or class of the program that runs kernels."""
        found = self._definition(node)
        return found is not None and found[0]._runs_kernels(found[1], depth)

    def _definition(self, node: ast.expr) -> tuple[Kernels, _Definition] | None:
        """The function or class of the program that a name refers to, if its file may have
        kernels."""
        here = self.flow.definition(node)
        if isinstance(here, ast.FunctionDef | ast.ClassDef):
            return self, here
        qualname = self._elsewhere(node)
        found = self.project.definition(qualname) if self.project and qualname else None
        if found is None:
            return None
        _, there, definition = found
        kernels = there.kernels()
        return (kernels, definition) if kernels is not None else None

    def _is_loaded_elsewhere(self, node: ast.expr) -> bool:
        """Whether a name is an extension that another file builds or loads."""
        qualname = self._elsewhere(node)
        found = self.project.assigned(qualname) if self.project and qualname else None
        kernels = found[1].kernels() if found is not None else None
        return kernels is not None and found is not None and kernels._is_loaded(found[2])

    def _elsewhere(self, node: ast.expr) -> str:
        """The qualified name of something in another file that may have kernels; "" otherwise."""
        module, _, name = (self.names.qualified(node) or "").rpartition(".")
        if self.project is None or not module or module.partition(".")[0] == "torch":
            return ""
        path = self.project.resolve(module if module.strip(".") else f"{module}.")
        if path is None or not self.project.speaks_of_kernels(path):
            return ""
        return f"{module}.{name}" if module.strip(".") else module + name

    def _runs_kernels(self, definition: _Definition, depth: int) -> bool:
        """Whether a function or class runs a kernel unconditionally, and moves nothing to the
        device."""
        if definition not in self._runs:
            self._runs[definition] = False
            self._runs[definition] = depth < _DEEPEST and self._has_kernels(definition, depth + 1)
        return self._runs[definition]

    def _has_kernels(self, definition: _Definition, depth: int) -> bool:
        found = name_heuristics.is_kernel_name(definition.name)
        for statement in definition.body:
            for node in ast.walk(statement):
                kind = self.kind(node, depth)
                if kind == "move":
                    return False
                found = found or (bool(kind) and not self.questions.is_guarded(node))
        return found

    def _brings_kernels(self, node: ast.Import | ast.ImportFrom) -> bool:
        """Whether an import needs CUDA: a CUDA library, an extension, or a file that needs one."""
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
            if project is not None and self._is_package(node, start):
                for alias in node.names:  # from . import _C, from pkg import _C
                    compiled = name_heuristics.is_kernel_name(alias.name)
                    compiled = compiled or (not node.module and alias.name.startswith("_"))
                    whole = f"{start}{alias.name}" if not node.module else f"{start}.{alias.name}"
                    if compiled and self._is_nothing(whole):
                        return True
        return any(
            not MODULES.keys().isdisjoint((m, m.partition(".")[0])) or self._is_built(m)
            for m in modules
        )

    def _is_package(self, node: ast.ImportFrom, start: str) -> bool:
        """Whether an import is from a package of the project."""
        if node.level and not node.module:
            return True
        path = self.project.resolve(start) if self.project is not None else None
        return path is not None and path.name == "__init__.py"

    def _is_nothing(self, qualname: str) -> bool:
        """Whether a name is no module, function or value of the project."""
        assert self.project is not None
        if self.project.resolve(qualname) is not None:
            return False
        return self.project.definition(qualname) is None and self.project.assigned(qualname) is None

    def _brings_wrapper(self, node: ast.ImportFrom, depth: int) -> bool:
        """Whether an import is of functions of the project that run kernels."""
        start = "." * node.level + (node.module or "")
        if self.project is None or start.partition(".")[0] == "torch" or depth > _DEEPEST:
            return False
        path = self.project.resolve(start)
        if path is None or not self.project.speaks_of_kernels(path):
            return False
        found = [self.project.definition(f"{start}.{alias.name}") for alias in node.names]
        kernels = [(each[1].kernels(), each[2]) for each in found if each is not None]
        return any(there is not None and there._runs_kernels(d, depth) for there, d in kernels)

    def _is_built(self, module: str) -> bool:
        """Whether a module is compiled, or is a file of the project that imports CUDA code."""
        if self.project is not None and self.project.resolve(module) is not None:
            return self.project.needs_cuda(module)
        return any(map(name_heuristics.is_kernel_name, module.split(".")))

    def _moves(self, call: ast.Call) -> bool:
        """`x.cuda()`, `x.to(device)`; not `w.to(x.device)`, where the device is a tensor's"""
        if not isinstance(call.func, ast.Attribute) or call.func.attr not in ("to", "cuda"):
            return False
        if call.func.attr == "cuda":
            return not (self.names.qualified(call.func) or "").startswith("torch.cuda")
        device = argument(call, 0, "device")
        if device is None or is_of_tensor(device):
            return False
        if isinstance(device, ast.Constant):
            return isinstance(device.value, str | int)
        return bool(self.flow.kind(device) & (ANY_DEVICE | Kind.CPU)) or self.flow.is_device(device)
