"""Effects: whether an expression only computes a value, so that it can be left out.

Calls are judged by imports and definitions, never by their names: an unknown call may do anything.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator
from functools import cached_property

from migrator.analysis import foreign_code
from migrator.analysis.syntax.names import DEFINITIONS, Binding, Names
from migrator.analysis.syntax.nodes import dotted
from migrator.analysis.values.flow import Flow
from migrator.analysis.values.import_protocols import Imported
from migrator.analysis.values.value_kinds import Kind

# Functions that only compute, or query the machine or the launcher. With a dot at the end: the
# whole module.
_PURE = frozenset({
    "abs", "all", "any", "bool", "dict", "enumerate", "float", "frozenset", "getattr", "hasattr",
    "int", "isinstance", "issubclass", "len", "list", "map", "max", "min", "range", "repr",
    "reversed", "round", "set", "sorted", "str", "sum", "super", "tuple", "type", "vars", "zip",
    "os.getenv", "os.environ.get", "os.environ.copy", "os.getcwd", "os.cpu_count", "pathlib.Path",
    "torch.device", "torch.get_device_module", "torch.get_default_device",
    "torch.get_default_dtype", "torch.is_tensor", "torch.finfo", "torch.iinfo",
    *(f"torch.distributed.{name}" for name in (
        "get_rank", "get_world_size", "get_backend", "is_initialized", "is_available",
        "is_nccl_available", "is_gloo_available", "is_mpi_available", "is_torchelastic_launched",
        "get_node_local_rank",
    )),
    *(f"horovod.torch.{name}" for name in ("rank", "local_rank", "size", "local_size")),
    *(f"deepspeed.comm.{name}" for name in ("get_rank", "get_local_rank", "get_world_size")),
})  # fmt: skip
# Of these, the ones that take what they are given out of an iterator.
_TAKING = frozenset({
    "all", "any", "dict", "enumerate", "frozenset", "list", "map", "max", "min", "set", "sorted",
    "sum", "tuple", "zip",
})  # fmt: skip
_PURE_MODULES = ("math.", "os.path.", "torch.cuda.", "torch.accelerator.", "torch.backends.",
                 "torch.xpu.", *foreign_code.PARTS, "intel_extension_for_pytorch.")  # fmt: skip
_ITERATORS = frozenset({"iter", "map", "zip", "filter", "enumerate", "reversed", "open"})
_OF_TEXT = frozenset({
    "format", "join", "lower", "upper", "strip", "lstrip", "rstrip", "split", "replace",
    "startswith", "endswith", "removeprefix", "removesuffix",
})  # fmt: skip
_OF_TENSOR = frozenset({
    "get_device", "size", "dim", "numel", "stride", "element_size", "is_floating_point", "cuda",
    "cpu", "to",
})  # fmt: skip
_OF_MODULE = frozenset({"parameters", "buffers", "named_parameters", "modules", "children"})
_DEPTH = 4  # depth of nested function calls


class Effects:
    """The effects of a file's expressions; `known` are attributes that are torch's own."""

    def __init__(
        self,
        names: Names,
        flow: Flow,
        project: Imported | None = None,
        known: Collection[ast.AST] = (),
        depth: int = 0,
    ) -> None:
        self.names, self.flow, self.project = names, flow, project
        self.known, self.depth = known, depth

    def first(self, nodes: Iterable[ast.AST]) -> ast.AST | None:
        """The first of some nodes, each considered alone, that has an effect."""
        return next((node for node in nodes if self._acts(node)), None)

    def none(self, *nodes: ast.AST) -> bool:
        """Whether no part of these nodes has an effect."""
        return all(self.first(_evaluated(node)) is None for node in nodes)

    def _acts(self, node: ast.AST) -> bool:
        match node:
            case ast.Call():
                return not self._is_pure(node)
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                return any(self.may_run_out(part.iter) for part in node.generators)
            case ast.Attribute(attr=name, ctx=ast.Load()):
                return name in self._properties
            case ast.Subscript(value=owner, ctx=ast.Load()):
                return self._has_method(owner, "__getitem__")
        return isinstance(node, ast.NamedExpr | ast.Await | ast.Yield | ast.YieldFrom)

    def _is_pure(self, call: ast.Call) -> bool:
        """Whether a call itself has no effect; its arguments are checked separately."""
        name = self.names.qualified(call.func)
        if name in _TAKING:
            return not any(map(self.may_run_out, call.args))
        if name is not None and (name in _PURE or name.startswith(_PURE_MODULES)):
            return True
        if call.func in self.known or self._steps_once(call):
            return True
        if isinstance(call.func, ast.Attribute) and name is None:
            if self._is_pure_method(call.func):
                return True
        return self._only_answers(call)

    def may_run_out(self, source: ast.expr) -> bool:
        """Whether going through a value may change it, because it may be an iterator: a variable
        that holds what a call returned, other than that of a known type."""
        match source:
            case ast.Starred(value=inner):
                return self.may_run_out(inner)
            case ast.Name() if self.names.qualified(source) is None:
                return any(self._binds_iterator(bound) for bound in self.names.lookup(source))
        return False

    def _binds_iterator(self, bound: Binding) -> bool:
        match bound.value:
            case ast.GeneratorExp():
                return bound.kind == "assign"
            case ast.Call(func=func):
                name = self.names.qualified(func)
                one = name in _ITERATORS or isinstance(self.flow.definition(func), DEFINITIONS)
                return bound.kind in ("assign", "with") and one
        return False

    @cached_property
    def _properties(self) -> set[str]:
        """Properties of the file's classes that do more than compute a value by themselves."""
        made = [
            method
            for method in self.names.all(ast.FunctionDef)
            if any((dotted(d) or "").endswith("property") for d in method.decorator_list)
        ]
        self._properties = {method.name for method in made}
        return {method.name for method in made if not self._is_quiet_inside(method)}

    def _has_method(self, owner: ast.expr, name: str) -> bool:
        """Whether it is an object of a class of this file with such a method."""
        bound = self.names.lookup(owner) if isinstance(owner, ast.Name) else []
        made = self.flow.made(bound) if bound else []
        return any(isinstance(c, ast.ClassDef) and name in self.names.scopes[c].bindings
                   for c in made)  # fmt: skip

    def _is_pure_method(self, method: ast.Attribute) -> bool:
        owner, kind = method.value, self.flow.kind(method.value)
        match owner:
            case ast.Constant(value=str()) | ast.JoinedStr():
                return method.attr in _OF_TEXT
            case ast.Dict():
                return method.attr == "get"
            case ast.Name():
                bound = self.names.lookup(owner)
                if method.attr == "get" and len(bound) == 1:
                    made = bound[0]
                    if made.kind == "param":
                        return self._is_of_keywords(owner, made.node)
                    return isinstance(made.value, ast.Dict) and made.kind == "assign"
        if method.attr in _OF_TENSOR:
            return kind == Kind.TENSOR
        return method.attr in _OF_MODULE and (kind == Kind.MODULE or self._is_module(owner))

    def _is_of_keywords(self, use: ast.Name, parameter: ast.AST) -> bool:
        """`**kwargs`: the function's own dict."""
        function = self.names.function(use)
        return isinstance(function, ast.FunctionDef) and function.args.kwarg is parameter

    def _is_module(self, owner: ast.expr) -> bool:
        """`self` in a model of this file."""
        of = self.names.owner_class(owner) if isinstance(owner, ast.Name) else None
        return of is not None and self.flow.is_module_class(of)

    def _steps_once(self, call: ast.Call) -> bool:
        """`next(model.parameters())`: advances an iterator that no other code holds."""
        match call:
            case ast.Call(func=ast.Name(id="next" | "iter"), args=[ast.Call() as made, *_]):
                return self.names.qualified(call.func) in ("next", "iter") and self._is_pure(made)
        return False

    def _only_answers(self, call: ast.Call) -> bool:
        """Whether a function of the project only returns a value."""
        function = self.flow.definition(call.func)
        there: Effects = self
        name = self.names.qualified(call.func)
        if function is None and name is not None and self.project is not None:
            found = self.project.definition(name)
            if found is not None:
                facts, project, function = found
                there = Effects(facts.names, facts.flow, project, (), self.depth)
        if not isinstance(function, ast.FunctionDef) or self.depth > _DEPTH:
            return False
        return not function.decorator_list and there._is_quiet_inside(function)

    def _is_quiet_inside(self, function: ast.FunctionDef) -> bool:
        inner = Effects(self.names, self.flow, self.project, self.known, self.depth + 1)
        inner._properties = self._properties
        return self.depth <= _DEPTH and all(map(inner._is_quiet, function.body))

    def _is_quiet(self, statement: ast.stmt) -> bool:
        """Whether a statement of a function has no effect outside of it."""
        match statement:
            case ast.Return(value=value) | ast.Expr(value=value):
                return value is None or self.none(value)
            case ast.If(test=test, body=body, orelse=orelse):
                return self.none(test) and all(map(self._is_quiet, [*body, *orelse]))
            case ast.Assign(targets=[ast.Name(id=name) as target], value=value):
                function = self.names.function(statement)
                here = function is not None and name in self.names.scopes[function].bindings
                return here and self.names.scope_of(target).node is function and self.none(value)
            case ast.Assert(test=test, msg=message):  # in a working program, it passes
                return self.none(test) and (message is None or self.none(message))
            case ast.Pass() | ast.Import() | ast.ImportFrom():
                return True
        return False


def _evaluated(node: ast.AST) -> Iterator[ast.AST]:
    """An expression and its parts, except code that only runs in a later call."""
    stack = [node]
    while stack:
        node = stack.pop()
        yield node
        if not isinstance(node, ast.Lambda):
            stack.extend(ast.iter_child_nodes(node))
        else:
            stack += [*node.args.defaults, *filter(None, node.args.kw_defaults)]
