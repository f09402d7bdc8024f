"""A change between two revisions, file by file."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path, PurePosixPath

from migrator.analysis.project.facts import ProjectFacts
from migrator.analysis.project.project_cache import ProjectCache
from migrator.config import Config
from migrator.errors import UsageError
from migrator.files import git
from migrator.files.discover import Disk, bundled_target, is_source
from migrator.files.user_folders import resolved
from migrator.formats import file_kinds
from migrator.formats.embedded_text import REQUIREMENT, SETTING
from migrator.frameworks.torch.device_constructs import DEVICE_CONSTRUCTS
from migrator.pipeline.normalise import AsGpuCode
from migrator.pipeline.result import Result
from migrator.review.line_changes import ChangeKind, LineChange, compare
from migrator.runs.delivery import named_as_in
from migrator.runs.run_targets import chosen_targets, target_of_wheel
from migrator.runs.worker import MAX_BYTES, migrate_for_all
from migrator.targets import RUNTIME, Delivered, Target, portable, targets
from migrator.targets.copies import runtime_copy
from migrator.targets.wheel import is_wheel, runtime_wheel

_REGULAR = ("100644", "100755")
_NONE = "000000"


@dataclass(frozen=True)
class FileReview:
    """One file of the change."""

    path: str  # from the top of the repository
    changes: list[LineChange] = field(default_factory=list)
    status: str = "modified"  # or "added", "deleted", "renamed"
    old_path: str = ""
    flags: tuple[str, ...] = ()  # with which the tool makes what is there
    note: str = ""  # of a file that is no source, or no text

    def of(self, *kinds: ChangeKind) -> list[LineChange]:
        return [change for change in self.changes if change.kind in kinds]

    @property
    def explained(self) -> bool:
        return len(self.of(ChangeKind.MADE)) == len(self.changes)


@dataclass(frozen=True)
class Review:
    """All files of a change, those that ask for the most attention first."""

    old: str  # commits
    new: str  # "": the working tree
    target: str
    files: list[FileReview] = field(default_factory=list)
    others: list[str] = field(default_factory=list)  # that the tool does not look at
    errors: list[str] = field(default_factory=list)

    def count(self, kind: ChangeKind) -> int:
        return sum(len(file.of(kind)) for file in self.files)

    @property
    def exit_code(self) -> int:
        """0: everything is what the tool makes; 1: something is not; 2: an error."""
        if self.errors:
            return 2
        return 0 if all(file.explained for file in self.files) else 1


class Commit(Disk):
    """The files of a commit, as a migration reads those of a disk. Links are not followed."""

    def __init__(self, root: Path, commit: str, blobs: git.Blobs) -> None:
        super().__init__()
        self.root, self.blobs = root, blobs
        self.files: dict[Path, str] = {}
        self.folders: dict[Path, dict[str, None]] = {}
        for entry in git.names(root, "ls-tree", "-r", "-z", "--full-tree", commit):
            about, _, name = entry.partition("\t")
            mode, _, blob = about.split(" ")
            if mode not in _REGULAR:
                continue
            path = root / name
            self.files[path] = blob
            while path != root:
                self.folders.setdefault(path.parent, {})[path.name] = None
                path = path.parent

    def content(self, path: Path) -> bytes:
        if path not in self.files:
            raise FileNotFoundError(path)
        return self.blobs.read(self.files[path])

    def names(self, folder: Path) -> list[str]:
        return list(self.folders.get(folder, ()))


@dataclass(frozen=True)
class _Entry:
    """A file that differs. A name is "" where it is not there."""

    old: str
    new: str
    is_text: bool  # a regular file on both sides

    @property
    def status(self) -> str:
        if not self.old or not self.new:
            return "deleted" if self.old else "added"
        return "renamed" if self.old != self.new else "modified"


def review(
    folder: Path, revisions: str, paths: Sequence[Path] = (), config: Config | None = None
) -> Review:
    """Hold a change against what this tool makes of the old text. Nothing is checked out.

    Args:
        folder: anywhere in the repository.
        revisions: `REV` (to the working tree), `REV1..REV2`, or `REV1...REV2` (since they parted);
            one that is left out is HEAD.
        paths: only these files and folders.
        config: options of the migration; without a target, that of the new text.

    Raises:
        UsageError: no repository, no such revision, no target.
    """
    config = config or Config()
    root = git.top(folder)
    if root is None:
        raise UsageError(f"{resolved(folder)} is not under version control (git)")
    try:
        old, new = _commits(root, revisions)
        entries = list(_entries(root, old, new, paths))
        blobs = git.Blobs(root)
        try:
            before = Commit(root, old, blobs)
            after = Commit(root, new, blobs) if new else Disk()
            return _Reviewer(root, before, after, config, entries).review(old, new)
        finally:
            blobs.close()
    except git.GitError as error:
        raise UsageError(f"{revisions}: {error}") from None


def _commits(root: Path, revisions: str) -> tuple[str, str]:
    first, dots, second = revisions.partition("...")
    if not dots:
        first, dots, second = revisions.partition("..")
    old = _commit(root, first or "HEAD")
    new = _commit(root, second or "HEAD") if dots else ""
    if dots == "...":
        old = git.run(root, "merge-base", old, new).decode().split()[0]
    return old, new


def _commit(root: Path, revision: str) -> str:
    found = git.commit(root, revision)
    if found is None:
        raise UsageError(f"{root} has no revision {revision!r}")
    return found


def _entries(root: Path, old: str, new: str, paths: Sequence[Path]) -> Iterator[_Entry]:
    only = [str(resolved(path)) for path in paths]
    untracked = dict.fromkeys([] if new else git.untracked(root, *only))
    for each in git.differences(root, *filter(None, (old, new)), "--", *only):
        regular = {each.old_mode, each.new_mode} <= {*_REGULAR, _NONE}
        gone = each.new_mode == _NONE
        if gone and each.new in untracked:  # only the index has lost it
            del untracked[each.new]
            gone = False
        yield _Entry("" if each.old_mode == _NONE else each.old, "" if gone else each.new, regular)
    for name in untracked:
        yield _Entry("", name, (root / name).is_file() and not (root / name).is_symlink())


class _Reviewer:
    """What one change is reviewed with."""

    def __init__(
        self, root: Path, before: Commit, after: Disk, config: Config, entries: Sequence[_Entry]
    ) -> None:
        self.root, self.before, self.after, self.entries = root, before, after, entries
        self.runtimes = {
            folder: label
            for folder in self._runtime_folders()
            if (label := bundled_target(folder, after.content)) is not None
        }
        self.wheels = [path for path in self._names() if is_wheel(path.name)]
        self.labels = [*self.runtimes.values(), *filter(None, map(target_of_wheel, self.wheels))]
        names = config.targets or (self._spoken(),)
        plain = tuple(name.removesuffix(" --portable") for name in names)
        if names != plain or {f"{n} --portable" for n in plain} & {*self.labels}:
            config = replace(config, portable=True)
        self.config = replace(config, targets=plain)
        self.targets = chosen_targets(plain)
        delivered = self._delivered
        self.targets = [replace(target, delivered=delivered) for target in self.targets]
        self.facts = AsGpuCode(before, self.targets[0])
        self.cache = ProjectCache(self.facts, DEVICE_CONSTRUCTS)
        self.missing: dict[Path, None] = {}  # runtimes that the new text needs
        self.migrated = bool(self.labels)  # whether the change migrates something

    @property
    def with_runtime(self) -> Target:
        """The target whose runtime the migrated code may import."""
        found = next((t for t in self.targets if t.runtime is not None), self.targets[0])
        return portable(found) if self.config.portable else found

    @property
    def _delivered(self) -> Delivered | None:
        """The runtime, if requirements have to name it."""
        at = next(iter(self.wheels), None)
        if at is None and self.config.runtime != "package":
            return None
        wheel = runtime_wheel(self.with_runtime)
        return Delivered(wheel.name, wheel.requirement, at)

    def review(self, old: str, new: str) -> Review:
        others = [target.label for target in self.targets[1:]]
        result = Review(old, new, ", ".join([self.with_runtime.label, *others]))
        for entry in sorted(self.entries, key=lambda e: _is_no_code(Path(e.old))):
            path = self.root / (entry.new or entry.old)
            if any(folder in self.runtimes for folder in path.parents) or is_wheel(path.name):
                continue
            if not entry.is_text or not is_source(path, self.root, self.config.excluded):
                result.others.append(entry.new or entry.old)
                continue
            try:
                result.files.append(self._file(entry))
            except OSError as error:
                result.errors.append(f"{entry.new}: cannot be read: {error.strerror or error}")
            except _Failed as error:
                result.errors.append(f"{entry.old}: {error}")
        result.files.extend(self._runtime_reviews())
        result.files.sort(key=_attention)
        return result

    # ---- the target -----------------------------------------------------------------------

    def _names(self) -> Iterable[Path]:
        """All files of the new side."""
        if isinstance(self.after, Commit):
            return self.after.files
        listed = git.names(
            self.root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"
        )
        return (self.root / name for name in listed)

    def _runtime_folders(self) -> Iterator[Path]:
        """Folders of the new side that may be a runtime: of any file that it has."""
        folders = dict.fromkeys(name.parent for name in self._names())
        return (folder for folder in folders if folder.name == RUNTIME)

    def _spoken(self) -> str:
        """The target that the new text speaks of."""
        labels = Counter(self.labels)
        if labels:
            return labels.most_common(1)[0][0]
        spoken: Counter[str] = Counter()
        words = {name: _words(target) for name, target in targets().items()}
        for entry in self.entries:
            if entry.new and entry.is_text and is_source(self.root / entry.new, self.root):
                content = self.after.content(self.root / entry.new)
                spoken.update({n: len(found.findall(content)) for n, found in words.items()})
        if not +spoken:
            raise UsageError(
                f"the new code does not show its target: --target {' or '.join(words)}, or target "
                "in [tool.tpu-migrate]"
            )
        return spoken.most_common(1)[0][0]

    # ---- one file -------------------------------------------------------------------------

    def _file(self, entry: _Entry) -> FileReview:
        name, status = entry.new or entry.old, entry.status
        if status == "added":
            text = tuple(self._text(self.after.content(self.root / entry.new)))
            change = LineChange(ChangeKind.BY_HAND, 0, 1, (), (), text)
            return FileReview(name, [change], status)
        before = self.before.content(self.root / entry.old)
        if status == "deleted":
            change = LineChange(ChangeKind.BY_HAND, 0, 1, tuple(self._text(before)), (), ())
            return FileReview(name, [change], status)
        after = self.after.content(self.root / entry.new)
        old_name = entry.old if status == "renamed" else ""
        changes, flags = self._explained(self.root / entry.old, before, after)
        note = "" if changes or before == after else "outputs, layout or ends of lines"
        return FileReview(name, changes, status, old_name, flags, note)

    def _text(self, content: bytes) -> list[str]:
        return content.decode("utf-8", "replace").splitlines()

    def _explained(
        self, path: Path, before: bytes, after: bytes
    ) -> tuple[list[LineChange], tuple[str, ...]]:
        """The changes, by the options that explain the most of them."""
        best: tuple[list[LineChange], tuple[str, ...]] | None = None
        for unsafe, todo in product((False, True), repeat=2):
            options = replace(
                self.config.options,
                unsafe=unsafe or self.config.unsafe,
                todo_comments=todo or self.config.todo_comments,
            )
            project = ProjectFacts(path, self.root, self.facts, self.cache)
            if len(before) > MAX_BYTES and path.suffix == ".py":
                raise _Failed("too large for source")
            result = migrate_for_all(path, before, self.targets, options, project)
            if result.failed:
                raise _Failed(result.diagnostics[0].message)
            if path == self.root / "requirements.txt" and (runtime := self.targets[0].delivered):
                result = named_as_in(after, result, runtime)
            changes = compare(path.suffix, result, after)
            if best is None or _open(changes) < _open(best[0]):
                given = (("--unsafe", unsafe), ("--todo-comments", todo))
                best = changes, tuple(flag for flag, is_on in given if is_on)
                if RUNTIME in result.companions and changes:
                    self.missing[project.import_root(result.source) / RUNTIME] = None
            if not _open(changes):
                break
        assert best is not None
        if _is_no_code(path) and not self.migrated:  # these stay where nothing else is migrated
            stays = compare(path.suffix, Result(before, before), after)
            best = (stays, ()) if _open(stays) < _open(best[0]) else best
        self.migrated = self.migrated or _open(best[0]) < len(best[0])
        return best

    # ---- runtimes -------------------------------------------------------------------------

    def _runtime_reviews(self) -> Iterator[FileReview]:
        """Each runtime that is part of the change, and each that should be."""
        files = runtime_copy(self.with_runtime)
        named = {n for e in self.entries for n in (e.old, e.new) if n}
        for folder in self.runtimes:
            below = [n for n in named if folder in (self.root / n).parents]
            if not below:
                continue
            changes = []
            for inside, content in files.items():
                there = self._or_nothing(folder / inside)
                if there != content:
                    kind = ChangeKind.MISSING if there is None else ChangeKind.DIFFERENT
                    changes.append(LineChange(kind, 0, 1, (), (), (), label=f"runtime: {inside}"))
            if not changes:
                changes = [LineChange(ChangeKind.MADE, 0, 1, (), (), (), label="runtime")]
            yield FileReview(self._name(folder), changes, note="the runtime of the migrated code")
        wheel = runtime_wheel(self.with_runtime)
        for path in self.wheels:
            name = path.relative_to(self.root).as_posix()
            if name in named:
                is_made = (path.name, self._or_nothing(path)) == (wheel.file_name, wheel.content)
                kind = ChangeKind.MADE if is_made else ChangeKind.DIFFERENT
                change = LineChange(kind, 0, 1, (), (), (), label="runtime")
                yield FileReview(name, [change], note="the runtime of the migrated code")
        is_there = self.config.runtime == "package" or bool(self.wheels)
        for folder in () if is_there else self.missing:
            if folder not in self.runtimes:
                change = LineChange(ChangeKind.MISSING, 0, 1, (), (), (), label="runtime")
                yield FileReview(self._name(folder), [change], note="the runtime is not there")

    def _or_nothing(self, path: Path) -> bytes | None:
        try:
            return self.after.content(path)
        except OSError:
            return None

    def _name(self, folder: Path) -> str:
        return f"{PurePosixPath(folder.relative_to(self.root))}/"


def _words(target: Target) -> re.Pattern[bytes]:
    """What migrated code for a target says."""
    modules, devices = ("|".join(map(re.escape, n)) or "(?!)" for n in
                        (target.markers.modules, target.markers.devices))  # fmt: skip
    return re.compile(rf"\b(?:{modules})\b|[\"'](?:{devices})[\"']".encode())


class _Failed(Exception):
    """Why the old text of a file cannot be migrated."""


def _is_no_code(path: Path) -> bool:
    return file_kinds.line_kind(path) in (REQUIREMENT, SETTING)


def _open(changes: Sequence[LineChange]) -> int:
    return sum(change.kind is not ChangeKind.MADE for change in changes)


def _attention(file: FileReview) -> tuple[int, int, str]:
    risks = [change.risk for change in file.changes]
    return min(risks, default=99), -len(file.changes), file.path
