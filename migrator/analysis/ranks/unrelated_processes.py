"""Processes that a program starts beside its ranks, and that have nothing to do with them.

A process is a rank only if it joins the others. What it runs is followed by names: a name refers to
all functions and classes of that name, and to all methods.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterable, Iterator

from migrator.analysis.ranks.vocabulary import BY_LIBRARIES, STARTS
from migrator.analysis.syntax.names import DEFINITIONS, Names
from migrator.analysis.syntax.nodes import argument

# The definitions of a name in a program, each with the names of its file.
Find = Callable[[str], Iterable[tuple[Names, ast.AST]]]

PROCESSES = ("multiprocessing.Process", "torch.multiprocessing.Process")
CONTEXTS = ("multiprocessing.get_context", "torch.multiprocessing.get_context")
# What a context of multiprocessing has beside processes and pools.
_NO_PROCESSES = frozenset({
    "Value", "Array", "RawValue", "RawArray", "Lock", "RLock", "Semaphore", "BoundedSemaphore",
    "Condition", "Event", "Barrier", "Queue", "SimpleQueue", "JoinableQueue", "Pipe", "_name",
    "get_start_method", "cpu_count", "Manager", "current_process",
})  # fmt: skip
_ON_A_POOL = frozenset({
    "map", "map_async", "imap", "imap_unordered", "starmap", "starmap_async", "apply",
    "apply_async", "submit",
})  # fmt: skip
_BUILT_IN = frozenset(dir(builtins))
# Libraries whose functions and classes start ranks, or join them.
_JOINING = frozenset({
    "accelerate", "catalyst", "colossalai", "composer", "deepspeed", "fairscale", "fastai",
    "horovod", "ignite", "lightning", "lightning_fabric", "megatron", "mmcv", "mmengine",
    "pytorch_lightning", "ray", "torchelastic", "trl", "vllm",
})  # fmt: skip


def definitions(names: Names, name: str) -> Iterator[tuple[Names, ast.AST]]:
    """The functions, classes and methods of one file with a name."""
    scopes = [names.top, *(names.scopes[owner] for owner in names.owners.get(name, ()))]
    for scope in scopes:
        for binding in scope.bindings.get(name, ()):
            if isinstance(binding.node, DEFINITIONS):
                yield names, binding.node


def are_unrelated(names: Names, node: ast.expr, find: Find) -> bool:
    """Whether no process is started, or one that is shown to join no ranks."""
    call = names.call_of(node)
    if call is None:
        return False
    if names.qualified(node) in PROCESSES:
        return _runs_nothing(names, call, find)
    return all(_is_harmless(names, use, find) for use in _uses(names, call))


def _uses(names: Names, context: ast.Call) -> Iterator[ast.expr]:
    """Where `get_context(…)` is used, also by the name that it is bound to."""
    match names.parents.get(context):
        case ast.Assign(targets=[ast.Name() as bound]) if len(names.lookup(bound)) == 1:
            yield from names.loads(bound)
        case _:
            yield context


def _is_harmless(names: Names, context: ast.expr, find: Find) -> bool:
    """Whether such a use starts nothing, or processes that join no ranks."""
    match names.parents.get(context):
        case ast.Attribute(attr=attr) if attr in _NO_PROCESSES:
            return True
        case ast.Attribute(attr="Pool") | ast.keyword(arg="mp_context"):
            run = [*_on_pools(names)]
            return bool(run) and all(_joins_nothing(names, each, find) for each in run)
        case ast.Attribute(attr="Process") as made:
            call = names.call_of(made)
            return call is not None and _runs_nothing(names, call, find)
    return False


def _on_pools(names: Names) -> Iterator[ast.expr]:
    """The functions that a file's pools run."""
    for call in names.all(ast.Call):
        if isinstance(call.func, ast.Attribute) and call.func.attr in _ON_A_POOL and call.args:
            yield call.args[0]
        yield from (k.value for k in call.keywords if k.arg == "initializer")


def _runs_nothing(names: Names, process: ast.Call, find: Find) -> bool:
    target = argument(process, 1, "target")
    return target is not None and _joins_nothing(names, target, find)


def _joins_nothing(names: Names, function: ast.expr, find: Find) -> bool:
    match function:
        case ast.Lambda():
            return not _joins(names, [function], find)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            is_known = names.qualified(function) in _BUILT_IN or any(True for _ in find(name))
            return is_known and not _joins(names, [function], find)
    return False


def _joins(names: Names, run: Iterable[ast.AST], find: Find) -> bool:
    """Whether some code, or what it names, joins ranks or starts some."""
    queue, seen = [(names, node) for node in run], set[str]()
    while queue:
        at, code = queue.pop()
        for part in _parts(code):
            match part:
                case ast.Name(id=word) | ast.Attribute(attr=word):
                    if _is_joining(at, part):
                        return True
                case ast.Constant(value=str(text)):
                    word = text.rpartition(".")[2]
                case _:
                    continue
            if word not in seen:
                seen.add(word)
                queue += find(word)
    return False


def _parts(code: ast.AST) -> Iterator[ast.AST]:
    """The nodes of some code; of a class, without the methods that have a name of their own."""
    if not isinstance(code, ast.ClassDef):
        yield from ast.walk(code)
        return
    for statement in code.body:
        if not isinstance(statement, DEFINITIONS) or statement.name.startswith("__"):
            yield from ast.walk(statement)


def _is_joining(names: Names, node: ast.expr) -> bool:
    name = names.qualified(node) or ""
    if name in STARTS or name in BY_LIBRARIES:
        return names.call_of(node) is not None or not isinstance(names.parents.get(node), ast.Call)
    return name.startswith("transformers.Trainer") or name.partition(".")[0] in _JOINING
