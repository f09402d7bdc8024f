"""Which files another may import, by words alone: never fewer than `ImportGraph` finds."""

from __future__ import annotations

import os

from migrator import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Listed = Callable[[str], frozenset[str]]  # the names in a folder

_BETWEEN = bytes(c if chr(c).isalnum() or c in (95, *range(128, 256)) else 32 for c in range(256))
_DEEPEST = 12  # nested folders


class Unsure(Exception):
    """Only the tool can tell."""


def importable(path: str, source: bytes, root: str, listed: Listed) -> Iterator[str]:
    """The project files that a module may import.

    Raises:
        Unsure: it may change where modules are found, or has a form that isn't parsed here.
    """
    if b"import" not in source:
        return
    words = set(source.translate(_BETWEEN).split())
    if b"site" in words or any(b"sys" in line and b"path" in line for line in source.split(b"\n")):
        raise Unsure  # it may add folders
    folder = os.path.dirname(path)
    if folder != root and not folder.startswith(f"{root}/"):
        raise Unsure
    above = folder.removeprefix(root).count("/")
    named: set[str] = set()
    for line in _clauses(source):
        if not line.isascii() or b". ." in line or b"." * (above + 2) in line:
            raise Unsure
        named.update(line.translate(_BETWEEN).decode().split())
    while True:
        for base in (folder, f"{folder}/src"):
            yield from _named_in(base, named, listed, 0)
        if folder == root:
            return
        folder = os.path.dirname(folder)


def _clauses(source: bytes) -> Iterator[bytes]:
    """All lines that may belong to imports."""
    is_open = False  # whether a bracket is open
    for line in source.replace(b"\\\r\n", b" ").replace(b"\\\n", b" ").splitlines():
        code = line.partition(b"#")[0]
        if b"import" in line or b"from" in line:
            yield line
            is_open = any(part.rfind(b"(") > part.rfind(b")") for part in (line, code))
        elif is_open:
            yield line
            is_open = b")" not in code


def _named_in(folder: str, named: set[str], listed: Listed, depth: int) -> Iterator[str]:
    """Files at or below a folder whose names consist of these words."""
    names = listed(folder)
    if "__init__.py" in names:
        yield f"{folder}/__init__.py"
    for word in named:
        if f"{word}.py" in names:
            yield f"{folder}/{word}.py"
        if word in names:
            if depth == _DEEPEST:
                raise Unsure
            yield from _named_in(f"{folder}/{word}", named, listed, depth + 1)
