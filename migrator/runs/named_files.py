"""The program of files that were named one by one: the project's files that they import.

A program with half of its files rewritten does not run. So a named file means its program; where
files may not be added, a program that would be migrated in part stays whole, or is named as such.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

from migrator.analysis.import_verdicts import is_known
from migrator.analysis.project.composed_settings import names_all
from migrator.analysis.project.facts import ProjectFacts
from migrator.analysis.project.project_cache import ProjectCache
from migrator.decision import Report as Stays
from migrator.diagnostics import first_of
from migrator.files import witness
from migrator.files.discover import is_passed_over
from migrator.files.user_folders import resolved
from migrator.formats import file_kinds
from migrator.formats.embedded_text import COMMAND, SETTING
from migrator.frameworks.torch.device_constructs import DEVICE_CONSTRUCTS
from migrator.pipeline.recursion_limit import room_for_depth
from migrator.pipeline.result import Result
from migrator.runs.run_report import Report
from migrator.runs.worker import Worker

_HIGHEST = 4  # folders above a named file
_LISTED = 5  # files that a message names
_BY_HYDRA = "reads settings by Hydra"
_ONLY = "was not named (--only-named)"


@dataclass
class Programs:
    """The programs of some files: which others each of them imports, directly or not."""

    imported: dict[Path, list[Path]] = field(default_factory=dict)  # by file; real paths
    shown: dict[Path, Path] = field(default_factory=dict)  # how a file is named, by its real path

    folders: Sequence[Path] = ()  # that were named, and are only a part of their project

    @property
    def others(self) -> list[Path]:
        return [self.shown[real] for real in self.shown if real not in self.imported]

    def named(self, real: Path) -> Path:
        """What was named: a file, or the folder that it is in."""
        path = self.shown[real]
        return next((folder for folder in self.folders if path.is_relative_to(folder)), path)


def parts_of_projects(roots: Iterable[Path], worker: Worker) -> list[Path]:
    """The named folders that have only a part of their project."""
    folders = (root for root in roots if root.is_dir())
    return [root for root in folders if worker.project(root / "_.py").root != resolved(root)]


def programs_of(
    named: Iterable[Path],
    worker: Worker,
    with_importers: bool = False,
    folders: Sequence[Path] = (),
) -> Programs:
    """The programs of files, without what the configuration excludes, and without a runtime;
    ``with_importers``: also the files that import them, with all that those import."""
    found, config = Programs(folders=folders), worker.config
    code = [path for path in named if _has_program(path)]
    for path in code:
        real = resolved(path)
        found.shown[real], found.imported[real] = path, []
    for path in code:
        with room_for_depth(), suppress(Exception):  # its errors are reported with the file
            real = resolved(path)
            for other in sorted(_around(worker.project(path), with_importers)):
                if other == real:
                    continue
                if other not in found.shown:
                    shown = path.parent / os.path.relpath(other, real.parent)
                    if is_passed_over(shown, config.home, config.excluded):
                        continue
                    found.shown[other] = Path(os.path.normpath(shown))
                found.imported[real].append(other)
    return found


def _has_program(path: Path) -> bool:
    if file_kinds.line_kind(path) == SETTING:
        return not file_kinds.is_data(path)
    return path.suffix in (".py", file_kinds.NOTEBOOK) or file_kinds.line_kind(path) == COMMAND


def folders_above(named: Iterable[Path], worker: Worker) -> list[Path]:
    """The projects of named files that git doesn't tell: folders in which they find what they
    import, `pkg/` beside `tools/train.py`."""
    found: dict[Path, None] = {}
    for path in named:
        if path.suffix in (".py", file_kinds.NOTEBOOK):
            with room_for_depth(), suppress(Exception):  # its errors are reported with the file
                project = worker.project(path)
                if not witness.exists(project.root / ".git"):
                    top = _top_of_imports(project)
                    found |= {top: None} if top != project.root else {}
    return [*found]


def _top_of_imports(project: ProjectFacts) -> Path:
    """The lowest folder that has the modules which a program imports, as far as they are found."""
    home, top = Path.home().resolve(), project.root
    for above in [*project.root.parents][:_HIGHEST]:
        if above == home or above in home.parents:
            break
        there = ProjectFacts(
            project.path, above, project.reader, ProjectCache(project.reader, DEVICE_CONSTRUCTS)
        )
        missing = {
            module
            for path in (project.path, *project.reached())
            for module in project.cache.file(path).modules
            if not module.startswith(".") and not is_known(module)
            and project.of(path).resolve(module) is None
        }  # fmt: skip
        if any(_is_package(there, above, module) for module in missing):
            project, top = there, above
    return top


def _is_package(there: ProjectFacts, above: Path, module: str) -> bool:
    """Whether a module is found in a folder, as part of a package or where a file adds it."""
    found, added = there.module_in(above, module), {*chain(*there.all_added())}
    if found is not None and (found.parent != above or above in added):
        return True
    return any(there.module_in(folder, module) for folder in added)


def _around(project: ProjectFacts, with_importers: bool) -> set[Path]:
    if file_kinds.line_kind(project.path) == SETTING:
        starts = [
            each for path in project.readers() for each in (path, *project.of(path).importers())
        ]
    else:
        starts = [project.path, *(project.importers() if with_importers else ())]
    found: set[Path] = set()
    while starts:
        path = starts.pop()
        own = {path, *project.of(path).reached()} - found
        found |= own
        starts += [script for each in sorted(own) for script in project.of(each).scripts()]
    settings = [each for path in sorted(found) for each in project.of(path).settings()]
    return found.union(settings)


def settle(
    report: Report, programs: Programs, worker: Worker, *, only_named: bool, from_hook: bool
) -> None:
    """What becomes of the other files of programs: they are migrated, left behind, or keep it."""
    if not from_hook:
        _tell_unknown(report, programs, worker)
    if not programs.others:
        return
    if only_named:
        _leave_behind(report, programs, worker)
    elif from_hook:
        _keep_whole(report, programs)
    else:
        _tell(report, programs)


def _tell(report: Report, programs: Programs) -> None:
    """Say which files were migrated because they belong to the program of a named one."""
    files = {resolved(file.path): file for file in report.files}
    found: dict[Path, dict[Path, None]] = {}
    for real, imported in programs.imported.items():
        found.setdefault(programs.named(real), {}).update(
            (programs.shown[other], None) for other in imported
            if other not in programs.imported and files[other].result.diagnostics
        )  # fmt: skip
    for named, others in found.items():
        if others:
            report.notes.append(
                f"{named}: migrated with what it imports, starts or reads: {_list([*others])} "
                "(--only-named: not with it)"
            )


def _tell_unknown(report: Report, programs: Programs, worker: Worker) -> None:
    """Say which programs may need files that nobody can tell: settings name them, or code does;
    and which settings programs that nobody can tell."""
    changed = {resolved(file.path) for file in report.files if file.result.changed}
    for real, imported in programs.imported.items():
        if programs.named(real) != programs.shown[real]:
            continue
        project, own = worker.project(programs.shown[real]), {real, *imported}
        if file_kinds.line_kind(real) == SETTING and (imported or real not in changed):
            continue
        with room_for_depth(), suppress(Exception):  # its errors are reported with the file
            asked = _asks_for_modules(project, own)
            left = (path for path in project.modules_of_project() if path not in own)
            if file_kinds.line_kind(real) == SETTING:
                may = "be read by programs that do not name it"
            elif asked and (_BY_HYDRA in asked or any(map(project.cache.uses_device, left))):
                may = f"import more of the project, as {asked}"
            elif settings := _settings_left(project, own):
                may = f"be given a device by what names a GPU: {_list(settings)}"
            else:
                continue
            report.incomplete = True
            report.notes.append(
                f"{programs.shown[real]}: may {may}: migrate all of it "
                f"(tpu-migrate {os.path.relpath(project.root)}), or name those files"
            )


def _settings_left(project: ProjectFacts, own: Set[Path]) -> list[Path]:
    """The settings that may give a program a GPU, and that it doesn't name; scripts, if they name
    it."""
    if not project.gives_gpu() or not any(project.of(path).takes_gpu() for path in own):
        return []
    return [
        path.relative_to(project.root)
        for path in project.settings_with_gpu()
        if path not in own and (file_kinds.line_kind(path) != COMMAND or project.names_this(path))
    ]


def _asks_for_modules(project: ProjectFacts, own: Set[Path]) -> str:
    """How a program comes by modules that its code doesn't name; empty if it doesn't."""
    files = {path: project.cache.file(path) for path in sorted(own)}
    for path, file in files.items():
        if file.by_name.unknown is not None:
            return f"{path.name}:{file.by_name.unknown.lineno} computes the name of a module"
    settings = [each for path in files for each in project.of(path).composed()]
    is_known = settings and all(names_all(project.cache.file(each).content) for each in settings)
    for path, file in files.items():
        if "hydra" in file.libraries and (file.composed.is_unknown or not is_known):
            return f"{path.name} {_BY_HYDRA}"
    return ""


def _leave_behind(report: Report, programs: Programs, worker: Worker) -> None:
    """Add the files that were not named, but would change with their program, as they are."""
    left = []
    for path in programs.others:
        if worker(path).result.changed:
            worker.held = {**worker.held, resolved(path): Stays(_ONLY)}
            report.files.append(worker(path))
            left.append(path)
    if left:
        report.incomplete = True
        report.notes.append(
            f"left behind, and needed by what was named: {_list(left)}; without --only-named, "
            "they are migrated, too"
        )
    report.files.sort(key=lambda file: file.path)


def _keep_whole(report: Report, programs: Programs) -> None:
    """Leave named files as they are whose programs would change elsewhere, too; and the others."""
    files = {resolved(file.path): file for file in report.files}
    others = {resolved(path) for path in programs.others}
    kept = {real: file for real, file in files.items() if real not in others}
    for together in _connected(programs.imported):
        missing = sorted(each for each in together & others if files[each].result.changed)
        changing = sorted(each for each in together - others if files[each].result.changed)
        if not missing or not changing:
            continue
        for real in changing:
            content = files[real].result.original
            kept[real] = replace(files[real], result=Result(content, content))
        own = _list([programs.shown[real] for real in changing])
        rest = _list([programs.shown[real] for real in missing])
        command = shlex.join(["tpu-migrate", *(str(programs.shown[real]) for real in changing)])
        report.incomplete = True
        report.notes.append(
            f"{own}: left as it is, since its program would change in {rest}, too: "
            f"{command} --target {report.target}"
        )
    report.files = list(kept.values())


def _connected(imported: Mapping[Path, Sequence[Path]]) -> Iterator[set[Path]]:
    """The files of programs that share one."""
    groups: list[set[Path]] = []
    for path, others in imported.items():
        own = {path, *others}
        apart = [group for group in groups if not group & own]
        groups = [*apart, own.union(*(group for group in groups if group & own))]
    yield from groups


def _list(paths: Sequence[Path]) -> str:
    return first_of([str(path) for path in paths], _LISTED)
