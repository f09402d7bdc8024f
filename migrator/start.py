"""Where the command starts: what needs none of the command line's libraries is answered here."""

from __future__ import annotations

import os
import sys

from migrator import __version__


def main() -> None:
    """The command, in a process of its own."""
    try:
        run()
    except SystemExit as end:
        _leave(end.code)
        raise


def run() -> None:
    if sys.argv[1:] == ["--version"]:  # asked by other programs, again and again
        print(f"tpu-migrate, version {__version__}")
        return
    if "--hook" in sys.argv:
        from migrator.idle.answer import is_answered

        if is_answered(sys.argv[1:]):
            return
    elif "--check" in sys.argv or "--diff" in sys.argv:
        from migrator.cache.again import run_of, said_again

        run = run_of(sys.argv[1:])
        code = said_again(run) if run is not None else None
        if code is not None:
            sys.exit(code)
    from migrator.cli import main as command

    command()


def _leave(code: object) -> None:
    """End at once: to free each node of each tree would take a tenth of a run."""
    import atexit
    import threading
    from contextlib import suppress

    if not isinstance(code, int) or threading.active_count() > 1:
        return
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
