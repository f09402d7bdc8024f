"""Devices: where a device is chosen, and whether a string "cuda" is a device at all."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from migrator.analysis import traces
from migrator.analysis.accelerators import asked_for, imported_heads
from migrator.analysis.flow import DEVICE_NAME, Flow, Kind, is_option, option_name
from migrator.analysis.names import FUNCTIONS, Names, argument, dotted, parameters
from migrator.targets import RUNTIME

AVAILABLE = ("torch.cuda.is_available", "torch.accelerator.is_available")
_OTHER_DEVICES = {"cpu", "mps", "xpu", "npu", "hpu", "meta", "xla"}
_READERS = ("get", "pop", "setdefault", "getenv")


@dataclass(frozen=True)
class Choice:
    """`X if torch.cuda.is_available() else Y`: the whole and the accelerator's branch."""

    node: ast.IfExp
    device: ast.expr


@dataclass(frozen=True)
class Ladder:
    """`if cuda: … elif mps: … else: …`: a device is picked by asking for one kind after another.

    `picks` is what the rung of CUDA does (`return torch.device("cuda")`), with `device`.
    """

    rungs: list[ast.stmt]  # in one `if` with its branches, or in several with a `return` in each
    picks: ast.Return | ast.Assign
    device: ast.expr
    has_tpu: bool  # the first rung asks for the TPU: a second run


def is_migrated(names: Names, flow: Flow) -> bool:
    """True for code that names the device of a target, or imports what a migration needs."""
    for statement in names.imports:
        if imported_heads(statement) & traces.MODULES and not names.is_guarded_import(statement):
            return True
    return any(
        isinstance(node, ast.Constant)
        and node.value in traces.DEVICES
        and not_a_device(names, flow, node) is None
        for node in names.order
    )


def ladders(names: Names, flow: Flow) -> set[ast.If]:
    """Where the ladders of a file begin."""
    found: set[ast.If] = set()
    later: set[ast.AST] = set()
    questions = [n for n in names.order if isinstance(n, ast.Attribute) and n.attr in _ASKED]
    for node in names.order if len(questions) > 1 else ():
        if isinstance(node, ast.If) and node not in later:
            later.update(_branches(node)[1:])
            picked = ladder(names, flow, node)
            if picked is not None:
                found.add(node)
                later.update(picked.rungs)
    return found


_ASKED = ("is_available", "is_built", "is_vulkan_available", "device_count")


def _branches(node: ast.If) -> list[ast.If]:
    """An `if` and its `elif`s."""
    chain = [node]
    while len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If):
        node = node.orelse[0]
        chain.append(node)
    return chain


def ladder(names: Names, flow: Flow, first: ast.If) -> Ladder | None:
    """The ladder that begins with this `if`."""
    rungs: list[ast.stmt] = []
    branches: list[ast.If] = []
    block = names.block(first)
    for statement in block[block.index(first) :]:
        if not isinstance(statement, ast.If):
            rungs += [statement] if isinstance(statement, ast.Return) else []
            break
        chain = _branches(statement)
        if not all(_asks_for_hardware(names, branch.test) for branch in chain):
            break
        rungs.append(statement)
        branches += chain
        if not all(isinstance(branch.body[-1], ast.Return) for branch in chain):
            break
    asked = [set(asked_for(names, branch.test)) for branch in branches]
    if len(set().union(*asked)) < 2:
        return None
    has_tpu = any(
        names.qualified(node) == f"{RUNTIME}.is_available"
        for node in ast.walk(first.test)
        if isinstance(node, ast.Attribute)
    )
    of_cuda = [b for b, kinds in zip(branches, asked, strict=True) if "cuda" in kinds]
    if not of_cuda or not all(map(_only_says, of_cuda[0].body[:-1])):
        return None
    match of_cuda[0].body[-1]:
        case ast.Return(value=ast.expr() as device) as picks:
            pass
        case ast.Assign(targets=[ast.Name() | ast.Attribute()], value=device) as picks:
            pass
        case _:
            return None
    if not flow.kind(device) & (Kind.DEVICE | Kind.DEVICE_STRING):
        return None
    return Ladder(rungs, picks, device, has_tpu)


def _asks_for_hardware(names: Names, test: ast.expr) -> bool:
    """Whether a condition asks what the machine has, and nothing else (no flag, no argument)."""
    match test:
        case ast.BoolOp(values=values):
            return all(_asks_for_hardware(names, value) for value in values)
        case ast.Compare(left=left, comparators=comparators):
            plain = all(isinstance(c, ast.Constant) for c in comparators)
            return plain and _asks_for_hardware(names, left)
        case ast.Call() if _asks_torch(names, test):
            return True
        case ast.Call(func=func):
            called = names.qualified(func) or ""
            last = (dotted(func) or "").rpartition(".")[2]
            own = not test.args and not test.keywords and last.endswith("available")
            return own or (called.startswith(("torch.", RUNTIME)) and last in _ASKED)
        case ast.Attribute():
            return (names.qualified(test) or "").startswith("torch.version.")
    return False


def _asks_torch(names: Names, node: ast.expr) -> bool:
    """`hasattr(torch.backends, "mps")`"""
    match node:
        case ast.Call(func=ast.Name(id="hasattr" | "getattr"), args=[module, *_]):
            return (names.qualified(module) or "").startswith("torch")
    return False


def _only_says(statement: ast.stmt) -> bool:
    """Whether a statement of a rung prints, and does nothing that the TPU's would have to do."""
    match statement:
        case ast.Expr(value=ast.Call(func=func)):
            return (dotted(func) or "").partition(".")[0] in ("print", "logging", "logger", "log")
    return False


def question(names: Names, call: ast.expr) -> ast.expr:
    """All of `hasattr(torch, "xpu") and torch.xpu.is_available()` for the last call in it."""
    match names.parents.get(call):
        case ast.BoolOp(op=ast.And(), values=[first, last]) as whole if last is call:
            asks = first.left if isinstance(first, ast.Compare) else first
            if _asks_torch(names, asks):
                return whole
            if isinstance(asks, ast.Call) and names.qualified(asks.func) in AVAILABLE:
                return whole  # is_built() and is_available()
    return call


def availability_choice(names: Names, flow: Flow, call: ast.expr) -> Choice | None:
    """The conditional expression that `call` decides about alone, if it picks a device."""
    test: ast.AST = call
    parent = names.parents.get(call)
    negated = isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.Not)
    if negated and parent is not None:
        test, parent = parent, names.parents.get(parent)
    if not isinstance(parent, ast.IfExp) or parent.test is not test:
        return None
    gpu, other = (parent.orelse, parent.body) if negated else (parent.body, parent.orelse)
    devices = Kind.DEVICE | Kind.DEVICE_STRING
    cpu = flow.kind(other) & Kind.CPU or _names_device(other)
    return Choice(parent, gpu) if flow.kind(gpu) & devices and cpu else None


def _names_device(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value in _OTHER_DEVICES


def device_call(names: Names, node: ast.expr) -> ast.Call | None:
    """The `torch.device(…)` call that `node` names the device of."""
    parent = names.parents.get(node)
    if isinstance(parent, ast.keyword):
        parent = names.parents.get(parent)
    if isinstance(parent, ast.Call) and names.qualified(parent.func) == "torch.device":
        if argument(parent, 0, "type", "device") is node:
            return parent
    return None


def method_caller(names: Names, node: ast.expr) -> ast.Call | None:
    """The call `methodcaller("cuda")` for the string in it."""
    call = names.parents.get(node)
    if isinstance(call, ast.Call) and call.args[:1] == [node]:
        return call if names.qualified(call.func) == "operator.methodcaller" else None
    return None


def whole_string(names: Names, node: ast.expr) -> ast.expr:
    """All of `"cuda:" + str(i)`, `"cuda:%d" % i`, `"cuda:{}".format(i)` for the string in it."""
    parent = names.parents.get(node)
    if isinstance(parent, ast.BinOp) and parent.left is node:
        return parent
    if isinstance(parent, ast.Attribute) and parent.attr == "format":
        call = names.call_of(parent)
        if call is not None:
            return call
    return node


def table_of_places(names: Names, node: ast.AST) -> tuple[ast.Dict, ast.Call] | None:
    """The `map_location` that a device string is a part of, if it is one, and its `torch.load`.

    `{"cuda:0": "cuda:1"}` says from where to where; every place in it is a device.
    """
    table = next((a for a in (node, *names.ancestors(node)) if isinstance(a, ast.Dict)), None)
    if table is None or not all(
        key is not None and _is_place(key) and _is_place(value)
        for key, value in zip(table.keys, table.values, strict=True)
    ):
        return None
    location: ast.AST = table
    match names.parents.get(table):
        case ast.Assign(targets=[ast.Name() as target]):
            uses = list(names.uses(target.id, names.scope_of(target)))
            if len(uses) != 1 or len(names.lookup(target)) != 1:
                return None
            location = uses[0]
    keyword = names.parents.get(location)
    call = names.parents.get(keyword) if isinstance(keyword, ast.keyword) else keyword
    if isinstance(call, ast.Call) and names.qualified(call.func) == "torch.load":
        return table, call
    return None


def table_of_location(names: Names, location: ast.expr) -> ast.Dict | None:
    """The table of places that a `map_location` is, in place or by name."""
    table: ast.AST | None = location
    if isinstance(location, ast.Name):
        found = names.lookup(location)
        table = found[0].value if len(found) == 1 and found[0].kind == "assign" else None
    if not isinstance(table, ast.Dict) or not table.values:
        return None
    places = table_of_places(names, table.values[0])
    return places[0] if places is not None else None


def _is_place(node: ast.expr) -> bool:
    match node:
        case ast.Constant(value=str(text)):
            return text.startswith(("cuda", "cpu"))
        case ast.JoinedStr(values=[ast.Constant(value=str(text)), *_]):
            return text.startswith("cuda")
        case ast.BinOp(left=ast.Constant(value=str(text)), op=ast.Mod()):
            return text.startswith("cuda")
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(text)), attr="format")):
            return text.startswith("cuda")
    return False


def not_a_device(names: Names, flow: Flow, node: ast.expr) -> str | None:
    """Why it can not be shown that the string `node` names a device; None where it does."""
    if device_call(names, node) is not None:
        return None
    at, parent = node, names.parents.get(node)
    while True:
        match parent:
            case ast.IfExp() if at is not parent.test:
                other = parent.orelse if at is parent.body else parent.body
                if _names_device(other) or flow.kind(other) & Kind.CPU:
                    return None
            case ast.Tuple() | ast.List() | ast.Set():
                if any(_names_device(e) for e in parent.elts):
                    return None
                if isinstance(names.parents.get(parent), ast.Subscript):
                    return "is part of a subscript"
            case ast.BoolOp() | ast.Starred() | ast.FormattedValue():
                pass
            case ast.ListComp(elt=element) | ast.GeneratorExp(elt=element) if element is at:
                pass
            case ast.BinOp() if isinstance(at, ast.List):  # ["cpu"] + ["cuda"]
                pass
            case ast.NamedExpr(target=target):
                return None if _is_device_target(names, flow, target) else _unknown(target)
            case ast.MatchValue():
                return _pattern_role(names, flow, parent)
            case _:
                break
        assert isinstance(parent, ast.expr)
        at, parent = parent, names.parents.get(parent)
    return _role(names, flow, at, parent)


def _pattern_role(names: Names, flow: Flow, pattern: ast.pattern) -> str | None:
    """`match device.type: case "cuda":`, `case torch.device(type="cuda")`, `case {"device": …}`"""
    at: ast.AST = pattern
    places: list[int] = []  # in patterns of sequences, from the innermost
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


def _role(names: Names, flow: Flow, at: ast.expr, parent: ast.AST | None) -> str | None:
    match parent:
        case ast.Compare():
            sides = [parent.left, *parent.comparators]
            if any(flow.is_device(s) for s in sides if s is not at):
                return None
            return "is compared with something that is not known to be a device"
        case ast.Assign(targets=targets):
            if any(_is_device_target(names, flow, t) for t in targets):
                return None
            return _unknown(targets[0])
        case ast.AnnAssign(target=target):
            return None if _is_device_target(names, flow, target) else _unknown(target)
        case ast.For(target=target) | ast.comprehension(target=target):
            return None if _is_device_target(names, flow, target) else _unknown(target)
        case ast.arguments():
            return _parameter_role(names, flow, at, parent)
        case ast.Lambda() | ast.FunctionDef() | ast.AsyncFunctionDef():
            return _parameter_role(names, flow, at, parent.args)
        case ast.Return():
            function = names.function(parent)
            if function is None:
                return "is returned"
            if DEVICE_NAME.search(function.name) or "device" in function.name:
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
                    return _option_role(call)
            if name in ("default", "default_factory") and isinstance(
                call, ast.Call
            ):  # field(default=)
                owner = names.parents.get(call)
                if isinstance(owner, ast.AnnAssign):
                    return _role(names, flow, call, owner)
            if _named_device(name):
                return None
            return f"is passed as {name}="
        case ast.Call():
            return _argument_role(names, flow, at, parent)
        case ast.Attribute(attr="startswith"):
            return "is asked what it starts with"
        case ast.Subscript():
            return "is used as a key"
    return "its use can not be seen"


# Arguments by position that are devices.
_PLACES = {("torch.device", 0), ("torch.load", 1), ("torch.jit.load", 1)}


def _argument_role(names: Names, flow: Flow, at: ast.expr, call: ast.Call) -> str | None:
    if at not in call.args:
        return "its use can not be seen"
    called = names.qualified(call.func) or ""
    position = call.args.index(at)
    if (called, position) in _PLACES:
        return None
    if called == "operator.methodcaller" and position == 1 and _text(call.args[0]) == "to":
        return None
    if called == "getattr" and position == 2 and _named_device(_text(call.args[1])):
        return None
    if isinstance(call.func, ast.Attribute):
        method = call.func.attr
        if method == "to" and not called.startswith("torch.cuda"):
            return None
        if method == "startswith" and flow.is_device(call.func.value):
            return None
        if method in _READERS and position == 1 and _named_device(_text(call.args[0])):
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


def _option_role(call: ast.Call) -> str | None:
    name = option_name(call)
    return None if _named_device(name) else f"is a value of the option --{name}"


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
    return "its use can not be seen"


def _is_device_target(names: Names, flow: Flow, target: ast.expr) -> bool:
    name = dotted(target)
    if isinstance(target, ast.Subscript):
        return _named_device(_text(target.slice))
    if name is None:
        return False
    if _named_device(name.rpartition(".")[2]):
        return True
    if isinstance(target, ast.Name):
        scope = names.scope_of(target)
        return flow.used_as_device(target.id, scope)
    return False


def _named_device(name: object) -> bool:
    return isinstance(name, str) and bool(DEVICE_NAME.search(name.replace("-", "_").lstrip("_")))


def _text(node: ast.expr) -> str:
    return str(node.value) if isinstance(node, ast.Constant) else ""


def _unknown(target: ast.expr) -> str:
    return f"is stored as {dotted(target) or 'something'}, which is not known to be a device"
