"""Set-up: where it stands."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import DEVICE, TARGETS, migrated, run, write_tree

from migrator import migrate_paths

SCRIPT = """\
import torch
from net import Net

x = torch.ones(2).cuda()
"""


@pytest.mark.parametrize("target", TARGETS)
def test_set_up_stands_behind_the_imports_of_a_script(target: str) -> None:
    assert migrated(SCRIPT, target, entry=None) == (
        "import torch\nimport tpu_runtime\nfrom net import Net\n\ntpu_runtime.setup()\n\n"
        f'x = torch.ones(2).to("{DEVICE[target]}")\n'
    )


@pytest.mark.parametrize("precision", ["high", "default"])
def test_set_up_with_another_precision(precision: str) -> None:
    text = migrated(SCRIPT, entry=None, precision=precision)
    assert f'tpu_runtime.setup(precision="{precision}")\n' in text


def test_precision_of_the_user_wins_over_the_script() -> None:
    source = (
        "import torch\ntorch.backends.cuda.matmul.allow_tf32 = True\nx = torch.ones(2).cuda()\n"
    )
    text = migrated(source, entry=True, precision="default")
    assert 'setup(precision="default")' in text
    assert "set_matmul_precision" not in text and "allow_tf32" not in text
    assert "set_matmul_precision(True)" in migrated(source, entry=True)


@pytest.mark.parametrize(
    "source",
    [
        "import torch\ndef f(x):\n    return x.cuda()\n",
        "import torch\nclass Net(torch.nn.Module):\n    def forward(self, x):\n"
        "        return x.cuda()\n",
        "from . import other\nx = f().cuda()\n",
        "import torch\nm = torch.load(p, map_location='cpu')\nprint(m)\n",
    ],
)
def test_libraries_and_scripts_without_a_device_get_no_set_up(source: str) -> None:
    assert "setup" not in migrated(source, entry=None)


PLACES = [
    ("import torch\nif True:\n    x = f().cuda()\n", 1),
    ("import torch\ntorch.manual_seed(0)\nimport os\nx = f().cuda()\n", 1),
    ('"""Doc."""\nimport os\nimport torch\n\nprint(1)\nx = f().cuda()\n', 3),
    ("import torch\ntry:\n    import a\nexcept ImportError:\n    a = None\nx = f().cuda()\n", 5),
]


@pytest.mark.parametrize(("source", "imports"), PLACES)
def test_set_up_stands_above_what_computes(source: str, imports: int) -> None:
    lines = [line for line in migrated(source, entry=True).splitlines() if line]
    place = lines.index("tpu_runtime.setup()")
    assert place == imports + 1  # behind the imports, one of them new
    computing = [n for n, line in enumerate(lines) if ".to(" in line or "manual_seed" in line]
    assert place < min(computing)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "use",
    [
        "with torch.random.fork_rng(devices=[0]):\n    torch.rand(2)\n",
        "g = torch.Generator(device=0)\n",
        "from safetensors.torch import load_file\nx = load_file(path, device=0)['x']\n",
    ],
)
def test_a_device_by_its_number_is_set_up(use: str, target: str) -> None:
    text = migrated(f"import torch\n{use}", target, entry=True)
    assert text.count("tpu_runtime.setup()") == 1
    assert migrated(text, target, entry=True) == text


@pytest.mark.parametrize("devices", ["", "devices=[]"])
def test_the_generator_of_the_cpu_alone_gives_no_set_up(devices: str) -> None:
    source = f"import torch\nwith torch.random.fork_rng({devices}):\n    torch.rand(2)\n"
    assert "setup()" not in migrated(source, entry=True)


def test_set_up_is_not_repeated() -> None:
    once = migrated(SCRIPT, entry=None)
    again = run(once, entry=None)
    assert not again.changed
    assert once.count("setup()") == 1


def test_a_second_run_still_asks_for_the_companion() -> None:
    once = run(SCRIPT, entry=None)
    touched = once.source + b"y = x.cuda()\n"
    assert run(touched, entry=None).companions == {"tpu_runtime"}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("second", ["import numpy, torch; act()", "import a\nimport torch; act()"])
def test_the_runtime_is_imported_above_the_set_up(second: str, target: str) -> None:
    source = f"import torch\n{second}\nimport tqdm\nx = torch.ones(2).cuda()\n"
    text = migrated(source, target, entry=True)
    assert text.index("import tpu_runtime") < text.index("tpu_runtime.setup()")


def test_the_device_is_chosen_below_the_import_of_torch() -> None:
    below = "from helper import start\nstart()\nimport torch\n\ndef f(x):\n    return x.cuda()\n"
    text = migrated(below, "torch_tpu")
    assert text.index("start()") < text.index("import torch") < text.index("device = torch.")
    guarded = "if True:\n    import torch\n\n    x = torch.ones(2).cuda()\n"
    assert "    device = torch.accelerator" in migrated(guarded, "torch_tpu")
    calls = "def f(x):\n    return x.cuda()\n\n\nf(3)\nimport torch\n"
    text = migrated(calls, "torch_tpu")
    assert text.index("import torch") < text.index("device = torch.") < text.index("f(3)")


def test_the_flag_is_added_before_a_parser_may_read() -> None:
    source = """\
import argparse
import torch
parser = argparse.ArgumentParser()
parser.add_argument("--lr")
args = parser.parse_args()
parser.add_argument("--late")
x = torch.ones(2).cuda()
"""
    text = migrated(source, entry=True, portable=True)
    assert text.index("--lr") < text.index("--use-tpu") < text.index("parse_args")


@pytest.mark.parametrize(
    "source",
    [
        'from faster_whisper import WhisperModel\n\nmodel = WhisperModel("large", device="cuda")\n',
        'from ultralytics import YOLO\n\nYOLO("n.pt").predict("a.jpg", device="cuda:0")\n',
        'from ultralytics import YOLO\n\nmodel = YOLO("n.pt")\n'
        'model.predict("a.jpg", device="cuda:0")\n',
        'import json\n\nprint(json.dumps({"device": "cuda"}))\n',
        'import jax\n\nprint(jax.devices("cuda"))\n',
    ],
)
def test_what_another_library_does_with_a_gpu_gives_no_set_up(tmp_path: Path, source: str) -> None:
    report = migrate_paths([write_tree(tmp_path, {"main.py": source})], "torchax")
    [file] = report.files
    assert (file.result.changed, [d.code for d in file.result.diagnostics]) == (False, ["DEV002"])
