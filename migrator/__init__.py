"""tpu-migrate: rewrite GPU PyTorch source for TPUs, and prove that the numbers agree.

from migrator import migrate_paths, migrate_source
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from migrator.distribution import __version__

if TYPE_CHECKING:
    from migrator.remaining.remaining import find_remaining
    from migrator.runs.run import migrate_paths, migrate_source

__all__ = ["__version__", "find_remaining", "migrate_paths", "migrate_source"]


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext migrator`: cells that start with `%%tpu_migrate` run migrated."""
    from migrator.jupyter.magic import register

    register(shell)


def __getattr__(name: str) -> Any:
    """Import the library calls when they are asked for: the runtime and `--help` need none."""
    if name in ("migrate_paths", "migrate_source"):
        from migrator.runs import run

        return getattr(run, name)
    if name == "find_remaining":
        from migrator.remaining.remaining import find_remaining

        return find_remaining
    raise AttributeError(name)
