"""A project that has the runtime's name for something of its own stays whole, and is told so."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import TARGETS, cli, committed, read_tree, run

SCRIPT = "import torch\nx = torch.ones(2).cuda()\nif torch.cuda.is_available():\n    print(x)\n"
NAMES = (
    "tpu_runtime = 3.5\n",
    "import time as tpu_runtime\n",
    "from jobs import tpu_runtime\n",
    "def tpu_runtime():\n    return 3\n",
    "class tpu_runtime:\n    hours = 3\n",
    "def start():\n    global tpu_runtime\n    tpu_runtime = 3\n",
    "for tpu_runtime in range(3):\n    pass\n",
)
EACH = (*TARGETS, "torch_tpu")


@pytest.mark.parametrize("target", EACH)
@pytest.mark.parametrize("name", NAMES)
def test_a_script_with_a_name_of_its_own(name: str, target: str) -> None:
    source = SCRIPT.replace("x =", f"{name}x =", 1)
    result = run(source, target, entry=True)
    assert result.source.decode() == source
    assert result.stays
    assert any("`tpu_runtime`" in d.message and "rename" in d.message for d in result.diagnostics)


@pytest.mark.parametrize("target", EACH)
def test_a_name_inside_of_a_function_is_in_nobodys_way(target: str) -> None:
    source = f"{SCRIPT}def hours(tpu_runtime):\n    return tpu_runtime / 3600\n"
    result = run(source, target, entry=True)
    assert b"tpu_runtime.setup()" in result.source
    assert run(result.source, target, entry=True).source == result.source


MODULE = "def hours(x):\n    return 3\n"
USING = SCRIPT.replace("import torch\n", "import torch\nimport tpu_runtime\n")
OWN = {
    "a module": {"tpu_runtime.py": MODULE, "main.py": USING},
    "a module that others use": {"tpu_runtime.py": MODULE, "main.py": SCRIPT},
    "a package": {"tpu_runtime/__init__.py": MODULE, "main.py": USING},
    "a module with GPU code": {"tpu_runtime.py": SCRIPT, "main.py": "import tpu_runtime\n"},
    "a module beside a library": {
        "tpu_runtime.py": MODULE, "main.py": "import steps\nsteps.run()\n",
        "steps.py": "import torch\n\n\ndef run():\n    return torch.ones(2).cuda()\n",
    },
}  # fmt: skip


@pytest.mark.parametrize("target", EACH)
@pytest.mark.parametrize("kind", OWN)
def test_a_module_of_its_own(kind: str, target: str, tmp_path: Path) -> None:
    committed(tmp_path / "p", OWN[kind])
    before = read_tree(tmp_path / "p", runtime=True)
    done = cli("p", "--target", target, "--runtime", "copy", cwd=tmp_path)
    assert read_tree(tmp_path / "p", runtime=True) == before
    told = done.stdout.decode() + done.stderr.decode()
    assert "tpu_runtime" in told and "rename" in told


@pytest.mark.parametrize("target", TARGETS)
def test_the_runtime_itself_is_no_module_of_the_project(target: str, tmp_path: Path) -> None:
    committed(tmp_path / "p", {"main.py": SCRIPT})
    cli("p", "--target", target, "--runtime", "copy", cwd=tmp_path)
    before = read_tree(tmp_path / "p", runtime=True)
    assert "tpu_runtime/__init__.py" in before
    assert cli("p", "--target", target, "--runtime", "copy", cwd=tmp_path).returncode == 0
    assert read_tree(tmp_path / "p", runtime=True) == before
