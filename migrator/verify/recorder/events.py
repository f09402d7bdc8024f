"""The events of a program in their order, with their places in its files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from loops import Loops
from store import Store


class Events:
    """The events of a program below the folder ``root``; tensors go to ``store``."""

    def __init__(self, store: Store, root: Path) -> None:
        self.store, self.root = store, root
        self.events: list[dict[str, Any]] = []
        self.step = 0
        self.own: dict[str, str] = {}
        self.loops = Loops(self.is_own)

    def keep(self, kind: str, name: str, found: list[tuple[str, Any]], **about: Any) -> None:
        """Store an event with tensors, each with its place."""
        number, tensors = len(self.events), {}
        for path, tensor in found:
            key = f"{number}.{kind}.{name}{'.' if path else ''}{path}"
            if kept := self.store.add(key, tensor):
                tensors[path] = kept
        self.event(kind, name, tensors=tensors, **about)

    def event(self, kind: str, name: str, **more: Any) -> None:
        where = {"step": self.step, "line": self.line(), "loop": self.loops.here()}
        found = {"kind": kind, "name": name, **where, **more}
        self.events.append(found)
        self.store.note({"event": found, "steps": self.step})

    def line(self) -> str:
        """The innermost line of the program's own files."""
        frame: Any = sys._getframe(1)
        while frame is not None:
            if name := self.is_own(frame.f_code.co_filename):
                return f"{name}:{frame.f_lineno}"
            frame = frame.f_back
        return ""

    def is_own(self, file: str) -> str:
        """The path of one of the program's own files, relative to its folder; "" for others."""
        if file not in self.own:
            path = Path(file)
            inside = path.is_absolute() and self.root in path.parents
            is_own = inside and "tpu_runtime" not in path.parts
            self.own[file] = path.relative_to(self.root).as_posix() if is_own else ""
        return self.own[file]
