"""Where the command starts and ends: each exit code, and an error that nobody foresaw."""

from __future__ import annotations

import errno
import os
import sys

from migrator.errors import UsageError, to_send


def main() -> None:
    """The command, in a process of its own."""
    try:
        run()
    except SystemExit as end:
        _leave(end.code)
        raise
    _leave(0)


def run() -> None:
    """The command. An error that nobody foresaw ends with 2: 1 means that something was found."""
    try:
        from migrator.cli import main as command

        command()
    except BrokenPipeError:
        sys.exit(141)
    except KeyboardInterrupt:
        sys.exit(130)
    except (UsageError, OSError) as error:
        _say(_why_not(error))
        sys.exit(2)
    except Exception as error:
        import traceback

        traceback.print_exc()
        _say(f"internal error: {type(error).__name__}: {error}. {to_send()}")
        sys.exit(2)


def _say(message: str) -> None:
    from contextlib import suppress

    from migrator.report.terminal import printable

    with suppress(OSError):  # the exit code says it, too
        print(f"tpu-migrate: {printable(message)}", file=sys.stderr, flush=True)


def _why_not(error: UsageError | OSError) -> str:
    if not isinstance(error, OSError):
        return str(error)
    where = error.filename2 or error.filename
    if not where and isinstance(error, FileNotFoundError):  # what `os.getcwd` says
        return "the current folder was removed or replaced: go into it again (cd)"
    if not where and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO):
        where = "standard output"  # everything else that is written has a name
    return f"{os.fsdecode(where)}: {error.strerror}" if where else error.strerror or str(error)


def _leave(code: object) -> None:
    """End at once: to free each node of each tree would take a tenth of a run."""
    import atexit
    import threading

    if not isinstance(code, int) or threading.active_count() > 1:
        return
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream.closed:  # by a server, which has ended
            continue
        try:
            stream.flush()
        except BrokenPipeError:
            pass  # its reader has seen enough
        except (OSError, ValueError) as error:
            code = code or 2  # what was to be said is lost
            if stream is sys.stdout and isinstance(error, OSError):
                _say(_why_not(error))
    os._exit(code)
