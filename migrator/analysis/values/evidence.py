"""Evidence that a value is torch's, where its name alone would only be a hint.

A hint may keep code as it is. A rewrite has to know what a name resolves to, or where a value comes
from.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from enum import Enum, auto
from functools import cached_property

from migrator.analysis.ranks.vocabulary import SPAWNS, environment
from migrator.analysis.syntax.command_line import option_name
from migrator.analysis.syntax.names import Binding, Names
from migrator.analysis.syntax.nodes import argument, choices, dotted, parameters
from migrator.analysis.values.flow import Flow
from migrator.analysis.values.import_protocols import ValueProgram
from migrator.analysis.values.inference import Inference
from migrator.analysis.values.value_kinds import Kind

# Libraries whose models and tensors are torch's, although their names don't show it.
_ON_TORCH = frozenset({
    "accelerate", "bitsandbytes", "clip", "deepspeed", "detectron2", "dgl", "diffusers", "e3nn",
    "fairseq", "fastai", "flash_attn", "ignite", "kornia", "lightning", "lpips", "mmcv", "mmdet",
    "mmengine", "mmpose", "mmseg", "monai", "open_clip", "peft", "pyro", "safetensors",
    "segmentation_models_pytorch", "sentence_transformers", "speechbrain", "stable_baselines3",
    "timm", "transformers", "trl", "whisper", "xformers",
})  # fmt: skip
# Libraries that only pass their arguments on.
_CARRIERS = frozenset({
    "absl", "attr", "attrs", "click", "easydict", "fire", "gin", "hydra", "jsonargparse",
    "ml_collections", "munch", "omegaconf", "pydantic", "pytest", "ray", "typer", "tyro",
})  # fmt: skip
# Packages whose functions and classes handle `pin_memory` like torch's own loader.
_LOADING = ("torch.", "torch_geometric.", "torchdata.", "timm.", "dgl.", "monai.", "mmengine.",
            "litdata.")  # fmt: skip
_INDICES = frozenset({
    "torch.cuda.current_device", "torch.distributed.get_rank",
    "torch.distributed.get_node_local_rank",
})  # fmt: skip
_TAKES_INDEX = frozenset({"torch.cuda.set_device", "torch.cuda.device"})
_TAKES_RANK = frozenset({
    "torch.distributed.init_process_group", "torch.distributed.rpc.init_rpc",
    "torch.utils.data.DistributedSampler",
})  # fmt: skip
# Attributes that only tensors have, among objects with `get_device` or `pin_memory`.
_OF_TENSORS = frozenset({
    "dim", "dtype", "numel", "requires_grad", "shape", "size", "unsqueeze", "view",
})  # fmt: skip
_FILES = 4
_DEEPEST = 8


class Evidence:
    """What one file, with its imports, shows about its values."""

    def __init__(
        self, names: Names, flow: Flow, project: ValueProgram | None, files: int = _FILES
    ) -> None:
        self.names, self.flow, self.project = names, flow, project
        self._files = files  # how many more files names are followed through
        self._known = Inference(False)

    # ---- objects ----------------------------------------------------------------------------

    @cached_property
    def of_torch(self) -> bool:
        """Whether this is code of a PyTorch program; assumed for a snippet."""
        if self.project is None:
            return True
        if any(map(is_on_torch, _modules(self.names))):
            return True
        return any(map(is_on_torch, self.project.modules_of_programs()))

    def module(self, node: ast.expr) -> str | None:
        """The module that an expression refers to, as far as its import shows."""
        name = self.names.qualified(node)
        if name is None or name.startswith("torch.") or not isinstance(node, ast.Name):
            return None
        bound = [b for b in self.names.lookup(node) if b.kind == "import"]
        if any(isinstance(b.node, ast.Import) for b in bound):
            return name
        return name if self.project is not None and self.project.resolve(name) else None

    def foreign(self, value: ast.expr) -> str | None:
        """The package that a value is passed to by keyword, if it may have devices of its own."""
        at: ast.AST | None = value
        while isinstance(at, ast.expr) and not isinstance(at, ast.Call):
            at = self.names.parents.get(at)
        call = self.names.parents.get(at) if isinstance(at, ast.keyword) else None
        name = made_by(self.names, call.func) if isinstance(call, ast.Call) else None
        head = (name or "").partition(".")[0]
        if not name or head in sys.stdlib_module_names | _CARRIERS or is_on_torch(name):
            return None
        imported = any(head == module.partition(".")[0] for module in _modules(self.names))
        own = self.project is not None and self.project.holds(name)
        return head if imported and not own else None

    def is_tensor(self, node: ast.expr) -> bool:
        """Whether a value is a tensor, judging by how it was made or how nearby code uses it."""
        return bool(self.flow.kind(node) & Kind.TENSOR) or self._place(node) in self._tensors

    def _place(self, node: ast.AST) -> tuple[ast.AST | None, str | None]:
        """The function that contains a value, and the value's dotted name."""
        return self.names.function(node), dotted(node)

    @cached_property
    def _tensors(self) -> set[tuple[ast.AST | None, str | None]]:
        """Values of which an attribute is used that only tensors have."""
        found = self.names.all(ast.Attribute)
        return {self._place(n.value) for n in found if n.attr in _OF_TENSORS and dotted(n.value)}

    def _definition(self, callee: ast.expr) -> tuple[Evidence, ast.AST | None]:
        """The function or class of the program that is called, with the evidence of its file."""
        definition = self.flow.definition(callee)
        name = self.names.qualified(callee)
        if definition is not None or self.project is None or name is None or not self._files:
            return self, definition
        found = self.project.definition(name)
        if found is None:
            return self, None
        facts, there, definition = found
        return Evidence(facts.names, facts.flow, there, self._files - 1), definition

    # ---- indices of devices -----------------------------------------------------------------

    def is_index(self, node: ast.expr | None) -> bool:
        """Whether a value is a device index: a number, a rank, or set by a launcher.

        A parameter is one if calls of its function in this file pass one.
        """
        if node is None:
            return False
        if isinstance(node, ast.Name):
            bound = self.names.lookup(node)
            known = bool(bound) and self._known.of(
                id(bound), lambda: any(map(self._binds_index, bound))
            )
            return known or self._place(node) in self._taken
        return self._known.of(node, lambda: self._infer_index(node))

    def _infer_index(self, node: ast.expr) -> bool:
        if inner := choices(node):
            return any(map(self.is_index, inner))
        if (environment(self.names, node) or "").endswith("RANK"):
            return True
        match node:
            case ast.Constant(value=value):
                return isinstance(value, int) and not isinstance(value, bool)
            case ast.BinOp(left=left, op=ast.Mod() | ast.Add() | ast.Sub() | ast.FloorDiv()):
                return self.is_index(left) or self._is_remainder(node)
            case ast.NamedExpr(value=value):
                return self.is_index(value)
            case ast.Call():
                return self._gives_index(node)
            case ast.Attribute():
                return self._holds_index(node) or self._place(node) in self._taken
        return False

    @cached_property
    def _taken(self) -> set[tuple[ast.AST | None, str | None]]:
        """Values passed where PyTorch takes an index."""
        found: list[ast.expr | None] = []
        for node in self.names.order:
            if not isinstance(node, ast.Call):
                continue
            name = self.names.qualified(node.func)
            if name in _TAKES_INDEX:
                found.append(argument(node, 0, "device"))
            if name in _TAKES_RANK:
                found.append(argument(node, None, "rank"))
            several = argument(node, None, "device_ids")
            found += several.elts if isinstance(several, ast.List) else ()
        return {self._place(value) for value in found if value is not None and dotted(value)}

    def _is_remainder(self, node: ast.BinOp) -> bool:
        """`rank % torch.cuda.device_count()`"""
        return isinstance(node.op, ast.Mod) and bool(self.flow.kind(node) & Kind.DEVICE_INT)

    def _gives_index(self, call: ast.Call) -> bool:
        name = self.names.qualified(call.func) or ""
        if name in _INDICES:
            return True
        if isinstance(call.func, ast.Attribute) and call.func.attr == "get_local_rank":
            return True  # of a DeviceMesh, the only class of torch with such a method
        there, definition = self._definition(call.func)
        if not isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef):
            return False
        return any(
            there.is_index(part.value)
            for part in ast.walk(definition)
            if isinstance(part, ast.Return) and not isinstance(part.value, ast.Constant)
        )

    def _binds_index(self, binding: Binding) -> bool:
        return self._known.of(binding, lambda: self._infer_binding(binding))

    def _infer_binding(self, binding: Binding) -> bool:
        match binding.kind:
            case "assign":
                return self.is_index(binding.value)
            case "item":
                value, index = binding.value, binding.index
                if isinstance(value, ast.Tuple | ast.List) and index is not None:
                    return index < len(value.elts) and self.is_index(value.elts[index])
            case "loop":
                called = binding.value.func if isinstance(binding.value, ast.Call) else None
                return called is not None and self.names.qualified(called) == "range"
            case "param":
                if self.names.qualified(binding.annotation or binding.node) == "int":
                    return True
                if self.is_index(binding.value):
                    return True
                function = self.names.parents.get(binding.node)
                return any(map(self.is_index, self._given(function, binding.node)))
        return False

    def _holds_index(self, node: ast.Attribute) -> bool:
        """Whether an attribute holds an index: one is assigned to it, or it is a command-line
        option."""
        values = list(self.names.dotted_assignments.get(dotted(node) or "", ()))
        owner = self.names.owner_class(node.value) if isinstance(node.value, ast.Name) else None
        if owner is not None:
            values += [v for v in self.names.class_attributes[owner].get(node.attr, ()) if v]
            bound = self.names.scopes[owner].bindings.get(node.attr, ())
            if any(map(self._binds_index, bound)):
                return True
        if any(map(self.is_index, values)):
            return True
        return any(_is_of_integers(names, option) for names, option in self._options(node.attr))

    def _options(self, name: str) -> Iterator[tuple[Names, ast.Call]]:
        option = self.flow.command_line_option(name)
        if option is not None:
            yield self.names, option
        for there in self.project.naming(name) if self.project is not None else ():
            option = there.flow.command_line_option(name)
            if option is not None:
                yield there.names, option

    def _given(self, function: ast.AST | None, parameter: ast.AST) -> Iterator[ast.expr]:
        """The values that calls of a function pass for a parameter, including processes that run
        it."""
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            return
        places = [each for each, _ in parameters(function.args)]
        owner = self.names.parents.get(function)
        callee, skipped = function.name, 0
        if isinstance(owner, ast.ClassDef):
            callee = owner.name if function.name == "__init__" else function.name
            skipped = 1
        position = next(n for n, each in enumerate(places) if each is parameter) - skipped
        for given, named in self._calls(callee):
            values = [k.value for k in named if k.arg == places[position + skipped].arg]
            yield from values or ([given[position]] if 0 <= position < len(given) else [])

    def _calls(self, callee: str) -> Iterator[tuple[Sequence[ast.expr], Sequence[ast.keyword]]]:
        """The arguments of each call of a function, and of each start of it as a process:
        `Process(target=run, args=(rank,))`, `rpc_async(worker, run, args=(rank,))`."""
        for use in self._uses.get(callee, ()):
            above = self.names.parents.get(use)
            if isinstance(above, ast.Call) and above.func is use:
                if not any(isinstance(a, ast.Starred) for a in above.args):
                    yield above.args, above.keywords
                continue
            call = self.names.parents.get(above) if isinstance(above, ast.keyword) else above
            if not isinstance(call, ast.Call):
                continue
            spawned = self.names.qualified(call.func) in SPAWNS
            given = argument(call, 1 if spawned else None, "args")
            items = given.elts if isinstance(given, ast.Tuple | ast.List) else ()
            yield ([_FIRST_RANK, *items] if spawned else items), ()

    @cached_property
    def _uses(self) -> dict[str, list[ast.expr]]:
        """The uses of functions and methods, by name."""
        found: dict[str, list[ast.expr]] = {}
        for node in self.names.order:
            if isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Load):
                name = node.attr if isinstance(node, ast.Attribute) else node.id
                found.setdefault(name, []).append(node)
        return found

    # ---- pinned memory ------------------------------------------------------------------------

    def loads(self, callee: ast.expr, depth: int = 0) -> Loader:
        """What a call does with `pin_memory`."""
        if inner := choices(callee):
            found = [self.loads(one, depth + 1) for one in inner]
            return found[0] if found.count(found[0]) == len(found) else Loader.UNKNOWN
        name = self.names.qualified(callee) or ""
        if name.startswith(_LOADING):
            return Loader.TORCH
        match callee:
            case ast.Attribute(attr="__init__", value=ast.Call(func=ast.Name(id="super"))):
                owner = self.names.enclosing_class(callee)
                return self._of_bases(owner, depth) if owner is not None else Loader.UNKNOWN
        there, definition = self._definition(callee)
        if isinstance(definition, ast.ClassDef):
            return there._of_class(definition, depth)
        if isinstance(definition, ast.FunctionDef):
            return _of_function(definition)
        if isinstance(callee, ast.Name) and depth < _DEEPEST:
            values = [b.value for b in self.names.lookup(callee) if b.kind == "assign" and b.value]
            if len(values) == 1:
                return self.loads(values[0], depth + 1)
            if not self.names.lookup(callee) and callee.id == "DataLoader":
                stars = any(f"{m}.".startswith(_LOADING) for m in self.names.star_imports)
                return Loader.TORCH if stars else Loader.UNKNOWN
        return Loader.UNKNOWN

    def _of_class(self, node: ast.ClassDef, depth: int) -> Loader:
        methods = self.names.scopes[node].bindings.get("__init__", [])
        init = methods[0].node if methods else None
        if not isinstance(init, ast.FunctionDef):
            return self._of_bases(node, depth)
        found, of_bases = _of_function(init), self._of_bases(node, depth)
        if found is Loader.OWN:
            return found
        if of_bases is Loader.UNKNOWN and depth < _DEEPEST:
            told = (self.loads(call.func, depth + 1) for call in _calls_with_keywords(init))
            return found if any(each is not Loader.UNKNOWN for each in told) else of_bases
        return of_bases

    def _of_bases(self, node: ast.ClassDef, depth: int) -> Loader:
        bases = [self.loads(base, depth + 1) for base in node.bases] if depth < _DEEPEST else []
        return Loader.TORCH if Loader.TORCH in bases else Loader.UNKNOWN


class Loader(Enum):
    """What a callee does with `pin_memory`."""

    TORCH = auto()  # torch's loader, or a class derived from it
    OWN = auto()  # defined in the program; checked where it uses `pin_memory`
    PASSES = auto()  # defined in the program, and passes on all arguments that it does not name
    UNKNOWN = auto()


def _of_function(node: ast.FunctionDef) -> Loader:
    if any(each.arg == "pin_memory" for each, _ in parameters(node.args)):
        return Loader.OWN
    return Loader.PASSES if node.args.kwarg else Loader.UNKNOWN


def _calls_with_keywords(node: ast.FunctionDef) -> Iterator[ast.Call]:
    """The calls in a function that get its `**kwargs`."""
    assert node.args.kwarg is not None
    for call in ast.walk(node):
        match call:
            case ast.Call(keywords=keywords) if any(
                k.arg is None
                and isinstance(k.value, ast.Name)
                and k.value.id == node.args.kwarg.arg
                for k in keywords
            ):
                yield call


_FIRST_RANK = ast.Constant(0)


def made_by(names: Names, callee: ast.expr) -> str | None:
    """The full name of what is called; for a method, of the library's class that made the object.

    An object is moved by `to`, whatever made it.
    """
    name = names.qualified(callee)
    if name is None and isinstance(callee, ast.Attribute) and callee.attr != "to":
        value = names.only_value(callee.value)
        made = names.qualified(value.func) if isinstance(value, ast.Call) else None
        return f"{made}.{callee.attr}" if made is not None else None
    return name


def is_on_torch(module: str) -> bool:
    head = module.partition(".")[0]
    return "torch" in head or head in _ON_TORCH


def _modules(names: Names) -> Iterator[str]:
    for node in names.imports:
        if isinstance(node, ast.ImportFrom):
            yield node.module or ""
        else:
            yield from (alias.name for alias in node.names)


def _is_of_integers(names: Names, option: ast.Call) -> bool:
    """Whether a command-line option is a number, or set by a launcher."""
    kind, default = argument(option, None, "type"), argument(option, None, "default")
    if kind is not None and names.qualified(kind) == "int":
        return True
    if isinstance(default, ast.Constant) and type(default.value) is int:
        return True
    return option_name(option) == "local_rank"
