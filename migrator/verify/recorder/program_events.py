"""The events of a program in their order, with their places in its files."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from loop_positions import Loops
from recording_store import Store, without_folder


class Events:
    """The events of a program below the folder ``root``; tensors go to ``store``.

    The values of some are read later, because the program computes them later; events and tensors
    are written in the program's order all the same.
    """

    def __init__(self, store: Store, root: Path) -> None:
        self.store, self.root = store, root
        self.events: list[dict[str, Any]] = []
        self.step = 0
        self.own: dict[str, str] = {}
        self.loops = Loops(self.is_own)
        # Events that aren't written yet: whether their values are there, and what reads them.
        self.unread: deque[tuple[dict[str, Any], Callable[[], bool], Callable[[], Any]]] = deque()

    def keep(self, kind: str, name: str, found: list[tuple[str, Any]], **about: Any) -> None:
        """Store an event with tensors, each with its place."""
        self.event(kind, name, tensors=self.stored(kind, name, len(self.events), found), **about)

    def stored(
        self, kind: str, name: str, number: int, found: list[tuple[str, Any]]
    ) -> dict[str, str]:
        """Store the tensors of the event with this number. Returns their names in the store."""
        tensors = {}
        for path, tensor in found:
            path = without_folder(path, self.root)
            key = f"{number}.{kind}.{name}{'.' if path else ''}{path}"
            if kept := self.store.add(key, tensor):
                tensors[path] = kept
        return tensors

    def event(self, kind: str, name: str, **more: Any) -> None:
        self.later(kind, name, lambda: True, dict, **more)

    def later(
        self,
        kind: str,
        name: str,
        is_there: Callable[[], bool],
        read: Callable[[], dict[str, Any]],
        **more: Any,
    ) -> None:
        """An event that happens now. ``read`` returns the rest of it, once its values are there."""
        where = {"step": self.step, "line": self.line(), "loop": self.loops.here()}
        found = {"kind": kind, "name": name, **where, **more}
        self.events.append(found)
        self.unread.append((found, is_there, read))
        self.read()

    def read(self) -> None:
        """Write the events whose values are there."""
        while self.unread and self.unread[0][1]():
            self._write()

    def finish_reading(self) -> None:
        """Write all events, except those whose values can't be computed: the program failed."""
        while self.unread:
            try:
                self._write()
            except Exception:
                failed = self.unread.popleft()[0]
                self.events = [event for event in self.events if event is not failed]

    def _write(self) -> None:
        found, _, read = self.unread[0]
        found.update(read())
        self.unread.popleft()
        self.store.note({"event": found, "steps": found["step"]})

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
