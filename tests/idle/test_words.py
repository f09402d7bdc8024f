"""What is certain by words alone: never less than what the engine finds."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from helpers import REPOSITORY, write_tree

from migrator.analysis.project.facts import ProjectFacts
from migrator.analysis.project.project_cache import ProjectCache
from migrator.files.discover import Disk
from migrator.idle.imported import Unsure, importable
from migrator.options import Options
from migrator.pipeline.analyse import letters_of_constructs, may_hold_constructs
from migrator.pipeline.normalise import foreign
from migrator.registry import registry
from migrator.targets import Target, targets


@cache
def sources() -> tuple[bytes, ...]:
    """The programs of this repository, and what the examples of the rules are made of."""
    rooms = (REPOSITORY / name for name in ("reference_apps", "benchmarks"))
    found = [path.read_bytes() for room in rooms for path in sorted(room.rglob("*.py"))]
    for rule in registry().rules.values():
        for example in rule.examples:
            found += [value.encode() for value in vars(example).values() if isinstance(value, str)]
    lines = [line for source in found for line in source.splitlines()]
    return *found, *lines


@pytest.mark.parametrize("target", targets().values(), ids=lambda target: target.name)
@pytest.mark.parametrize("replaced", [(), (("mine.on_gpu", "mine.on_tpu"),)], ids=["", "replaced"])
def test_no_construct_is_without_a_word(
    target: Target, replaced: tuple[tuple[str, str], ...]
) -> None:
    options = Options(replace=replaced)
    letters = letters_of_constructs(target, options)
    assert all(letters)
    holding = 0
    for source in (*sources(), b"import mine\nmine.on_gpu()\n"):
        if may_hold_constructs(source, target, options) or foreign(source, target) is not None:
            holding += 1
            assert any(word in source for word in letters), source
    assert holding > 100


# ---- imports -------------------------------------------------------------------------------------

NAMES = ("core", "util", "model", "data")


def statements(chance: random.Random) -> Iterator[str]:
    """Imports as people write them, and lines that look as if they were some."""
    for _ in range(chance.randint(1, 5)):
        dots = "." * chance.choice((0, 0, 1, 1, 2, 3))
        path = ".".join(chance.choices(NAMES, k=chance.randint(1, 3)))
        taken = chance.sample(NAMES, 2)
        yield chance.choice((
            f"import {path}", f"import os, {path} as p", f"from {dots or '.'} import {taken[0]}",
            f"from {dots}{path} import {taken[0]}, {taken[1]} as q",
            f"from {dots}{path} import (  # not (yet)\n  {taken[0]},  # the )\n  {taken[1]},\n)",
            f"from {dots}{path} \\\n    import {taken[0]}", f"from {dots or '.'} import *",
            f"if True: from {dots}{path} import ({taken[0]},\n{taken[1]})",
            f"x = '#'; from {dots or '.'} import (\n  {taken[0]})", "print('from here (')",
            f"try:\n  import {path}\nexcept ImportError:\n  from {dots}{path} import {taken[0]}",
        ))  # fmt: skip


def project(chance: random.Random) -> dict[str, str]:
    files = {}
    for _ in range(chance.randint(3, 10)):
        folder = "/".join(chance.choices(NAMES, k=chance.randint(0, 3)))
        name = chance.choice((*NAMES, "__init__"))
        files[f"{folder}/{name}.py".lstrip("/")] = "\n".join(statements(chance)) + "\n"
    return files


@pytest.mark.parametrize("seed", range(60))
def test_no_import_is_overlooked(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    root = write_tree(tmp_path / "project", project(chance)).resolve()
    disk = Disk()
    cache = ProjectCache(disk)

    def listed(folder: str) -> frozenset[str]:
        return frozenset(os.listdir(folder) if os.path.isdir(folder) else ())

    compared = 0
    for path in root.rglob("*.py"):
        facts = ProjectFacts(path, root, disk, cache, None)
        found = {str(other) for other in facts.imports(path)} - {str(path)}
        try:
            known = set(importable(str(path), path.read_bytes(), str(root), listed))
        except Unsure:
            continue
        compared += len(found)
        assert found <= known, path.read_text()
    assert compared or seed
