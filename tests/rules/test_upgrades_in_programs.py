"""Old names in files whose programs are found, or may be theirs, and in others."""

from pathlib import Path

import pytest
from helpers import cli, write_tree

NET = """import numpy as np
import torch


class Net(torch.nn.Module):
    def forward(self, x):
        return x * np.float(2)
"""
TRAIN = """import torch

if __name__ == "__main__":
    model = build(settings).cuda()
"""
PLOT = """from models.net import Net

if __name__ == "__main__":
    print(Net())
"""
PLAIN = "import numpy as np\n\n\ndef f(x):\n    return x * np.float(2)\n"


@pytest.mark.parametrize(
    ("files", "is_upgraded"),
    [
        ({"train.py": TRAIN, "conf.yaml": "_target_: models.net.Net\n"}, True),  # by its name
        ({"plot.py": PLOT, "train.py": TRAIN}, False),  # of a program without a device
        ({"plot.py": PLOT.replace("print(Net())", "Net().cuda()")}, True),
        ({"conf.yaml": "_target_: models.net.Net\n"}, False),  # nothing here uses a device
    ],
)
def test_a_module_that_no_script_imports(
    tmp_path: Path, files: dict[str, str], is_upgraded: bool
) -> None:
    root = write_tree(tmp_path / "p", {"models/net.py": NET, **files})
    cli(root, "--target", "torchax", "--allow-dirty", cwd=root)
    assert ("np.float" not in (root / "models/net.py").read_text()) is is_upgraded


def test_one_without_pytorch_stays(tmp_path: Path) -> None:
    root = write_tree(tmp_path / "p", {"lib/plain.py": PLAIN, "train.py": TRAIN})
    cli(root, "--target", "torchax", "--allow-dirty", cwd=root)
    assert (root / "lib/plain.py").read_text() == PLAIN
