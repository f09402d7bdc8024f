"""Flow: a simple local inference of what a value is (a device, a tensor, an optimizer, …).

Nothing is executed. Every assignment to a name counts, in any order, so a kind means "may be". If
the source doesn't tell, names do (`rank`, `device`); callers treat these as weaker evidence.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property

from migrator.analysis import name_heuristics
from migrator.analysis.syntax.names import Binding, Names, Scope
from migrator.analysis.syntax.nodes import argument, dotted
from migrator.analysis.values.definitions import Definitions
from migrator.analysis.values.inference import Inference
from migrator.analysis.values.value_kinds import (
    CONSTRUCTED,
    COPYING,
    DTYPES,
    HELD,
    OPTIMIZER_CLASS,
    SAME_KIND,
    TENSOR_TYPE,
    Kind,
    any_of,
    kind_of_constant,
)


class Flow(Definitions):
    """The kinds of expressions in one file; `imported` provides those of names from other project
    files."""

    def __init__(self, names: Names, imported: Callable[[str], Kind] | None = None) -> None:
        super().__init__(names)
        self._imported = imported or (lambda qualname: Kind.NOTHING)
        self._kinds = Inference(Kind.NOTHING, self._bind_in_order)

    def kind(self, node: ast.expr | None) -> Kind:
        """All kinds that `node` may have."""
        if node is None:
            return Kind.NOTHING
        known = self._kinds.known.get(node)
        return self._kinds.of(node, lambda: self._infer(node)) if known is None else known

    def _bind_in_order(self) -> None:
        for scope in self.names.scopes.values():
            for bindings in scope.bindings.values():
                self._bound(bindings)

    def _infer(self, node: ast.expr) -> Kind:
        match node:
            case ast.Constant():
                return kind_of_constant(node.value)
            case ast.JoinedStr(values=[ast.Constant(value=str(head)), *_]) if head.startswith(
                "cuda"
            ):
                return Kind.DEVICE_STRING
            case ast.JoinedStr():
                return Kind.STRING
            case ast.IfExp():
                return self.kind(node.body) | self.kind(node.orelse)
            case ast.BoolOp():
                kinds = Kind.NOTHING
                for value in node.values:
                    kinds |= self.kind(value)
                return kinds
            case ast.NamedExpr() | ast.Await():
                return self.kind(node.value)
            case ast.Compare():
                return Kind.BOOL
            case ast.UnaryOp():
                return Kind.BOOL if isinstance(node.op, ast.Not) else self.kind(node.operand)
            case ast.BinOp():
                return self._binary(node)
            case ast.Call():
                return self._call(node)
            case ast.Name():
                return self._name(node)
            case ast.Attribute():
                return self._attribute(node)
            case ast.Subscript():
                return self._items(node.value) & HELD
        return Kind.NOTHING

    def _items(self, node: ast.expr | None, index: int | None = None) -> Kind:
        """The kinds that items of a list, a tuple or a dict may have, or the one at `index`."""
        if node is None:
            return Kind.NOTHING
        return self._kinds.of((node, index), lambda: self._infer_items(node, index))

    def _infer_items(self, node: ast.expr, index: int | None) -> Kind:
        nothing = Kind.NOTHING
        match node:
            case ast.Tuple(elts=items) | ast.List(elts=items) | ast.Set(elts=items):
                chosen = items if index is None or index >= len(items) else [items[index]]
                return any_of(map(self.kind, chosen))
            case ast.Dict(values=values):
                return any_of(map(self.kind, values))
            case ast.ListComp(elt=item) | ast.GeneratorExp(elt=item) | ast.DictComp(value=item):
                return self.kind(item)
            case ast.Name():
                bindings = self.names.lookup(node)
                assigned = (b.value for b in bindings if b.kind == "assign")
                return self._items_of_all(id(bindings), assigned, index) if bindings else nothing
            case ast.Attribute(value=ast.Name(id="self")):
                held = self._of_self(node)
                return self._items_of_all(id(held), held, index) if held else nothing
            case ast.Call(func=ast.Attribute(attr="values" | "items", value=table)):
                return self._items(table)
            case ast.Call():
                return any_of(self._items(returned, index) for returned in self.returned(node))
        return nothing

    def _items_of_all(self, key: int, values: Iterable[ast.expr | None], index: int | None) -> Kind:
        return self._kinds.of((key, index), lambda: any_of(self._items(v, index) for v in values))

    def _of_self(self, node: ast.Attribute) -> Sequence[ast.expr | None]:
        assert isinstance(node.value, ast.Name)
        owner = self.names.owner_class(node.value)
        return self.names.class_attributes[owner].get(node.attr, ()) if owner else ()

    @cached_property
    def zeroed(self) -> set[str]:
        """The objects (as dumps) of which `zero_grad` or `param_groups` is used."""
        return {
            ast.dump(node.value)
            for node in self.names.order
            if isinstance(node, ast.Attribute) and node.attr in ("zero_grad", "param_groups")
        }

    def _binary(self, node: ast.BinOp) -> Kind:
        left, right = self.kind(node.left), self.kind(node.right)
        if isinstance(node.op, ast.Mod) and any(
            self.names.qualified(part) == "torch.cuda.device_count" for part in ast.walk(node.right)
        ):
            return Kind.DEVICE_INT | Kind.INT  # rank % torch.cuda.device_count()
        if isinstance(node.left, ast.Constant) and isinstance(node.left.value, str):
            return Kind.DEVICE_STRING if node.left.value.startswith("cuda:") else Kind.STRING
        return (left | right) & (Kind.TENSOR | Kind.INT)

    def _call(self, node: ast.Call) -> Kind:
        name = self.names.qualified(node.func)
        if name:
            if name in CONSTRUCTED:
                kind = CONSTRUCTED[name]
                if name == "torch.device" and _is_cpu(argument(node, 0, "type", "device")):
                    return Kind.CPU
                if name == "int" and node.args and _mentions_rank(node.args[0]):
                    return Kind.INT | Kind.DEVICE_INT
                return kind
            if name == "getattr" and len(node.args) == 3:
                return self.kind(node.args[2])
            if name in COPYING and node.args:
                return self.kind(node.args[0])
            if name.startswith("torch.optim.") and name.rpartition(".")[2][0].isupper():
                return Kind.SCHEDULER if "lr_scheduler" in name else Kind.OPTIMIZER
            if name.startswith("torch.nn.") and name.rpartition(".")[2][0].isupper():
                return Kind.MODULE
            if name.startswith("torch.nn.functional."):
                return Kind.TENSOR
            if name.startswith("torch.") and name.count(".") == 1:
                return Kind.TENSOR
            if name.startswith("torchvision.models."):
                return Kind.MODULE
            if not name.startswith("torch.") and OPTIMIZER_CLASS.search(name):
                return Kind.OPTIMIZER
        local = self.definition(node.func)
        if isinstance(local, ast.ClassDef):
            return Kind.MODULE if self.is_module_class(local) else Kind.NOTHING
        if isinstance(local, ast.FunctionDef | ast.AsyncFunctionDef):
            return self.returns(local)
        if isinstance(node.func, ast.Attribute):
            if node.func.attr == "format" and isinstance(node.func.value, ast.Constant):
                text = node.func.value.value
                cuda = isinstance(text, str) and text.startswith("cuda:")
                return Kind.DEVICE_STRING if cuda else Kind.STRING
            if node.func.attr in SAME_KIND:
                return self.kind(node.func.value)
        if name is None and isinstance(node.func, ast.Name):
            return self._starred(node.func)
        return self._imported(name) if name else Kind.NOTHING

    def _starred(self, node: ast.Name) -> Kind:
        """The kinds of a name that only a star import from the project can have brought."""
        kinds = Kind.NOTHING
        if not self.names.lookup(node):
            for module in self.names.star_imports:
                kinds |= self._imported(f"{module}.{node.id}")
        return kinds

    def returns(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> Kind:
        """The kinds that a function may return."""
        return self._kinds.of(function, lambda: self._infer_returned(function))

    def _infer_returned(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> Kind:
        kinds = Kind.NOTHING
        stack: list[ast.AST] = list(function.body)
        while stack:
            node = stack.pop()
            if isinstance(node, ast.Return):
                kinds |= self.kind(node.value)
            elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                stack.extend(c for c in ast.iter_child_nodes(node) if not isinstance(c, ast.expr))
        return kinds

    def _name(self, node: ast.Name) -> Kind:
        if self.names.qualified(node):
            return self._imported_value(node)
        kinds = self._starred(node) | self._bound(self.names.lookup(node))
        if not kinds and name_heuristics.is_index_name(node.id):
            return Kind.DEVICE_INT
        return kinds

    def _imported_value(self, node: ast.expr) -> Kind:
        name = self.names.qualified(node) or ""
        if TENSOR_TYPE.match(name):
            return Kind.TENSOR_TYPE
        if name.startswith("torch.") and name[6:] in DTYPES:
            return Kind.DTYPE
        return self._imported(name)

    def _bound(self, bindings: list[Binding]) -> Kind:
        """The kinds of all bindings of a name."""
        if not bindings:
            return Kind.NOTHING
        return self._kinds.of(id(bindings), lambda: any_of(map(self._binding, bindings)))

    def _stored(self, values: Sequence[ast.expr | None]) -> Kind:
        """The kinds of everything that is assigned to an attribute."""
        if not values:
            return Kind.NOTHING
        return self._kinds.of(id(values), lambda: any_of(map(self.kind, values)))

    def _binding(self, binding: Binding) -> Kind:
        kinds = Kind.NOTHING
        if binding.kind in ("assign", "param"):
            kinds = self.kind(binding.value)
        if binding.kind == "with" and binding.value is not None:
            kinds = self.kind(binding.value)
        if binding.kind == "loop" and isinstance(binding.value, ast.Tuple | ast.List):
            for element in binding.value.elts:
                kinds |= self.kind(element)
        if binding.kind in ("item", "loop"):
            kinds |= self._items(binding.value, binding.index) & HELD
        return kinds | self._annotated(binding.annotation)

    def _annotated(self, annotation: ast.expr | None) -> Kind:
        kinds = Kind.NOTHING
        for part in ast.walk(annotation) if annotation is not None else ():
            name = (
                self.names.qualified(part) if isinstance(part, ast.Name | ast.Attribute) else None
            )
            kinds |= {
                "torch.device": Kind.DEVICE,
                "torch.Tensor": Kind.TENSOR,
                "torch.nn.Module": Kind.MODULE,
                "torch.optim.Optimizer": Kind.OPTIMIZER,
                "torch.Generator": Kind.GENERATOR,
                "int": Kind.INT,
                "str": Kind.STRING,
                "bool": Kind.BOOL,
            }.get(name or "", Kind.NOTHING)
        return kinds

    def _attribute(self, node: ast.Attribute) -> Kind:
        if self.names.qualified(node):
            return self._imported_value(node)
        kinds = Kind.NOTHING
        if isinstance(node.value, ast.Name):
            kinds = any_of(self.class_attribute(c, node.attr) for c in self._classes(node.value))
        name = dotted(node)
        kinds |= self._stored(self.names.dotted_assignments.get(name or "", ()))
        if not kinds and isinstance(node.value, ast.Name):
            option = self.command_line_option(node.attr)
            if option is not None:
                kinds = self.kind(argument(option, None, "default"))
                if self.names.qualified(argument(option, None, "type") or node.value) == "int":
                    kinds |= Kind.INT
        if not kinds and node.attr == "device":
            return Kind.DEVICE
        if not kinds and name_heuristics.is_index_name(node.attr):
            return Kind.DEVICE_INT
        return kinds

    def _classes(self, name: ast.Name) -> list[ast.ClassDef]:
        """The class of `self`, a class of this file by its name, or those of an instance."""
        owner = self.names.owner_class(name) or self.definition(name)
        return [owner] if isinstance(owner, ast.ClassDef) else self.made(self.names.lookup(name))

    def class_attribute(self, owner: ast.ClassDef, name: str) -> Kind:
        kinds = self._stored(self.names.class_attributes[owner].get(name, ()))
        for binding in self.names.scopes[owner].bindings.get(name, ()):
            if binding.kind == "def" and isinstance(binding.node, ast.FunctionDef):
                if any(dotted(d) == "property" for d in binding.node.decorator_list):
                    kinds |= self.returns(binding.node)
            else:
                kinds |= self._binding(binding)
        return kinds

    def is_device(self, node: ast.expr) -> bool:
        """Whether `node` is a device or a device's name, or is meant to be one judging by its own
        name."""
        match node:
            case ast.Attribute(attr="type", value=owner):
                return self.is_device(owner)
            case ast.Call(func=ast.Name(id="str"), args=[inner]):
                return self.is_device(inner)
            case ast.Call(func=ast.Attribute(value=owner, attr="lower" | "strip")):
                return self.is_device(owner)
            case ast.Subscript(value=owner, slice=ast.Constant(value=str(key))):
                return name_heuristics.is_device_name(key)
            case ast.NamedExpr(target=target, value=value):
                return self.is_device(value) or self.is_device(target)
        if self.kind(node) & Kind.DEVICE or self._is_choice(node):
            return True
        last = (dotted(node) or "").rpartition(".")[2]
        if last and name_heuristics.is_device_name(last):
            return True
        # the value "cuda" alone proves nothing: `impl = "cuda"` names an implementation
        return isinstance(node, ast.Name) and (
            self.used_as_device(node.id, self.names.scope_of(node))
            or any(self._is_choice(b.value) for b in self.names.lookup(node))
        )

    def _is_choice(self, node: ast.expr | None) -> bool:
        """`"cuda" if … else "cpu"`, under any name"""
        both = Kind.DEVICE_STRING | Kind.CPU
        return isinstance(node, ast.IfExp) and self.kind(node) & both == both

    def used_as_device(self, name: str, scope: Scope) -> bool:
        """Whether a name's value is used where only devices are accepted."""
        return any(map(self.is_given_as_device, self.names.uses(name, scope)))

    def is_given_as_device(self, use: ast.expr) -> bool:
        """Whether a value is given where only devices are accepted."""
        parent = self.names.parents.get(use)
        if isinstance(parent, ast.keyword):
            return parent.arg in ("device", "map_location", "device_type")
        if isinstance(parent, ast.Call) and use in parent.args:
            if self.names.qualified(parent.func) == "torch.device":
                return True
            return isinstance(parent.func, ast.Attribute) and parent.func.attr == "to"
        return False


def _is_cpu(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value == "cpu"


def _mentions_rank(node: ast.AST) -> bool:
    return any(
        isinstance(part, ast.Constant)
        and isinstance(part.value, str)
        and part.value.endswith("RANK")
        for part in ast.walk(node)
    )
