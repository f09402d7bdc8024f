"""Whether a string "cuda" names a device, judging by its place in the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from migrator.analysis import foreign_code, name_heuristics
from migrator.analysis.devices.attributes import names_attribute
from migrator.analysis.devices.choices import device_call, names_device
from migrator.analysis.devices.device_keys import is_by_device, other_key, table_of
from migrator.analysis.devices.other_accelerators import imported_heads
from migrator.analysis.syntax.command_line import is_option, option_name
from migrator.analysis.syntax.names import FUNCTIONS, Names
from migrator.analysis.syntax.nodes import dotted, parameters
from migrator.analysis.values.flow import Flow
from migrator.analysis.values.value_kinds import Kind


def not_a_device(names: Names, flow: Flow, node: ast.expr) -> str | None:
    """Why it can't be shown that the string `node` names a device; None if it does."""
    if device_call(names, node) is not None:
        return None
    if names_attribute(names, node):
        return "may be the name of a method that `getattr` takes"
    return _not_by_place(names, flow, node)


def _not_by_place(names: Names, flow: Flow, node: ast.expr, depth: int = 0) -> str | None:
    at, parent = node, names.parents.get(node)
    several: ast.expr | None = None
    while True:
        if (table := table_of(names, at)) is not None:
            return None if is_by_device(names, flow, table) else _AS_KEY
        match parent:
            case ast.IfExp() if at is not parent.test:
                other = parent.orelse if at is parent.body else parent.body
                if names_device(other) or flow.kind(other) & Kind.CPU:
                    return None
            case ast.Tuple() | ast.List() | ast.Set():
                if isinstance(names.parents.get(parent), ast.Subscript):
                    return "is part of a subscript"
                several = parent
            case ast.Call(func=ast.Name(id="list" | "tuple" | "set" | "sorted" | "reversed")):
                pass
            case ast.BoolOp() | ast.Starred() | ast.FormattedValue():
                pass
            case ast.ListComp(elt=element) | ast.GeneratorExp(elt=element) if element is at:
                pass
            case ast.BinOp(left=left, right=right) if ast.List in (type(left), type(right)):
                pass  # ["cpu"] + ["cuda"]
            case ast.NamedExpr(target=target):
                return None if _is_device_target(names, flow, target, depth) else _unknown(target)
            case ast.MatchValue():
                return _pattern_role(names, flow, parent)
            case _:
                break
        assert isinstance(parent, ast.expr)
        at, parent = parent, names.parents.get(parent)
    reason = _role(names, flow, at, parent, depth)
    if reason is None and several is not None:
        line = other_key(names, flow, several)
        if line is not None:
            return f"is a device here, and line {line} has it as a key"
    return reason


_AS_KEY = "is used as a key"
_DEEPEST = 3  # names that are followed


def _pattern_role(names: Names, flow: Flow, pattern: ast.pattern) -> str | None:
    """`match device.type: case "cuda":`, `case torch.device(type="cuda")`, `case {"device": …}`"""
    at: ast.AST = pattern
    places: list[int] = []  # positions in sequence patterns, from the innermost
    for above in names.ancestors(pattern):
        match above:
            case ast.MatchOr() | ast.MatchAs():
                pass
            case ast.MatchSequence(patterns=patterns) if not any(
                isinstance(p, ast.MatchStar) for p in patterns
            ):
                places.append(patterns.index(at))  # type: ignore[arg-type]
            case ast.MatchClass(cls=cls):
                of_device = names.qualified(cls) == "torch.device"
                if of_device and above.kwd_attrs == ["type"] and not above.patterns:
                    return None
                return "is part of a pattern"
            case ast.MatchMapping(keys=keys, patterns=patterns):
                key = keys[patterns.index(at)]  # type: ignore[arg-type]
                return None if _named_device(_text(key)) else "is part of a pattern"
            case ast.match_case():
                subject = names.parents[above].subject  # type: ignore[attr-defined]
                for place in reversed(places):
                    if not isinstance(subject, ast.Tuple) or place >= len(subject.elts):
                        return "is part of a pattern"
                    subject = subject.elts[place]
                if flow.is_device(subject):
                    return None
                return "is compared with something that is not known to be a device"
            case _:
                break
        at = above
    return "is part of a pattern"


def _role(names: Names, flow: Flow, at: ast.expr, parent: ast.AST | None, depth: int) -> str | None:
    match parent:
        case ast.Compare():
            sides = [side for side in (parent.left, *parent.comparators) if side is not at]
            if any(flow.is_device(s) or _is_device_attribute(names, flow, s) for s in sides):
                return None
            return "is compared with something that is not known to be a device"
        case ast.Assign(targets=targets):
            if any(_is_device_target(names, flow, t, depth) for t in targets):
                return None
            return _unknown(targets[0])
        case ast.AnnAssign(target=target):
            return None if _is_device_target(names, flow, target, depth) else _unknown(target)
        case ast.For(target=target) | ast.comprehension(target=target):
            return None if _is_device_target(names, flow, target, depth) else _unknown(target)
        case ast.arguments():
            return _parameter_role(names, flow, at, parent)
        case ast.Lambda() | ast.FunctionDef() | ast.AsyncFunctionDef():
            return _parameter_role(names, flow, at, parent.args)
        case ast.Return():
            function = names.function(parent)
            if function is None:
                return "is returned"
            if name_heuristics.is_device_name(function.name) or "device" in function.name:
                return None
            if flow.returns(function) & (Kind.CPU | Kind.DEVICE):
                return None
            return f"is returned by {function.name}()"
        case ast.Dict():
            for key, value in zip(parent.keys, parent.values, strict=True):
                if value is at and isinstance(key, ast.Constant) and _named_device(key.value):
                    return None
            return "is part of a dictionary"
        case ast.keyword(arg=name):
            call = names.parents.get(parent)
            if name in ("default", "choices", "const") and isinstance(call, ast.Call):
                if is_option(call):
                    return _option_role(names, flow, call)
            if name in ("default", "default_factory") and isinstance(
                call, ast.Call
            ):  # field(default=)
                owner = names.parents.get(call)
                if isinstance(owner, ast.AnnAssign):
                    return _role(names, flow, call, owner, depth)
            if _named_device(name):
                return None
            return f"is passed as {name}="
        case ast.Call():
            return _argument_role(names, flow, at, parent, depth)
        case ast.Attribute(attr="startswith"):
            return "is asked what it starts with"
        case ast.Attribute(attr="index" | "count") as method:  # KINDS.index(x.device.type)
            call = names.call_of(method)
            if call is not None and any(map(flow.is_device, call.args)):
                return None
        case ast.Subscript(value=value) as item if value is at:
            return _not_by_place(names, flow, item, depth + 1) if depth < _DEEPEST else _AS_KEY
        case ast.Subscript():
            return _AS_KEY
    return "its use cannot be seen"


_READERS = ("get", "pop", "setdefault", "getenv")
_OF_MESHES = {"init_device_mesh": 0, "DeviceMesh": 0, "DeviceMesh.from_group": 1}
_PLACES = {
    ("torch.device", 0), ("torch.load", 1), ("torch.jit.load", 1),
    ("torch.is_autocast_enabled", 0), ("torch.get_autocast_dtype", 0),
    ("torch.get_device_module", 0), ("torch.distributed.get_default_backend_for_device", 0),
    *((f"torch.distributed.{module}{name}", place)
      for module in ("", "device_mesh.", "tensor.", "_tensor.")
      for name, place in _OF_MESHES.items()),
}  # fmt: skip


ONLY_SHOWN = "is only printed"
_LOGS = re.compile(r"(?:\w+\.)*_?log(?:ger|ging)?\.(?:debug|info|warning|error)")


def only_prints(names: Names, call: ast.Call) -> bool:
    """`print("on", "cuda:0")`, `log.info("on %s", "cuda:0")`, `print("on {}".format("cuda:0"))`"""
    if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Constant):
        above = names.parents.get(call)  # of "…".format
        return isinstance(above, ast.Call) and call in above.args and only_prints(names, above)
    name = dotted(call.func) or ""
    return name == "print" or _LOGS.fullmatch(name) is not None


_PAIRS = {"zip": 0, "enumerate": 1, "itertools.product": 0}  # the places of the first in a pair


def _argument_role(
    names: Names, flow: Flow, at: ast.expr, call: ast.Call, depth: int
) -> str | None:
    if at not in call.args:
        return "its use cannot be seen"
    called = names.qualified(call.func) or ""
    position = call.args.index(at)
    match names.parents.get(call):
        case (
            ast.For(target=ast.Tuple(elts=parts)) | ast.comprehension(target=ast.Tuple(elts=parts))
        ) if called in _PAIRS and (n := _PAIRS[called] + position) < len(parts):
            if _is_device_target(names, flow, parts[n], depth):
                return None
    if (called, position) in _PLACES:
        return None
    if called == "operator.methodcaller" and position == 1 and _text(call.args[0]) == "to":
        return None
    if called == "getattr" and position == 2 and _named_device(_text(call.args[1])):
        return None
    if only_prints(names, call):
        return None if ":" in _text(at) else ONLY_SHOWN
    if isinstance(call.func, ast.Attribute):
        method = call.func.attr
        if method == "to" and not called.startswith("torch.cuda"):
            return None
        if method == "startswith" and flow.is_device(call.func.value):
            return None
        if method in _READERS and position == 1 and _named_device(_text(call.args[0])):
            return None
        if method in ("append", "add", "insert") and isinstance(at, ast.Constant):
            if _is_device_target(names, flow, call.func.value, depth):
                return None
        if method == "parametrize" and _named_device(_text(call.args[0])):
            return None
    local = flow.called_definition(call)
    if isinstance(local, ast.ClassDef):
        inits = names.scopes[local].bindings.get("__init__", [])
        local = inits[0].node if len(inits) == 1 else None
        position += 1
    elif isinstance(local, FUNCTIONS) and isinstance(call.func, ast.Attribute):
        position += 1  # self
    if isinstance(local, ast.FunctionDef | ast.AsyncFunctionDef):
        parameters = local.args.posonlyargs + local.args.args
        if position < len(parameters):
            name = parameters[position].arg
            if _named_device(name) or flow.used_as_device(name, names.scopes[local]):
                return None
    return f"is passed to {dotted(call.func) or 'a call'}()"


def _option_role(names: Names, flow: Flow, call: ast.Call) -> str | None:
    name = option_name(call)
    if _named_device(name):
        return None
    uses = (use for use in names.by_attribute.get(name, ()) if names.qualified(use) is None)
    if any(flow.is_given_as_device(use) for use in uses):
        return None
    return f"is a value of the option --{name}"


def _parameter_role(
    names: Names, flow: Flow, default: ast.expr, arguments: ast.arguments
) -> str | None:
    for parameter, value in parameters(arguments):
        if value is default:
            function = names.parents.get(parameter)
            if _named_device(parameter.arg):
                return None
            if function in names.scopes and function is not None:
                if flow.used_as_device(parameter.arg, names.scopes[function]):
                    return None
            return f"is the default of the parameter {parameter.arg}"
    return "its use cannot be seen"


def _is_device_target(names: Names, flow: Flow, target: ast.expr, depth: int) -> bool:
    name = dotted(target)
    if isinstance(target, ast.Subscript):
        return _named_device(_text(target.slice))
    if name is None:
        return False
    if _named_device(name.rpartition(".")[2]):
        return True
    if isinstance(target, ast.Attribute):
        return _is_device_attribute(names, flow, target)
    if not isinstance(target, ast.Name):
        return False
    if isinstance(names.scope_of(target).node, ast.ClassDef):
        return any(map(flow.is_given_as_device, names.by_attribute.get(name, ())))
    if depth >= _DEEPEST:
        return False
    if flow.used_as_device(target.id, names.scope_of(target)):
        return True
    return any(_not_by_place(names, flow, use, depth + 1) is None for use in names.loads(target))


def _is_device_attribute(names: Names, flow: Flow, node: ast.expr) -> bool:
    """Whether an attribute of that name is given as a device somewhere in the file."""
    return isinstance(node, ast.Attribute) and any(
        map(flow.is_given_as_device, names.by_attribute.get(node.attr, ()))
    )


def _named_device(name: object) -> bool:
    return isinstance(name, str) and name_heuristics.is_device_name(
        name.replace("-", "_").lstrip("_")
    )


def _text(node: ast.expr) -> str:
    return str(node.value) if isinstance(node, ast.Constant) else ""


def _unknown(target: ast.expr) -> str:
    return f"is stored as {dotted(target) or 'something'}, which is not known to be a device"


def migrated_uses(names: Names, flow: Flow) -> Iterator[ast.AST]:
    """Where code names a target's device, or uses what a migration puts in place of GPU code."""
    for statement in names.imports:
        if imported_heads(statement) & foreign_code.MODULES and not names.is_guarded_import(
            statement
        ):
            bound = [alias.asname or alias.name.partition(".")[0] for alias in statement.names]
            uses = [names.parents[use] for name in bound for use in names.by_id.get(name, ())]
            yield from (use for use in uses if not _also_on_cpu(use)) if uses else (statement,)
    for node in names.order:
        if isinstance(node, ast.Constant) and node.value in foreign_code.DEVICES:
            if not_a_device(names, flow, node) is None:
                yield node


def is_migrated(names: Names, flow: Flow) -> bool:
    """Whether code uses a device as a migration leaves it."""
    return next(migrated_uses(names, flow), None) is not None


def _also_on_cpu(use: ast.AST) -> bool:
    """Whether a name of the runtime replaces what programs without a device have, too.

    A set-up is for the device that other code uses.
    """
    return isinstance(use, ast.Attribute) and use.attr in _ALSO_ON_CPU


_ALSO_ON_CPU = frozenset({
    "TokenBuffer", "compile", "decode_image", "load", "load_file", "profile", "read_image", "save",
    "set_matmul_precision", "setup", "sync",
})  # fmt: skip
