"""The migration of a `verify`: its page shows the user's folder, its errors what was reported."""

from __future__ import annotations

from pathlib import Path

from helpers import COPY, write_tree

from migrator import migrate_paths
from migrator.report import html
from migrator.verify.migrated_runs import _of_folder
from migrator.verify.script_notes import reported_at


def test_the_page_names_no_folder_of_the_run(tmp_path: Path) -> None:
    source = write_tree(tmp_path / "run", {"train.py": "import torch\n\ntorch.ones(1).cuda()\n"})
    report = migrate_paths([source], target="torchax", config=COPY)
    assert report.companions
    page = html.render(_of_folder(report, source), written=False)
    assert "train.py" in page and str(tmp_path) not in page
    assert "tpu_runtime/" not in page  # the copy has it, and a migration brings a wheel


def test_an_error_at_a_reported_line_names_its_code(tmp_path: Path) -> None:
    code = "import torch\n\ntorch.ones(1).cuda()\ns = torch.cuda.Stream()\n"
    source = write_tree(tmp_path / "run", {"train.py": code})
    report = _of_folder(migrate_paths([source], target="torchax", config=COPY), source)
    line = report.files[0].result.source.decode().splitlines().index("s = torch.cuda.Stream()") + 1
    assert line > 4
    for before in ("", "rank 1: "):
        said = reported_at(f"{before}train.py:{line}: AcceleratorError: no driver", report)
        assert said.startswith("; this line is left to change by hand: CUD003: streams have")
    assert reported_at(f"train.py:{line - 1}: AcceleratorError: no driver", report) == ""
    assert reported_at("out of memory", report) == ""
