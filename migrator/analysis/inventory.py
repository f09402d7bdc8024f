"""Inventory: what counts as a GPU construct. The one place that decides what must be accounted for.

Each construct that `find` yields ends as exactly one of rewritten, kept or reported.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Sequence

from migrator.analysis import accelerators, mentions, traces
from migrator.analysis.devices import ladders
from migrator.analysis.flow import RANK_NAME, TENSOR_TYPE, Flow, Kind, is_option, option_name
from migrator.analysis.libraries import MODULES, matters
from migrator.analysis.names import Names, argument
from migrator.analysis.ranks import Ranks, environment
from migrator.analysis.training import is_optimizer_step, rounds_without_gradients
from migrator.construct import Construct
from migrator.formats.embedded import (
    COMMAND,
    CONDA,
    OTHER,
    PYTHON,
    REQUIRED,
    REQUIREMENT,
    SETTING,
    TEXT,
    is_embedded,
)
from migrator.formats.python import decode
from migrator.targets import RUNTIME, Target
from migrator.vocabulary import Vocabulary

VISIBLE = "CUDA_VISIBLE_DEVICES"

# What is found by more than its name: a file without any of these bytes, and without the words of
# the vocabulary, holds no construct and is not even parsed. The second pattern is asked only of
# files that speak of torch, since its words are common.
_TOKENS = re.compile(
    rb"cuda|cudnn|nccl|nvidia-smi|torchrun|XRT_|lightning|__cell__|__command__|__setting__|__text__|__requirement__|"
    rb"__constraint__|__conda__|__build__|__python__|__table__|__source__|__pixi__|_requires?\b|autocast|GradScaler|pin_memory|non_blocking|accelerator|DataParallel|"
    rb"LOCAL_RANK|WORLD_SIZE|local.rank|DistributedSampler|"
    + "|".join([*sorted(MODULES), *traces.LIBRARIES, *sorted(traces.OLDER_VARIABLES)]).encode()
)
_TORCH_TOKENS = re.compile(
    rb"Generator|get_device|set_default_device|inference_mode|no_grad|\.step\(|distributed|parallel"
    rb"|torch\.a(?:ll|ny)\(|CUDA_VISIBLE|[Oo]ut ?[Oo]f ?[Mm]emory"
    rb"|multiproc|futures|[Tt]hread|executor"
    rb"|(?:rank|gpu|dev|device)_?\w*\s*[,)]|to\(\s*\d|device=\s*\d|device\(\s*\d"
)


# What makes a program one that runs on a device, whatever the rules are about.
DEVICES = Vocabulary(
    names=frozenset({
        "torch.autocast", "torch.Tensor.cuda", "torch.nn.Module.cuda", "torch.nn.DataParallel",
        "torch.set_default_device",
    }),
    prefixes=("torch.accelerator", "torch.amp", "torch.cuda"),
)  # fmt: skip


def has_tokens(source: bytes) -> bool:
    """A cheap test: False means that the file holds no construct but for names of a vocabulary."""
    if _TOKENS.search(source):
        return True
    return b"torch" in source and (
        _TORCH_TOKENS.search(source) is not None or accelerators.TOKENS.search(source) is not None
    )


def is_foreign(source: bytes, target: Target) -> bool:
    """True for code, and for lines of commands, that name the library of another target."""
    libraries = traces.foreign_libraries(target.traces.library)
    if not any(library.encode() in source for library in libraries):
        return False
    try:
        tree = ast.parse(decode(source).text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return True
    said = {n.value for n in ast.walk(tree) if isinstance(n, ast.Expr)}  # docstrings
    return any(_names_any(node, libraries) for node in ast.walk(tree) if node not in said)


def _names_any(node: ast.AST, libraries: Sequence[str]) -> bool:
    match node:
        case ast.ImportFrom(module=str(text)) | ast.alias(name=text) | ast.Name(id=text):
            return any(library in text for library in libraries)
        case ast.Constant(value=str(text)) | ast.Attribute(attr=text):
            return any(library in text for library in libraries)
    return False


def is_around(construct: Construct) -> bool:
    """True for what concerns a target's library, or the machine, where a program is one for it."""
    kinds = ("command", "requirement", "setting", "variable")
    return construct.kind in kinds or construct.key.startswith(traces.LIBRARIES)


_BY_SHAPE = ("cuda", "is_cuda", "get_device", "to", "step", "unclear step", "type", "device")
_MODULE_TEXT = re.compile(r"torch\.cuda(?:\.\w+)*\Z")
_OF_MEMORY = re.compile(r"(?:CUDA(?: error)?:? )?out of memory\.?\Z")
_PINNED = ("pin_memory", "pin_memory_device")
_DEVICE_TEXT = re.compile(r"cuda(?::(?:\d+|%[ds]|\{[^}]*\})?)?\Z")


def find(
    names: Names,
    flow: Flow,
    vocabulary: Vocabulary,
    package: str = "",
    ranks: Ranks | None = None,
) -> Iterator[Construct]:
    """All GPU constructs of a file, in source order, outer before inner.

    `vocabulary` are the names that count: those of the rules, or `DEVICES` for whoever only asks
    what kind of program it is.

    `package` is the one that the file is in, from where relative imports lead.
    """
    part_of_found: set[ast.AST] = set()
    rounds = set(rounds_without_gradients(names, flow))
    docstrings = _docstrings(names)
    undone = _undone(names, ranks or Ranks(names, flow))
    rungs = ladders(names, flow)
    for node in names.order:
        if node in undone:
            yield Construct("ranks", "undone", node)
        if node in rungs:
            yield Construct("ladder", "device", node)
        if isinstance(node, ast.Import | ast.ImportFrom) and vocabulary.own:
            yield from _own_imports(names, node, vocabulary, package)
        match node:
            case ast.Name() if not isinstance(node.ctx, ast.Load):
                continue
            case ast.Attribute() | ast.Name():
                if node in part_of_found:
                    if isinstance(node, ast.Attribute):
                        part_of_found.add(node.value)
                    continue
                construct = _own(names, node, vocabulary, package)
                construct = construct or _reference(names, flow, node, vocabulary)
                if construct is not None:
                    if construct.kind != "method" and isinstance(node, ast.Attribute):
                        part_of_found.add(node.value)
                    yield construct
            case ast.Constant(value=str()) if node not in docstrings:
                yield from _string(names, node, vocabulary)
            case ast.JoinedStr(values=[ast.Constant(value=str(head)), *_]):
                if head.startswith("cuda:") or (head == "cuda" and len(node.values) == 1):
                    yield Construct("string", "cuda", node)
            case ast.Call():
                yield from _arguments(names, flow, node, vocabulary)
                yield from _embedded(names, node, vocabulary)
                yield from _required(names, node)
                if environment(names, node):
                    yield Construct("ranks", "environment", node)
                if is_option(node) and option_name(node) == "local_rank":
                    yield Construct("ranks", "option", node)
            case ast.Subscript() | ast.Compare() if environment(names, node):
                yield Construct("ranks", "environment", node)
            case ast.Dict():
                for key, value in zip(node.keys, node.values, strict=True):
                    if isinstance(key, ast.Constant) and key.value in _PINNED and not _false(value):
                        yield Construct("keyword", str(key.value), key)
            case ast.Assign(targets=[ast.Subscript(slice=ast.Constant(value=str(key)))]):
                if key in _PINNED and not _false(node.value):
                    yield Construct("keyword", key, node)
            case ast.If() | ast.IfExp() | ast.While() | ast.Assert() if _reads_values(names, node):
                yield Construct("branch", "values", node)
            case ast.For() | ast.While() if node in rounds:
                yield Construct("loop", "without gradients", node)
            case ast.Import():
                for alias in node.names:
                    yield from _library(alias, [alias.name])
            case ast.ImportFrom(level=0, module=str(module), names=[ast.alias(name="*")]) if (
                module.startswith(vocabulary.stars)
            ):
                yield Construct("star", module, node)
            case ast.ImportFrom(level=0, module=str(module)):
                yield from _library(node, [f"{module}.{alias.name}" for alias in node.names])


def _library(node: ast.AST, modules: Sequence[str]) -> Iterator[Construct]:
    """The library that an import brings, if it is one for CUDA or another accelerator alone."""
    for module in modules:
        head, _, rest = module.partition(".")
        for name in (head, f"{head}.{rest.partition('.')[0]}"):
            if name in MODULES:
                yield Construct("library", name, node)
                return
            if name in accelerators.LIBRARIES:
                yield Construct("accelerator library", name, node)
                return


def _own(
    names: Names, node: ast.Attribute | ast.Name, vocabulary: Vocabulary, package: str
) -> Construct | None:
    """A name that the project replaces; what an import brings is a matter of that import."""
    if not vocabulary.own or not isinstance(node, ast.Attribute):
        return None
    qualname = absolute(names.qualified(node) or "", package)
    return Construct("own", qualname, node) if qualname in vocabulary.own else None


def _own_imports(
    names: Names, node: ast.Import | ast.ImportFrom, vocabulary: Vocabulary, package: str
) -> Iterator[Construct]:
    for alias in node.names:
        qualname = imported_name(node, alias, package)
        if alias.name == "*":
            taken = [key for key in vocabulary.own if key.rpartition(".")[0] == qualname[:-2]]
            used = (key.rpartition(".")[2] in names.by_id for key in taken)
            if any(used):
                yield Construct("own import", qualname, alias)
        elif qualname in vocabulary.own and (alias.asname or isinstance(node, ast.ImportFrom)):
            yield Construct("own import", qualname, alias)


def imported_name(
    statement: ast.Import | ast.ImportFrom, alias: ast.alias, package: str = ""
) -> str:
    """What an import takes, by its full name."""
    if isinstance(statement, ast.Import):
        return alias.name
    module = "." * statement.level + (statement.module or "")
    return absolute(f"{module}{'' if module.endswith('.') else '.'}{alias.name}", package)


def absolute(qualname: str, package: str) -> str:
    """`..ops.f` as it is called from outside."""
    level = len(qualname) - len(qualname.lstrip("."))
    if not level or not package:
        return qualname
    outer = package.split(".")
    return ".".join([*outer[: len(outer) + 1 - level], qualname.lstrip(".")])


def _reads_values(names: Names, node: ast.If | ast.IfExp | ast.While | ast.Assert) -> bool:
    """Whether the forward pass of a model decides by what is in a tensor."""
    test = node.test.operand if isinstance(node.test, ast.UnaryOp) else node.test
    function = names.function(node)
    return (
        isinstance(test, ast.Call)
        and names.qualified(test.func) in ("torch.all", "torch.any")
        and function is not None
        and function.name == "forward"
        and isinstance(names.parents.get(function), ast.ClassDef)
    )


def _undone(names: Names, ranks: Ranks) -> set[ast.AST]:
    """Numbers of ranks that a target with one process for all has to see as 1."""
    if not ranks.reductions() and not ranks.gathers() and "len" not in names.by_id:
        return set()
    direct = "torch.distributed.get_world_size"  # which stays
    return {
        n for n in ranks.undone if not isinstance(n, ast.Call) or names.qualified(n.func) != direct
    }


def _reference(
    names: Names, flow: Flow, node: ast.Attribute | ast.Name, vocabulary: Vocabulary
) -> Construct | None:
    qualname = names.qualified(node)
    if qualname is not None:
        if qualname.startswith(vocabulary.libraries) and not names.is_plainly_imported(node):
            return None
        if vocabulary.includes(qualname):
            stored = not isinstance(node.ctx, ast.Load) and not qualname.startswith(
                "torch.backends."
            )
            return Construct("store" if stored else "name", qualname, node)
        if qualname in ("torch.device", "torch.Generator"):
            return _device_call(names, flow, node, qualname)
        accelerator = accelerators.of_name(qualname)
        if accelerator is not None:
            return Construct("accelerator", accelerator, node)
        if qualname.startswith(("torch.", f"{RUNTIME}.")):
            return None
    if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Load):
        return None
    call = names.call_of(node)
    kind = None
    if node.attr == "cuda":
        tensors = Kind.TENSOR | Kind.MODULE
        if call is not None or flow.kind(node.value) & tensors or _passed_on(names, node):
            kind = "cuda"
    elif node.attr == "is_cuda":
        kind = "is_cuda"
    elif call is not None and qualname is None and (accelerator := accelerators.moves(call)):
        return None if node.attr in names.owners else Construct("accelerator", accelerator, node)
    elif call is not None:
        if node.attr in vocabulary.methods and node.attr not in _BY_SHAPE:
            kind = node.attr
        elif node.attr == "get_device" and not call.args and not call.keywords:
            kind = "get_device" if qualname is None and "get_device" not in names.owners else None
        elif node.attr == "to" and call.args and is_device_index(names, flow, call.args[0]):
            kind = "to"
        elif node.attr == "step" and not names.never_runs(node):
            verdict = is_optimizer_step(names, flow, call)
            kind = {True: "step", None: "unclear step", False: None}[verdict]
        elif node.attr == "type" and len(call.args) == 1:
            kind = "type" if flow.kind(call.args[0]) & Kind.TENSOR_TYPE else None
    return Construct("method", kind, node) if kind else None


def is_device_index(names: Names, flow: Flow, node: ast.expr) -> bool:
    """True for an integer that stands for a CUDA device: a literal, a rank, `args.gpu`."""
    kind = flow.kind(node)
    if kind & Kind.DEVICE_INT:
        return True
    if isinstance(node, ast.Constant):
        return bool(kind & Kind.INT)
    if kind != Kind.INT or not isinstance(node, ast.Name | ast.Attribute):
        return False
    name = node.id if isinstance(node, ast.Name) else node.attr
    return RANK_NAME.search(name) is not None or flow.is_device(node)


def _device_call(names: Names, flow: Flow, node: ast.expr, qualname: str) -> Construct | None:
    call = names.call_of(node)
    if call is None:
        return None
    if qualname == "torch.Generator":
        device = argument(call, 0, "device")
        cpu = device is not None and flow.kind(device) == Kind.CPU
        return None if device is None or cpu else Construct("name", qualname, node)
    first = argument(call, 0, "device", "type")
    if first is not None and is_device_index(names, flow, first):
        return Construct("name", qualname, node)
    return None


# What Lightning's Trainer is told of GPUs; these choose nothing of them.
_TRAINER = re.compile(r"(?:pytorch_)?lightning\b.*\.(?:Trainer|Fabric)\Z")
_NO_GPU = ("cpu", "auto", "tpu", None, 0)


def _arguments(
    names: Names, flow: Flow, call: ast.Call, vocabulary: Vocabulary
) -> Iterator[Construct]:
    trainer = _TRAINER.match(names.qualified(call.func) or "") is not None
    for keyword in call.keywords:
        if keyword.arg == VISIBLE:
            yield Construct("variable", VISIBLE, keyword)
        if trainer and keyword.arg in ("accelerator", "gpus"):
            value = keyword.value
            if not isinstance(value, ast.Constant) or value.value not in _NO_GPU:
                yield Construct("keyword", f"lightning {keyword.arg}", keyword)
        if keyword.arg in vocabulary.keywords and keyword.arg not in _BY_SHAPE:
            if not _false(keyword.value):
                yield Construct("keyword", keyword.arg, keyword)
        elif keyword.arg == "device" and is_device_index(names, flow, keyword.value):
            called = names.qualified(call.func) or ""
            moves = isinstance(call.func, ast.Attribute) and call.func.attr == "to"
            if moves or (called.startswith("torch.") and not called.startswith("torch.cuda.")):
                yield Construct("keyword", "device", keyword)


def _string(names: Names, node: ast.Constant, vocabulary: Vocabulary) -> Iterator[Construct]:
    text = str(node.value)
    parent = names.parents.get(node)
    if (accelerator := accelerators.named(text)) and takes_device(names, node, parent):
        yield Construct("accelerator", accelerator, node)
    if text in vocabulary.variables and (text != VISIBLE or _is_of_environment(names, parent)):
        yield Construct("variable", text, node)
    if _OF_MEMORY.match(text) and _is_sought_in_error(names, parent):
        yield Construct("string", "out of memory", node)
    if "cuda" not in text:
        return
    if isinstance(parent, ast.JoinedStr | ast.FormattedValue) or is_embedded(parent):
        return
    if _DEVICE_TEXT.match(text):
        yield Construct("string", "cuda", node)
    elif TENSOR_TYPE.match(text):
        yield Construct("tensor_type", text, node)
    elif _MODULE_TEXT.match(text):
        yield Construct("string", "torch.cuda", node)
    elif text == "is_cuda" and isinstance(parent, ast.Call):
        if (names.qualified(parent.func) or "") in ("getattr", "operator.attrgetter"):
            yield Construct("string", "is_cuda", node)


_ENVIRONMENT = ("os.environ.", "os.getenv", "os.putenv", "os.unsetenv")


def _is_of_environment(names: Names, parent: ast.AST | None) -> bool:
    """`os.environ["…"]`, `os.environ.setdefault("…", …)`, `os.getenv("…")`, `{"…": …}`"""
    match parent:
        case ast.Subscript(value=owner) | ast.Compare(comparators=[owner]):
            return names.qualified(owner) == "os.environ"
        case ast.Call(func=function):
            return (names.qualified(function) or "").startswith(_ENVIRONMENT)
    return isinstance(parent, ast.Dict)  # the environment of a child, too


def _is_sought_in_error(names: Names, parent: ast.AST | None) -> bool:
    """`"out of memory" in str(error)`"""
    match parent:
        case ast.Compare(
            ops=[ast.In() | ast.NotIn()],
            comparators=[ast.Call(func=ast.Name(id="str" | "repr"), args=[ast.Name() as error])],
        ):
            return any(binding.kind == "except" for binding in names.lookup(error))
    return False


def takes_device(names: Names, node: ast.expr, parent: ast.AST | None) -> bool:
    """Whether a value stands where nothing but a device can stand."""
    match parent:
        case ast.keyword(arg="device" | "map_location"):
            return True
        case ast.Call(func=func, args=[first, *_]) if first is node:
            moves = isinstance(func, ast.Attribute) and func.attr == "to"
            return moves or names.qualified(func) in ("torch.device", "torch.set_default_device")
    return False


def _embedded(names: Names, call: ast.Call, vocabulary: Vocabulary) -> Iterator[Construct]:
    """What a shell is told to do, a requirement, or text that is not looked into."""
    function = call.func.id if isinstance(call.func, ast.Name) else ""
    match call.args:
        case [ast.Constant(value=str(text)) as node, *_]:
            if function == OTHER:
                code = text.encode(errors="replace")
                if has_tokens(code) or vocabulary.may_be_in(code):
                    yield Construct("command", "other", node)
            elif function in REQUIRED:
                for_python = function == PYTHON or (function == CONDA and _PYTHON.match(text))
                if for_python or matters(mentions.without_comment(text)):
                    yield Construct("requirement", _REQUIRED[function], node)
            elif function == SETTING:
                if (key := mentions.setting(text)) is not None:
                    yield Construct("setting", key, node)
            elif function == TEXT:
                if mentions.setting(text) is not None:
                    yield Construct("setting", "text", node)
            elif function == COMMAND or names.qualified(call.func) == "os.system":
                if (key := mentions.command(text)) is not None:
                    yield Construct("command", key, node)
            elif names.qualified(call.func) in _CHILDREN:
                if mentions.command(text) is not None:
                    yield Construct("command", "child", node)
        case [ast.List(elts=parts) as node, *_] if names.qualified(call.func) in _CHILDREN:
            words = [str(p.value) for p in parts if isinstance(p, ast.Constant)]
            if mentions.command(" ".join(words)) is not None:
                yield Construct("command", "child", node)


def beside(
    found: Construct, text: str, done: Collection[str], kept: Collection[str]
) -> Construct | None:
    """What else a line says of GPUs, beside what is `done` already."""
    key = None
    if found.kind == "setting" and found.key != "text":
        key = mentions.setting(text, done)
    elif found.kind == "command" and found.key not in ("child", "other"):
        key = mentions.command(text, done, kept)
    return Construct(found.kind, key, found.node, text) if key is not None else None


_CHILDREN = frozenset({
    *(f"subprocess.{f}" for f in ("run", "call", "check_call", "check_output", "Popen",
                                  "getoutput", "getstatusoutput")),
    "os.popen",
})  # fmt: skip


def _required(names: Names, call: ast.Call) -> Iterator[Construct]:
    """What setup.py says that has to be installed, and for which Pythons."""
    if (names.qualified(call.func) or "") not in SETUP:
        return
    found: dict[ast.Constant, str] = {}
    for keyword in call.keywords:
        if key := _ARGUMENTS.get(keyword.arg or ""):
            for node, plainly in _texts(names, keyword.value):
                listed = isinstance(names.parents[node], ast.List | ast.Tuple | ast.Set)
                plainly = plainly and listed and "\n" not in str(node.value)
                found.setdefault(node, key if plainly or key == "python" else "text")
    for node, key in found.items():
        if key == "python" or matters(str(node.value)):
            yield Construct("requirement", key, node)


def _texts(
    names: Names, value: ast.AST | None, known: frozenset[str] = frozenset(), plainly: bool = True
) -> Iterator[tuple[ast.Constant, bool]]:
    """The strings of a list, however it comes about: sums, names, dicts, what is appended later.

    With whether all of a list is meant, not what a comprehension makes of it.
    """
    parts: Sequence[ast.AST | None] = ()
    match value:
        case ast.Constant(value=str()):
            yield value, plainly
        case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Set(elts=parts):
            pass
        case ast.Dict(values=parts) | ast.JoinedStr(values=parts):
            pass
        case ast.BinOp(left=left, op=ast.Add() | ast.Mod(), right=right):
            parts = left, right
        case ast.IfExp(body=left, orelse=right):
            parts = left, right
        case ast.Starred(value=inner) | ast.Subscript(value=inner) | ast.Return(value=inner):
            parts = (inner,)
        case (
            ast.DictComp(generators=rounds)
            | ast.ListComp(generators=rounds)
            | ast.GeneratorExp(generators=rounds)
        ):
            parts, plainly = [each.iter for each in rounds], False
        case ast.Call(func=ast.Attribute(value=inner, attr="split" | "splitlines" | "copy")):
            parts = (inner,)
        case ast.Call(func=ast.Name(id="list" | "sorted" | "dict"), args=arguments):
            parts = [*arguments, *(keyword.value for keyword in value.keywords)]
        case ast.Call(func=ast.Name(id=name) as function) if name not in known:
            known |= {name}
            parts = [
                node
                for bound in names.lookup(function)
                for node in (ast.walk(bound.node) if bound.kind == "def" else ())
                if isinstance(node, ast.Return)
            ]
        case ast.Name(id=name) if name not in known:
            known |= {name}
            assigned = [b.value for b in names.lookup(value) if b.kind == "assign"]
            parts = [*assigned, *(_added(names, use) for use in names.by_id.get(name, ()))]
    for part in parts:
        yield from _texts(names, part, known, plainly)


def _added(names: Names, use: ast.AST) -> ast.expr | None:
    """What `x.append(…)`, `x += …` and `x["y"] = …` put into `x`."""
    match names.parents.get(use):
        case ast.AugAssign(target=target, value=value) if target is use:
            return value
        case ast.Attribute(attr="append" | "extend" | "update") as method:
            call = names.parents.get(method)
            return call.args[0] if isinstance(call, ast.Call) and call.args else None
        case ast.Subscript(value=inner, ctx=ast.Store()) as part if inner is use:
            stored = names.parents.get(part)
            return stored.value if isinstance(stored, ast.Assign | ast.AugAssign) else None
    return None


SETUP = ("setuptools.setup", "distutils.core.setup")
_ARGUMENTS = {
    "install_requires": "package", "extras_require": "package", "tests_require": "package",
    "setup_requires": "build", "python_requires": "python",
}  # fmt: skip
_REQUIRED = {each: each.strip("_") for each in REQUIRED} | {REQUIREMENT: "package"}
_PYTHON = re.compile(r"(?:[\w./-]+::)?python[\s=<>~!]")


def _passed_on(names: Names, node: ast.Attribute) -> bool:
    """`self.cuda = model.cuda`, `wrap(model.cuda)`: the method itself as a value of a model."""
    return False if names.parents.get(node) is None else bool(re.match(
        r"(?:net|model|module)", ast.unparse(node.value).rpartition(".")[2]
    ) and isinstance(names.parents[node], ast.Call | ast.Assign))  # fmt: skip


def _docstrings(names: Names) -> set[ast.AST]:
    found: set[ast.AST] = set()
    for owner in names.scopes:
        body = getattr(owner, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            found.add(body[0].value)
    return found


def _false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and not node.value
