"""JAX's persistent compilation cache: a second run reuses the first run's compiled programs."""

import os
from pathlib import Path

import jax


def install(env: object) -> None:
    """Keep compiled programs between runs, in the user's cache folder.

    JAX_COMPILATION_CACHE_DIR and JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS take precedence if
    they are set. If the folder can't be written (read-only home), nothing is kept or raised.
    """
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        # Eager code runs many small programs; JAX's limit of one second would keep none of them.
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
        if not folder.is_absolute():  # in the working folder, others may have put something
            return None
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # RuntimeError: there is no home directory
        return None
    return folder if os.access(folder, os.W_OK) else None
