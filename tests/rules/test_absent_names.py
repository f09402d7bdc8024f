"""Names that the pinned versions don't have: the lists, and what is reported from them."""

import importlib
import random
import re
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from helpers import REPOSITORY, constructs, run
from target import TARGET

from migrator.analysis.find_absent_names import FOLDER, absent, may_be_in, missing
from migrator.targets import targets

NAMES = targets()[TARGET].environment.names
HEAD = "import torch\n\nx = torch.ones(3).cuda()\n"


def test_the_lists_are_of_the_versions_that_are_pinned() -> None:
    pins = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    for name, target in targets().items():
        if target.framework != "torch":
            continue
        extra = pins[pins.index(f"\n{name} = [") :]
        for package in ("torch", "torchvision"):
            (listed,) = [n for n in target.environment.names if n.startswith(f"{package}-")]
            pinned = re.search(rf'"{package}==([\d.]+)"', extra)
            assert pinned is not None and listed == f"{package}-{pinned[1]}"
        assert all((FOLDER / f"{each}.txt").is_file() for each in target.environment.names)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("package", ["torch", "torchvision", "numpy", "PIL"])
def test_what_a_list_has_is_there_and_nothing_more(package: str) -> None:
    (name,) = [n for n in NAMES if n.startswith(f"{package}-")]
    if version({"PIL": "pillow"}.get(package, package)) != name.partition("-")[2]:
        pytest.skip("another version is installed")
    lines = (FOLDER / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    public = [line.split() for line in lines if "._" not in line.split()[0]]
    for module, *names in random.Random(72).sample(public, min(40, len(public))):
        try:
            found = importlib.import_module(module)
        except ImportError:
            continue
        assert not [
            each for each in dir(found) if each.isidentifier() and absent(f"{module}.{each}", name)
        ]
        lacking = [each for each in names if not hasattr(found, each)]
        assert all(f"{module}.{each}" in sys.modules or _is_module(module, each)
                   for each in lacking)  # fmt: skip


def _is_module(package: str, name: str) -> bool:
    folders = importlib.import_module(package).__path__
    return any(list(Path(folder).glob(f"{name}*")) for folder in folders)


@pytest.mark.parametrize(
    "line",
    [
        "from torchvision.models import resnet19\ny = resnet19()",
        "from torch.nn.moduels import Linear\ny = Linear(2, 2)",
        "import torch.nn.fuctional as F\ny = F",
        "y = torch.nn.Lineer(2, 2)",
        "import numpy as np\ny = np.nosuch.name(1)",
        "from PIL import Image\ny = Image.NEARESTS",
        "import torch.nn.functional as F\ny = F.gelus(x)",
        "import pandas as pd\ny = pd.read_cvs(f)",
        # beside names that rules handle
        "y = torch.nn.SyncBatchNorm2d",
        "import torch.distributed as dist\ny = dist.all_gather_everything(x)",
        "y = torch.nn.parallel.replicates(x)",
    ],
)
def test_what_is_not_there_is_reported(line: str) -> None:
    assert may_be_in(f"{line}\nimport torch\n".encode())
    found = [d for d in constructs(run(f"{HEAD}{line}\n")) if d.code == "UPG006"]
    assert [str(d.outcome) for d in found] == ["reported"] and "has no" in found[0].message


@pytest.mark.parametrize(
    "line",
    [
        "y = torch.utils.data.dataloader._SingleProcessDataLoaderIter",
        "y = torch.ops.mine.op(x)",
        "y = torch.backends.cudnn.anything",
        "y = torch.Tensor.whatever",
        "import numpy as np\ny = np.random.randn(3)",
        "import scipy.io as sio\ny = sio.loadmat(f)",
        "y = torch.__version__",
        "from torch._C import _something_private",
        "from numpy.lib import stride_tricks\ny = stride_tricks.as_strided",
    ],
)
def test_what_is_there_or_unknown_is_not_looked_at(line: str) -> None:
    assert not may_be_in(f"{line}\nimport torch\n".encode())
    assert not [d for d in constructs(run(f"{HEAD}{line}\n")) if d.code == "UPG006"]


@pytest.mark.parametrize(
    "lines",
    [
        "try:\n    from torch.nosuch import f\nexcept ImportError:\n    f = None",
        "if hasattr(torch, 'nosuch'):\n    y = torch.nosuch(x)",
        "if torch.__version__ > '9':\n    from torch.nosuch import f",
        "torch.nosuch = 1\ny = torch.nosuch",
        "y = torch.nosuch(x) if TORCH_VERSION > (9,) else x",
    ],
)
def test_a_program_that_knows_is_left_alone(lines: str) -> None:
    found = [d for d in constructs(run(f"{HEAD}{lines}\n")) if d.code == "UPG006"]
    assert found and {str(d.outcome) for d in found} == {"kept"}


def test_a_name_of_the_other_targets_version_is_told_apart() -> None:
    name = "torchvision.io.read_video"  # gone in torchvision 0.29
    assert {t: missing(name, targets()[t].environment.names) is None for t in
            ("torchax", "torch_tpu")} == {"torchax": True, "torch_tpu": False}  # fmt: skip
