"""Homes: where the user's account keeps what programs make. Imports next to nothing."""

from __future__ import annotations

import os
import sys


def home(kind: str, on_mac: str, elsewhere: str) -> str:
    """The folder of this tool for one kind of files (`TPU_MIGRATE_<KIND>`, XDG, or the platform's).

    Args:
        on_mac, elsewhere: where programs have their folders for them, below the user's own.
    """
    if own := os.environ.get(f"TPU_MIGRATE_{kind}"):
        return os.path.abspath(os.path.expanduser(own))
    user = os.path.expanduser("~")
    if not os.path.isabs(user):  # a user without one, as containers have them
        import tempfile  # it takes longer to import than all here together

        user = tempfile.gettempdir()
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or os.path.join(user, "AppData", "Local")
    elif sys.platform == "darwin":
        base = os.path.join(user, on_mac)
    else:
        # The standard has relative ones ignored; they would lie in the project.
        given = os.environ.get(f"XDG_{kind}_HOME", "")
        base = given if os.path.isabs(given) else os.path.join(user, elsewhere)
    return os.path.join(base, "tpu-migrate")


def cache_home() -> str:
    """What can be made again."""
    return home("CACHE", os.path.join("Library", "Caches"), ".cache")


def state_home() -> str:
    """Locks and journals of runs that write."""
    application = os.path.join("Library", "Application Support")
    return home("STATE", application, os.path.join(".local", "state"))
