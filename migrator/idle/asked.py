"""A hook's arguments, if they can be answered before the tool is loaded."""

from __future__ import annotations

import os
import sys

from migrator import __version__

_FLAGS = ("--hook", "--diff", "--check", "-q", "--quiet")
# Each of these requests another output, or a completion.
_OTHERWISE = ("COLUMNS", "FORCE_COLOR", "_TPU_MIGRATE_COMPLETE")


class Asked:
    """The words of a command line: `options` in order, and paths."""

    def __init__(self, options: tuple[str, ...], paths: list[str]) -> None:
        self.options, self.paths = options, paths
        self.diff = "--diff" in options
        self.looks = self.diff or "--check" in options
        self.quiet = "-q" in options or "--quiet" in options
        of_user = os.geteuid() if hasattr(os, "geteuid") else None
        # The key of the premises, besides their contents.
        self.of = repr(
            (__version__, sys.version, sys.executable, sys.path, os.getcwd(), of_user, options)
        )


def asked(arguments: list[str]) -> Asked | None:
    """None if only the tool can answer."""
    if os.name != "posix" or any(os.environ.get(name) for name in _OTHERWISE):
        return None
    if any(stream is None or stream.isatty() for stream in (sys.stdout, sys.stderr)):
        return None
    options, paths = [], []
    words = iter(arguments)
    for word in words:
        if word in _FLAGS or word.startswith("--target="):
            options.append(word)
        elif word == "--target":
            options += [word, next(words, "")]
        elif word.startswith("-"):
            return None
        else:
            paths.append(word)
    if "--hook" not in options or not paths:
        return None
    return Asked(tuple(options), paths)
