"""Parts of a file's result that depend on the results of the other files of its run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from migrator.config import Config
from migrator.decision import Report as Stays
from migrator.files.discover import discover, project_root
from migrator.files.user_folders import resolved
from migrator.formats import file_kinds
from migrator.formats.embedded_text import COMMAND, CONSTRAINT, REQUIREMENT, SETTING
from migrator.pipeline.result import Result
from migrator.registry import registry
from migrator.runs.run_report import FileReport, Report
from migrator.runs.runtime_copies import SET_UP
from migrator.runs.worker import Worker


def keep_requirements_of_other_code(
    report: Report, named: Sequence[Path], others: Iterable[Path], worker: Worker
) -> None:
    """Leave the requirements and settings of projects without GPU code, unless named explicitly.

    `others` are files that may contain such code, in addition to those of the report.
    """
    around = [
        number
        for number, file in enumerate(report.files)
        if _is_no_code(file) and file.path not in named
    ]
    if not any(report.files[number].result.diagnostics for number in around):
        return
    if any(map(_is_gpu_code, report.files)):
        return
    seen = {resolved(file.path) for file in report.files}
    if any(_is_gpu_code(worker(path)) for path in others if resolved(path) not in seen):
        return
    for number in around:
        file = report.files[number]
        content = file.result.original
        report.files[number] = FileReport(file.path, Result(content, content))


def keep_settings_of_programs_that_stay(
    report: Report, others: Iterable[Path], worker: Worker
) -> None:
    """Leave a configuration as it is if a program that may read it stays, and so a command's line
    that starts one.

    A program that may read a configuration lies beside it or above it. Where none does, it is any
    of the project. `others` are files of the project that aren't in the report.
    """
    kind_of = {number: file_kinds.line_kind(file.path) for number, file in enumerate(report.files)}
    settings = [n for n, f in enumerate(report.files) if kind_of[n] == SETTING and f.result.changed]
    commands = [
        n for n, f in enumerate(report.files) if kind_of[n] == COMMAND and _names_program(f)
    ]
    if not settings and not commands:
        return
    programs = {resolved(file.path): file for file in report.files}
    for path in others:
        if path.suffix == ".py" and resolved(path) not in programs:
            programs[resolved(path)] = worker(path)
    is_test = worker.cache.places.is_test
    gpu = {p: file for p, file in programs.items() if _is_program(file) and not is_test(p)}
    worker.cache.staying = frozenset(p for p, f in gpu.items() if f.result.gate is not None)
    for number in commands if worker.cache.staying else ():
        report.files[number] = worker(report.files[number].path)
    for number in settings:
        path = report.files[number].path
        real, root = resolved(path), worker.project(path).root
        inside = {p: file for p, file in gpu.items() if p.is_relative_to(root)}
        near = {p: file for p, file in inside.items() if real.is_relative_to(p.parent)}
        stay = {p: f.result.gate for p, f in (near or inside).items() if f.result.gate is not None}
        if stay:
            first = min(stay, key=lambda p: (bool(stay[p].files), p))  # which stays by itself
            said = Stays(f"{first.relative_to(root).as_posix()} may read it, and stays as it is")
            worker.held = {**worker.held, real: said}
            report.files[number] = worker(path)


def _names_program(file: FileReport) -> bool:
    """Whether a script starts a program on a device."""
    content = file.result.original
    starts = b".py" in content or b"-m" in content
    return starts and any(d.outcome is not None for d in file.result.diagnostics)


def _is_program(file: FileReport) -> bool:
    """Whether it is code for GPUs: migrated, or left as it is."""
    is_code = file_kinds.line_kind(file.path) is None and not _is_no_code(file)
    return is_code and (file.result.migrated or file.result.gate is not None)


def lacks_program(files: Iterable[FileReport]) -> bool:
    """Whether code was rewritten that no program of the run starts: a library."""
    code = [file.result for file in files if file_kinds.line_kind(file.path) is None]
    if any(SET_UP in result.source for result in code):
        return False
    edits = {d.code for result in code for d in result.diagnostics if d.is_edit}
    return any(rule.moves_to_device for code, rule in registry().rules.items() if code in edits)


def is_code(path: Path) -> bool:
    """Whether a file is Python, or a notebook."""
    return file_kinds.is_module(path) or file_kinds.is_notebook(path)


def _is_gpu_code(file: FileReport) -> bool:
    result = file.result
    return not _is_no_code(file) and bool(result.companions or result.migrated)


def files_of_projects(roots: Sequence[Path], config: Config) -> Iterator[Path]:
    """The files of the projects that some files belong to, listed when they are needed."""
    for root in dict.fromkeys(project_root(resolved(path)) for path in roots):
        yield from discover([root], config.excluded).files


def _is_no_code(file: FileReport) -> bool:
    """Whether a file is not code, or only lists requirements (setup.py)."""
    if file_kinds.line_kind(file.path) in (REQUIREMENT, CONSTRAINT, SETTING):
        return True
    codes = {d.code for d in file.result.diagnostics if d.outcome}
    return bool(codes) and codes <= {r.code for r in registry().rules.values() if r.is_requirement}
