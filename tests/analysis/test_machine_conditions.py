"""Conditions that a TPU machine decides: what is behind those that fail there never runs."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from migrator import migrate_paths
from migrator.analysis.devices.machine_conditions import MAY_ASK, tpu_answer
from migrator.analysis.syntax.names import Names
from migrator.diagnostics import Outcome
from tests.helpers import TARGETS, constructs, migrated, reported, run, write_tree
from tests.rules.ranks import HEAD

IMPORTS = """import os, platform, sys, typing
import torch
from distutils.version import LooseVersion
from packaging import version
from packaging.version import Version, parse
"""


def answer_to(condition: str, above: str = "") -> bool | None:
    text = f"{IMPORTS}{above}\nif {condition}:\n    pass\n"
    tree = ast.parse(text)
    last = tree.body[-1]
    assert isinstance(last, ast.If)
    found = tpu_answer(Names(tree), last.test)
    assert found is None or MAY_ASK.search(text.encode())
    return found


@pytest.mark.parametrize(
    ("condition", "above", "expected"),
    [
        ("torch.__version__ < '1.0'", "", False),
        ("torch.__version__ >= '1.10'", "", True),  # a version, not a text
        ("'1.10' <= torch.__version__", "", True),
        ("str(torch.__version__) >= '1.13'", "", True),
        ("version.parse(torch.__version__) < version.parse('1.6')", "", False),
        ("Version(torch.__version__).release >= (1, 8)", "", True),
        ("parse(parse(torch.__version__).base_version) > parse('1.4')", "", True),
        ("LooseVersion(torch.__version__) >= LooseVersion('1.8.0')", "", True),
        ("torch.__version__.startswith('0.4')", "", False),
        ("int(torch.__version__.split('.')[0]) >= 2", "", True),
        ("float(torch.__version__[:3]) < 2.0", "", False),
        ("float(torch.__version__[:3]) < 2.3", "", None),  # "2.15" is read as 2.1
        ("T < (1, 8)", "T = tuple(int(x) for x in torch.__version__.split('.')[:2])", False),
        ("T >= [1, 8]", "T = [int(x) for x in torch.__version__.split('.')[:2]]", True),
        ("T < (1, 8)", "T = tuple(map(int, torch.__version__.split('.')[:2]))", False),
        ("OLD", "OLD = torch.__version__ < '1.0'", False),
        ("not OLD", "OLD = torch.__version__ < '1.0'", True),
        ("sys.version_info < (3,)", "", False),
        ("sys.version_info[0] == 2", "", False),
        ("sys.version_info.major >= 3", "", True),
        ("sys.platform == 'win32'", "", False),
        ("os.name == 'nt'", "", False),
        ("platform.system() in ('Windows', 'Darwin')", "", False),
        ("typing.TYPE_CHECKING", "", False),
        ("torch.version.hip is not None", "", False),
        ("torch.xpu.is_available()", "", False),
        ("hasattr(torch, 'xpu') and torch.xpu.is_available()", "", False),
        ("torch.backends.mps.is_available() or torch.__version__ < '1.0'", "", False),
        ("X", "try:\n    X = torch.xpu.is_available()\nexcept Exception:\n    X = False", False),
        ("False", "", False),
        ("hasattr(torch, 'compile')", "", True),
        ("not hasattr(torch.nn.functional, 'scaled_dot_product_attention')", "", False),
        ("'all_gather_into_tensor' not in dir(torch.distributed)", "", False),
        ("hasattr(torch, 'a_name_to_come')", "", None),
        ("'x' in dir(torch)", "", None),
        # not decided, or not by the machine
        ("torch.__version__ >= '2.12'", "", None),
        ("torch.__version__ < '1.0' or flag", "", None),
        ("torch.__version__ >= minimum", "", None),
        ("version.parse(torch.__version__) == version.parse('2.9.0')", "", None),
        ("torch.cuda.is_available()", "", None),
        ("torch.version.cuda is None", "", None),
        ("DEBUG", "DEBUG = False", None),
        ("OLD", "OLD = torch.__version__ < '1.0'\nfor OLD in x: pass", None),
        ("OLD", "OLD = torch.__version__ < '1.0'\nOLD |= x", None),
        ("OLD", "OLD = torch.__version__ < '1.0'\ndef f():\n    global OLD\n    OLD = x", None),
    ],
)
def test_what_a_tpu_machine_decides(condition: str, above: str, expected: bool | None) -> None:
    assert answer_to(condition, above) is expected


@pytest.mark.parametrize("target", TARGETS)
def test_what_never_runs_keeps_no_program(target: str) -> None:
    """OpenPCDet's get_dist_info, which many projects have copied."""
    text = f"""{HEAD}
    if torch.__version__ < "1.0":
        initialized = dist._initialized
    else:
        initialized = dist.is_initialized()
"""
    result = run(text, target)
    assert "nccl" not in result.source.decode() and not reported(result)
    assert "        initialized = dist._initialized\n" in result.source.decode()
    (kept,) = (d for d in constructs(result) if d.construct == "dist._initialized")
    assert kept.message == 'never runs on a TPU machine: `torch.__version__ < "1.0"` (line 14)'


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("condition", ["torch.__version__ > '1.0'", "old", "2 > 1"])
def test_what_may_run_keeps_it(condition: str, target: str) -> None:
    result = run(f"{HEAD}\n    if {condition}:\n        dist._initialized\n", target)
    assert not result.changed


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "dead",
    [
        "if torch.__version__ < '1.8':\n    y = torch.rfft(x, 1)\n",
        "if torch.__version__ >= '1.8':\n    y = x\nelse:\n    y = torch.rfft(x, 1)\n",
        "y = torch.rfft(x, 1) if torch.__version__ < '1.8' else x\n",
        "def f(x):\n    if torch.__version__ >= '1':\n        return x\n    return torch.rfft(x)\n",
        "import sys\nif sys.platform == 'win32':\n    import cupy\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import cupy\n",
    ],
)
def test_what_never_runs_is_not_reported(dead: str, target: str) -> None:
    text = f"import torch\nx = torch.ones(3).cuda()\n{dead}"
    assert not reported(run(text, target))
    assert migrated(text, target).endswith(dead)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "alive",
    [
        "if torch.__version__ >= '1.8':\n    y = torch.lstsq(x, x)\n",
        "if torch.__version__ < '99':\n    y = torch.lstsq(x, x)\n",
        "import sys\nif sys.platform != 'win32':\n    import cupy\n",
        "if torch.__version__ < '1.8' or x.any():\n    import cupy\n",
    ],
)
def test_what_may_run_is_reported(alive: str, target: str) -> None:
    assert reported(run(f"import torch\nx = torch.ones(3).cuda()\n{alive}", target))


XPU = """import torch

def hijack():
    torch.cuda.is_available = torch.xpu.is_available
    torch.cuda.current_stream = stream
    state = torch.cuda.get_rng_state()

def stream():
    return torch.cuda.current_stream()
"""
DEVICES = """import torch
try:
    HAS_XPU = torch.xpu.is_available()
except Exception:
    HAS_XPU = False

def init():
    if HAS_XPU:
        from xpu import hijack
        hijack()
"""
MAIN = """import torch
from devices import init
init()
x = torch.ones(2).to("cuda" if torch.cuda.is_available() else "cpu")
"""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("also", "count"),
    [
        ("", 0),
        ("import xpu\nxpu.hijack()\n", 1),
        ("import xpu\nstart(xpu.stream)\nx.y(hijack)\n", 1),
    ],
)
def test_a_module_for_another_accelerator(
    also: str, count: int, target: str, tmp_path: Path
) -> None:
    """sd-scripts: what only replaces torch.cuda where there is an XPU replaces nothing."""
    write_tree(tmp_path, {"xpu.py": XPU, "devices.py": DEVICES, "main.py": MAIN + also})
    report = migrate_paths([tmp_path], target)
    found = {f.path.name: f.result for f in report.files}
    left = [d for f in report.files for d in constructs(f.result) if d.outcome is Outcome.REPORTED]
    assert bool(left) is bool(count)
    assert (b"torch.cuda.is_available" in found["main.py"].source) is bool(count)


@pytest.mark.parametrize("target", TARGETS)
def test_functions_that_call_each_other(target: str, tmp_path: Path) -> None:
    """One is called by code that runs, so both are, whichever of them is looked at first."""
    two = "import torch\n\ndef {}():\n    torch.cuda.get_rng_state()\n    {}()\n\n"
    lib = two.format("one", "two") + two.format("two", "one")
    for called in ("one", "two"):
        main = f"import torch, lib\nif torch.xpu.is_available():\n    lib.one()\nlib.{called}()\n"
        write_tree(tmp_path, {"lib.py": lib, "main.py": main})
        report = migrate_paths([tmp_path], target)
        left = [d for f in report.files for d in constructs(f.result)
                if d.outcome is Outcome.REPORTED]  # fmt: skip
        assert len(left) == 2
