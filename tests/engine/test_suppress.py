"""Comments that switch nothing off are said."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import run, write_tree

from migrator import migrate_paths
from migrator.diagnostics import Severity


def said(line: str, **options: object) -> list[str]:
    result = run(f"import torch\nx = torch.ones(3).cuda()\n{line}\n", "torchax", **options)
    found = [d for d in result.diagnostics if d.severity is Severity.ADVICE]
    assert all(d.code == "SUP001" and d.range.line == 3 for d in found)
    return [d.message for d in found]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "y = x.cuda()  # tpu-migrate: ignore[MOV999, MOV001]",
            "there is no rule MOV999: nothing is ignored",
        ),
        (
            "y = x.cuda()  # tpu-migrate: ignored",
            "`ignored` is not one of ignore-file, ignore, off or on: this comment does nothing",
        ),
        (
            "y = x + 1  # tpu-migrate: ignore[MOV001]",
            "there is nothing to ignore on this line: remove the comment",
        ),
        (
            "y = x.cuda()  # tpu-migrate: ignore[PRE001]",
            "there is nothing for PRE001 on this line: take it out of the comment",
        ),
        (
            "y = x.cuda()  # tpu-migrate: ignore[CUD004, MOV, LIB001]",
            "there is nothing for CUD004 and LIB001 on this line: take them out of the comment",
        ),
        (
            "# tpu-migrate: ignore-file[XYZ]",
            "there is no rule XYZ: nothing is ignored",
        ),
    ],
)
def test_a_comment_that_switches_nothing_off_is_said(line: str, message: str) -> None:
    assert said(line) == [message]


@pytest.mark.parametrize(
    "line",
    [
        "y = x.cuda()  # tpu-migrate: ignore",
        "y = x.cuda()  # tpu-migrate: ignore[MOV]",
        "y = x.cuda()  # tpu-migrate: ignore[MOV001, ADV004]",  # advice may be given later
        "y = x.cuda()  # tpu-migrate: ignore[KER001, MOV001]",  # of another framework
        "y = torch.ones(2, device='cuda')  # tpu-migrate: ignore[DEV]",
        "import apex  # tpu-migrate: ignore",
        "import apex  # tpu-migrate: ignore[LIB001]",
        "import tensorflow  # tpu-migrate: ignore[KER001]",  # another target may need it
        "y = x + 1  # made by tpu-migrate: it is on the device",
        "y = x + 1  # tpu-migrate: it is on the device",
        "s = '# tpu-migrate: ignored'",
        "# tpu-migrate: off\ny = x + 1\n# tpu-migrate: on",
    ],
)
def test_others_are_not(line: str) -> None:
    assert said(line) == []


def test_it_can_be_switched_off_itself() -> None:
    line = "y = x + 1  # tpu-migrate: ignore[MOV001]"
    assert said(f"{line}  # tpu-migrate: ignore-file[SUP001]", ignore=("SUP",)) == []


@pytest.mark.parametrize("used", [True, False])
def test_a_program_with_an_ignored_file_stays_whole(tmp_path: Path, used: bool) -> None:
    ignored = "# tpu-migrate: ignore-file\nimport torch\n\n\ndef run(x):\n    return x.to('cuda')\n"
    main = "import torch\nprint(torch.ones(2).cuda())\n"
    files = {"lib.py": ignored, "main.py": f"import lib\n{main}" if used else main}
    report = migrate_paths([write_tree(tmp_path, files)])
    [program] = [file.result for file in report.files if file.path.name == "main.py"]
    assert program.changed != used
