"""By hand: what to write in the place of a construct that no rule rewrites.

Each TOML file here is a `Cure`. A table `[on.TARGET]` replaces some of its fields on one target.
Tests run `after` and `check` on each target, and migrate `before` and `after`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from migrator.options import Options
from migrator.pipeline.engine import migrate_file
from migrator.targets import RUNTIME, Target, find_target, targets


@dataclass(frozen=True)
class Cure:
    """What takes the place of a construct, and a program that checks it.

    `before` is code that is reported. `after` does the same on the target; `check` compares it with
    a reference on the CPU and fails if they differ. `device` is the target's device.
    """

    key: str  # the name of its file
    title: str
    codes: tuple[str, ...]  # of the diagnostics that it is for
    offers: str  # what there is on the target, in a sentence or two
    before: str
    after: str
    check: str
    names: tuple[str, ...] = ()  # what a construct was found by, or how that begins; none: any
    path: str = "example.py"  # of `before` and `after`; the name tells the kind of file
    targets: tuple[str, ...] = ()  # by name; none: all that run PyTorch
    on: Mapping[str, Mapping[str, str]] = field(default_factory=dict, hash=False)
    target: str = ""  # the one that it was asked for

    def for_target(self, target: Target) -> Cure | None:
        """The same as it is on a target; None if it doesn't hold there."""
        wanted = self.targets or tuple(n for n, t in targets().items() if t.framework == "torch")
        if target.name not in wanted:
            return None
        own: dict[str, Any] = dict(self.on.get(target.name, {}))
        return replace(self, **own, target=target.name)

    def fits(self, code: str, name: str) -> int:
        """How well it fits a diagnostic: 0 not at all, more for a longer name."""
        if code not in self.codes:
            return 0
        if not self.names:
            return 1
        fitting = (n for n in self.names if name == n or name.startswith(f"{n}."))
        return max((1 + len(n) for n in fitting), default=0)

    @property
    def device(self) -> str:
        return find_target(self.target).api.device

    @property
    def program(self) -> str:
        """`after`, migrated, and `check` as one program that runs on the target; "" without one."""
        if not self.check:
            return ""
        target, options = find_target(self.target), Options(entry=False)
        code = migrate_file(Path(self.path), self.after.encode(), target, options).source.decode()
        begin = f"import {RUNTIME}\n\n{RUNTIME}.setup()\ndevice = {self.device!r}\n"
        return f"{begin}{code}{self.check}"


@cache
def cures() -> Sequence[Cure]:
    """All of them, by their keys."""
    found = (file for file in files(__name__).iterdir() if file.name.endswith(".toml"))
    texts = {file.name.removesuffix(".toml"): file.read_text("utf-8") for file in found}
    return tuple(_cure(key, tomllib.loads(text)) for key, text in sorted(texts.items()))


def _cure(key: str, table: Mapping[str, Any]) -> Cure:
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in table.items()}
    return Cure(key=key, **values)


def cure_for(code: str, name: str, target: Target) -> Cure | None:
    """The cure that fits a diagnostic best on a target; None if there is none."""
    found = [
        (fit, own)
        for cure in cures()
        if (fit := cure.fits(code, name)) and (own := cure.for_target(target))
    ]
    return max(found, key=lambda each: each[0])[1] if found else None
