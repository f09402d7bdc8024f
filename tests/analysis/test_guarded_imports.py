"""A question about CUDA in front of an import of what only CUDA has keeps its answer."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import TARGETS, write_tree

from migrator import migrate_paths

PACKAGE = {
    "pkg/__init__.py": "",
    "pkg/scan.py": (
        "def scan_ref(x):\n    return x\n\n\ndef scan_cuda(x):\n    import pkg_scan_cuda\n"
        "    return pkg_scan_cuda.forward(x)\n\n\ndef scan_asking(x):\n"
        "    if x.is_cuda:\n        return scan_cuda(x)\n    return x\n"
    ),
}


@pytest.mark.parametrize("target", [*TARGETS, "torch_tpu"])
@pytest.mark.parametrize(
    ("imported", "kept"),
    [
        ("from pkg import _C as ops", True),
        ("from pkg import scan_cuda as ops", True),
        ("from pkg.scan import scan_cuda as ops", True),
        ("import scan_cuda as ops", True),
        ("from pkg.scan import scan_asking as ops", False),
        ("from pkg.scan import scan_ref as ops", False),
        ("from pkg import scan as ops", False),
    ],
)
def test_an_import_of_a_kernel_keeps_its_guard(
    imported: str, kept: bool, target: str, tmp_path: Path
) -> None:
    source = (
        f"import torch\n\nif torch.cuda.is_available():\n    {imported}\nelse:\n"
        "    ops = None\nprint(torch.ones(2).cuda())\n"
    )
    write_tree(tmp_path, {**PACKAGE, "train.py": source})
    report = migrate_paths([tmp_path], target)
    [text] = [f.result.source.decode() for f in report.files if f.path.name == "train.py"]
    assert ("if torch.cuda.is_available():" in text) is kept
    assert ".cuda()" not in text
