"""Places: the folders of the user's account where this tool keeps something."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from migrator.files.homes import cache_home, state_home


def cache_folder() -> Path:
    """What can be made again."""
    return Path(cache_home())


def state_folder() -> Path:
    """Locks and journals of runs that write."""
    return Path(state_home())


def digest(content: bytes) -> str:
    """What stands for the content of a file."""
    return hashlib.sha256(content).hexdigest()


def key(path: Path) -> str:
    """What stands for a path, as a file name."""
    return digest(os.fsencode(path))
