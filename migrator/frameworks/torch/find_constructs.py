"""What counts as a GPU construct. Only this file decides what must be accounted for.

Each construct that `find` yields ends as exactly one of rewritten, kept or reported.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence, Set
from typing import TYPE_CHECKING

from migrator.analysis import (
    find_absent_names,
    find_old_arithmetic,
    find_removed_names,
    find_version_checks,
    old_calls,
    old_images,
    old_numbers,
    old_shapes,
)
from migrator.analysis.construct_names import Vocabulary
from migrator.analysis.cuda_libraries import MODULES, may_concern_device
from migrator.analysis.devices import other_accelerators
from migrator.analysis.devices.device_selection import ladders
from migrator.analysis.devices.string_operations import takes_name_apart
from migrator.analysis.project.imports_by_name import IMPORTING
from migrator.analysis.ranks.file_ranks import Ranks
from migrator.analysis.ranks.started_processes import asks_other_launcher
from migrator.analysis.ranks.vocabulary import environment
from migrator.analysis.saved_objects import holds_objects, loaded_keys
from migrator.analysis.setup_py import required
from migrator.analysis.syntax.command_line import is_option, option_name
from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.nodes import dotted, is_given
from migrator.analysis.training.find_kv_caches import kv_passes
from migrator.analysis.training.find_masked_assignments import masked_assignment
from migrator.analysis.training.find_optimizer_steps import brings_batches, rounds_without_gradients
from migrator.analysis.training.kv_cache_argument import given_caches
from migrator.analysis.training.kv_cache_concat import grown_caches
from migrator.analysis.training.samplers import samplers_without_gradients
from migrator.analysis.training.sync_points import Hot
from migrator.analysis.training.token_loops import collecting_loop, token_loop
from migrator.analysis.training.token_positions import windows
from migrator.analysis.values.flow import Flow
from migrator.construct import Construct
from migrator.frameworks.by_name import own_imports, replaced_name
from migrator.frameworks.torch.construct_references import (
    may_be_method,
    reference_of,
)
from migrator.frameworks.torch.embedded_commands import doctests, embedded
from migrator.frameworks.torch.find_arguments import is_false, of_arguments
from migrator.frameworks.torch.find_ray_requests import of_ray
from migrator.frameworks.torch.find_trainers import of_trainers
from migrator.frameworks.torch.library_classes import LibraryClasses
from migrator.frameworks.torch.strings import strings
from migrator.frameworks.torch.trainer_arguments import VARIABLES, told_to_accelerate

if TYPE_CHECKING:
    from migrator.analysis.project.facts import ProjectFacts

_PINNED = ("pin_memory", "pin_memory_device")


def find(
    names: Names,
    flow: Flow,
    vocabulary: Vocabulary,
    package: str = "",
    ranks: Ranks | None = None,
    project: ProjectFacts | None = None,
    *,
    kinds: Set[str] | None = None,
) -> Iterator[Construct]:
    """All GPU constructs of a file, in source order, outer before inner.

    `kinds` are those that are asked for: others may be missing. The rest is as in `ModuleView`.
    """
    part_of_found = {*_inside_kernels(names)}
    marked = dict(_generation(names, flow, project)) if _is_asked(kinds, "loop", "cache") else {}
    undone = _undone(names, ranks or Ranks(names, flow)) if _is_asked(kinds, "ranks") else set()
    docstrings, rungs = _docstrings(names), ladders(names, flow)
    classes = LibraryClasses(names, project)
    has_trainers = classes.spoken_of and _is_asked(kinds, "trainer", "lightning")
    for node in names.order:
        if node in undone:
            yield Construct("ranks", "undone", node)
        if node in rungs:
            yield Construct("ladder", "device", node)
        if has_trainers:
            yield from of_trainers(classes, node)
        match node:  # the most frequent first
            case ast.Name() if not isinstance(node.ctx, ast.Load):
                continue
            case ast.Attribute() | ast.Name():
                if node in part_of_found:
                    if isinstance(node, ast.Attribute):
                        part_of_found.add(node.value)
                    continue
                yield from old_calls.find(names, node)
                if names.qualified(node) is None and not may_be_method(node, vocabulary):
                    continue  # most of them
                construct = _named(names, flow, node, vocabulary, package)
                if asks_other_launcher(names, node):
                    yield Construct("ranks", "other launcher", node)
                if construct is not None:
                    if construct.kind != "method" and isinstance(node, ast.Attribute):
                        part_of_found.add(node.value)
                    yield construct
            case ast.Constant(value=str(text)):
                if text in VARIABLES and not classes.take_settings:
                    yield from told_to_accelerate(names, node)
                of_docstring = node in docstrings
                yield from (doctests if of_docstring else _of_string)(names, node, vocabulary)
            case ast.For() | ast.While() | ast.Call() | ast.Subscript() if node in marked:
                yield Construct(*marked[node], node)
            case ast.Import() | ast.ImportFrom():
                yield from _of_import(names, node, vocabulary, package, project)
            case ast.stmt():
                yield from _of_statement(names, flow, node)
            case ast.expr() if type(node) in _EXPRESSIONS:
                yield from _of_expression(names, flow, node, vocabulary, project)


def _of_string(names: Names, node: ast.Constant, vocabulary: Vocabulary) -> Iterator[Construct]:
    yield from strings(names, node, vocabulary)
    if asks_other_launcher(names, node):
        yield Construct("ranks", "other launcher", node)


def _inside_kernels(names: Names) -> Iterator[ast.AST]:
    """What numba's kernels use of numba.cuda; each is one construct, by its decorator."""
    if "jit" in names.words:
        for node, name in names.meant:
            if name.startswith("numba.cuda.") and any(
                isinstance(above, ast.FunctionDef) and _is_kernel(names, above, node)
                for above in names.ancestors(node)
            ):
                yield node


def _is_kernel(names: Names, function: ast.FunctionDef, node: ast.AST) -> bool:
    decorators = [d.func if isinstance(d, ast.Call) else d for d in function.decorator_list]
    compiled = any(names.qualified(d) == "numba.cuda.jit" for d in decorators)
    return compiled and node not in decorators


def _named(
    names: Names, flow: Flow, node: ast.Attribute | ast.Name, vocabulary: Vocabulary, package: str
) -> Construct | None:
    """The construct that a name is."""
    construct = replaced_name(names, node, vocabulary, package)
    construct = construct or next(find_removed_names.find(names, node), None)
    construct = construct or reference_of(names, flow, node, vocabulary)
    if construct is not None and (construct.kind != "name" or construct.key in vocabulary.names):
        return construct
    return next(find_absent_names.find(names, node), construct)


def _is_asked(kinds: Set[str] | None, *some: str) -> bool:
    return kinds is None or not kinds.isdisjoint(some)


def _generation(
    names: Names, flow: Flow, project: ProjectFacts | None
) -> Iterator[tuple[ast.AST, tuple[str, str]]]:
    """Loops that train nothing, and text generation token by token, with their kind and key."""
    hot = Hot(names, flow)
    for evaluating in hot.evaluations:
        if brings_batches(flow, evaluating.iter):
            yield evaluating, ("loop", "with gradients")
    for sampling in samplers_without_gradients(names, flow):
        yield sampling, ("loop", "without gradients")
    for loop in rounds_without_gradients(names, flow):
        yield loop, ("loop", "without gradients")
        tokens = token_loop(names, flow, loop)
        if tokens is not None:
            yield tokens.joined.value, ("loop", "growing tokens")
        elif (kept := collecting_loop(names, flow, loop)) is not None:
            yield kept.joined.value, ("loop", "collected tokens")
    for grown in grown_caches(names, names.tree)[:1]:
        yield grown.caches[0].joined.value, ("cache", "grown")
    for given in given_caches(names, names.tree):
        yield given.joins[0].call, ("cache", "given")
    passes = kv_passes(names, names.tree)
    if passes:
        first = next(m.attention for m in passes if m.attention)
        yield first.cache.node, ("cache", "written")
    told = [*windows(hot)]
    if told and (passes or (project is not None and project.writes_caches())):
        yield from ((each.node, ("cache", "position")) for each in told)


_EXPRESSIONS = (ast.BinOp, ast.Call, ast.Compare, ast.Dict, ast.IfExp, ast.JoinedStr, ast.Subscript,
                ast.UnaryOp)  # fmt: skip


def _of_expression(
    names: Names,
    flow: Flow,
    node: ast.expr,
    vocabulary: Vocabulary,
    project: ProjectFacts | None,
) -> Iterator[Construct]:
    """The constructs that an expression itself is, except names and strings."""
    if takes_name_apart(names, flow, node):
        yield Construct("string", "device name", node)
    match node:
        case ast.JoinedStr(values=[ast.Constant(value=str(head)), *_]):
            if head.startswith("cuda:") or (head == "cuda" and len(node.values) == 1):
                yield Construct("string", "cuda", node)
        case ast.Call():
            yield from old_calls.find(names, node)
            if _loads_objects(names, project, node):
                yield Construct("changed", "pickle", node)
            yield from old_images.find(names, node)
            yield from old_shapes.find(names, flow, project, node)
            yield from of_arguments(names, flow, node, vocabulary)
            yield from of_ray(names, node)
            yield from embedded(names, node, vocabulary)
            yield from _named_by_string(names, node, project)
            for what, said in required(names, node):
                if what == "python" or may_concern_device(str(said.value)):
                    yield Construct("requirement", what, said)
            if _takes_module(names, flow, node):
                yield Construct("name", "torch.get_device_module", node)
            if environment(names, node):
                yield Construct("ranks", "environment", node)
            if is_option(node) and option_name(node) == "local_rank":
                yield Construct("ranks", "option", node)
        case ast.Subscript() | ast.Compare():
            if environment(names, node):
                yield Construct("ranks", "environment", node)
            if isinstance(node, ast.Subscript):
                yield from old_numbers.find(names, flow, project, node)
                yield from old_calls.find(names, node)
        case ast.Dict():
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and key.value in _PINNED and not is_false(value):
                    yield Construct("keyword", str(key.value), key)
        case ast.BinOp() | ast.UnaryOp():
            yield from find_old_arithmetic.find(names, node)
        case ast.IfExp() if _reads_values(names, node):
            yield Construct("branch", "values", node)


def _loads_objects(names: Names, project: ProjectFacts | None, load: ast.Call) -> bool:
    """Whether `torch.load` gets more than tensors, as this file shows, or another one that saves a
    checkpoint with such keys."""
    if names.qualified(load.func) != "torch.load" or is_given(load, "weights_only", 3):
        return False
    if holds_objects(names, load):
        return True
    keys = loaded_keys(names, load)
    return bool(keys) and project is not None and project.saves_objects_with(keys)


def _takes_module(names: Names, flow: Flow, call: ast.Call) -> bool:
    """`getattr(torch, device.type)`"""
    match call:
        case ast.Call(func=ast.Name(id="getattr"), args=[owner, name, *_]):
            chosen = not isinstance(name, ast.Constant) and flow.is_device(name)
            return chosen and names.qualified(owner) == "torch"
    return False


def _of_statement(names: Names, flow: Flow, node: ast.stmt) -> Iterator[Construct]:
    """The constructs that a statement other than an import itself is, without its parts."""
    yield from find_version_checks.find(names, node)
    match node:
        case ast.Assign(targets=[ast.Subscript(slice=ast.Constant(value=str(key)))]):
            if key in _PINNED and not is_false(node.value):
                yield Construct("keyword", key, node)
        case ast.Assign(targets=[ast.Subscript()], value=ast.Subscript()):
            if masked_assignment(names, flow, node) is not None:
                yield Construct("tensor", "masked assignment", node)
        case ast.If() | ast.While() | ast.Assert() if _reads_values(names, node):
            yield Construct("branch", "values", node)
        case ast.ClassDef():
            yield from old_calls.find(names, node)


def _of_import(
    names: Names,
    node: ast.Import | ast.ImportFrom,
    vocabulary: Vocabulary,
    package: str,
    project: ProjectFacts | None,
) -> Iterator[Construct]:
    yield from find_removed_names.find(names, node)
    yield from find_absent_names.find(names, node)
    if vocabulary.own:
        yield from own_imports(names, node, vocabulary, package)
    if _is_for_types(names, node):
        return
    if project is not None:
        yield from _compiled(project, node)
    match node:
        case ast.Import():
            for alias in node.names:
                yield from library_of(alias, [alias.name])
        case ast.ImportFrom(level=0, module=str(module), names=[ast.alias(name="*")]) if (
            module.startswith(vocabulary.stars)
        ):
            yield Construct("star", module, node)
        case ast.ImportFrom(level=0, module=str(module)):
            of_libraries = [*library_of(node, [f"{module}.{alias.name}" for alias in node.names])]
            yield from of_libraries or _one_of_several(names, node, vocabulary)


def _is_for_types(names: Names, node: ast.AST) -> bool:
    """Whether an import is never run: `if TYPE_CHECKING:`."""
    return any(
        isinstance(above, ast.If)
        and names.qualified(above.test) == "typing.TYPE_CHECKING"
        and not any(node is part for other in above.orelse for part in ast.walk(other))
        for above in names.ancestors(node)
    )


def _compiled(project: ProjectFacts, node: ast.Import | ast.ImportFrom) -> Iterator[Construct]:
    """A compiled module of the project that an import needs."""
    if isinstance(node, ast.Import):
        modules = [alias.name for alias in node.names]
    else:
        origin = "." * node.level + (node.module or "")
        joint = "" if origin.endswith(".") else "."
        modules = [origin, *(f"{origin}{joint}{alias.name}" for alias in node.names)]
    module = project.compiled(modules)
    if module is not None:
        yield Construct("extension", module, node)


def _named_by_string(
    names: Names, call: ast.Call, project: ProjectFacts | None
) -> Iterator[Construct]:
    """`importlib.import_module("flash_attn")`"""
    match call.args:
        case [ast.Constant(value=str(module)), *_] if dotted(call.func) in IMPORTING:
            for found in library_of(call, [module]):
                yield Construct("library by name", found.key, call)
            if project is not None and (compiled := project.compiled([module])) is not None:
                yield Construct("extension", compiled, call)


def _one_of_several(
    names: Names, node: ast.ImportFrom, vocabulary: Vocabulary
) -> Iterator[Construct]:
    """`from torch.cuda.amp import autocast`, if the name also has another meaning."""
    for alias in node.names:
        if vocabulary.includes(f"{node.module}.{alias.name}"):
            uses = names.uses(alias.asname or alias.name, names.scope_of(node))
            if any(names.qualified(use) is None for use in uses):
                yield Construct("import", "one of several", alias)


def library_of(node: ast.AST, modules: Sequence[str]) -> Iterator[Construct]:
    """The library of an import, if it is only for CUDA or another accelerator."""
    for module in modules:
        head, _, rest = module.partition(".")
        for name in (head, f"{head}.{rest.partition('.')[0]}"):
            if name in MODULES:
                yield Construct("library", name, node)
                return
            if name in other_accelerators.LIBRARIES:
                yield Construct("accelerator library", name, node)
                return


def _reads_values(names: Names, node: ast.If | ast.IfExp | ast.While | ast.Assert) -> bool:
    """Whether a model's forward pass branches on the contents of a tensor."""
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
    """Numbers of ranks that a target with one process for all has to treat as 1."""
    if not ranks.reductions() and not ranks.gathers() and "len" not in names.by_id:
        return set()
    direct = "torch.distributed.get_world_size"  # this one stays
    return {
        n for n in ranks.undone if not isinstance(n, ast.Call) or names.qualified(n.func) != direct
    }


def _docstrings(names: Names) -> set[ast.AST]:
    found: set[ast.AST] = set()
    for owner in names.scopes:
        body = getattr(owner, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            found.add(body[0].value)
    return found
