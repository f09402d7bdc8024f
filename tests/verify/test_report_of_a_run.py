"""The migration that `verify --report` shows: of the user's folder, not of the copy that ran."""

from __future__ import annotations

from pathlib import Path

from helpers import COPY, write_tree

from migrator import migrate_paths
from migrator.report import html
from migrator.verify.migrated_runs import _of_folder


def test_the_page_names_no_folder_of_the_run(tmp_path: Path) -> None:
    source = write_tree(tmp_path / "run", {"train.py": "import torch\n\ntorch.ones(1).cuda()\n"})
    report = migrate_paths([source], target="torchax", config=COPY)
    assert report.companions
    page = html.render(_of_folder(report, source), written=False)
    assert "tpu_runtime/" in page and str(tmp_path) not in page
