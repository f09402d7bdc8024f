"""Homes: the folders of the user's account for programs' files."""

from __future__ import annotations

import os
import stat
import sys

from migrator.errors import UsageError


def home(kind: str, on_mac: str, elsewhere: str) -> str:
    """The folder of this tool for one kind of files (`TPU_MIGRATE_<KIND>`, XDG, or the platform's).

    Args:
        on_mac, elsewhere: where programs have such folders, below the user's home.

    Raises:
        UsageError: the user has no home, and what could stand for it is someone else's.
    """
    if own := os.environ.get(f"TPU_MIGRATE_{kind}"):
        return os.path.abspath(os.path.expanduser(own))
    # The standard ignores relative paths; they would be in the project.
    given = os.environ.get(f"XDG_{kind}_HOME", "")
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or os.path.join(_of_user(kind), "AppData", "Local")
    elif sys.platform == "darwin":
        base = os.path.join(_of_user(kind), on_mac)
    elif os.path.isabs(given):
        base = given
    else:
        base = os.path.join(_of_user(kind), elsewhere)
    return os.path.join(base, "tpu-migrate")


def cache_home() -> str:
    """For files that can be created again."""
    return home("CACHE", os.path.join("Library", "Caches"), ".cache")


def state_home() -> str:
    """Locks and journals of runs that write."""
    application = os.path.join("Library", "Application Support")
    return home("STATE", application, os.path.join(".local", "state"))


def _of_user(kind: str) -> str:
    """The user's home, or a private folder for a user without one, as in containers."""
    user = os.path.expanduser("~")
    if os.path.isabs(user):
        return user
    import tempfile  # slow to import, compared with everything here

    shared = tempfile.gettempdir()
    return _private(shared, kind) if hasattr(os, "geteuid") else shared  # Windows: the user's own


def _private(shared: str, kind: str) -> str:
    """A folder in one that all users share, where nobody else can have put anything."""
    folder = os.path.join(shared, f"tpu-migrate-{os.geteuid()}")
    try:
        os.makedirs(folder, 0o700, exist_ok=True)
        status = os.lstat(folder)
    except OSError as error:
        why = error.strerror or str(error)
    else:
        if not stat.S_ISDIR(status.st_mode):
            why = "is no folder"
        elif status.st_uid != os.geteuid():
            why = "belongs to another user"
        elif stat.S_IMODE(status.st_mode) & 0o077:
            why = "is open to other users"
        else:
            return folder
    raise UsageError(
        f"{folder}: {why}, and there is no home folder: set HOME, or TPU_MIGRATE_{kind} to a "
        "folder of your own"
    )
