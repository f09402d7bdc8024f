"""Code that a program selects by a computed name stays or changes with it."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import TARGETS, write_tree

from migrator import migrate_paths


@pytest.mark.parametrize("target", TARGETS)
def test_what_a_table_or_a_computed_name_selects_stays_with_its_program(
    tmp_path: Path, target: str
) -> None:
    """OpenPCDet: `__all__[cfg.NAME]`, and `getattr(self, "build_" + name)`."""
    net = "import torch\n\n\nclass {}:\n    def run(self):\n        return torch.ones(2).cuda()\n"
    build = "        return getattr(self, 'build_' + name)()\n\n    def build_other(self):\n"
    files = {
        "nets/__init__.py": "from .one import One\nfrom .two import Two\n\n"
        "__all__ = {'One': One}\n\n\ndef make(cfg):\n    return __all__[cfg.NAME]()\n\n\n"
        f"class Maker:\n    def make(self, name):\n{build}        return Two()\n",
        "nets/one.py": net.format("One"),
        "nets/two.py": net.format("Two"),
        "train.py": "import torch.distributed as dist\nfrom nets import Maker, make\n"
        "dist.init_process_group('nccl')\ndist.unheard_of()\n"
        "make(cfg).run()\nMaker().make('other').run()\n",
        "test.py": "from nets.one import One\nfrom nets.two import Two\nOne().run()\nTwo().run()\n",
    }
    report = migrate_paths([write_tree(tmp_path, files)], target)
    assert not [f.path for f in report.files if f.result.changed]
