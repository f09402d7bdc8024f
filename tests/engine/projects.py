"""Projects of several files, migrated."""

from __future__ import annotations

from pathlib import Path

from helpers import write_tree

from migrator import migrate_paths
from migrator.config import Config
from migrator.diagnostics import Outcome
from migrator.runs.run_report import Report

Files = dict[str, str | bytes]


def migrate(root: Path, files: Files, target: str = "torchax", **config: object) -> dict[str, str]:
    """The files of a project after a migration of all of it."""
    write_tree(root, files)
    report = migrate_paths([root], target, config=Config(**config))  # type: ignore[arg-type]
    assert report.exit_code == 0, report.errors or report.failures
    return results(report, root)


def results(report: Report, root: Path) -> dict[str, str]:
    return {
        file.path.resolve().relative_to(root.resolve()).as_posix(): file.result.source.decode()
        for file in report.files
    }


def reported(report: Report) -> list[str]:
    return [d.construct for _, d in report.diagnostics(Outcome.REPORTED)]


HELPER = 'import torch\n\n\ndef get_device():\n    return torch.device("cuda")\n'
LIBRARY = "import torch\n\n\ndef run(x):\n    return x.cuda()\n"
PROJECT: Files = {
    "main.py": "import torch\nfrom pkg.net import Net\nfrom utils import get_device\n\n"
    "net = Net().to(get_device())\nprint(torch.cuda.device_count())\n",
    "utils.py": HELPER,
    "pkg/__init__.py": "",
    "pkg/net.py": "import torch\nfrom . import ops\n\n\nclass Net(torch.nn.Module):\n"
    "    def forward(self, x):\n        return ops.move(x.cuda())\n",
    "pkg/ops.py": "import torch\n\n\ndef move(x):\n    torch.cuda.synchronize()\n    return x\n",
    "tools/run.py": "import sys\nsys.path.insert(0, '..')\nimport main\n\n"
    "if __name__ == '__main__':\n"
    "    main.go('cuda')\n",
    "notes.txt": "cuda\n",
}
