"""What the files of a project tell each other."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import DEVICE, TARGETS, read_tree, write_tree

from migrator import migrate_paths
from tests.engine.projects import HELPER, PROJECT, Files, migrate, reported

# ---- facts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("statement", "call"),
    [
        ("from utils import get_device", "get_device()"),
        ("from utils import get_device as gd", "gd()"),
        ("import utils", "utils.get_device()"),
        ("from utils import *", "get_device()"),
    ],
)
def test_a_helper_in_another_file_returns_a_device(
    tmp_path: Path, statement: str, call: str, target: str
) -> None:
    """`device.type == "cuda"` is about the helper's device, whatever the variable is called."""
    main = (
        f'import torch\n{statement}\n\nwhere = {call}\nif where == "cuda":\n    torch.cuda.seed()\n'
    )
    out = migrate(tmp_path, {"utils.py": HELPER, "main.py": main}, target)
    assert f'if where == "{DEVICE[target]}":' in out["main.py"]


def test_facts_go_through_a_package(tmp_path: Path) -> None:
    out = migrate(
        tmp_path,
        {
            "pkg/__init__.py": "from .devices import pick\n",
            "pkg/devices.py": HELPER.replace("get_device", "pick"),
            "pkg/sub/__init__.py": "",
            "pkg/sub/use.py": 'from ..devices import pick\nw = pick()\nassert w == "cuda"\n',
            "main.py": 'from pkg import pick\nw = pick()\nassert w == "cuda"\n',
            "other.py": 'def pick(): return f()\nw = pick()\nassert w == "cuda"\n',
        },
    )
    assert 'w == "jax"' in out["pkg/sub/use.py"]
    assert 'w == "jax"' in out["main.py"]
    assert 'w == "cuda"' in out["other.py"]


def test_a_class_of_another_file_is_a_model(tmp_path: Path) -> None:
    files: Files = {
        "net.py": "from torch import nn\nclass Net(nn.Module):\n    pass\n",
        "main.py": "from net import Net\nnet = Net()\nmove = net.cuda\n# cuda\n",
    }
    write_tree(tmp_path, files)
    assert reported(migrate_paths([tmp_path])) == ["net.cuda"]


def test_import_cycles_end(tmp_path: Path) -> None:
    out = migrate(
        tmp_path,
        {
            "a.py": "import torch\nfrom b import f\ndef g(): return f()\nx = g().cuda()\n",
            "b.py": "from a import g\ndef f(): return g()\ny = f().cuda()\n",
            "c.py": "from c import *\nx = f().cuda()\n",
        },
    )
    assert 'g().to("jax")' in out["a.py"] and 'f().to("jax")' in out["b.py"]


def test_a_broken_import_does_not_stop_its_user(tmp_path: Path) -> None:
    write_tree(
        tmp_path, {"bad.py": "def cuda(:\n", "main.py": "import bad, torch\nx = f().cuda()\n"}
    )
    report = migrate_paths([tmp_path / "main.py"])
    assert [path.name for path, _ in report.failures] == ["bad.py"]
    assert [file.path.name for file in report.changed] == ["main.py"]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("compares", [True, False])
def test_an_index_stays_where_the_program_compares_devices(
    tmp_path: Path, target: str, compares: bool
) -> None:
    name = f"{DEVICE[target]}:0" if compares else DEVICE[target]
    test = "x.device != device" if compares else "x.device.type != device"
    files: Files = {
        "main.py": "import net\nimport yaml\nfrom pick import first\nnet.run(first())\n",
        "net.py": f"import torch\ndef run(device):\n    x = torch.ones(2)\n    return {test}\n",
        "pick.py": "def first(device='cuda:1'):\n    return device\n",
        "conf/net.yaml": "device: cuda:1\nother_device: cuda\n",
        "run.sh": "python main.py --device cuda:0\n",
    }
    out = migrate(tmp_path, files, target)
    assert f"device='{name}'" in out["pick.py"]
    assert out["conf/net.yaml"] == f"device: {name}\nother_device: {DEVICE[target]}\n"
    assert out["run.sh"] == f"python main.py --device {name}\n"


@pytest.mark.parametrize("target", TARGETS)
def test_a_second_run_over_a_project_changes_nothing(tmp_path: Path, target: str) -> None:
    write_tree(tmp_path, PROJECT)
    assert migrate_paths([tmp_path], target, write=True, allow_dirty=True).changed
    first = read_tree(tmp_path, runtime=True)
    again = migrate_paths([tmp_path], target, write=True, allow_dirty=True)
    assert not again.changed and not again.companions
    assert read_tree(tmp_path, runtime=True) == first
