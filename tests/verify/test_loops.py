"""Where a program is in its loops, as the recorder tells it."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from helpers import REPOSITORY

PROGRAM = """\
def deco(function):
    return function


@deco
def train(epoch, loader):
    for batch, (x, y) in enumerate(loader):
        for name in "ab":
            seen(f"{name}{x}{y}")
    for batch in range(1):
        pass
    seen("behind")


for epoch in range(2):
    for flag in (True,):
        train(epoch, [(5, 6.0)])
step = 3
while step < 4:
    seen("while")
    step += 1
"""


def test_counters_of_all_loops_the_outermost_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(REPOSITORY / "migrator" / "verify" / "recorder"))
    loops = importlib.import_module("loop_positions").Loops(lambda file: file == str(program))
    program = tmp_path / "train.py"
    program.write_text(PROGRAM, encoding="utf-8")
    found: list[tuple[str, str]] = []
    names = {"seen": lambda what: found.append((what, loops.here())), "__name__": "__main__"}
    exec(compile(PROGRAM, str(program), "exec"), names)
    assert found[0] == ("a56.0", "epoch 0, batch 0, x 5")
    assert found[2:4] == [("behind", "epoch 0"), ("a56.0", "epoch 1, batch 0, x 5")]
    assert found[-1] == ("while", "")
