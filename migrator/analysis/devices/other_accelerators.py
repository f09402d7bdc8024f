"""Accelerators other than CUDA: Intel's XPU, Apple's MPS, Ascend's NPU, Vulkan.

A file that runs on one of them and does not mention CUDA is read as if it were written for CUDA:
its tree gets CUDA's names, so that every rule knows them. Positions stay those of the source, so
edits and messages refer to the original text. Code for any other accelerator (a branch for Apple's
machines in a CUDA program) is left alone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import pairwise

from migrator.analysis import foreign_code
from migrator.analysis.prefilter import Tokens
from migrator.analysis.syntax import nesting
from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.nodes import argument, dotted
from migrator.analysis.values.value_kinds import CUDA_STRING

OTHERS = ("xpu", "npu", "mps", "vulkan")  # a file runs on the first of them that it uses
METHODS = ("xpu", "npu")  # methods of tensors and models; `.mps()` is something else

# Libraries that bring an accelerator into PyTorch when they are imported.
LIBRARIES = frozenset({
    "intel_extension_for_pytorch", "oneccl_bindings_for_pytorch", "torch_ccl", "torch_npu",
    "torch_directml",
})  # fmt: skip

TOKENS = Tokens(
    # the names themselves, searched for before their surroundings
    *(rb"%b(?<![a-zA-Z]%b)(?![a-z])" % (name, name) for name in (b"xpu", b"npu", b"mps")),
    rb"vulkan(?<![a-zA-Z]vulkan)(?![a-z])", rb"_ccl\b", b"oneccl", b"ipex", b"directml",
)  # fmt: skip


def _device(*kinds: str) -> re.Pattern[str]:
    """A regular expression for the names of such a device: `xpu`, `xpu:0`, `xpu:%d`, `xpu:{}`."""
    return re.compile(rf"({'|'.join(kinds)})(?=\Z|:(?:\d+|%[ds]|\{{[^}}]*\}})?\Z)")


_DEVICE = _device(*OTHERS)
_GROUPS = {"xpu": ("ccl", "xccl"), "npu": ("hccl",)}  # back ends of torch.distributed
_RENAMED = {
    "mps": {
        "current_allocated_memory": "memory_allocated",
        "driver_allocated_memory": "memory_reserved",
    },
}


def accelerator_of_device(text: str) -> str | None:
    """The accelerator that a device string such as `xpu:0` names."""
    match = _DEVICE.match(text)
    return match[1] if match else None


def of_name(qualname: str) -> str | None:
    """The accelerator that a qualified name of torch belongs to."""
    if qualname.startswith(("torch.is_vulkan_available", "torch.backends.vulkan")):
        return "vulkan"
    parts = qualname.removeprefix("torch.").removeprefix("backends.").split(".")
    return parts[0] if qualname.startswith("torch.") and parts[0] in OTHERS else None


def moves(call: ast.Call) -> str | None:
    """The accelerator that a call like `x.xpu()` or `x.npu(0, non_blocking=True)` moves to."""
    match call:
        case ast.Call(func=ast.Attribute(attr=name), args=args) if name in METHODS:
            named = all(k.arg in ("device", "non_blocking") for k in call.keywords)
            return name if len(args) < 2 and named else None
    return None


def asked_for(names: Names, test: ast.AST) -> Iterator[str]:
    """The accelerators that a condition tests for with torch's functions."""
    for node in ast.walk(test):
        if isinstance(node, ast.Attribute | ast.Name):
            name = names.qualified(node) or ""
            if name in ("torch.cuda.is_available", "torch.cuda.device_count"):
                yield "cuda"
            elif name.endswith("available") and (other := of_name(name)):
                yield other


def is_guarded(names: Names, node: ast.AST) -> bool:
    """Whether code only runs if another accelerator is available, judging by the code around it."""
    for below, above in pairwise([node, *names.ancestors(node)]):
        match above:
            case ast.If(test=test, body=body) if below is not test and _speaks(test):
                if (below in body) != _is_negative(test):
                    return True
            case ast.IfExp(test=test, body=body) if below is not test and _speaks(test):
                if (below is body) != _is_negative(test):
                    return True
            case ast.While(test=test) if below is not test and _speaks(test):
                return True
            case ast.BoolOp(values=[first, *_]) if below is not first and _speaks(first):
                return True
            case ast.match_case(pattern=pattern) if below is not pattern and _speaks(pattern):
                return True
            case ast.Try(body=body, handlers=handlers) if below in body and any(
                handler.type is None or _CAUGHT.search(ast.unparse(handler.type))
                for handler in handlers
            ):
                return True
            case ast.FunctionDef(name=name) if _WORD.search(name):
                return True
    return False


_WORD = re.compile(rf"(?<![a-z])(?:{'|'.join(OTHERS)}|ipex|hip|rocm)(?![a-z])", re.IGNORECASE)


# Exceptions raised if an accelerator or its library is missing.
_CAUGHT = re.compile(
    r"Exception|ImportError|ModuleNotFound|RuntimeError|Attribute|Assertion|OSError"
)


def _is_negative(test: ast.expr) -> bool:
    match test:
        case ast.UnaryOp(op=ast.Not()) | ast.Compare(ops=[ast.NotEq() | ast.NotIn() | ast.IsNot()]):
            return True
    return False


def _speaks(test: ast.AST) -> bool:
    """Whether a condition tests for another accelerator, and is not true for CUDA as well."""
    text = ast.unparse(test)
    match test:
        case ast.BoolOp(op=ast.Or()) | ast.Compare(ops=[ast.In()]) | ast.MatchOr():
            return _WORD.search(text) is not None and "cuda" not in text
    return _WORD.search(text) is not None


# ---- reading another accelerator as CUDA ---------------------------------------------------------


@dataclass(frozen=True)
class Parsed:
    """A program's tree, in which the names of its accelerator are replaced by CUDA's.

    It is not modified afterwards.
    """

    tree: ast.Module
    accelerator: str = ""  # "" for CUDA


def parse(text: str, content: bytes) -> Parsed:
    """Parse a program, whose file has this content, as one for CUDA.

    Raises what `nesting.parse` raises.
    """
    tree = nesting.parse(text)
    accelerator = _runs_on(tree) if TOKENS.are_in(content) else None
    if accelerator is not None:
        _AcceleratorReader(accelerator, tree).visit(tree)
    return Parsed(tree, accelerator or "")


def parse_as(accelerator: str, text: str) -> Parsed:
    """Parse a program for a known accelerator as one for CUDA ("": it is one already)."""
    tree = nesting.parse(text)
    if accelerator:
        _AcceleratorReader(accelerator, tree).visit(tree)
    return Parsed(tree, accelerator)


def imported_heads(statement: ast.Import | ast.ImportFrom) -> set[str]:
    """The top-level packages that an import takes names from: `torch` for `import torch.nn as
    nn`."""
    if isinstance(statement, ast.ImportFrom):
        return set() if statement.level else {(statement.module or "").partition(".")[0]}
    return {alias.name.partition(".")[0] for alias in statement.names}


def _runs_on(tree: ast.Module) -> str | None:
    """The accelerator that a file puts tensors on, if it mentions neither CUDA nor a target."""
    chosen: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Import() | ast.ImportFrom() if imported_heads(node) & foreign_code.MODULES:
                return None
            case ast.Constant(value=str(text)) if text in foreign_code.DEVICES:
                return None
            case ast.Attribute(attr="is_cuda") | ast.Call(func=ast.Attribute(attr="cuda")):
                return None
            case ast.Attribute(attr=name, value=ast.Attribute(attr="cuda")) if name in _CHOOSES:
                return None
            case ast.Attribute(value=ast.Attribute(attr="accelerator", value=ast.Name())):
                return None  # on any accelerator
            case ast.Constant(value=str(text)) if CUDA_STRING.match(text):
                return None
            case ast.alias(name=name) if "cuda" in name.split("."):
                return None
            case ast.ImportFrom(module=str(module)) if "cuda" in module.split("."):
                return None
            case ast.Call() if (moved := moves(node)) is not None:
                chosen.add(moved)
            case ast.FunctionDef(name=name) if name in OTHERS:
                return None  # the program's own method of that name
            case ast.Assign() | ast.AnnAssign() | ast.Return() if node.value is not None:
                chosen.update(_devices([node.value]))
            case ast.arguments():
                chosen.update(_devices(node.defaults))
            case _:
                chosen.update(_devices(_device_arguments(node)))
    return next((name for name in OTHERS if name in chosen), None)


_CHOOSES = ("is_available", "current_device", "set_device", "device", "device_count")
_TAKE_DEVICES = ("device", "to", "autocast", "set_default_device")


def _device_arguments(node: ast.AST) -> list[ast.expr]:
    """The arguments of an expression that are devices."""
    match node:
        case ast.Call(func=ast.Attribute(attr=name), args=args) if name in _TAKE_DEVICES:
            return args[:1]
        case ast.keyword(arg="device" | "device_type" | "map_location" | "default"):
            return [node.value]
    return []


def put_on(tree: ast.AST, devices: Collection[str], asks: bool) -> str | None:
    """The first of the given device names that code puts something on, or creates a process group
    for.

    ``asks``: or whose type it tests.
    """
    for node in ast.walk(tree):
        match node:
            case ast.Compare(left=ast.Attribute(attr="type"), comparators=[value]) if asks:
                values: list[ast.expr] = [value]
            case ast.Call() if (back_end := group_by(node)) is not None:
                values = [back_end]
            case _:
                values = _device_arguments(node)
        for value in values:
            if isinstance(value, ast.Constant) and value.value in devices:
                return str(value.value)
    return None


def group_by(call: ast.Call) -> ast.expr | None:
    """The back end of a call such as `init_process_group("nccl")`."""
    match call.func:
        case ast.Attribute(attr="init_process_group") | ast.Name(id="init_process_group"):
            return argument(call, 0, "backend")
    return None


def _devices(values: list[ast.expr]) -> Iterator[str]:
    """The accelerators named by values: strings, and the branches of a conditional expression."""
    for value in values:
        match value:
            case ast.IfExp(body=body, orelse=orelse):
                yield from _devices([body, orelse])
            case (
                ast.Constant(value=str(text))
                | ast.JoinedStr(values=[ast.Constant(value=str(text)), *_])
            ):
                if (
                    accelerator := accelerator_of_device(text) or accelerator_of_device(text + "0")
                ) is not None:
                    yield accelerator


class _AcceleratorReader(ast.NodeTransformer):
    """Replaces an accelerator's names by CUDA's."""

    def __init__(self, accelerator: str, tree: ast.Module) -> None:
        self.own = accelerator
        self.device = _device(accelerator)
        imported = [
            alias for node in tree.body if isinstance(node, ast.Import) for alias in node.names
        ]
        self.torch = {alias.asname or alias.name for alias in imported if alias.name == "torch"}
        self.groups = _GROUPS.get(accelerator, ())
        self.renamed = _RENAMED.get(accelerator, {})

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        if isinstance(node.value, str):
            text = node.value
            if self.device.match(text) or text == f"{self.own}:":
                node.value = text.replace(self.own, "cuda", 1)
            elif text in self.groups:
                node.value = "nccl"
            elif text.startswith(f"torch.{self.own}."):
                node.value = text.replace(self.own, "cuda", 1)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.Attribute:
        self.generic_visit(node)
        match node:
            case ast.Attribute(attr="is_vulkan_available", value=torch) if self.own == "vulkan":
                node.value = _attribute(torch, "cuda", torch)
                node.attr = "is_available"
            case ast.Attribute(
                attr="is_available" | "is_built",
                value=ast.Attribute(
                    attr="cuda", value=ast.Attribute(attr="backends", value=torch)
                ) as module,
            ):
                node.value = _attribute(torch, "cuda", module)
                node.attr = "is_available"
            case ast.Attribute(attr=name, value=ast.Attribute(attr="cuda")) if name in self.renamed:
                node.attr = self.renamed[name]
        if (
            node.attr == self.own
            and (dotted(node.value) or "").removesuffix(".backends") in self.torch
        ):
            node.attr = "cuda"
        elif node.attr == f"is_{self.own}":
            node.attr = "is_cuda"
        return node

    def visit_Call(self, node: ast.Call) -> ast.Call:
        asks = dotted(node.func) == "hasattr"  # tests for a name, not for a device
        name = node.args[1] if asks and len(node.args) > 1 else None
        text = name.value if isinstance(name, ast.Constant) else None
        self.generic_visit(node)
        if isinstance(name, ast.Constant):
            name.value = text
        if isinstance(node.func, ast.Attribute) and moves(node) == self.own:
            node.func.attr = "cuda"
        return node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.ImportFrom:
        if node.module is not None and not node.level:
            node.module = self._module(node.module)
        if node.module == "torch":
            for alias in node.names:
                if alias.name == self.own:
                    alias.name, alias.asname = "cuda", alias.asname or self.own
        return node

    def visit_Import(self, node: ast.Import) -> ast.Import:
        for alias in node.names:
            if alias.asname is not None:
                alias.name = self._module(alias.name)
        return node

    def _module(self, name: str) -> str:
        head, _, rest = name.partition(".")
        if head == "torch" and (rest == self.own or rest.startswith(f"{self.own}.")):
            return f"torch.cuda{rest[len(self.own) :]}"
        return name


def _attribute(value: ast.expr, name: str, like: ast.expr) -> ast.Attribute:
    return ast.copy_location(ast.Attribute(value, name, ast.Load()), like)
