"""Imports of CUDA libraries behind a question whether the library is installed, and by a string."""

from __future__ import annotations

from importlib.metadata import requires
from importlib.util import find_spec
from pathlib import Path

import pytest
from helpers import constructs, reported, run, write_tree
from packaging.requirements import Requirement

from migrator import migrate_paths
from migrator.diagnostics import Outcome

_FLAG = "try:\n    import apex\n    HAS = True\nexcept ImportError:\n    HAS = False\n"


@pytest.mark.parametrize(
    ("source", "kept"),
    [
        ("from importlib.util import find_spec\nif find_spec('apex'):\n    import apex\n", True),
        ("from importlib.util import find_spec\nif find_spec('apex.amp') is not None and x:\n"
         "    import apex\n", True),
        ("import importlib\nhas = importlib.util.find_spec('apex') is not None\n"
         "both = has and fast\nif both:\n    from apex import amp\n", True),
        ("import importlib\nif importlib.util.find_spec('apex') is None:\n    amp = None\n"
         "else:\n    from apex import amp\n", True),
        (f"{_FLAG}if HAS:\n    import apex.optimizers\n", True),
        ("from diffusers.utils import is_xformers_available\n"
         "if is_xformers_available():\n    import xformers\n", True),
        ("from transformers.utils import is_flash_attn_2_available\n"
         "if is_flash_attn_2_available():\n    import flash_attn\n", True),
        ("from importlib.util import find_spec\nif find_spec('apex') or x:\n    import apex\n",
         False),
        ("from importlib.util import find_spec\nif find_spec('numpy'):\n    import apex\n", False),
        ("from importlib.util import find_spec\nif not find_spec('apex'):\n    import apex\n",
         False),
        ("from mine import is_apex_available\nif is_apex_available():\n    import apex\n", False),
        ("HAS = True\nif HAS:\n    import apex\n", False),
        ("from importlib.util import find_spec\nhas = True\nhas = find_spec('apex')\n"
         "if has:\n    import apex\n", False),
    ],
)  # fmt: skip
def test_a_library_that_is_asked_for(source: str, kept: bool) -> None:
    found = [d for d in constructs(run(source, entry=False)) if d.code == "LIB001"]
    assert found[-1].outcome is (Outcome.KEPT if kept else Outcome.REPORTED)


def test_a_compiled_module_that_a_string_names(tmp_path: Path) -> None:
    setup = (
        "from setuptools import setup\nfrom torch.utils.cpp_extension import CUDAExtension\n"
        "setup(ext_modules=[CUDAExtension(name='attn_core', sources=['a.cu'])])\n"
    )
    model = (
        "import importlib\nimport torch\ncore = importlib.import_module('attn_core')\n"
        "core.forward_(torch.ones(2).cuda())\n"
    )
    write_tree(tmp_path, {"setup.py": setup, "model.py": model})
    report = migrate_paths([tmp_path], "torchax")
    [result] = [f.result for f in report.files if f.path.name == "model.py"]
    reported = [d for d in result.diagnostics if d.outcome is Outcome.REPORTED]
    said = [(d.code, d.range.line) for d in reported]
    assert said == [("LIB002", 3)]


@pytest.mark.parametrize("caught", [True, False])
def test_a_library_that_a_string_names(caught: bool) -> None:
    named = "flash = importlib.import_module('flash_attn')\n"
    source = f"try:\n    {named}except ImportError:\n    flash = None\n" if caught else named
    found = constructs(run(f"import importlib\n{source}", entry=False))
    assert [(d.code, d.outcome is Outcome.KEPT) for d in found] == [("LIB001", caught)]


def test_a_function_of_a_library_is_no_compiled_module() -> None:
    source = (
        "import torch\nfrom detectron2.utils.memory import retry_if_cuda_oom\n"
        "y = retry_if_cuda_oom(f)(torch.ones(2).cuda())\n"
    )
    assert not [d for d in constructs(run(source)) if d.outcome is Outcome.REPORTED]


def test_setuptools_brings_distutils() -> None:
    """PyTorch requires it where Python has none, so nothing is to be said of such imports."""
    if find_spec("torch") is None:
        pytest.skip("PyTorch is not in this environment")
    needed = [Requirement(each) for each in requires("torch") or ()]
    [setuptools] = [each for each in needed if each.name == "setuptools"]
    marker = setuptools.marker
    assert marker is None or marker.evaluate({"python_version": "3.12"})
    source = (
        "import torch\nfrom distutils.version import LooseVersion\n"
        "x = torch.ones(2).cuda()\nprint(LooseVersion('1'))\n"
    )
    assert not reported(run(source))
