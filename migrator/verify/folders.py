"""Working folders, and copies of a user's folder to run programs in."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from migrator.files.discover import is_of_tools

from .goldens import is_golden
from .verify_errors import VerifyError

COPIED_BYTES = 2 * 2**30  # the largest folder that is copied


def check_size(folder: Path) -> None:
    """Raises VerifyError if a folder is too large to copy."""
    size = 0
    for path in _files(folder):
        with suppress(OSError):
            size += path.lstat().st_size
        if size > COPIED_BYTES:
            raise VerifyError(
                f"{folder} is copied, and holds more than {COPIED_BYTES // 2**30} GiB: "
                "start from a smaller folder, and name data by an absolute path"
            )


def copy_folder(source: Path, to: Path, without: Sequence[Path] = ()) -> Path:
    """Copy a folder to write to, without environments, caches, version control and goldens.

    Links within the folder lead into the copy; others are unchanged. Raises VerifyError if a file
    can't be read.
    """
    gone = {path.absolute() for path in without}

    def ignored(folder: str, names: list[str]) -> list[str]:
        paths = {name: Path(folder, name) for name in names}
        return [
            name
            for name, path in paths.items()
            if path.absolute() in gone
            or (path.is_dir() and not path.is_symlink() and _is_left_out(path))
            or _is_odd(path)
        ]

    try:
        shutil.copytree(source, to, ignore=ignored, symlinks=True)
    except shutil.Error as error:
        path, _, why = error.args[0][0]
        raise VerifyError(f"{path} cannot be copied: {why}") from error
    except OSError as error:
        raise VerifyError(f"{source} cannot be copied: {error}") from error
    for path in [to, *_files(to, folders=True)]:
        if path.is_symlink():
            _lead(path, source / path.relative_to(to), source)
        else:
            path.chmod(path.stat().st_mode | stat.S_IRUSR | stat.S_IWUSR)
    return to


def _is_left_out(folder: Path) -> bool:
    """Whether a folder is no part of the program: of a tool, or recorded beside it."""
    return is_of_tools(folder) or is_golden(folder)


def _is_odd(path: Path) -> bool:
    """Sockets, pipes and devices cannot be copied."""
    with suppress(OSError):
        mode = path.lstat().st_mode
        return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode))
    return False


def _lead(link: Path, original: Path, source: Path) -> None:
    """Point a copied link to the right place."""
    leads_to = Path(os.path.normpath(original.parent / original.readlink()))
    source = source.absolute()
    if source in leads_to.parents:
        back = os.path.relpath(leads_to, original.absolute().parent)
    else:
        back = str(leads_to.absolute())
    if back != str(link.readlink()):
        link.unlink()
        link.symlink_to(back)


def _files(top: Path, folders: bool = False) -> Iterator[Path]:
    for folder, names, files in os.walk(top):
        at = Path(folder)
        names[:] = [
            name for name in names if (at / name).is_symlink() or not _is_left_out(at / name)
        ]
        yield from (at / name for name in files)
        if folders:
            yield from (at / name for name in names)


@contextmanager
def workplace(keep: Path | None, name: str) -> Iterator[Path]:
    """A new working folder: kept under ``keep``, otherwise temporary."""
    if keep is None:
        with tempfile.TemporaryDirectory(
            prefix=f"tpu-migrate-{name}-", ignore_cleanup_errors=True
        ) as folder:
            yield Path(folder)
        return
    folder_to_keep = keep.absolute() / name
    try:
        folder_to_keep.mkdir(parents=True)
    except FileExistsError:
        raise VerifyError(f"{folder_to_keep} is there already: choose another --keep") from None
    except OSError as error:
        raise VerifyError(f"{folder_to_keep} cannot be made: {error.strerror}") from error
    yield folder_to_keep
