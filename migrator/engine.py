"""Engine: bytes in, bytes and diagnostics out. No I/O; user code is never imported or run.

prefilter -> `ast` (names, flow, inventory) -> one decision per construct -> imports and set-up ->
one LibCST parse and one pruned pass for files that change -> the result has to parse.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from migrator import guard, imports, todo
from migrator.advice import advise
from migrator.analysis import accelerators, inventory, mentions, traces
from migrator.analysis.accelerators import imported_heads
from migrator.analysis.children import Children
from migrator.analysis.facts import ProjectFacts, Reader
from migrator.analysis.flow import Flow
from migrator.analysis.names import Names, statements
from migrator.analysis.origins import Origins, of_original
from migrator.codes import ENCODING, INTERNAL, SYNTAX
from migrator.construct import Construct, uses_device
from migrator.decide import Plan, decide, restrict, withdraw
from migrator.diagnostics import (
    START,
    Diagnostic,
    Effort,
    Outcome,
    Range,
    Safety,
    Severity,
    SourceMap,
    lines_of,
)
from migrator.edits import Delete, Edit, EditCall, Insert, Replace, covered, touched
from migrator.formats import lines, manifest, notebook, python
from migrator.formats.embedded import COMMAND, SETTING, Document, Located, spoken
from migrator.options import Options
from migrator.registry import Registry, registry, vocabulary
from migrator.rule import Context, Keep, Report, Rewrite
from migrator.suppress import Suppressions
from migrator.targets import RUNTIME, Target, portable, targets, with_ranks

if TYPE_CHECKING:
    from migrator.tree import Tree


@dataclass(frozen=True)
class Result:
    """What became of one file."""

    original: bytes
    source: bytes
    diagnostics: tuple[Diagnostic, ...] = ()
    companions: frozenset[str] = frozenset()  # packages that must lie beside the project
    stays: bool = False  # a reason was found to leave the whole file alone
    gate: Report | None = None  # that reason, also where names of the project's own were replaced
    uses_device: bool = False

    @property
    def changed(self) -> bool:
        return self.source != self.original

    @property
    def migrated(self) -> bool:
        """Whether there is more to it than comments that were put in."""
        return any(d.is_edit for d in self.diagnostics)

    @property
    def failed(self) -> bool:
        return any(d.severity is Severity.ERROR for d in self.diagnostics)


def migrate(
    source: bytes,
    target: Target,
    options: Options | None = None,
    project: ProjectFacts | None = None,
) -> Result:
    """Migrate one file of Python source.

    Args:
        source: the file's bytes, in any encoding that Python accepts.
        target: the words of the target, from `migrator.targets.targets()`.
        options: what to select and how; the defaults apply safe edits of every rule.
        project: facts of the files that this one imports; None for a snippet.

    Never raises for bad input: it comes back unchanged, with a diagnostic of severity error.
    """
    options = options or Options()
    target = portable(target) if options.portable else target
    with _room_for_depth():
        if inventory.is_foreign(source, target):
            result = _migrate_foreign(source, target, options, project)
        else:
            result = _migrate(source, target, options, project)
    return result if options.runtime != "installed" else replace(result, companions=frozenset())


DEEP = 4000  # calls in each other that a migration may take


@contextmanager
def _room_for_depth() -> Iterator[None]:
    """Trees are walked by recursion: an `elif` is one level deeper than the `if` before it."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, DEEP))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def migrate_file(
    path: Path,
    content: bytes,
    target: Target,
    options: Options | None = None,
    project: ProjectFacts | None = None,
) -> Result:
    """Migrate a file of any format that is known by its name: `migrate`, where it is Python.

    What is no code in a notebook (outputs, execution counts, ids) stays byte for byte.
    """
    options = options or Options()
    result = _migrate_file(path, content, target, options, project)
    if not options.todo_comments or result.failed:
        return result
    # Asked of the result: so a second run says the same in the same places.
    bare = todo.strip(path, result.source)
    left: tuple[Diagnostic, ...] = ()
    if any(d.outcome is Outcome.REPORTED for d in result.diagnostics):
        left = _migrate_file(path, bare, target, options, project).diagnostics
    return replace(result, source=todo.add(path, bare, left))


def _migrate_file(
    path: Path, content: bytes, target: Target, options: Options, project: ProjectFacts | None
) -> Result:
    function = lines.kind(path)
    if path.suffix != notebook.SUFFIX and function is None:
        return migrate(content, target, options, project)
    if function is None and not may_hold_constructs(content, options):
        if project is None or not project.imports_gpu_code():
            return Result(content, content)
    try:
        document = _document(path, content, function, options)
    except notebook.NotANotebook as error:
        return _failed(content, SYNTAX, str(error))
    except UnicodeDecodeError as error:
        return _failed(content, ENCODING, f"can not be decoded: {error}")
    if document is None:
        return Result(content, content)
    files = document.files if isinstance(document, notebook.Notebook) else []
    if project is not None and files:
        folder = project.path.parent
        project = project.with_files({folder / f.name: f.text.encode() for f in files})
    result = migrate(document.module.encode(), target, _within(document, options), project)
    found = [_of_file(document, diagnostic) for diagnostic in result.diagnostics]
    module, companions = result.source.decode(), result.companions
    for file in files:
        there = project.of(project.path.parent / file.name) if project is not None else None
        own = _within(file, options)
        inner = _migrate_file(path.parent / file.name, file.text.encode(), target, own, there)
        found += [_of_file(file, diagnostic) for diagnostic in inner.diagnostics]
        module = file.replaced(module, inner.source.decode())
        companions |= inner.companions
        if inner.companions and "/" in file.name:
            place = file.located(START)
            message = f"{file.name} imports {RUNTIME}: a program there needs a copy beside it"
            found.append(Diagnostic(place, "CMD001", Severity.ADVICE, message))
    try:
        text = document.with_module(module)
    except ValueError as error:
        return _failed(content, INTERNAL, f"the file can not be put together again: {error}")
    found.sort(key=lambda d: (d.range.cell, d))
    return Result(
        content, text.encode(), tuple(found), companions, False, result.gate, result.uses_device
    )


def _document(
    path: Path, content: bytes, function: str | None, options: Options
) -> Document | None:
    """What a file that is no module holds; None where it says nothing of GPUs."""
    if function is None:
        return notebook.read(content, for_tpu=not options.portable)
    listing = manifest.read(path, content)
    if listing is not None:
        return listing
    if function == SETTING and not mentions.has_settings(content):
        return None
    return lines.read(content, function)


def _within(document: Located, options: Options) -> Options:
    """The options for what is in a document: there, places are its own."""
    only = options.only
    if only is None:
        return options
    return replace(options, only=lambda where, code: only(document.located(where), code))


_LINE = re.compile(r"\bline (\d+)\b")


def _of_file(document: Located, diagnostic: Diagnostic) -> Diagnostic:
    """A diagnostic with places of the file where it had those of a module."""

    def located(match: re.Match[str]) -> str:
        where = document.located(replace(START, line=int(match[1]), end_line=int(match[1])))
        return f"cell {where.cell}, line {where.line}" if where.cell else f"line {where.line}"

    message = _LINE.sub(located, diagnostic.message.replace(f"{COMMAND}()", "a command"))
    places = tuple(map(document.located, diagnostic.touched))
    where = document.located(diagnostic.range)
    return replace(diagnostic, range=where, message=message, touched=places)


def _migrate_foreign(
    source: bytes, target: Target, options: Options, project: ProjectFacts | None
) -> Result:
    """Code for another target: first it becomes the GPU code that it stands for."""
    options = replace(options, only=None)  # places would be those of the text in between
    read = _migrate(source, target, options, project, foreign=True)
    result = _migrate(read.source, target, options, project, was_foreign=True)
    if result.failed or not read.changed:
        return replace(result, original=source, source=source if result.failed else result.source)
    origins = Origins(*(python.decode(text).text for text in (source, read.source)))
    found = of_original(origins, read.diagnostics, result.diagnostics, stays=result.stays)
    text = source if result.stays else result.source
    return replace(result, original=source, source=text, diagnostics=tuple(sorted(found)))


@lru_cache(maxsize=512)
def _gpu_code(content: bytes, target: str) -> bytes:
    words = targets()[target]
    return _migrate(content, words, Options(), None, foreign=True, for_others=True).source


@dataclass(frozen=True)
class AsGpuCode:
    """Reads the files of a project; what is written for another target, as the GPU code it is."""

    reader: Reader
    target: Target

    def read(self, path: Path) -> bytes | None:
        content = self.reader.read(path)
        if content is None or not inventory.is_foreign(content, self.target):
            return content
        return _gpu_code(content, self.target.name)

    def list(self, folder: Path) -> frozenset[str]:
        return self.reader.list(folder)


def _migrate(
    source: bytes,
    target: Target,
    options: Options,
    project: ProjectFacts | None,
    *,
    foreign: bool = False,
    for_others: bool = False,
    was_foreign: bool = False,
) -> Result:
    if not (was_foreign or may_hold_constructs(source, options)) and not (
        project is not None and project.may_start_gpu_code(source)
    ):
        return _of_no_concern(source)
    try:
        decoded = python.decode(source)
        facts = None if foreign or was_foreign else project
        parsed = facts.parsed(source) if facts is not None else None
        if parsed is not None:
            tree, read_as = parsed
        else:
            tree = ast.parse(decoded.text)
            read_as = accelerators.as_cuda(tree, source, "xla" if was_foreign else "")
    except (SyntaxError, ValueError) as error:
        return _failure(source, error)
    except (RecursionError, MemoryError):
        return _failed(source, SYNTAX, "too deeply nested to be parsed")
    try:
        if foreign:
            return _as_gpu_code(
                source, decoded, tree, target, options, project, for_others, read_as
            )
        return _migrate_tree(source, decoded, tree, target, options, project, read_as)
    except RecursionError:
        return _failed(source, INTERNAL, "too deeply nested to be rewritten")


def _of_no_concern(source: bytes) -> Result:
    """A file without a word of GPUs; in one that can not be read as text, none would be seen."""
    if not source.isascii() or b"\0" in source:
        try:
            python.decode(source)
        except (SyntaxError, ValueError) as error:
            return _failure(source, error)
    companions = frozenset[str]()
    if RUNTIME.encode() in source:  # migrated before
        with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
            companions = _companions(ast.parse(python.decode(source).text))
    return Result(source, source, companions=companions)


def _companions(tree: ast.Module) -> frozenset[str]:
    """The packages of ours that a module imports."""
    imports = (s for s in statements(tree) if isinstance(s, ast.Import | ast.ImportFrom))
    return frozenset(head for s in imports for head in imported_heads(s) if head == RUNTIME)


def may_hold_constructs(source: bytes, options: Options) -> bool:
    """A cheap test: False means that the file can not hold a construct."""
    return inventory.has_tokens(source) or vocabulary(options.replace).may_be_in(source)


def _failure(source: bytes, error: Exception) -> Result:
    if isinstance(error, SyntaxError):
        where = START
        if error.lineno:
            column = max(error.offset or 1, 1)
            where = Range(error.lineno, column, error.lineno, column)
        return _failed(source, SYNTAX, f"not valid Python: {error.msg}", where)
    return _failed(source, ENCODING, f"can not be decoded: {error}")


def _failed(source: bytes, code: str, message: str, where: Range = START) -> Result:
    return Result(source, source, (Diagnostic(where, code, Severity.ERROR, message),))


def _migrate_tree(
    source: bytes,
    decoded: python.Source,
    tree: ast.Module,
    target: Target,
    options: Options,
    project: ProjectFacts | None,
    read_as: str,
) -> Result:
    names = Names(tree, project.starred if project else None)
    flow = Flow(names, project.kind if project else None)
    known = vocabulary(options.replace)
    relative = known.own and any(isinstance(i, ast.ImportFrom) and i.level for i in names.imports)
    package = project.package() if project is not None and relative else ""
    constructs = list(inventory.find(names, flow, known, package))
    constructs += Children(names, flow, constructs, project).constructs()
    source_map = SourceMap(decoded.text)
    context = Context(names, flow, source_map, target, options, constructs, project)
    # First of all, since these take the place of the moves that other rules make.
    constructs[:0] = [Construct("model", "move", move) for move in context.shardings]
    if target.launches:
        if context.ranks or (project is not None and project.serves_ranks()):
            context.use(with_ranks(target))
    return _apply_rules(source, decoded, context, registry(), constructs, read_as)


def _as_gpu_code(
    source: bytes,
    decoded: python.Source,
    tree: ast.Module,
    target: Target,
    options: Options,
    project: ProjectFacts | None,
    for_others: bool,
    read_as: str,
) -> Result:
    names = Names(tree)
    flow = Flow(names)
    rules = registry().foreign
    constructs = [c for c in inventory.find(names, flow, vocabulary()) if rules.handlers(c)]
    source_map = SourceMap(decoded.text)
    context = Context(
        names, flow, source_map, target, options, constructs, project, for_others=for_others
    )
    return _apply_rules(source, decoded, context, rules, constructs, read_as)


def _apply_rules(
    source: bytes,
    decoded: python.Source,
    context: Context,
    rules: Registry,
    constructs: Sequence[Construct],
    read_as: str,
) -> Result:
    suppressions = Suppressions(decoded.text)
    on_device = any(map(uses_device, constructs))
    plan = decide(context, rules, constructs, suppressions)
    if context.options.only is not None:
        restrict(plan, context.names, context.options.only)
    advice = list(advise(context, rules, plan, suppressions))
    while True:
        additions = _additions(context, rules, plan, suppressions)
        edits = [*additions.edits, *plan.edits]
        if not edits:
            found = _diagnostics(plan, additions, advice, context.source)
            companions, stays = _companions(context.names.tree), plan.gate is not None
            return Result(source, source, found, companions, stays, plan.gate, on_device)
        # LibCST takes longer to import than all the rest: a run that edits nothing goes without.
        from migrator.tree import ParserSyntaxError, Tree, UnplacedEdit, apply

        try:
            places = Tree(decoded.text)
            if not places.round_trips:
                message = "this file does not survive a round trip; not changed"
                return _failed(source, INTERNAL, message)
            text = apply(places, context.source, edits)
        except UnplacedEdit as unplaced:
            withdraw(plan, unplaced.edits)
            continue
        except ParserSyntaxError as error:
            return _failed(source, INTERNAL, f"LibCST can not parse this file: {error.message}")
        try:
            tree = ast.parse(text)
        except SyntaxError as error:
            at_fault = _unparsable(places, context.source, plan)
            if at_fault:
                withdraw(plan, at_fault)
                continue
            message = f"the rewrite would not parse ({error.msg}, line {error.lineno}); not changed"
            return _failed(source, INTERNAL, message)
        break
    if read_as:
        accelerators.as_cuda(tree, source, read_as)
    lines = context.source.lines, lines_of(text)
    try:
        guard.check(context.names.tree, tree, context.names.parents, edits, lines)
    except guard.Differs as where:
        message = (
            "internal error: the rewrite would change more than was asked for, from line "
            f"{where.line} on; not changed; send the maintainers this file and the command"
        )
        return _failed(source, INTERNAL, message)
    found = _diagnostics(plan, additions, advice, context.source)
    companions, after = _companions(tree), decoded.encode(text)
    return Result(source, after, found, companions, False, plan.gate, on_device)


def _unparsable(places: Tree, source: SourceMap, plan: Plan) -> list[Edit]:
    """The edits of single decisions that alone make a result that does not parse."""
    from migrator.tree import UnplacedEdit, apply

    found: list[Edit] = []
    for ruling in plan.rulings:
        if isinstance(ruling.decision, Rewrite) and ruling.decision.edits:
            try:
                ast.parse(apply(places, source, ruling.decision.edits))
            except (SyntaxError, UnplacedEdit):
                found += ruling.decision.edits
    return found


# ---- what follows from the decisions -------------------------------------------------------------


@dataclass
class _Additions:
    edits: list[Edit] = field(default_factory=list)
    modules: list[str] = field(default_factory=list)
    diagnostics: list[Diagnostic] = field(default_factory=list)


def _additions(
    context: Context, rules: Registry, plan: Plan, suppressions: Suppressions
) -> _Additions:
    """Set-up statements, imports, and blocks that the edits leave empty."""
    result = _Additions(edits=list(_emptied(context, plan.edits)))
    emptied = {node for edit in result.edits for node in covered(edit)}
    removed = emptied | set(plan.claimed)
    # what only gets other arguments keeps its name
    removed -= {e.node.func for e in plan.edits if isinstance(e, EditCall) and not e.function}
    result.edits += _unused(context.names, plan.edits, removed)
    result.modules = plan.requires(emptied)
    for rule, handler in (
        ()
        if plan.gate or context.is_native or context.is_build
        else rules.exact.get(("file", "setup"), ())
    ):
        decision = handler(context, Construct("file", "setup", context.names.tree))
        enabled = context.options.enabled(rule.code) and not suppressions.covers(START, rule.code)
        if isinstance(decision, Rewrite) and enabled:
            result.edits.extend(decision.edits)
            result.modules.extend(m for m in decision.requires if m not in result.modules)
            note = decision.note or rule.summary
            places = _touched(decision.edits, context.source)
            result.diagnostics.append(
                Diagnostic(START, rule.code, Severity.INFO, note, touched=places)
            )
    inserts = [
        e
        for e in [*result.edits, *plan.edits]
        if isinstance(e, Insert) and not e.lines[0].startswith("from ")
    ]
    first = min(inserts, key=lambda e: e.anchor.lineno if e.anchor else 0, default=None)
    foreign: tuple[str, ...] = ()
    if rules is registry().foreign:
        foreign = traces.foreign_libraries(context.target.traces.library)
    known = vocabulary(context.options.replace)
    result.edits[:0] = imports.edits(
        context.names, result.modules, removed, known, first, foreign=foreign,
        taken=context.project.taken_names if context.project is not None else frozenset,
    )  # fmt: skip
    return result


def _emptied(context: Context, edits: Sequence[Edit]) -> list[Edit]:
    """An `if`, with its `else`, whose statements all went goes too, if its test does nothing."""
    names = context.names
    gone: set[ast.AST] = {
        e.node for e in edits if isinstance(e, Delete) and isinstance(e.node, ast.stmt)
    }
    result: list[Edit] = []
    queue: list[ast.AST] = list(gone)
    while queue:
        block = names.parents.get(queue.pop())
        if (
            isinstance(block, ast.If)
            and all(s in gone for s in [*block.body, *block.orelse])
            and block not in gone
            and not _is_elif(names, block)
            and context.effects.none(block.test)
        ):
            gone.add(block)
            queue.append(block)
            result.append(Delete(block))
    return result


def _unused(names: Names, edits: Sequence[Edit], removed: set[ast.AST]) -> Iterator[Edit]:
    """A local variable that would only hold a literal goes, if all went that has used it."""
    if not {"locals", "vars", "eval", "exec"}.isdisjoint(names.by_id):
        return
    elsewhere = {name for scope in names.scopes.values() for name in scope.outer_names}
    elsewhere |= spoken(names)
    for edit in edits:
        statement = names.parents.get(edit.node)
        if not isinstance(edit, Replace) or not isinstance(statement, ast.Assign):
            continue
        match statement.targets:
            case [ast.Name(id=name) as target] if edit.template.isdecimal():
                scope = names.scope_of(target)
                uses = list(names.uses(name, scope))
                bound = scope.bindings.get(name, ())
                local = isinstance(scope.node, ast.FunctionDef) and len(bound) == 1
                if local and name not in elsewhere and uses and removed.issuperset(uses):
                    yield Delete(statement)


def _is_elif(names: Names, node: ast.If) -> bool:
    parent = names.parents.get(node)
    return isinstance(parent, ast.If) and parent.orelse == [node]


# ---- diagnostics ---------------------------------------------------------------------------------


def _diagnostics(
    plan: Plan, additions: _Additions, advised: Sequence[Diagnostic], source: SourceMap
) -> tuple[Diagnostic, ...]:
    found: list[Diagnostic] = [*additions.diagnostics, *advised]
    rules = registry().rules
    gone = {node for edit in additions.edits for node in covered(edit)}
    for ruling in plan.rulings:
        where, code, rule = ruling.range, ruling.code, rules.get(ruling.code)
        safety: Safety | None = None
        effort: Effort | None = None
        why = ""
        places: tuple[Range, ...] = ()
        decision = ruling.decision
        if ruling.construct.kind == "library" and ruling.construct.node in gone:
            decision = Rewrite(())  # an import whose uses all went
        match decision:
            case Rewrite(note=note, advice=advice):
                if advice:
                    found.append(Diagnostic(where, code, Severity.ADVICE, advice))
                severity, outcome, message = Severity.INFO, Outcome.REWRITTEN, note
                safety = decision.safety or (rule.safety if rule else Safety.SAFE)
                why = note or rule.summary if rule and safety is not Safety.SAFE else safety.words
                places = _touched(decision.edits, source) or (where,)
                if plan.unsafe:
                    safety, why = Safety.UNSAFE, plan.unsafe
            case Keep(reason=reason, advice=advice):
                severity, outcome, message = Severity.INFO, Outcome.KEPT, reason
                if advice:
                    found.append(Diagnostic(where, code, Severity.ADVICE, advice))
            case Report(reason=reason, unsafe=why):
                severity, outcome, message = Severity.WARNING, Outcome.REPORTED, reason
                safety = Safety.UNSAFE if why else None
                effort = decision.effort or (rule.effort if rule else Effort.HOURS)
        found.append(
            Diagnostic(
                where, code, severity, message, outcome, ruling.text, safety, why, effort, places
            )
        )
    return tuple(sorted(found, key=lambda d: (d.range, d.code, d.message)))


def _touched(edits: Sequence[Edit], source: SourceMap) -> tuple[Range, ...]:
    return tuple(dict.fromkeys(place for edit in edits for place in touched(edit, source)))
