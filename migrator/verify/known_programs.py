"""Programs that an earlier forecast compiled for a TPU: the compiler takes minutes for some."""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from migrator.cache import entry_store

from .tpu import Compiler

KIND = "compiled"  # of its entries
_ROOT = "@work@"  # in the place of a run's folder, which each run has for itself
# What the compiler reads from the environment.
_FLAGS = ("LIBTPU_INIT_ARGS", "XLA_FLAGS", "TPU_LIBRARY_PATH")


def with_known(
    compiler: Compiler, topology: str, versions: Mapping[str, str], root: Path
) -> Compiler:
    """``compiler``, but for programs that are known by their whole text, with its source lines.

    Args:
        versions: of the packages that compile.
        root: the run's folder, whose name programs have in them.
    """
    tool = hashlib.sha256((files(__package__) / "compile_for_tpu.py").read_bytes()).hexdigest()
    how = [topology, sorted(versions.items()), tool, [os.environ.get(name) for name in _FLAGS]]

    def key(program: Path) -> str:
        text = program.read_text("utf-8", "replace").replace(str(root), _ROOT)
        return f"{how} {hashlib.sha256(text.encode()).hexdigest()}"

    def compile_others(programs: list[Path]) -> dict[str, Any]:
        found = {program: _load(program, key(program), root) for program in programs}
        others = [program for program in programs if found[program] is None]
        answer = compiler(others) if others else {"programs": [], "error": None}
        for program, facts in zip(others, answer["programs"], strict=False):
            found[program] = facts
            _store(program, key(program), facts, root)
        # One that was not compiled, since the time was spent, has none after it.
        last = next((n for n, p in enumerate(programs) if found[p] is None), len(programs))
        return {**answer, "programs": [found[program] for program in programs[:last]]}

    return compile_others


def _load(program: Path, key: str, root: Path) -> dict[str, Any] | None:
    entry = entry_store.load_entry(KIND, key)
    if entry is None:
        return None
    facts, packed = entry
    if packed:
        text = zlib.decompress(packed).decode().replace(_ROOT, str(root))
        program.with_suffix(".hlo").write_text(text, "utf-8")
    return {**facts, "file": program.name, "seconds": 0.0}


def _store(program: Path, key: str, facts: dict[str, Any], root: Path) -> None:
    """Not what was refused, but for the memory that it needs: something else may have failed."""
    text = program.with_suffix(".hlo")
    if facts["error"]:
        if "out of memory" in facts["error"]:
            entry_store.store_entry(KIND, key, (facts, b""))
    elif text.is_file():
        content = text.read_text("utf-8").replace(str(root), _ROOT).encode()
        entry_store.store_entry(KIND, key, (facts, zlib.compress(content)))
