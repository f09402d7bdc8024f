"""Requirements of setuptools, versions that do not fit, whole projects."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from helpers import constructs, run

from migrator import migrate_paths
from migrator.analysis.cuda_libraries import LIBRARIES, mentioned, of_package
from migrator.diagnostics import Outcome
from tests.formats.manifests import PIPFILE, PIXI, POETRY, migrated, reported

TORCH = "torch==2.9.0", "torch_xla[tpu]==2.9.0"


SETUP_CFG = """[options]
python_requires = >=3.8
install_requires =
    torch>=1.7
    # a comment on torch
    numpy

[options.extras_require]
all =
\ttorchvision
one = torchaudio
[other]
all =
    torch
"""


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_setup_cfg(end: str) -> None:
    assert migrated(SETUP_CFG.replace("\n", end), "setup.cfg").replace(end, "\n") == (
        SETUP_CFG.replace(
            "one = torchaudio",
            "one = torchaudio\ntpu =\n    torch~=2.9.0\n    torch_xla[tpu]~=2.9.0",
        )
    )
    assert reported(SETUP_CFG, "setup.cfg") == {}


TOX = """[tox]
envlist = py311

[testenv]
base_python = python3.8
set_env =
    PIP_EXTRA_INDEX_URL = https://download.pytorch.org/whl/cu118
    TORCH_HOME = /tmp
deps =
    -rrequirements.txt
    py311: torch>=1.7
    -f https://download.pytorch.org/whl/cu117/torch_stable.html
commands =
    pip install torchvision
    python train.py \\
        --device cuda
[testenv:docs]
deps = torchaudio
[flake8]
deps = torch
"""


def test_tox() -> None:
    index = "--extra-index-url https://download.pytorch.org/whl/cpu"
    assert migrated(TOX, "tox.ini") == (
        TOX.replace("torch>=1.7", "torch==2.9.0\n    py311: torch_xla[tpu]==2.9.0")
        .replace("-f https://download.pytorch.org/whl/cu117/torch_stable.html", index)
        .replace("install torchvision", "install torchvision==0.24.0")
        .replace("--device cuda", "--device xla")
        .replace("deps = torchaudio", "deps = torchaudio==2.9.0")
    )
    assert len(reported(TOX, "tox.ini")) == 2  # the index in the environment, and the Python


SETUP_EXTRA = "extras_require={'tpu': ['torch~=2.9.0', 'torch_xla[tpu]~=2.9.0']}"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("install_requires=['torch']", f"install_requires=['torch'], {SETUP_EXTRA}"),
        ("install_requires=['torch<2']", f"install_requires=['torch~=2.9.0'], {SETUP_EXTRA}"),
        ("install_requires=[\n    'torch<2',  # t\n    # n\n    'numpy'\n], "
         "extras_require={'tpu': []}",
         "install_requires=[\n    'torch~=2.9.0',  # t\n    # n\n    'numpy'\n], "
         "extras_require={'tpu': []}"),
        ("extras_require={'a': ['torchvision<0.20']}",
         "extras_require={'a': ['torchvision~=0.24.0']}"),
        ("install_requires=A + ['torchvision==0.9']",
         "install_requires=A + ['torchvision~=0.24.0']"),
        ("extras_require=dict(a=['torchaudio'])", None),
        ("extras_require={'a': ['torch']}", None),
        ("setup_requires=['torch']", "setup_requires=['torch==2.9.0']"),
        ("tests_require=['torchvision']", "tests_require=['torchvision==0.24.0']"),
        ("install_requires=read('requirements.txt')", None),
        ("keywords=['torch']", None),
        ("install_requires='torch'", None),
    ],
)  # fmt: skip
def test_setup_py(before: str, after: str | None) -> None:
    head = "from setuptools import setup\n"
    assert migrated(f"{head}setup({before})\n", "setup.py") == f"{head}setup({after or before})\n"


def test_setup_py_with_lists_that_grow() -> None:
    text = """from setuptools import setup
BASE = ['numpy']
BASE += ['torchvision']
BASE.append('torchaudio')
EXTRAS = {}
EXTRAS['a'] = ['torch']
EXTRAS['all'] = EXTRAS['a'] + BASE
def found():
    needed = ['torchvision']
    return needed
setup(install_requires=BASE + found(), extras_require=EXTRAS)
"""
    before = text.replace("['torch']", "['torch<2']").replace("torchvision", "torchvision<0.1")
    assert migrated(before, "setup.py") == text.replace("['torch']", "['torch~=2.9.0']").replace(
        "'torchvision'", "'torchvision~=0.24.0'"
    )
    assert "torchaudio==2.9.0" in reported(text, "setup.py")["'torchaudio'"]


@pytest.mark.parametrize(
    "argument",
    ['"""\n  torch>=1\n  numpy\n"""', "'torch'", "[f'torch=={version}']", "['torch==' + version]",
     "'torch numpy'.split()", "[table['torch'] for table in [['torch']]]"],
)  # fmt: skip
def test_what_setup_py_does_not_list_plainly_is_named(argument: str) -> None:
    text = f"from setuptools import setup\nsetup(install_requires={argument})\n"
    assert migrated(text, "setup.py") == text
    (message,) = reported(text, "setup.py").values()
    assert "`torch==2.9.0`, `torch_xla[tpu]==2.9.0`" in message


def test_a_build_does_not_ask_for_the_tpu() -> None:
    text = (
        "import torch\nfrom setuptools import setup\nfrom torch.utils.cpp_extension import "
        "CUDAExtension\nparts = []\nif torch.cuda.is_available():\n"
        "    parts = [CUDAExtension('a', ['a.cu'])]\nsetup(ext_modules=parts)\n"
    )
    result = run(text, path="setup.py", entry=True)
    assert result.source.decode() == text
    assert [d.construct for d in constructs(result) if d.outcome is Outcome.REPORTED] == [
        "CUDAExtension"
    ]


def test_setup_py_with_a_list_of_its_own() -> None:
    text = "import setuptools\nneeds = ['torch']\nsetuptools.setup(install_requires=needs)\n"
    assert f"needs = ['torch']\nsetuptools.setup(install_requires=needs, {SETUP_EXTRA})\n" in (
        migrated(text, "setup.py")
    )
    other = "def setup(**k):\n    pass\nsetup(install_requires=['torch'])\n"
    assert migrated(other, "setup.py") == other


# ---- versions that leave none that was tested ------------------------------------------------


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("requirements.txt", "numpy{}\n"),
        ("pyproject.toml", '[project]\ndependencies = ["numpy{}"]\n'),
        ("setup.py", "from setuptools import setup\nsetup(install_requires=['numpy{}'])\n"),
        ("setup.cfg", "[options]\ninstall_requires =\n  numpy{}\n"),
        ("environment.yml", "dependencies:\n  - pytorch\n  - numpy{}\n"),
        ("a.sh", 'pip install "numpy{}"\n'),
    ],
)
@pytest.mark.parametrize("bound", ["<2", "==1.26.4", ">=1.20,<2"])
def test_numpy_has_to_be_one_that_was_tested(path: str, text: str, bound: str) -> None:
    (message,) = reported(text.format(bound), path).values()
    assert "numpy>=2,<3" in message
    for bound in ("", ">=1.20", "<3", "==2.1.0"):
        assert reported(text.format(bound), path) == {}


def test_scipy_has_to_be_one_that_jax_takes() -> None:
    text = "scipy<1.10\n"
    (found,) = constructs(run(text, "torchax", "requirements.txt"))
    assert "scipy>=1.14" in found.message
    assert "scipy>=1.13" in reported(text, "requirements.txt")[text.strip()]  # torch_xla: NumPy 2


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("pyproject.toml", '[project]\nrequires-python = "{}"\ndependencies = ["torch"]\n'),
        ("setup.py",
         "from setuptools import setup\nsetup(python_requires='{}', install_requires=['torch'])\n"),
        ("setup.cfg", "[options]\npython_requires = {}\ninstall_requires =\n  torch\n"),
    ],
)  # fmt: skip
def test_pythons_have_to_be_ones_with_wheels(path: str, text: str) -> None:
    for asked in (">=3.8,<3.10", "<3.11", "==3.10.*", ">=3.14"):
        assert ">=3.11,<3.13" in reported(text.format(asked), path)[
            f"'{asked}'" if path == "setup.py" else asked
        ].replace('"', "'")  # fmt: skip
    for asked in (">=3.8", ">=3.8,<3.12", "!=3.9.*"):
        assert reported(text.format(asked), path) == {}
    assert reported(text.format("<3.11").replace("torch", "tqdm"), path) == {}


@pytest.mark.parametrize(("python", "fits"), [("^3.8", False), ("~3.10", False), ("^3.11", True)])
def test_poetry_wants_packages_for_all_pythons(python: str, fits: bool) -> None:
    text = f'[tool.poetry.dependencies]\npython = "{python}"\ntorch = "^2"\n'
    assert (python not in reported(text, "pyproject.toml")) is fits


# ---- projects ------------------------------------------------------------------------------------

FILES = {
    "environment.yml": "dependencies:\n  - pytorch\n",
    "pyproject.toml": '[project]\ndependencies = ["torch"]\n',
    "setup.py": "from setuptools import setup\nsetup(install_requires=['torch'])\n",
    "setup.cfg": "[options]\ninstall_requires =\n  torch\n",
}


def test_files_of_a_project_without_gpu_code_stay(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "a.py").write_text("import torch\nprint(torch.ones(2))\n")
    report = migrate_paths([tmp_path])
    assert not report.changed and not report.diagnostics(*Outcome)
    (tmp_path / "b.py").write_text("import torch\nprint(torch.ones(2).cuda())\n")
    assert {f.path.name for f in migrate_paths([tmp_path]).changed} == {*FILES, "b.py"}


def test_portable_programs_take_what_their_machine_has() -> None:
    for name, text in FILES.items():
        assert not run(text, path=name, portable=True).changed
    for name, text in {"pyproject.toml": POETRY, "Pipfile": PIPFILE, "pixi.toml": PIXI}.items():
        text = text.replace("--device cuda", "")
        assert not run(text, path=name, portable=True).changed
    assert not run(
        "-f https://download.pytorch.org/whl/cu118\n", path="reqs.txt", portable=True
    ).changed


# ---- the table of libraries ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("package", "module"),
    [("flash-attn", "flash_attn"), ("nvidia-cublas-cu12", None), ("cupy-cuda12x", "cupy"),
     ("transformer-engine-torch", "transformer_engine"), ("sglang", "sglang"),
     ("bitsandbytes", "bitsandbytes"), ("mamba-ssm", "mamba_ssm"), ("triton", "triton")],
)  # fmt: skip
def test_a_library_is_known_by_its_import_and_by_its_package(
    package: str, module: str | None
) -> None:
    library = of_package(package)
    assert library is not None
    assert library.advice in reported(f"{package}\n", "requirements.txt")[package]
    if module is not None:
        (found,) = constructs(run(f"import {module}\n"))
        assert library.advice in found.message


def test_every_package_of_the_table_is_looked_for() -> None:
    for library in LIBRARIES:
        for name in library.packages:
            plain = re.sub(r"\(\?:[^)]*\)\?", "", name).replace(".*", "x")
            assert mentioned().search(plain), name
    assert of_package("tritonclient") is None  # a client of a server
