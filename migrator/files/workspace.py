"""Workspace: what may be written, and writing it so that nothing is ever lost."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from migrator.config import UsageError
from migrator.files import git


def cache_folder() -> Path:
    """The user's cache folder of this tool (`TPU_MIGRATE_CACHE`, XDG, or the platform's)."""
    if own := os.environ.get("TPU_MIGRATE_CACHE"):
        return Path(own).expanduser().absolute()
    try:
        home = Path.home()
    except RuntimeError:  # a user without one, as containers have them
        home = Path(tempfile.gettempdir())
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = home / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    return base / "tpu-migrate"


# ---- what may be written -------------------------------------------------------------------------


@dataclass(frozen=True)
class _Repository:
    tracked: frozenset[str]
    modified: frozenset[str]  # differs from the index; what is staged does not


def unsafe_to_write(paths: Iterable[Path]) -> list[str]:
    """Why each of these files may not be overwritten, as "path: reason"; empty if all may.

    A file is safe if git tracks it and it equals the index, or if it is our own last output.
    """
    problems = []
    repositories: dict[Path | None, _Repository | str] = {}
    for path in paths:
        if not path.exists():
            continue
        root = git.top(path)
        if root not in repositories:
            repositories[root] = _repository(root) if root else "is not under version control"
        repository = repositories[root]
        reason = ""
        if root is None or isinstance(repository, str):
            reason = str(repository)
        else:
            name = path.resolve().relative_to(root).as_posix()
            if name not in repository.tracked:
                reason = "is not tracked by git"
            elif name in repository.modified:
                reason = "has changes that are not staged"
        if reason and not _is_own_output(path):
            problems.append(f"{path} {reason}")
    return problems


def untracked(folders: Iterable[Path]) -> list[Path]:
    """Those of some folders with files that git does not have, and does not ignore."""
    return [folder for folder in folders if folder.is_dir() and _has_untracked(folder)]


def _has_untracked(folder: Path) -> bool:
    root = git.top(folder)
    try:
        return root is not None and git.untracked(root, str(folder.resolve())) != []
    except git.GitError:
        return False


def _repository(root: Path) -> _Repository | str:
    """What git has, or why it can not say."""
    try:
        tracked = frozenset(git.names(root, "ls-files", "-z"))
        return _Repository(tracked, frozenset(git.names(root, "diff", "--name-only", "-z")))
    except git.GitError as error:
        return f"is not known to be in version control ({error})"


def _stamp(path: Path) -> Path:
    return cache_folder() / "written" / hashlib.sha256(os.fsencode(path.resolve())).hexdigest()


def _is_own_output(path: Path) -> bool:
    try:
        return _stamp(path).read_text() == hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return False


def _remember(path: Path, content: bytes) -> None:
    stamp = _stamp(path)
    try:
        stamp.parent.mkdir(parents=True, exist_ok=True)
        stamp.write_text(hashlib.sha256(content).hexdigest())
    except OSError:
        pass  # a read-only home only means that the next run asks for --allow-dirty


# ---- writing -------------------------------------------------------------------------------------


def write(path: Path, content: bytes) -> None:
    """Replace a file in one step; a crash leaves the old file or the new one, never a part.

    Links stay links: the file that they lead to is replaced. Permissions stay.
    """
    real = Path(os.path.realpath(path))
    real.parent.mkdir(parents=True, exist_ok=True)
    mode = stat.S_IMODE(real.stat().st_mode) if real.exists() else None
    handle, name = tempfile.mkstemp(dir=real.parent, prefix=f".{real.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        temporary.chmod(0o666 & ~_umask() if mode is None else mode)
        temporary.replace(real)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _remember(real, content)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def check_output(source: Path, output: Path) -> None:
    """Refuse an output folder that would mix with the source or hide files that are there.

    Raises:
        UsageError: it is inside the source, around it, or not empty.
    """
    top, out = source.resolve(), output.resolve()
    if output.suffix == ".py" and not output.is_dir():
        raise UsageError(f"-o {output}: name a folder; the copy and its runtime are written there")
    if out == top or (source.is_dir() and top in out.parents):
        raise UsageError(f"-o {output}: lies inside {source}; choose a folder outside of it")
    if out in top.parents and output.exists():
        raise UsageError(f"-o {output}: holds {source}; choose an empty folder")
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise UsageError(f"-o {output}: is not an empty folder")


def copy(source: Path, output: Path, changed: Mapping[Path, bytes]) -> list[str]:
    """Write a copy of `source` to `output`, without .git, with the `changed` files (paths relative
    to the source's folder). It appears in one step, when it is whole.

    Returns what could not be copied, as "path: reason"; the rest is there all the same. Raises
    UsageError where nothing can be written.
    """
    problems: list[str] = []

    def copy_file(file: str, to: str) -> str:
        try:
            return shutil.copy2(file, to)
        except OSError as error:  # unreadable, a pipe, a socket
            problems.append(f"{file}: not copied: {error.strerror or error}")
            return to

    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(dir=output.parent, prefix=f".{output.name}."))
    except OSError as error:
        raise UsageError(f"-o {output}: can not be made: {error.strerror or error}") from None
    try:
        if source.is_dir():
            ignore = shutil.ignore_patterns(".git", "__pycache__")
            try:
                shutil.copytree(source, staging, True, ignore, copy_file, dirs_exist_ok=True)
            except shutil.Error as errors:  # links, which Windows lets few users make
                problems += [f"{file}: not copied: {why}" for file, _, why in errors.args[0]]
        else:
            copy_file(str(source), str(staging / source.name))
        for relative, content in changed.items():
            target = staging / relative
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.is_symlink():
                target.unlink()
            target.write_bytes(content)
        staging.chmod(0o777 & ~_umask())
        if output.exists():
            output.rmdir()
        staging.replace(output)
        return problems
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
