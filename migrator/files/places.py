"""Places: the folders of the user's account where this tool keeps something."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path


def cache_folder() -> Path:
    """What can be made again (`TPU_MIGRATE_CACHE`, XDG, or the platform's)."""
    return _folder("CACHE", Path("Library", "Caches"), Path(".cache"))


def state_folder() -> Path:
    """Locks and journals of runs that write (`TPU_MIGRATE_STATE`, XDG, or the platform's)."""
    return _folder("STATE", Path("Library", "Application Support"), Path(".local", "state"))


def digest(content: bytes) -> str:
    """What stands for the content of a file."""
    return hashlib.sha256(content).hexdigest()


def key(path: Path) -> str:
    """What stands for a path, as a file name."""
    return digest(os.fsencode(path))


def _folder(kind: str, on_mac: Path, elsewhere: Path) -> Path:
    if own := os.environ.get(f"TPU_MIGRATE_{kind}"):
        return Path(own).expanduser().absolute()
    try:
        home = Path.home()
    except RuntimeError:  # a user without one, as containers have them
        import tempfile  # it takes longer to import than all here together

        home = Path(tempfile.gettempdir())
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = home / on_mac
    else:
        # The standard has relative ones ignored; they would lie in the project.
        given = Path(os.environ.get(f"XDG_{kind}_HOME", ""))
        base = given if given.is_absolute() else home / elsewhere
    return base / "tpu-migrate"
