"""Hunks: what changed, and which rules made it."""

from __future__ import annotations

import json
from pathlib import Path

from helpers import REPOSITORY, run

from migrator import migrate_paths
from migrator.formats import notebook
from migrator.pipeline.result import Result
from migrator.report.hunks import Hunk, file_parts, hunks, together


def of(source: str, target: str = "torchax", **options: object) -> list[tuple[list[str], str]]:
    result = run(source, target, **options)
    assert_whole(".py", result)
    return [(h.codes, h.label) for h in hunks(".py", result)]


def assert_whole(suffix: str, result: Result) -> None:
    """The hunks, put into what was before, give what came out."""
    for part in file_parts(suffix, result):
        lines = list(part.before)
        for hunk in reversed([h for h in hunks(suffix, result) if h.cell == part.cell]):
            assert lines[hunk.start : hunk.end] == list(hunk.before)
            lines[hunk.start : hunk.end] = hunk.after
        assert lines == part.after


def test_each_hunk_names_the_rule_that_made_it() -> None:
    source = """import torch

x = torch.ones(2).cuda()
y = x + 1
torch.cuda.empty_cache()
z = y.to("cuda", torch.float32)
print(z)
w = z.to("cuda")
"""
    assert of(source) == [(["MOV001"], ""), (["CUD002", "DEV002"], ""), (["DEV002"], "")]


def test_imports_that_follow_are_called_so() -> None:
    source = "import torch\n\nx = torch.ones(2)\nd = torch.cuda.device_count()\n"
    assert of(source) == [([], "imports"), (["CUD001"], "")]


def test_a_call_over_several_lines_belongs_to_what_changes_in_each() -> None:
    source = """import torch
from torch.utils.data import DataLoader

loader = DataLoader(
    data,
    batch_size=4,
    pin_memory=True,
    drop_last=True,
    generator=torch.Generator(device="cuda"),
)
"""
    by_line = {h.before: h.codes for h in hunks(".py", run(source))}
    assert by_line[("    pin_memory=True,",)] == ["MOV004"]


def test_the_set_up_goes_with_every_edit_of_its_program() -> None:
    """Also where it stands behind a blank line, and the edit of another rule below it."""
    source = """import torch

device = torch.device("cuda")
x = torch.ones(2)
y = x.cuda()
"""
    result = run(source, entry=True)
    found = hunks(".py", result)
    assert [h.codes for h in found] == [[], ["SET001", "DEV002"], ["MOV001"]]
    moved = next(d for d in result.diagnostics if d.code == "MOV001")
    assert together(found, moved) == found


def test_what_is_put_in_for_a_person_is_no_rules_work() -> None:
    source = "import torch\n\ns = torch.cuda.Stream()\n"
    assert of(source, todo_comments=True) == [([], "comments")]


def test_cells_are_compared_by_themselves() -> None:
    cells = ["import torch\n", 'x = torch.ones(2)\ny = x.to("cuda")\n']
    made = [{"cell_type": "code", "execution_count": None, "id": f"c{n}", "metadata": {},
             "outputs": [], "source": cell.splitlines(keepends=True)}
            for n, cell in enumerate(cells)]  # fmt: skip
    book = {"cells": made, "metadata": {"accelerator": "GPU"}, "nbformat": 4, "nbformat_minor": 5}
    result = run(json.dumps(book, indent=1), path="a.ipynb")
    assert_whole(".ipynb", result)
    last = hunks(".ipynb", result)[-1]
    assert (last.cell, last.start, last.codes) == (2, 1, ["DEV002"])
    assert [h.label for h in hunks(".ipynb", result) if h.cell == 0] == ["metadata"]
    text = result.original.decode()
    row = notebook.read_notebook(result.original).row(2, 2)
    assert "to(" in text.splitlines()[row - 1]


def test_every_hunk_of_the_apps_is_accounted_for() -> None:
    for target in ("torchax", "torch_xla"):
        report = migrate_paths([REPOSITORY / "reference_apps"], target)
        made: list[tuple[Path, Hunk]] = []
        for file in report.changed:
            assert_whole(file.path.suffix, file.result)
            made += [(file.path, h) for h in hunks(file.path.suffix, file.result)]
        assert len(made) > 50
        assert [(path, h) for path, h in made if not h.codes and not h.label] == []
