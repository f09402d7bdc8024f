"""Groups: the files of a run that have to be looked at together, and nothing else does.

A program stays whole, so its files are in one group: those in a folder, and what their imports can
mean. It is found by names alone, at the cost of reading: where a name may mean two things, both are
taken, and a package is not divided. So a group may be larger than a program, and is never less.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from migrator.analysis.project.facts import ProjectFacts
from migrator.files.discover import as_module
from migrator.files.reading import read_or_none
from migrator.files.user_folders import resolved
from migrator.formats import file_kinds
from migrator.runs.worker import MAX_BYTES, Worker

# As in `ImportGraph`: all words that may be modules, to the end of the line.
_IMPORT = re.compile(rb"\b(?:from|import)\b((?:\\\r?\n|[^\r\n])*)")
_RELATIVE = re.compile(rb"from[\s\\]+(\.+)[\s\\]*[A-Za-z_\x80-\xff]")
_FROM = re.compile(
    rb"[\s\\]*([\w\x80-\xff]+)[\w\x80-\xff.]*[\s\\]+import\b(?!.*\b(?:from|import)\b)", re.S
)
_WORD = re.compile(rb"(?<![\w.\x80-\xff])[A-Za-z_\x80-\xff][\w\x80-\xff]*")
_EACH = 4_000  # bytes whose work equals the fixed work per file
_DEEPEST = 12  # depth of folders that are searched: a link may lead back up


@dataclass(frozen=True)
class Group:
    """Files as they were given, in order, and their amount of work."""

    files: Sequence[Path]
    work: int


def work(content: bytes, worker: Worker) -> int:
    """The amount of work for a file: roughly, the bytes that have to be parsed."""
    is_left = len(content) >= MAX_BYTES or not worker.may_concern(content)
    return 0 if is_left else len(content) + _EACH


def divide(files: Sequence[Path], worker: Worker) -> list[Group]:
    """The groups of a run, in the order of their first files."""
    found = _Division(worker)
    own = {resolved(path): path for path in files}
    code = [real for real, path in own.items() if file_kinds.line_kind(path) is None]
    found.join_all(code)
    together: dict[object, list[Path]] = defaultdict(list)  # the files without links
    for real, path in own.items():
        if file_kinds.line_kind(path) is None:
            together[found.of(real.parent)].append(real)
        else:  # its result depends on all programs of its project
            together["settings", worker.project(real).root].append(real)
    return [
        Group([own[real] for real in group], sum(map(found.work, group)))
        for group in together.values()
    ]


def part_of(files: Sequence[Path], worker: Worker, number: int, count: int) -> list[Path]:
    """The files in one of several parts with about equal work; counted from 1.

    It only depends on the files, so runs for different parts fit together.
    """
    parts: list[list[Path]] = [[] for _ in range(count)]
    work = [0] * count
    for group in sorted(divide(files, worker), key=lambda group: (-group.work, group.files[0])):
        least = work.index(min(work))
        parts[least] += group.files
        work[least] += group.work + len(group.files)
    return sorted(parts[number - 1])


class _Division:
    """Folders, and which of them belong together."""

    def __init__(self, worker: Worker) -> None:
        self._worker, self._disk = worker, worker.disk
        self._joined: dict[Path, Path] = {}
        self._whole: set[Path] = set()  # packages: with everything below them
        self._work: dict[Path, int] = {}
        self._listed: dict[Path, int] = {}  # depth of a folder
        self._above: set[Path] = set()  # folders whose files had their parent folders joined

    def of(self, folder: Path) -> Path:
        """The representative of a folder's group."""
        at = folder
        while self._joined.setdefault(at, at) != at:
            self._joined[at] = at = self._joined[self._joined[at]]
        return at

    def work(self, real: Path) -> int:
        return self._work.get(real, 0)

    def join_all(self, code: Iterable[Path]) -> None:
        """Join the folders of some files with those above, and with those their imports may refer
        to."""
        queue = [*code]
        seen: set[Path] = set()
        projects: dict[Path, ProjectFacts] = {}
        while queue:
            path = queue.pop()
            if path in seen:
                continue
            seen.add(path)
            if path.parent not in projects:
                projects[path.parent] = self._worker.project(path)
            project = projects[path.parent].of(path)
            if path.parent not in self._listed and path.parent not in self._above:
                self._above.add(path.parent)  # the same for all files of a folder
                queue += project.modules_above()
            for folder, is_package in self._meant(path, project):
                self._joined[self.of(path.parent)] = self.of(folder)
                if is_package and folder not in self._whole:
                    self._whole.add(folder)
                    queue += self._modules(folder, _DEEPEST)
                queue += self._modules(folder, 0)
        for folder in {path.parent for path in seen}:
            for package in self._whole.intersection(folder.parents):
                self._joined[self.of(folder)] = self.of(package)

    def _meant(self, path: Path, project: ProjectFacts) -> Iterator[tuple[Path, bool]]:
        """The folders that a file's imports may refer to, and whether each is a package."""
        content = self._content(path)
        if b"import" not in content:
            return
        for dots in set(map(len, _RELATIVE.findall(content))):
            folder = path.parents[min(dots, len(path.parents)) - 1]
            if folder == project.root or project.root in folder.parents:
                yield folder, True
        heads = set(_heads(content))
        if not all(map(str.isascii, heads)):  # Python treats other letters as equal
            yield project.root, True
        for base in project.bases():
            names = self._disk.list(base)
            for head in heads & names:
                yield base / head, True
            if not names.isdisjoint(f"{head}.py" for head in heads):
                yield base, False

    def _content(self, path: Path) -> bytes:
        """A file's content as it is read, which also determines its work."""
        given = self._worker.given.get(path)
        content = as_module(path, (read_or_none(path) or b"") if given is None else given) or b""
        self._work[path] = work(content, self._worker)
        return content

    def _modules(self, folder: Path, depth: int) -> Iterator[Path]:
        """The modules in a folder and below it; none if it was listed before."""
        known = self._listed.get(folder, -1)
        if known >= depth:
            return
        self._listed[folder] = depth
        for name in self._disk.list(folder):
            if name.endswith(".py"):
                yield folder / name
            elif depth and "." not in name:
                yield from self._modules(folder / name, depth - 1)


def _heads(content: bytes) -> Iterator[str]:
    """The first part of all names that may be modules."""
    for clause in _IMPORT.findall(content):
        only = _FROM.match(clause)
        for word in [only[1]] if only else _WORD.findall(clause):
            yield word.decode("utf-8", "replace")
