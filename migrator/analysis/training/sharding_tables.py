"""Tensor parallel models: which layers of a model are divided, read from its classes.

Layers are found by following `self.x = …` from the model's class on, through module lists and the
project's classes. A layer's role is told by its name and those beside it; only layers of
repeated blocks are divided, because the others are small. Nothing is imported.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.nodes import argument, dotted
from migrator.analysis.values.flow import Flow
from migrator.analysis.values.import_protocols import Imported
from migrator.analysis.values.value_kinds import ANY_DEVICE, Kind

_END = r"_?(?:proj|projection|lin|linear|layer|fc)?\d?$"
_QUERY, _KEY, _VALUE = (
    re.compile(rf"(?:^|_)(?:to_|w)?{names}{_END}", re.I)
    for names in ("(?:q|query)", "(?:k|key)", "(?:v|value)")
)
# Attention's output projection, and the layers of an MLP: into the wide part, and out of it.
_OUT = re.compile(
    r"(?:^|_)(?:proj|projection|out|to_out|to_add_out|o|wo|(?:o|c|out|attn)_?proj|proj_?out|output"
    r"|out_?lin)$",
    re.I,
)
_FIRST = re.compile(
    r"(?:^|_)(?:fc_?1|w1|w3|lin(?:ear)?_?1|c_fc|fc_?in|(?:gate|up|in)_proj|wi(?:_?[01])?"
    r"|dense_h_to_4h)$",
    re.I,
)
_SECOND = re.compile(
    r"(?:^|_)(?:fc_?2|w2|lin(?:ear)?_?2|c_proj|fc_?out|(?:down|out)_proj|wo|dense_4h_to_h)$", re.I
)
_MODEL_NAME = re.compile(r"(?:^|_)(?:net|model|module|transformer|unet|dit)$", re.I)
_LOADS = re.compile(r"load|restore|resume|init", re.I)
_SAME = frozenset({
    "to", "cuda", "cpu", "half", "float", "bfloat16", "double", "eval", "train", "requires_grad_",
})  # fmt: skip
_DEPTH = 12


@dataclass(frozen=True)
class ShardingTable:
    """Each device's part of a model's layers: `blocks.*.attn.q` → column, row or replicated."""

    model: str
    definition: ast.ClassDef
    rules: dict[str, str]
    unknown: tuple[str, ...]  # layers of repeated blocks without a rule


@dataclass(frozen=True)
class _Linear:
    """A layer: its name, that of the module that contains it, and its attribute name there."""

    name: str
    holder: str
    attribute: str

    @property
    def repeats(self) -> bool:
        return "*" in self.name


class Models:
    """The models of one file."""

    def __init__(self, names: Names, flow: Flow, project: Imported | None) -> None:
        self.names, self.flow, self.project = names, flow, project

    def tables(self, inner: str) -> dict[ast.expr, ShardingTable | None]:
        """How the models that move to the device are divided; None if a class is unknown.

        These are the models of `model.cuda()` and `model.to(device)`. Layers that lead back from
        the divided part are `inner`: replicated or row.
        """
        found: dict[ast.expr, ShardingTable | None] = {}
        for node in self.names.order:
            match node:
                case ast.Call(func=ast.Attribute(attr="cuda" | "to", value=model)):
                    made = self._class(model)
                    if (made or self._is_called_model(model)) and self._is_to_device(node):
                        found[model] = self._table(made, inner) if made else None
        return found

    def _table(self, found: _Class, inner: str) -> ShardingTable:
        linears = list(found.linears())
        rules = _rules(linears, inner)
        unknown = (layer.name for layer in linears if layer.repeats and layer.name not in rules)
        return ShardingTable(found.node.name, found.node, rules, tuple(dict.fromkeys(unknown)))

    def _class(self, model: ast.expr) -> _Class | None:
        found = _Scope(self.names, self.project).model(model)
        return found if found is not None and found.moves_as_modules_do() else None

    def _is_called_model(self, node: ast.expr) -> bool:
        """Whether a value is a model, judging by its assignment or its name."""
        kind, name = self.flow.kind(node), (_root(node) or "")
        return bool(kind & Kind.MODULE) or (not kind and bool(_MODEL_NAME.search(name)))

    def _is_to_device(self, call: ast.Call) -> bool:
        assert isinstance(call.func, ast.Attribute)
        if call.func.attr == "cuda":
            return True
        device = argument(call, 0, "device")
        if device is None or self.flow.kind(device) & Kind.DTYPE:
            return False
        return bool(self.flow.kind(device) & ANY_DEVICE) or self.flow.is_device(device)


@dataclass(frozen=True)
class _Scope:
    """A file, in which names are resolved."""

    names: Names
    project: Imported | None

    def model(self, node: ast.expr, depth: int = 0) -> _Class | None:
        """The class of a model, if all values assigned to its name agree."""
        while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr not in _SAME:
                break
            node = node.func.value
        if isinstance(node, ast.Call):
            return self.class_of(node.func, depth)
        if not isinstance(node, ast.Name) or depth > _DEPTH:
            return None
        found: list[_Class | None] = []
        for binding in self.names.lookup(node):
            value = binding.value
            if binding.kind != "assign" or value is None:
                return None
            if not self._is_the_same(value, node.id):
                found.append(self.model(value, depth + 1))
        return _only(found)

    def _is_the_same(self, value: ast.expr, name: str) -> bool:
        """`model = model.eval()`, `model = load(path, model)`."""
        if _root(value) == name:
            return True
        if not isinstance(value, ast.Call) or not _LOADS.search(ast.unparse(value.func)):
            return False
        return any(isinstance(given, ast.Name) and given.id == name for given in value.args)

    def class_of(self, function: ast.expr, depth: int = 0) -> _Class | None:
        """The class of which a call creates an instance.

        `Net(…)`, `Net.from_pretrained(…)`, `load_model(…)` of the project.
        """
        match function:
            case ast.Attribute(attr=attr, value=owner) if attr.startswith("from_"):
                return self.class_of(owner, depth)
        if isinstance(function, ast.Name):
            match self.names.lookup(function):
                case [binding] if isinstance(binding.node, ast.ClassDef | ast.FunctionDef):
                    return self._made_by(binding.node, depth)
        name = self.names.qualified(function)
        found = self.project.definition(name) if self.project is not None and name else None
        if found is None:
            return None
        facts, there, node = found
        return _Scope(facts.names, there)._made_by(node, depth)

    def _made_by(self, node: ast.ClassDef | ast.FunctionDef, depth: int) -> _Class | None:
        if isinstance(node, ast.ClassDef):
            return _Class(self, node)
        if depth > _DEPTH:
            return None
        returned = [
            part.value
            for part in ast.walk(node)
            if isinstance(part, ast.Return) and self.names.function(part) is node
        ]
        return _only([self.model(v, depth + 1) if v is not None else None for v in returned])

    def is_torch(self, call: ast.Call, *kinds: str) -> bool:
        name = self.names.qualified(call.func) or ""
        return any(name in (f"torch.nn.{kind}", f"torch.nn.modules.{kind}") for kind in kinds)


@dataclass(frozen=True)
class _Class:
    """A class of modules."""

    scope: _Scope
    node: ast.ClassDef

    def moves_as_modules_do(self, depth: int = 0) -> bool:
        """Whether it is an `nn.Module` without its own `to` or `cuda`."""
        own = self.scope.names.scopes[self.node].bindings
        if depth > _DEPTH or "to" in own or "cuda" in own or "_apply" in own:
            return False
        for base in self.node.bases:
            inherited = self.scope.class_of(base)
            if inherited is not None:
                if inherited.moves_as_modules_do(depth + 1):
                    return True
            elif (self.scope.names.qualified(base) or dotted(base) or "").endswith("Module"):
                return True
        return False

    def linears(self, prefix: str = "", depth: int = 0) -> Iterator[_Linear]:
        """The linear layers of an instance, in source order."""
        if depth > _DEPTH:
            return
        for attribute, owner in self._attributes(depth).items():
            found = [
                tuple(owner._within(value, prefix, attribute, attribute, depth))
                for value in owner._values(attribute)
            ]
            if len(set(found)) == 1:  # otherwise only running the program tells which of them it is
                yield from found[0]
            for item in owner._appended(attribute):
                yield from owner._within(item, prefix, f"{attribute}.*", attribute, depth)

    def _attributes(self, depth: int) -> dict[str, _Class]:
        """All attributes of an instance, with the class that assigns each one last."""
        found: dict[str, _Class] = {}
        for base in self.node.bases if depth <= _DEPTH else ():
            inherited = self.scope.class_of(base)
            if inherited is not None:
                found |= inherited._attributes(depth + 1)
        own = self.scope.names.class_attributes[self.node]
        return found | dict.fromkeys(own, self)

    def _values(self, attribute: str) -> Iterator[ast.expr]:
        """The possible values of an attribute; also None, if a condition decides."""
        values = self.scope.names.class_attributes[self.node].get(attribute, ())
        nothing = ast.Constant(None)
        for value in values:
            yield value if value is not None else nothing
            within = [*self.scope.names.ancestors(value)] if value is not None else []
            if len(values) == 1 and any(isinstance(outer, ast.If) for outer in within):
                yield nothing

    def _within(
        self, value: ast.expr, holder: str, path: str, attribute: str, depth: int
    ) -> Iterator[_Linear]:
        """The linear layers of the value assigned to `path`."""
        if isinstance(value, ast.IfExp):
            found = {tuple(self._within(one, holder, path, attribute, depth))
                     for one in (value.body, value.orelse)}  # fmt: skip
            if len(found) == 1:
                yield from found.pop()
        if not isinstance(value, ast.Call):
            return
        name = f"{holder}.{path}" if holder else path
        if self.scope.is_torch(value, "Linear"):
            yield _Linear(name, holder, attribute)
        elif self.scope.is_torch(value, "ModuleList", "Sequential"):
            items = list(self._items(value))
            linears = [key for key, one in items if self._is_linear(one)]
            for key, one in items:
                # The only layer of a sequence has the role of its name; of two, the first
                # leads into the wide part.
                role = attribute if len(linears) == 1 else key
                if len(linears) == 2 and key in linears:
                    role = "fc1" if key == linears[0] else "fc2"
                inner = holder if role == attribute or key == "*" else name
                tail = f"{path}.{key}" if inner == holder else key
                yield from self._within(one, inner, tail, role, depth)
        elif self.scope.is_torch(value, "ModuleDict"):
            for key, one in _entries(value):
                yield from self._within(one, name, key, key, depth)
        else:
            made = self.scope.class_of(value.func)
            if made is not None:
                yield from made.linears(name, depth + 1)

    def _is_linear(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Call) and self.scope.is_torch(node, "Linear")

    def _items(self, call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
        """The items of a list or a sequence of modules, by number; `*` for any."""
        given = call.args
        if len(given) == 1 and isinstance(given[0], ast.List | ast.Tuple):
            given = given[0].elts
        for number, node in enumerate(given):
            inner = node.value if isinstance(node, ast.Starred) else node
            match inner:
                case ast.ListComp(elt=item) | ast.GeneratorExp(elt=item):
                    yield "*", item
                case ast.List(elts=items):
                    yield from (("*", item) for item in items)
                case ast.Name():
                    for item in self._collected(inner):
                        yield "*", item
                case ast.Call() if not isinstance(node, ast.Starred):
                    yield str(number), inner
            if isinstance(node, ast.Starred) and len(given) > 1:
                return  # their number is unknown

    def _collected(self, name: ast.Name) -> Iterator[ast.expr]:
        """The items of a local list that becomes a list of modules."""
        for binding in self.scope.names.lookup(name):
            match binding.value:
                case ast.ListComp(elt=item):
                    yield item
                case ast.List(elts=items):
                    yield from items
        function = self.scope.names.function(name)
        for node in ast.walk(function) if function is not None else ():
            match node:
                case ast.Call(
                    func=ast.Attribute(attr="append", value=ast.Name(id=owner)), args=[item]
                ) if owner == name.id:
                    yield item

    def _appended(self, attribute: str) -> Iterator[ast.expr]:
        """`self.blocks.append(Block())`"""
        for node in ast.walk(self.node):
            match node:
                case ast.Call(
                    func=ast.Attribute(
                        attr="append", value=ast.Attribute(attr=name, value=ast.Name(id="self"))
                    ),
                    args=[item],
                ) if name == attribute:
                    yield item


def _entries(call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    """The items of a dictionary of modules."""
    match call.args:
        case [ast.Dict(keys=keys, values=values)]:
            for key, value in zip(keys, values, strict=True):
                if isinstance(key, ast.Constant):
                    yield str(key.value), value
        case [ast.Call(func=ast.Name(id="dict"), keywords=keywords)]:
            yield from ((k.arg, k.value) for k in keywords if k.arg is not None)


def _rules(linears: list[_Linear], inner: str) -> dict[str, str]:
    """Each device's part of the layers whose role follows from those beside them."""
    holders: dict[str, list[_Linear]] = {}
    for layer in linears:
        if layer.repeats:
            holders.setdefault(layer.holder, []).append(layer)
    found: dict[str, str] = {}
    for layers in holders.values():
        attention = [
            [layer for layer in layers if kind.search(layer.attribute)]
            for kind in (_QUERY, _KEY, _VALUE, _OUT)
        ]
        mlp = [
            [layer for layer in layers if kind.search(layer.attribute)]
            for kind in (_FIRST, _SECOND)
        ]
        for group in (attention, mlp):
            if all(group):
                found |= {layer.name: inner for layer in group[-1]}
                found |= {layer.name: "column" for part in group[:-1] for layer in part}
    return {layer.name: found[layer.name] for layer in linears if layer.name in found}


def _only(found: list[_Class | None]) -> _Class | None:
    """The only class among those found, if there are no others and none is unknown."""
    known = {made.node: made for made in found if made is not None}
    return next(iter(known.values())) if len(known) == 1 and None not in found else None


def _root(node: ast.expr) -> str | None:
    """The first name of a chain of calls, or the argument of `compile(model)`."""
    while True:
        match node:
            case ast.Call(func=ast.Attribute(attr=attr, value=inner)) if attr in _SAME:
                node = inner
            case ast.Call(func=ast.Name(id="compile") | ast.Attribute(attr="compile"),
                          args=[ast.Name(id=name), *_]):  # fmt: skip
                return name
            case ast.Name(id=name):
                return name
            case _:
                return None
