"""JAX's persistent compilation cache: a second run finds the first run's compiled programs."""

import os
from pathlib import Path

import jax


def install(env: object) -> None:
    """Keep compiled programs between runs, in a folder of the user's cache.

    JAX_COMPILATION_CACHE_DIR and JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS win where they are
    set. Where the folder cannot be written (read-only home) nothing is kept, and nothing fails.
    """
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        # Eager code is many small programs; JAX's limit of one second would keep none of them.
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    if getattr(jax.config, "jax_compilation_cache_dir", None):
        return
    folder = _folder()
    if folder is not None:
        jax.config.update("jax_compilation_cache_dir", str(folder))


def _folder() -> Path | None:
    try:
        base = os.environ.get("XDG_CACHE_HOME")
        folder = (Path(base) if base else Path.home() / ".cache") / "tpu_runtime" / "jax"
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # RuntimeError: there is no home
        return None
    return folder if os.access(folder, os.W_OK) else None
