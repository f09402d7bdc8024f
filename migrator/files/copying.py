"""Copying: a migrated copy of a file or a folder, which appears in one step when it is complete.

An earlier run's copy is renewed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from migrator.errors import UsageError
from migrator.files.failures import FULL, advice
from migrator.files.in_place import FileChange
from migrator.files.lock import only_writer
from migrator.files.reading import read_or_none
from migrator.files.renewing import check_renewable, note, renew
from migrator.files.staging import sync_folder
from migrator.files.user_folders import key, resolved

_EXCLUDED = frozenset({".git", "__pycache__"})  # what a copy goes without


def check_output(source: Path, output: Path) -> None:
    """Refuse an output folder that would mix with the source or hide existing files.

    Raises:
        UsageError: it is inside the source, around it, or not empty and not an earlier run's copy.
    """
    try:
        _check_output(source, output)
    except OSError as error:
        raise UsageError(f"-o {output}: {error.strerror or error}") from None


def _check_output(source: Path, output: Path) -> None:
    top, out = resolved(source), resolved(output)
    if output.suffix == ".py" and not output.is_dir():
        raise UsageError(f"-o {output}: name a folder; the copy and its runtime are written there")
    if out == top or (source.is_dir() and top in out.parents):
        raise UsageError(f"-o {output}: lies inside {source}; choose a folder outside of it")
    if out in top.parents and output.exists():
        raise UsageError(f"-o {output}: holds {source}; choose an empty folder")
    if output.exists() and not output.is_dir():
        raise UsageError(f"-o {output}: is not a folder")
    if output.exists() and any(output.iterdir()):
        check_renewable(out, output)


def copy(
    source: Path, output: Path, changes: Sequence[FileChange], beside: Sequence[Path] = ()
) -> list[str]:
    """Write a copy of `source` to `output`, without .git, with the changes applied; of a file, also
    one of the files `beside` it or below.

    Returns what could not be copied, as "path: reason"; everything else is copied.

    Raises:
        UsageError: nothing can be written there, or a file has changed since it was read, or isn't
            beside the source or below.
    """
    _check_beside(source, output, beside)
    out = resolved(output)  # a link's target is replaced, not the link
    with only_writer([out]):
        try:
            with _staging(out) as staging:
                problems = _copied(source, staging)
                for file in beside:
                    to = staging / _relative(file, source.parent)
                    to.parent.mkdir(parents=True, exist_ok=True)
                    problems += _copied(file, to.parent)
                problems += _aim_links(source, staging, out)
                _put(source if source.is_dir() else source.parent, staging, changes)
                if out.exists() and any(out.iterdir()):
                    renew(out, staging)
                    shutil.rmtree(staging)
                else:
                    if out.exists():
                        out.rmdir()
                    staging.replace(out)
                    note(out)
            sync_folder(out.parent)
        except (OSError, shutil.Error) as error:
            said, how = str(error), ""
            if isinstance(error, OSError):
                said, how = error.strerror or said, advice(error)
            raise UsageError(f"-o {output}: {said}; nothing was written{how}") from None
    return problems


def _check_beside(source: Path, output: Path, beside: Sequence[Path]) -> None:
    top = resolved(source.parent)
    for file in beside:
        if not resolved(file).is_relative_to(top):
            common = os.path.commonpath([top, resolved(file)])
            raise UsageError(
                f"-o {output}: {file} belongs to the program of {source}, but lies elsewhere: name "
                f"the folder of both, {common}, or add --only-named"
            )


@contextmanager
def _staging(out: Path) -> Iterator[Path]:
    """A folder beside the output; one left by a killed run is removed."""
    staging = out.parent / f".tpu-migrate-{key(out)[:16]}.tmp"
    if os.path.lexists(staging):
        shutil.rmtree(staging)
    out.parent.mkdir(parents=True, exist_ok=True)
    staging.mkdir()
    try:
        yield staging
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise


def _copied(source: Path, staging: Path) -> list[str]:
    problems: list[str] = []

    def copy_file(file: str, to: str) -> str:
        try:
            if os.path.isfile(file):  # reading a pipe would wait, a device may be endless
                return shutil.copy2(file, to)
            problems.append(f"{file}: not copied: not a regular file")
        except OSError as error:
            if error.errno in FULL:
                raise
            problems.append(f"{file}: not copied: {error.strerror or error}")
        return to

    if not source.is_dir():
        copy_file(str(source), str(staging / source.name))
        return problems
    ignore = shutil.ignore_patterns(*_EXCLUDED)
    try:
        shutil.copytree(source, staging, True, ignore, copy_file, dirs_exist_ok=True)
    except shutil.Error as errors:  # folders, and links, which few Windows users may create
        found = [(file, str(why)) for file, _, why in errors.args[0]]
        for code in FULL:  # it continues if a file can't be copied
            if any(os.strerror(code) in why for _, why in found):
                raise OSError(code, os.strerror(code)) from None
        problems += [f"{file}: not copied: {why}" for file, why in found]
    return problems


def _aim_links(source: Path, staging: Path, out: Path) -> Iterator[str]:
    """Have the links of a copy lead where they belong: into the copy, instead of into the source;
    those that lead elsewhere still do so from its place.

    Yields "path: reason" for those that can't be changed. Raises OSError.
    """
    top, copied = resolved(source), resolved(staging)
    for folder, folders, files in os.walk(copied):
        for link in filter(Path.is_symlink, (Path(folder, name) for name in (*folders, *files))):
            said, place = link.readlink(), link.relative_to(copied)
            wanted = _aimed(said, top / place, top, out / place)
            if wanted == said:
                continue
            try:
                link.unlink()
                link.symlink_to(wanted, target_is_directory=(top / place).is_dir())
            except OSError as error:
                if error.errno in FULL:
                    raise
                yield f"{source / place}: not copied: {error.strerror or error}"


def _aimed(said: Path, link: Path, top: Path, copy: Path) -> Path:
    """What the copy of a link has to say."""
    target = link.parent / said  # `said` alone, if that is absolute
    real = resolved(target.parent) / target.name if target.name != ".." else resolved(target)
    if real.is_relative_to(top) and _EXCLUDED.isdisjoint(real.relative_to(top).parts):
        if not said.is_absolute() and _stays_within(said, link.parent.relative_to(top)):
            return said
        return Path(os.path.relpath(real, link.parent))
    return said if said.is_absolute() else Path(os.path.relpath(real, copy.parent))


def _stays_within(said: Path, folder: Path) -> bool:
    """Whether no step of a relative link, from a folder of the source, leads out of that."""
    depth = len(folder.parts)
    for part in said.parts:
        depth += -1 if part == ".." else 1
        if depth < 0:
            return False
    return True


def _put(top: Path, staging: Path, changes: Sequence[FileChange]) -> None:
    """Write the changes into the copy. Raises OSError, UsageError."""
    folders = set()
    for change in changes:
        relative = _relative(change.path, top)
        if read_or_none(change.path) != change.before:
            raise UsageError(f"{change.path} has changed in the meantime; nothing was written")
        at = staging / relative
        if not resolved(at.parent).is_relative_to(resolved(staging)):
            raise UsageError(f"{change.path}: a link leads out of {top}; nothing was written")
        at.parent.mkdir(parents=True, exist_ok=True)
        if at.is_symlink():
            at.unlink()
        if change.after is None:
            at.unlink(missing_ok=True)
            continue
        with at.open("wb") as file:
            file.write(change.after)
            file.flush()
            os.fsync(file.fileno())
        folders.add(at.parent)
    for folder in folders:
        sync_folder(folder)


def _relative(path: Path, top: Path) -> Path:
    try:
        return path.relative_to(top)
    except ValueError:
        return resolved(path).relative_to(resolved(top))
