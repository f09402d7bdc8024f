"""A migrated program finds its runtime, however it is started."""

import subprocess
import sys
from pathlib import Path

import pytest
from helpers import COPY
from target import TARGET

from migrator import migrate_paths

if TARGET not in ("torchax", "torch_xla"):
    pytest.skip("needs an environment of a target", allow_module_level=True)


def test_a_module_of_a_folder_that_is_no_package_starts(tmp_path: Path) -> None:
    """`python -m team.train` has the folder above on `sys.path`, and not its own."""
    (tmp_path / "gpu" / "team").mkdir(parents=True)
    (tmp_path / "gpu" / "team" / "model.py").write_text(
        "import torch\n\n\ndef net():\n    torch.cuda.manual_seed(0)\n"
        "    return torch.nn.Linear(2, 1).cuda()\n"
    )
    (tmp_path / "gpu" / "team" / "train.py").write_text(
        "import torch\nfrom .model import net\n\n"
        "if __name__ == '__main__':\n    print(net()(torch.zeros(1, 2).cuda()).shape)\n"
    )
    migrate_paths([tmp_path / "gpu"], TARGET, config=COPY, output=tmp_path / "tpu")
    done = subprocess.run(
        [sys.executable, "-m", "team.train"], cwd=tmp_path / "tpu", capture_output=True, text=True,
        timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "torch.Size([1, 1])\n"
