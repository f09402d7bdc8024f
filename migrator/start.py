"""Where the command starts: what needs none of the command line's libraries is answered here."""

from __future__ import annotations

import sys

from migrator import __version__


def main() -> None:
    if sys.argv[1:] == ["--version"]:  # asked by other programs, again and again
        print(f"tpu-migrate, version {__version__}")
        return
    if "--hook" in sys.argv:
        from migrator.idle.answer import is_answered

        if is_answered(sys.argv[1:]):
            return
    from migrator.cli import main as command

    command()
