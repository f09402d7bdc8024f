"""Options of a migration that change what is written. The command line's own are in `config`."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path

from migrator.diagnostics import Range


@dataclass(frozen=True)
class Options:
    """Everything beside source, facts and target that decides about the output."""

    select: tuple[str, ...] = ()  # code prefixes; empty means all
    ignore: tuple[str, ...] = ()
    suppress: tuple[str, ...] = ()  # as if a comment did, in all of the file
    suppress_in: tuple[tuple[str, tuple[str, ...]], ...] = ()  # the same, by patterns of paths
    unsafe: bool = False
    precision: str | None = None  # "high" or "default" instead of what the script asks for
    runtime: str = "wheel"  # how programs get the runtime; or "package", "copy"
    portable: bool = False  # the program still runs on a GPU and on a CPU
    shard: str = "replicated"  # or "fsdp" (of data-parallel programs), "tp", "tp-row"
    num_cores: str = "all"  # or "1": how many devices a data-parallel program uses
    replace: tuple[tuple[str, str], ...] = ()  # names of the project, and what becomes of them
    todo_comments: bool = False  # `# TPU-TODO[CODE]: reason` above what is left to change by hand
    # The versions of the environment, by distribution, with Python's; those of the target without.
    versions: tuple[tuple[str, str], ...] = ()
    # Whether a construct, by its place and the code of its rule, is rewritten now; None: all are.
    only: Callable[[Range, str], bool] | None = None
    entry: bool | None = None  # force the set-up statements on or off; None: look at the file

    @property
    def tensor_parallel(self) -> str:
        """What the layers behind divided ones become, replicated or row; "" without --shard tp."""
        return {"tp": "replicated", "tp-row": "row"}.get(self.shard, "")

    def in_file(self, path: Path) -> Options:
        """The options for a file."""
        if not self.suppress_in:
            return self
        real = Path(os.path.realpath(path.parent), path.name).as_posix()
        found = [codes for pattern, codes in self.suppress_in if fnmatch(real, pattern)]
        return replace(self, suppress=(*itertools.chain(*found),), suppress_in=())

    def enabled(self, code: str) -> bool:
        if any(code.startswith(prefix) for prefix in self.ignore):
            return False
        return not self.select or any(code.startswith(prefix) for prefix in self.select)
