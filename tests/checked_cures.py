"""What the pages say to write by hand and check, of one target."""

from __future__ import annotations

from migrator.by_hand import Cure, cures
from migrator.targets import find_target


def checked(target: str) -> list[Cure]:
    found = (cure.for_target(find_target(target)) for cure in cures())
    return [cure for cure in found if cure is not None and cure.check]


def run(program: str) -> None:
    exec(compile(program, "<by hand>", "exec"), {"__name__": "by_hand"})
