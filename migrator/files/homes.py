"""Homes: the folders of the user's account for programs' files. Imports almost nothing."""

from __future__ import annotations

import os
import sys


def home(kind: str, on_mac: str, elsewhere: str) -> str:
    """The folder of this tool for one kind of files (`TPU_MIGRATE_<KIND>`, XDG, or the platform's).

    Args:
        on_mac, elsewhere: where programs have such folders, below the user's home.
    """
    if own := os.environ.get(f"TPU_MIGRATE_{kind}"):
        return os.path.abspath(os.path.expanduser(own))
    user = os.path.expanduser("~")
    if not os.path.isabs(user):  # a user without a home, as in containers
        import tempfile  # slow to import, compared with everything here

        user = tempfile.gettempdir()
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or os.path.join(user, "AppData", "Local")
    elif sys.platform == "darwin":
        base = os.path.join(user, on_mac)
    else:
        # The standard ignores relative paths; they would be in the project.
        given = os.environ.get(f"XDG_{kind}_HOME", "")
        base = given if os.path.isabs(given) else os.path.join(user, elsewhere)
    return os.path.join(base, "tpu-migrate")


def cache_home() -> str:
    """For files that can be created again."""
    return home("CACHE", os.path.join("Library", "Caches"), ".cache")


def state_home() -> str:
    """Locks and journals of runs that write."""
    application = os.path.join("Library", "Application Support")
    return home("STATE", application, os.path.join(".local", "state"))
