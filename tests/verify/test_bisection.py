"""What is said of the lines where two runs part; the search itself is tested on the targets."""

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from migrator import migrate_source
from migrator.verify.bisection import Bisection, TracePlace
from migrator.verify.bisection_sources import edits_of, with_sources
from migrator.verify.bisection_table import bisected

SOURCE = """\
import torch

net = torch.nn.Linear(2, 2).cuda()
x = torch.ones(
    2, 2,
).cuda()
y = net(x)
print(y.sum())
"""


def _migrated() -> tuple[str, int]:
    text = migrate_source(SOURCE, target="torchax").source.decode()
    return text, next(i for i, line in enumerate(text.splitlines(), 1) if "net(x)" in line)


def test_an_edit_of_the_statement_is_shown_with_what_made_it() -> None:
    result = migrate_source(SOURCE, target="torchax")
    edits = edits_of(".py", result, {4, 5, 6}, set())
    assert [edit.before for edit in edits] == [[").cuda()"]]
    assert edits[0].after == [').to("jax")']
    assert edits[0].codes and all(edits[0].messages)
    _, line = _migrated()
    assert edits_of(".py", result, {7}, {line}) == []


def test_lines_get_their_text_and_a_statement_counts_as_a_whole(tmp_path: Path) -> None:
    for name, text in (("a", SOURCE), ("b", _migrated()[0])):
        (tmp_path / name).mkdir()
        (tmp_path / name / "s.py").write_text(text, encoding="utf-8")
    start = next(i for i, line in enumerate(_migrated()[0].splitlines(), 1) if "x = " in line)
    places = [TracePlace("torch.ones", f"s.py:{line}", "") for line in (4, start)]
    found = Bisection(
        0, None, "", "output", "", "2 of 4 elements beyond it", *places, want=1.0, got=2.0,
        allowed=1e-5, at=[0, 1], agreed=3, differences=["argument 1: 2, 3 here"],
    )  # fmt: skip
    result = migrate_source(SOURCE, target="torchax")
    found = with_sources(found, tmp_path / "a", tmp_path / "b", {"s.py": result})
    assert found.original is not None and found.original.text == "x = torch.ones("
    assert [edit.before for edit in found.edits] == [[").cuda()"]]
    console = Console(width=200, record=True, file=StringIO())
    console.print(bisected(found))
    shown = console.export_text()
    for part in ("the script itself", "torch.ones", "s.py:4  x = torch.ones(", "at [0, 1]",
                 "original 1, here 2, allowed 1e-05", "argument 1", '+ ).to("jax")'):  # fmt: skip
        assert part in shown, shown


@pytest.mark.parametrize(
    ("old", "new", "line", "shown"),
    [
        ("y = net(x)", "y = net(x) * 2", "y = net", ["- y = net(x)", "+ y = net(x) * 2"]),
        ("y = net(x)", "y = net(x)\ny = y.abs()", "y = y.abs", ["+ y = y.abs()"]),
        ("y = net(x)", "y = 2 * net(x)", "print", ["+ y = 2 * net(x)"]),  # above it
        ("print(", "pass\nprint(", "y = net", ["tpu-migrate didn't change or report these lines"]),
        ("# net", "# a net", "x = ", ["- ).cuda()", '+ ).to("jax")']),
    ],
)
def test_what_was_changed_by_hand_since_a_golden_is_shown_so(
    tmp_path: Path, old: str, new: str, line: str, shown: list[str]
) -> None:
    golden = f"# net\n{SOURCE}"
    now = golden.replace(old, new)
    result = migrate_source(now, target="torchax")
    texts = {"golden": golden, "now": now, "migrated": result.source.decode()}
    for name, text in texts.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "s.py").write_text(text, encoding="utf-8")

    def place(text: str) -> TracePlace | None:
        at = next((i for i, t in enumerate(text.splitlines(), 1) if t.startswith(line)), 0)
        return TracePlace("op", f"s.py:{at}", "") if at else None

    found = Bisection(0, None, "", "output", original=place(golden),
                      migrated=place(texts["migrated"]))  # fmt: skip
    folders = tmp_path / "golden", tmp_path / "migrated"
    found = with_sources(found, *folders, {"s.py": result}, source=tmp_path / "now")
    text = bisected(found).plain
    assert all(part in text for part in shown), text
    by_hand = "changed since the golden was recorded" in text
    assert by_hand == any("y = " in part for part in shown), text
    assert not by_hand or "line 8" in text or "line 9" in text, text


def test_what_was_not_found_is_said() -> None:
    text = bisected(Bisection(2, problem="all 12 tensors of the step agree")).plain
    assert text == "bisect: step 3: nothing found: all 12 tensors of the step agree"
