"""What a program needs of the runtime: the words of its code, and the names that it uses of it."""

from __future__ import annotations

import ast
import builtins
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence, Set

from migrator.analysis import traces
from migrator.analysis.usual import is_usual
from migrator.formats.python import decode
from migrator.runs.bundle import UNUSUAL, USUAL, Needs
from migrator.targets import RUNTIME

UNNAMED = "<unnamed>"  # the word for code that computes the names of what it runs
LOOP = "<loop>"  # the word for code that may call a model more than once
MOST = 400_000  # bytes of a program that is looked at; a larger one gets all

# Libraries whose use of torch is known: they have no use of it, or what they call is named by who
# calls them. (A file of the runtime that torchvision needs has its name among its words.)
_KNOWN = frozenset({
    "torch", "torchvision", "jax", "numpy", "PIL", "tqdm", "matplotlib",
    "pandas", "requests", "yaml", "cv2", "imageio", "scipy", "skimage", "sklearn", "seaborn",
    "safetensors", "einops", "rich", "click", "termcolor", "colorama", "psutil", "six", "attr",
    "tabulate", "prettytable", "h5py", "regex", "joblib", "tiktoken", "sentencepiece", "tokenizers",
    "ftfy", "nltk", "loguru", "soundfile", "librosa", "lmdb", "pycocotools", "networkx",
    *traces.MODULES,
})  # fmt: skip
# Code that is not named where it runs.
_DYNAMIC = frozenset({"import_module", "__import__", "runpy", "_target_", "exec_module", "hub"})
_RUNNING = frozenset({"exec", "eval"})
# What makes objects whose classes the program may not name: whole modules, saved as they were.
_UNPICKLING = frozenset({
    "pickle", "cloudpickle", "dill", "joblib", "add_safe_globals", "safe_globals",
})  # fmt: skip
# What calls a function that it is given, again and again.
_REPEATING = frozenset({
    "map", "imap", "imap_unordered", "starmap", "submit", "apply", "apply_async", "filter",
    "Thread", "Process", "Timer", "timeit", "HTTPServer", "ThreadingHTTPServer", "TCPServer",
    "FuncAnimation", "partial_fit", "run_in_executor", "to_thread", "gather", "create_task",
})  # fmt: skip
# Methods that never call a model, whatever they are called on.
_PLAIN = frozenset({
    "item", "tolist", "numpy", "cpu", "detach", "size", "dim", "numel", "argmax", "argmin", "max",
    "min", "sum", "mean", "topk", "softmax", "float", "int", "long", "squeeze", "unsqueeze",
    "reshape", "view", "permute", "transpose", "to", "clone", "append", "extend", "insert", "pop",
    "add", "update", "get", "setdefault", "items", "keys", "values", "index", "count", "sort",
    "join", "split", "strip", "rstrip", "lstrip", "format", "replace", "startswith", "endswith",
    "lower", "upper", "title", "encode", "decode", "zfill", "ljust", "rjust", "center",
    "splitlines", "read", "readline", "readlines", "write", "writerow", "flush", "close", "open",
    "save", "convert", "resize", "exists", "glob", "iterdir", "is_file", "is_dir", "mkdir",
    "joinpath", "read_text", "read_bytes", "requires_grad_", "named_parameters", "parameters",
})  # fmt: skip
_BUILTINS = frozenset(vars(builtins)) - _REPEATING
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")


def needs(files: Iterable[tuple[bytes, Callable[[str], bool]]]) -> Needs | None:
    """The needs of a program that consists of some files; None where they cannot be told.

    Beside each file: whether a module that it imports is one of the files.
    """
    words: set[str] = set()
    names: set[str] = set()
    usual = True
    for source, is_own in files:
        try:
            nodes = list(ast.walk(ast.parse(decode(source).text)))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
        modules = _modules(nodes)
        libraries = {module.partition(".")[0] for module in modules}
        unknown = libraries - _KNOWN - sys.stdlib_module_names
        if not all(is_own(module) for module in modules if module.partition(".")[0] in unknown):
            return None
        used = _names_of_runtime(nodes)
        if used is None:
            return None
        names |= used
        words |= set(_words(nodes))
        if words & _DYNAMIC or any(isinstance(n, ast.Name) and n.id in _RUNNING for n in nodes):
            return None
        if words & _UNPICKLING or any(map(_loads_objects, nodes)):
            return None
        if _computes_names(nodes):
            words.add(UNNAMED)
        inner = set(_inside_models(nodes))
        loops = (node for node in nodes if node not in inner)
        if words & _REPEATING or any(_may_repeat(node, libraries) for node in loops):
            words.add(LOOP)
        usual = usual and LOOP not in words and is_usual(nodes)
    words.add(USUAL if usual else UNUSUAL)
    return Needs(words, names)


def _modules(nodes: Iterable[ast.AST]) -> set[str]:
    found: set[str] = set()
    for node in nodes:
        match node:
            case ast.Import(names=aliases):
                found.update(alias.name for alias in aliases)
            case ast.ImportFrom(level=0, module=str(module)):
                found.add(module)
    return found


def _names_of_runtime(nodes: Iterable[ast.AST]) -> set[str] | None:
    """The names that are used of the runtime; None where it goes somewhere else as a whole."""
    used: set[str] = set()
    bound: set[str] = set()
    uses: list[ast.Name] = []
    owners: set[ast.AST] = set()
    for node in nodes:
        match node:
            case ast.Import(names=aliases):
                for alias in aliases:
                    head, _, inner = alias.name.partition(".")
                    if head == RUNTIME:
                        bound.add(alias.asname or head)
                        used.update(inner.split(".")[:1] if inner else ())
            case ast.ImportFrom(level=0, module=str(module), names=aliases):
                head, _, inner = module.partition(".")
                if head == RUNTIME:
                    used.update([inner.partition(".")[0]] if inner else (a.name for a in aliases))
            case ast.Attribute(value=ast.Name() as owner):
                owners.add(owner)
            case ast.Name():
                uses.append(node)
    for node in nodes:
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name in bound:
                used.add(attribute)
    if "*" in used or any(use.id in bound and use not in owners for use in uses):
        return None
    return used


def _words(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                yield name
            case ast.keyword(arg=str(name)):
                yield name
            case ast.alias(name=name):
                yield from name.split(".")
            case ast.ImportFrom(module=str(name)):
                yield from name.split(".")
            case ast.Constant(value=str(text)) if len(text) < 200:
                yield from _IDENTIFIER.findall(text)  # for getattr, and settings
        match node:
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
                yield f"{name}("


def _loads_objects(node: ast.AST) -> bool:
    """`torch.load(…, weights_only=False)`: else it takes nothing but tensors and containers."""
    match node:
        case ast.keyword(arg="weights_only", value=ast.Constant(value=True)):
            return False
        case ast.keyword(arg="weights_only"):
            return True
    return False


def _computes_names(nodes: Sequence[ast.AST]) -> bool:
    """`getattr(models, args.arch)`, `models.__dict__[args.arch]`, `get_model(args.arch)`"""
    said = set()  # `getattr(model, "fc")`
    for node in nodes:
        match node:
            case ast.Call(func=ast.Name() as function, args=[_, ast.Constant(), *_]):
                said.add(function)
    for node in nodes:
        match node:
            case ast.Name(id=name) if node in said and name == "getattr":
                continue
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name):
                if name in _BY_NAME:
                    return True
    return False


_BY_NAME = frozenset({
    "getattr", "vars", "globals", "locals", "__dict__", "__getattribute__", "attrgetter",
    "methodcaller", "get_model", "get_model_builder", "create_model",
})  # fmt: skip


def _inside_models(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """What runs inside of one call of a model, or makes one."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef) and node.name in ("forward", "__init__"):
            yield from ast.walk(node)


def _may_repeat(node: ast.AST, libraries: Set[str]) -> bool:
    """Whether it is a loop in which a model may be called."""
    match node:
        case ast.While() | ast.For() | ast.AsyncFor():
            inside: list[ast.AST] = [*node.body]
            if isinstance(node, ast.While):
                inside.append(node.test)
        case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
            first, *others = node.generators
            values = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
            inside = [*values, *first.ifs, *others]  # what is gone through is computed once
        case _:
            return False
    calls = (n for part in inside for n in ast.walk(part) if isinstance(n, ast.Call))
    return not all(_is_plain(call.func, libraries) for call in calls)


def _is_plain(function: ast.expr, libraries: Set[str]) -> bool:
    """Whether what is called is no model: a function of Python's, or of a library."""
    match function:
        case ast.Name(id=name):
            return name in _BUILTINS
        case ast.Attribute(attr=name):
            if name in _PLAIN:
                return True
            while isinstance(function, ast.Attribute):
                function = function.value
            return isinstance(function, ast.Name) and function.id in libraries
    return False
