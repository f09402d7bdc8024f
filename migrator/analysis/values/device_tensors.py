"""Tensors in a file, for advice: which are made on the device, and which a model is given.

Advice changes no code, so it may conclude more from names than a rewrite may.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from migrator.analysis import name_heuristics
from migrator.analysis.syntax.names import DEFINITIONS, Binding, Names
from migrator.analysis.syntax.nodes import argument, dotted
from migrator.analysis.training.find_optimizer_steps import is_backward
from migrator.analysis.training.find_optimizer_steps import is_model as looks_like_model
from migrator.analysis.values.flow import Flow
from migrator.analysis.values.value_kinds import ANY_DEVICE, Kind

Function = ast.FunctionDef | ast.AsyncFunctionDef

# Methods and attributes of tensors: those that return a tensor, and the others.
_TENSOR_METHODS = frozenset({
    "abs", "all", "amax", "amin", "any", "argmax", "argmin", "argsort", "bool", "chunk", "clamp",
    "clone", "contiguous", "cumsum", "detach", "eq", "exp", "expand", "expand_as", "flatten",
    "float", "ge", "gt", "isfinite", "isinf", "isnan", "le", "log", "log_softmax", "logical_and",
    "logical_not", "logical_or", "long", "lt", "masked_fill", "matmul", "max", "mean", "min", "mul",
    "ne", "norm", "permute", "pow", "prod", "reshape", "sigmoid", "softmax", "sqrt", "squeeze",
    "std", "sum", "tanh", "topk", "transpose", "type_as", "unsqueeze", "var", "view", "view_as",
})  # fmt: skip
_NO_TENSOR = frozenset({
    "backward", "cpu", "data_ptr", "device", "dim", "dtype", "element_size", "get_device",
    "is_contiguous", "is_floating_point", "item", "layout", "ndim", "ndimension", "nelement",
    "numel", "numpy", "requires_grad", "shape", "size", "storage", "stride", "tolist", "type",
})  # fmt: skip
_TENSOR_ATTRIBUTES = frozenset({"data", "grad", "T", "mT", "real", "imag", "loss", "logits"})
_NO_TENSOR_FUNCTIONS = re.compile(
    r"torch\.(?:is_\w+|get_\w+|set_\w+|\w*seed|numel|allclose|equal|finfo|iinfo|Size|device|load"
    r"|save|\w*no_grad|enable_grad|compile|autocast|typename|result_type|broadcast_shapes"
    r"|Generator|jit|from_numpy|\w*Tensor)$"
)
# Made on the CPU unless a device is given.
_FACTORIES = frozenset({
    "arange", "as_tensor", "empty", "eye", "full", "hann_window", "linspace", "ones", "rand",
    "randint", "randn", "randperm", "tensor", "zeros", "logspace", "tril_indices", "triu_indices",
})  # fmt: skip
_MODEL_METHODS = frozenset({"forward", "generate", "sample", "encode", "decode", "log_prob",
                            "encode_image", "encode_text"})  # fmt: skip
_MASKS = frozenset({"bool", "eq", "ne", "lt", "gt", "le", "ge", "isnan", "isinf", "isfinite",
                    "logical_and", "logical_or", "logical_not", "logical_xor"})  # fmt: skip
_SAME_VALUES = frozenset({"squeeze", "view", "reshape", "flatten", "unsqueeze", "expand", "to",
                          "cuda", "clone", "contiguous", "detach"})  # fmt: skip


class Tensors:
    """Which values of a file are tensors, and which functions belong to a model's forward pass."""

    def __init__(self, names: Names, flow: Flow) -> None:
        self.names, self.flow = names, flow
        self._tensors: dict[ast.AST, bool] = {}
        self._asked: set[ast.AST] = set()  # names whose values are being looked at: `x = x`
        self._passes: set[ast.AST] | None = None
        self._registered: dict[ast.ClassDef, set[str]] = {}

    def is_model(self, function: ast.expr) -> bool:
        """Whether calling this calls a model: true for `model(x)`, not for `train_model()`."""
        if not looks_like_model(self.flow, function):
            return False
        if self.flow.kind(function) & Kind.MODULE:
            return True
        if self.names.qualified(function) or name_heuristics.is_no_model_name(_last_name(function)):
            return False
        bindings = self.names.lookup(function) if isinstance(function, ast.Name) else []
        return all(binding.kind != "def" for binding in bindings)

    def in_pass(self, node: ast.AST) -> bool:
        """Whether a node is part of a model's forward pass."""
        return self.names.function(node) in self._in_passes()

    def _in_passes(self) -> set[ast.AST]:
        if self._passes is None:
            roots = [
                method
                for owner in self.names.scopes
                if isinstance(owner, ast.ClassDef) and self.flow.is_module_class(owner)
                for method in owner.body
                if isinstance(method, Function) and method.name == "forward"
            ]
            self._passes = self.reached(roots)
        return self._passes

    def reached(self, roots: list[Function]) -> set[ast.AST]:
        """Functions of the file that these call, directly or not, and these themselves."""
        found: set[ast.AST] = set()
        queue = roots
        while queue:
            function = queue.pop()
            if function in found:
                continue
            found.add(function)
            for node in ast.walk(function):
                if isinstance(node, ast.Call):
                    definition = self.flow.called_definition(node)
                    if isinstance(definition, Function):
                        queue.append(definition)
        return found

    def is_tensor(self, node: ast.expr | None) -> bool:
        """Whether a value is known to be a tensor on the device (or a tuple of some)."""
        if node is None:
            return False
        known = self._tensors.get(node)
        if known is None:
            self._tensors[node] = False  # a value defined by itself
            known = self._tensors[node] = self._infer(node)
        return known

    def may_be_tensor(self, node: ast.expr) -> bool:
        """Like `is_tensor`, but also for arguments of a forward pass whose type is not stated."""
        owner = node.value if isinstance(node, ast.Subscript) else node
        return self.is_tensor(node) or (isinstance(owner, ast.Name) and self._is_given(owner))

    def is_mask(self, node: ast.expr) -> bool:
        """Whether a value is known to be a boolean tensor."""
        match node:
            case ast.Compare(left=left, comparators=others, ops=ops):
                if any(isinstance(op, ast.Is | ast.IsNot | ast.In | ast.NotIn) for op in ops):
                    return False
                return any(map(self.may_be_tensor, [left, *others]))
            case ast.UnaryOp(op=ast.Invert(), operand=operand):
                return self.is_mask(operand)
            case ast.BinOp(op=ast.BitAnd() | ast.BitOr() | ast.BitXor()):
                return self.is_mask(node.left) or self.is_mask(node.right)
            case ast.Call(func=ast.Attribute(attr=method, value=owner)):
                if method in _MASKS and self.may_be_tensor(owner):
                    return True
                qualified = self.names.qualified(node.func) or ""
                if qualified.startswith("torch.") and qualified[6:] in _MASKS:
                    return self.is_tensor(node)
                if self._is_of_booleans(node):
                    return self.is_tensor(node)
                if method in ("to", "cuda") and isinstance(owner, ast.Call):
                    if self._is_of_booleans(owner):  # made on the CPU
                        return self.is_tensor(node)
                if method in _SAME_VALUES:
                    given = [*node.args, *(keyword.value for keyword in node.keywords)]
                    changes = any(self.flow.kind(each) & Kind.DTYPE for each in given)
                    return not changes and self.is_mask(owner)
            case ast.Name() if node not in self._asked:
                binding = self._last_binding(node)
                if binding is not None and binding.kind == "assign" and binding.value is not None:
                    self._asked.add(node)
                    try:
                        return self.is_mask(binding.value)
                    finally:
                        self._asked.discard(node)
        return False

    def _is_of_booleans(self, call: ast.Call) -> bool:
        """`torch.ones(3, dtype=torch.bool)`, `x.to(torch.bool)`"""
        of_to = isinstance(call.func, ast.Attribute) and call.func.attr == "to"
        kinds = [argument(call, None, "dtype"), *(call.args if of_to else ())]
        return any(k is not None and self.names.qualified(k) == "torch.bool" for k in kinds)

    def _infer(self, node: ast.expr) -> bool:
        match node:
            case ast.Name():
                return self._name(node)
            case ast.Call():
                return self._call(node)
            case ast.Attribute(attr=attribute, value=owner):
                if attribute in _TENSOR_ATTRIBUTES and self.may_be_tensor(owner):
                    return True
                if attribute in _NO_TENSOR or self.names.qualified(node):
                    return False
                if attribute == "grad":
                    return True
                if isinstance(owner, ast.Name) and self._is_registered(owner, attribute):
                    return True
                return bool(self.flow.kind(node) & Kind.TENSOR)
            case ast.Subscript(value=owner):
                return self.is_tensor(owner)
            case ast.BinOp(left=left, right=right):
                return self.is_tensor(left) or self.is_tensor(right)
            case ast.UnaryOp(op=ast.USub() | ast.Invert(), operand=operand):
                return self.is_tensor(operand)
            case ast.Compare(left=left, comparators=others, ops=ops):
                if any(isinstance(op, ast.Is | ast.IsNot | ast.In | ast.NotIn) for op in ops):
                    return False
                return any(map(self.is_tensor, [left, *others]))
            case ast.IfExp(body=body, orelse=orelse):
                return self.is_tensor(body) or self.is_tensor(orelse)
            case ast.NamedExpr(value=value):
                return self.is_tensor(value)
        return False

    def _is_registered(self, owner: ast.Name, attribute: str) -> bool:
        """Whether `self.mean` is a buffer or a parameter of a model."""
        model = self.names.owner_class(owner)
        if model is None or not self.flow.is_module_class(model):
            return False
        if model not in self._registered:
            self._registered[model] = _registered(model) | {
                name
                for name, values in self.names.class_attributes[model].items()
                if any(self._makes_parameter(value) for value in values)
            }
        return attribute in self._registered[model]

    def _makes_parameter(self, value: ast.expr | None) -> bool:
        made = self.names.qualified(value.func) if isinstance(value, ast.Call) else None
        return made in ("torch.nn.Parameter", "torch.nn.parameter.Parameter")

    def is_on_host(self, node: ast.expr) -> bool:
        """Whether a value was copied to the host: `model(x).cpu()`, or a variable that holds it."""
        if isinstance(node, ast.Name):
            values = [b.value for b in self.names.lookup(node)]
            return bool(values) and all(v is not None and _is_read(v) for v in values)
        return _is_read(node)

    def _call(self, node: ast.Call) -> bool:
        if any(map(self.is_on_host, node.args)):
            return False
        function = node.func
        qualified = self.names.qualified(function) or ""
        if qualified.startswith("torch."):
            return self._torch_call(node, qualified)
        if self.is_model(function) and (node.args or node.keywords):  # `d()` is not a discriminator
            return not isinstance(function, ast.Name) or function.id != "self"
        if name_heuristics.is_loss_name(last_word(node)) and not qualified.startswith(
            ("numpy.", "math.")
        ):
            return self.flow.called_definition(node) is None or self._returns_tensor(node)
        if isinstance(function, ast.Attribute) and not qualified:
            owner, method = function.value, function.attr
            if method in _NO_TENSOR:
                return False
            if method in ("cuda", "to"):
                return self._is_moved(node, owner)
            if method in _MODEL_METHODS and self.is_model(owner):
                return _last_name(owner) != "self" or self._returns_tensor(node)
            if self.is_tensor(owner):
                return True
            if method in _TENSOR_METHODS and self.may_be_tensor(owner):
                return True
        return self._returns_tensor(node)

    def _torch_call(self, node: ast.Call, qualified: str) -> bool:
        if qualified.startswith("torch.nn.functional."):
            return True
        name = qualified.rpartition(".")[2]
        if _NO_TENSOR_FUNCTIONS.match(qualified):
            return False
        if qualified.startswith("torch.Tensor.") or qualified.count(".") > 2 or name[0].isupper():
            return False
        if name in _FACTORIES:
            device = argument(node, None, "device")
            return device is not None and self.flow.kind(device) != Kind.CPU
        arguments = [a.elts if isinstance(a, ast.List | ast.Tuple) else [a] for a in node.args]
        given = [a for group in arguments for a in group]
        return any(map(self.may_be_tensor, given))

    def _is_moved(self, node: ast.Call, owner: ast.expr) -> bool:
        if self.flow.kind(owner) & Kind.MODULE or self.is_model(owner):
            return False
        assert isinstance(node.func, ast.Attribute)
        if node.func.attr == "cuda":
            return True
        target = argument(node, 0, "device")
        if target is None:
            return self.is_tensor(owner)
        kind = self.flow.kind(target)
        if kind == Kind.CPU:
            return False
        if kind & Kind.DTYPE:
            return self.may_be_tensor(owner)
        return bool(kind & ANY_DEVICE) or self.flow.is_device(target) or self.is_tensor(owner)

    def _returns_tensor(self, node: ast.Call) -> bool:
        function = self.flow.called_definition(node)
        if not isinstance(function, Function):
            return False
        return any(
            self.is_tensor(value)
            for part in own_nodes(function.body, loops=True)
            if isinstance(part, ast.Return) and part.value is not None
            for value in (part.value.elts if isinstance(part.value, ast.Tuple) else [part.value])
        )

    def _name(self, node: ast.Name) -> bool:
        if self.names.qualified(node):
            return False
        binding = self._last_binding(node)
        if binding is None:
            return False
        match binding.kind:
            case "assign":
                if self.is_tensor(binding.value):
                    return True
            case "item":
                value = binding.value
                if isinstance(value, ast.Call) and self.is_tensor(value):
                    return True
            case "param":
                kind = self.flow.kind(binding.value) if binding.value else Kind.NOTHING
                if binding.annotation is not None:
                    text = dotted(binding.annotation) or ""
                    if self.names.qualified(binding.annotation) == "torch.Tensor":
                        return True
                    if text.rpartition(".")[2] == "Tensor":
                        return True
                return bool(kind & Kind.TENSOR)
        return self._is_differentiated(node)

    def _is_differentiated(self, node: ast.Name) -> bool:
        """`loss`, if `loss.backward()` is called."""
        scope = self.names.scope_of(node)
        for use in self.names.uses(node.id, scope) if node.id in scope.bindings else ():
            parent = self.names.parents.get(use)
            if isinstance(parent, ast.Attribute) and is_backward(parent):
                return self.names.call_of(parent) is not None
        return False

    def _is_given(self, node: ast.Name) -> bool:
        """A parameter of a forward pass whose type is not stated."""
        binding = self._last_binding(node)
        if binding is None or binding.kind != "param" or binding.annotation or binding.value:
            return False
        function = self.names.parents.get(binding.node)
        if not isinstance(function, Function) or function not in self._in_passes():
            return False
        is_method = isinstance(self.names.parents.get(function), ast.ClassDef)
        return not is_method or binding.node not in function.args.args[:1]

    def _last_binding(self, node: ast.Name) -> Binding | None:
        """The most likely binding of a name: the last one before it."""
        statement = self.names.statement(node)
        best: Binding | None = None
        place = (-1, -1)
        later: Binding | None = None
        for binding in self.names.lookup(node):
            if binding.kind in ("other", "import", "def", "class", "except"):
                continue
            if isinstance(binding.value, ast.Constant) and binding.kind == "assign":
                if binding.value.value is None:
                    continue
            at = (binding.node.lineno, binding.node.col_offset)  # type: ignore[attr-defined]
            same = binding.kind != "param" and self.names.statement(binding.node) is statement
            inside = same and not isinstance(statement, ast.For | ast.With | ast.While | ast.If)
            if at < (node.lineno, node.col_offset) and not inside:
                if at > place:
                    best, place = binding, at
            elif later is None:
                later = binding
        return best or later


def own_nodes(body: list[ast.stmt], loops: bool = False) -> Iterator[ast.AST]:
    """All nodes of statements except those of definitions, and (unless `loops`) of inner loops."""
    closed = (*DEFINITIONS, ast.Lambda) if loops else (*DEFINITIONS, ast.Lambda, ast.For, ast.While)
    stack: list[ast.AST] = list(body)
    while stack:
        node = stack.pop()
        if not isinstance(node, closed):
            yield node
            stack.extend(ast.iter_child_nodes(node))


def _registered(model: ast.ClassDef) -> set[str]:
    """The names of `self.register_buffer("mean", …)` and of parameters."""
    found = set()
    for node in ast.walk(model):
        match node:
            case ast.Call(
                func=ast.Attribute(attr="register_buffer" | "register_parameter"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                found.add(name)
    return found


def last_word(call: ast.Call) -> str:
    return _last_name(call.func)


def _last_name(node: ast.expr) -> str:
    return (dotted(node) or "").rpartition(".")[2]


def _is_read(node: ast.expr) -> bool:
    """`out.detach().cpu()`"""
    match node:
        case ast.Call(func=ast.Attribute(attr="cpu" | "numpy" | "item" | "tolist")):
            return True
    return False
