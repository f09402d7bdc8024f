"""Discovery: which files a path refers to, and reading them."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from migrator.distribution import RUNTIME
from migrator.files import git, witness
from migrator.files.reading import read_file
from migrator.files.staging import is_temporary
from migrator.files.user_folders import resolved
from migrator.formats import file_kinds

# How the docstring of each runtime begins: these words must not change.
_OURS = re.compile(rb"migrated from CUDA to TPU by (\w+)[^\"]*?Written beside migrated code")
TODO = re.compile(rb"# TPU-TODO\[[^\]\s]+\]: [^\r\n]*")  # a comment of --todo-comments
_SHEBANG = re.compile(rb"#!.*\bpython")
ENVIRONMENT = "pyvenv.cfg"  # in a folder that is one
_MOST_BARE = 200  # names without a suffix in a folder: beyond that they are data
SKIPPED = frozenset({
    ".git", ".hg", ".svn", ".tox", ".nox", ".venv", "venv", "__pycache__", "node_modules",
    "site-packages", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".eggs", ".ipynb_checkpoints",
})  # fmt: skip


@dataclass
class Found:
    """The files below some paths, in a fixed order, and folders that could not be read."""

    files: list[Path] = field(default_factory=list)
    errors: list[tuple[Path, str]] = field(default_factory=list)
    passed_over: list[tuple[Path, str]] = field(default_factory=list)
    excluded: int = 0  # by patterns: files, and folders with all their contents


def discover(paths: Sequence[Path], exclude: Sequence[str] = (), home: Path | None = None) -> Found:
    """Files below `paths` that may be migrated; one that is named explicitly is always included,
    except in a bundled runtime; with `home` only if a search from there would find it.

    These are Python files (also without a suffix, if the first line says so), notebooks, shell
    scripts, Dockerfiles, Makefiles, requirements and configurations.

    Folders of environments, caches and version control, bundled runtimes, and matches of `exclude`
    (shell patterns on the path or a name) are skipped. Links to folders are not followed, nor
    are those to files outside of a path and its repository.
    """
    found = Found()
    seen: set[Path] = set()
    for path in paths:
        searched = witness.isdir(path)
        candidates = _walk(path, exclude, found) if searched else _named(path, exclude, home)
        # a link beside its target is the same file: the target wins
        for file in sorted(candidates, key=lambda file: (file.is_symlink(), file)):
            real, is_link = resolved(file), file.is_symlink()
            if is_link:
                witness.leads_to(file)
            if real in seen:
                continue
            seen.add(real)
            if is_link and _leads_out(real, path if searched else path.parent):
                said = (file, f"is a link that leads out of the project, to {real}; not read")
                (found.passed_over if searched or home else found.errors).append(said)
            else:
                found.files.append(file)
    found.files.sort()
    return found


def _leads_out(real: Path, folder: Path) -> bool:
    """Whether a file is neither in a folder nor in the folder's repository."""
    around = resolved(folder)
    return not any(real.is_relative_to(top) for top in (around, git.top(around)) if top)


def _walk(top: Path, exclude: Sequence[str], found: Found) -> Iterator[Path]:
    def failed(error: OSError) -> None:
        found.errors.append((Path(error.filename or top), error.strerror or str(error)))

    def wanted(path: Path) -> bool:
        excluded = _excluded(path, top, exclude)
        found.excluded += excluded
        return not excluded

    witness.look_into(top)
    for folder, folders, files in os.walk(top, onerror=failed):
        at = Path(folder)
        folders[:] = [
            name for name in folders if not _is_no_source(at / name) and wanted(at / name)
        ]
        for name in folders:
            witness.look_into(at / name)
        bare = [name for name in files if "." not in name]
        scripts = set(bare if len(bare) <= _MOST_BARE else ())
        for name in files:
            is_code = _has_code(at / name) or (name in scripts and _is_script(at / name))
            if is_code and wanted(at / name):
                yield at / name


def _is_no_source(folder: Path) -> bool:
    return is_of_tools(folder) or is_bundled_runtime(folder)


def is_of_tools(folder: Path) -> bool:
    """Whether a folder is an environment, a cache, or belongs to version control."""
    name = folder.name
    return name in SKIPPED or is_temporary(name) or witness.exists(folder / ENVIRONMENT)


def _named(path: Path, exclude: Sequence[str], home: Path | None) -> Iterator[Path]:
    if home is None:
        passed_over = any(map(is_bundled_runtime, path.absolute().parents))
    else:
        passed_over = is_passed_over(path, home, exclude) or not (
            _has_code(path) or _is_script(path)
        )
    if not passed_over:
        yield path


def is_excluded(path: Path, home: Path, exclude: Sequence[str]) -> bool:
    """Whether patterns exclude a file, or a folder between it and `home`."""
    home, real = resolved(home), resolved(path.parent) / path.name
    if home not in real.parents:
        return False
    return any(_excluded(at, home, exclude) for at in (real, *_between(home, real)))


def _between(home: Path, path: Path) -> Iterator[Path]:
    """The folders of a file up to `home`, without that; none if it lies elsewhere."""
    return (folder for folder in path.parents if home in folder.parents)


def is_passed_over(path: Path, home: Path, exclude: Sequence[str]) -> bool:
    """Whether a search of the folder `home` would skip a file in it."""
    home = resolved(home)
    at = resolved(path.parent)
    if at != home and home not in at.parents:
        return any(map(is_bundled_runtime, (at, *at.parents)))
    inside = map(_is_no_source, _between(home, at / path.name))
    return is_excluded(path, home, exclude) or any(inside)


def is_source(path: Path, top: Path, exclude: Sequence[str] = ()) -> bool:
    """Whether a search of the folder `top` includes a file, by its name alone."""
    folders = path.relative_to(top).parts[:-1]
    around = (top.joinpath(*folders[: n + 1]) for n in range(len(folders)))
    return (
        _has_code(path)
        and SKIPPED.isdisjoint(folders)
        and not any(_excluded(at, top, exclude) for at in (path, *around))
    )


def _has_code(path: Path) -> bool:
    if path.suffix in (".py", file_kinds.NOTEBOOK):
        return True
    return file_kinds.line_kind(path) is not None and not file_kinds.is_data(path)


def _is_script(path: Path) -> bool:
    """Whether a file without a suffix is a Python program."""
    if path.suffix or not witness.isfile(path):
        return False
    witness.looked_at(path)
    try:
        with path.open("rb") as file:
            return _SHEBANG.match(file.readline(200)) is not None
    except OSError:
        return False


def is_bundled_runtime(folder: Path) -> bool:
    """True for a runtime that a migration has written beside a project."""
    return bundled_target(folder) is not None


def bundled_target(folder: Path, content: Callable[[Path], bytes] = read_file) -> str | None:
    """The target of a runtime that a migration has written, None for any other folder."""
    if folder.name != RUNTIME:
        return None
    for inside, label in (("", ""), ("tpu", " --portable")):
        try:
            found = _OURS.search(content(folder / inside / "__init__.py"))
        except OSError:
            continue
        if found:
            return found[1].decode() + label
    return None


def _excluded(path: Path, top: Path, patterns: Sequence[str]) -> bool:
    relative = path.relative_to(top).as_posix()
    return any(
        fnmatch.fnmatch(relative, p.rstrip("/"))
        or fnmatch.fnmatch(path.name, p.rstrip("/"))
        or fnmatch.fnmatch(relative, f"{p.rstrip('/')}/*")
        for p in patterns
    )


def project_root(path: Path, given: Sequence[Path] = ()) -> Path:
    """The folder up to which imports are followed: the top of the version-controlled tree.

    Without version control, the given folder that contains `path`, or the folder of its package.
    """
    folder = path if witness.isdir(path) else path.parent
    for candidate in (folder, *folder.parents):
        if witness.exists(candidate / ".git"):
            return candidate
    for top in given:
        if witness.isdir(top) and (top == folder or top in folder.parents):
            return top
    while witness.exists(folder / "__init__.py") and folder.parent != folder:
        folder = folder.parent
    return folder


def as_module(path: Path, content: bytes) -> bytes | None:
    """A file's content as other files see it; None for a notebook that can't be read."""
    if file_kinds.is_notebook(path):
        from migrator.formats import notebook

        try:
            content = notebook.read_notebook(content).module.encode()
        except notebook.NotANotebook:
            return None
    return TODO.sub(b"#", content)  # what such a comment mentions is no code


class Disk:
    """Reads files and lists folders, each at most once (a `facts.Reader`).

    A notebook is read as the Python module of its cells.
    """

    def __init__(self, given: Mapping[Path, bytes] | None = None) -> None:
        self._given = given or {}  # contents that override the disk
        self._files: dict[Path, bytes | None] = {}
        self._folders: dict[Path, frozenset[str]] = {}

    def content(self, path: Path) -> bytes:
        """The bytes of a file. Raises OSError."""
        given = self._given.get(path)
        return read_file(path) if given is None else given

    def names(self, folder: Path) -> list[str]:
        """The names in a folder. Raises OSError."""
        return witness.names(folder)

    def read(self, path: Path) -> bytes | None:
        if path not in self._files:
            try:
                self._files[path] = as_module(path, self.content(path))
            except OSError:
                self._files[path] = None
        return self._files[path]

    def list(self, folder: Path) -> frozenset[str]:
        known = self._folders.get(folder)  # asked often, and hashes of paths are slow
        if known is None:
            try:
                found = self.names(folder)
            except OSError:
                found = []
            given = [path.name for path in self._given if path.parent == folder]
            known = self._folders[folder] = frozenset([*found, *given])
        return known
