"""Engine: bytes in, bytes and diagnostics out. No I/O; user code is never imported or run.

The way of a file: read -> normalise (to GPU code) -> analyse -> decide -> complete (imports,
set-up, what became empty) -> write. See docs/how-a-file-is-migrated.md.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from migrator.analysis.project.facts import ProjectFacts
from migrator.codes import ENCODING, INTERNAL, SYNTAX
from migrator.diagnostics import START, Diagnostic, Outcome, Severity
from migrator.formats import file_kinds, python_source
from migrator.frameworks import find_framework
from migrator.options import Options
from migrator.pipeline import normalise, older_python
from migrator.pipeline.analyse import analyse, may_hold_constructs
from migrator.pipeline.module import not_python, read_module
from migrator.pipeline.recursion_limit import room_for_depth
from migrator.pipeline.result import MigrationFailure, Result
from migrator.registry import registry
from migrator.targets import RUNTIME, Target, in_one_process, portable

if TYPE_CHECKING:
    from migrator.formats.documents import Part


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
    if (older := older_python.renewed(source, options)) is not None:
        modern = migrate(older.source, target, options, project)
        return normalise.of_source(source, older, modern)
    with room_for_depth():
        foreign = normalise.foreign(source, target)
        if foreign is not None:
            # Ranks that a library starts have no process group: one process replaces them.
            alone = target if foreign.is_migrated else in_one_process(target)
            # the places that `only` selects are not those of the normalised text
            whole = replace(options, only=None)
            gpu_code = normalise.as_gpu_code(source, alone, whole, project)
            if gpu_code.failed:
                return gpu_code
            if gpu_code.changed:  # otherwise a GPU program with a branch for another target
                target, options = alone, whole
            result = _migrate(gpu_code.source, target, options, project, foreign.device)
            left = any(d.outcome is Outcome.REPORTED for d in gpu_code.diagnostics)
            if left and (foreign.is_migrated or target.keeps_ranks):
                # It imports another runtime, or another library starts its processes: a half
                # migrated program would be broken.
                result = replace(result, stays=True, companions=frozenset())
            result = normalise.of_source(source, gpu_code, result)
        elif _is_of_concern(source, target, options, project):
            result = _migrate(source, target, options, project)
        else:
            result = _unconcerned(source)
    return result


def _migrate(
    source: bytes,
    target: Target,
    options: Options,
    project: ProjectFacts | None,
    accelerator: str | None = None,
) -> Result:
    """Migrate GPU code, or code for an accelerator that is read as such."""
    if accelerator is None and not find_framework(target.framework).normalised:
        accelerator = ""
    from migrator.pipeline.rewrite import rewrite  # most files need none

    try:
        module = read_module(source, project if accelerator is None else None, accelerator)
        context, constructs = analyse(module, target, options, project)
        return rewrite(module, context, registry().of(target.framework), constructs)
    except MigrationFailure as failure:
        return failure.result(source)
    except RecursionError:
        return MigrationFailure(INTERNAL, "too deeply nested to be rewritten").result(source)


def migrate_file(
    path: Path,
    content: bytes,
    target: Target,
    options: Options | None = None,
    project: ProjectFacts | None = None,
) -> Result:
    """Migrate a file of any format that is known by its name: `migrate`, where it is Python.

    In a notebook, outputs, execution counts and ids stay byte for byte.
    """
    options = (options or Options()).in_file(path)
    result = _migrate_file(path, content, target, options, project)
    if not options.todo_comments or result.failed:
        return result
    from migrator.pipeline import todo

    # Reports are those of the migrated text, so that a second run adds the same comments.
    bare = todo.strip(path, result.source)
    left: tuple[Diagnostic, ...] = ()
    if any(d.outcome is Outcome.REPORTED for d in result.diagnostics):
        left = _migrate_file(path, bare, target, options, project).diagnostics
    return replace(result, source=todo.add(path, bare, left))


def _migrate_file(
    path: Path, content: bytes, target: Target, options: Options, project: ProjectFacts | None
) -> Result:
    if file_kinds.is_module(path):
        return migrate(content, target, options, project)
    if file_kinds.is_notebook(path) and not may_hold_constructs(content, target, options):
        framework = find_framework(target.framework)
        if project is None or not project.imports_gpu_code(framework):
            return Result(content, content)
    from migrator.analysis.gpu_text_patterns import has_settings  # most files are modules
    from migrator.formats import documents, notebook

    try:
        says = find_framework(target.framework).says
        holder = documents.read_document(
            path, content, says, has_settings, for_tpu=not options.portable
        )
    except notebook.NotANotebook as error:
        return MigrationFailure(SYNTAX, str(error)).result(content)
    except UnicodeDecodeError as error:
        return MigrationFailure(ENCODING, f"cannot be decoded: {error}").result(content)
    if holder is None:
        return Result(content, content)
    if project is not None and holder.files:
        folder = project.path.parent
        project = project.with_files({folder / name: text for name, text in holder.files.items()})
    results = [
        migrate(part.source, target, _within(part, options), _facts_of(part, project))
        for part in holder.parts
    ]
    try:
        text = holder.with_sources([result.source for result in results])
    except ValueError as error:
        message = f"the file cannot be reassembled: {error}"
        return MigrationFailure(INTERNAL, message).result(content)
    return Result(
        content,
        text,
        tuple(_diagnostics(holder.parts, results, options)),
        frozenset().union(*(result.companions for result in results)),
        gate=results[0].gate,
        uses_device=results[0].uses_device,
    )


def _within(part: Part, options: Options) -> Options:
    """The options for a part of a file, with places in that part."""
    only = options.only
    if only is None:
        return options
    return replace(options, only=lambda where, code: only(part.place(where), code))


def _facts_of(part: Part, project: ProjectFacts | None) -> ProjectFacts | None:
    if project is None or part.written is None:
        return project
    return project.of(project.path.parent / part.written.name)


def _diagnostics(
    parts: Sequence[Part], results: Sequence[Result], options: Options
) -> list[Diagnostic]:
    """The diagnostics of the parts of a file, in its order."""
    found: list[Diagnostic] = []
    for part, result in zip(parts, results, strict=True):
        found += map(part.diagnostic, result.diagnostics)
        if part.written is None or "/" not in part.written.name:
            continue
        if result.companions and options.runtime == "copy":
            code = registry().for_written_files.code
            message = (
                f"{part.written.name} imports {RUNTIME}: a program there needs a copy beside it"
            )
            found.append(Diagnostic(part.written.located(START), code, Severity.ADVICE, message))
    return sorted(found, key=lambda d: (d.range.cell, d))


# ---- files without GPU code ----------------------------------------------------------------------


def _is_of_concern(
    source: bytes, target: Target, options: Options, project: ProjectFacts | None
) -> bool:
    framework = find_framework(target.framework)
    return may_hold_constructs(source, target, options) or (
        project is not None
        and (
            project.may_start_gpu_code(source, framework)
            or (framework.normalised and project.imports_compiled_module())
        )
    )


def _unconcerned(source: bytes) -> Result:
    """The result for a file without GPU words; an error if it can't be decoded."""
    if not source.isascii() or b"\0" in source:
        try:
            python_source.decode(source)
        except (SyntaxError, ValueError) as error:
            return not_python(error).result(source)
    imported = frozenset[str]()
    if RUNTIME.encode() in source:  # migrated before
        from migrator.pipeline.rewrite import companions

        with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
            imported = companions(ast.parse(python_source.decode(source).text))
    return Result(source, source, companions=imported)
