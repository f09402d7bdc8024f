"""Requirements in environment.yml, pyproject.toml, setup.py and setup.cfg."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from helpers import constructs, run

from migrator import migrate_paths
from migrator.diagnostics import Outcome
from migrator.libraries import LIBRARIES, MENTIONED, of_package

TORCH = "torch==2.9.0", "torch_xla==2.9.0"
TORCHAX = "torch==2.9.0", "torchax==0.0.13", "jax==0.10.2", "jaxlib==0.10.2", "libtpu==0.0.52"


def migrated(text: str, path: str, target: str = "torch_xla") -> str:
    """The text after a migration; a second one must not change it, nor find anything missing."""
    result = run(text.encode(), target, path)
    assert not result.failed, result.diagnostics
    again = run(result.source, target, path)
    assert again.source == result.source
    return result.source.decode()


def reported(text: str, path: str) -> dict[str, str]:
    return {d.construct: d.message for d in constructs(run(text, "torch_xla", path))
            if d.outcome is Outcome.REPORTED}  # fmt: skip


# ---- conda ---------------------------------------------------------------------------------------

ENVIRONMENT = """# how to: conda env create
name: model
channels:
  - pytorch   # first
  - nvidia
dependencies:
  - python=3.11
  - pip=23.1
  - pytorch=2.1.0   # the model
  - 'torchvision=0.16'
  - pytorch-cuda=12.1
  - numpy=1.26

  - pip:
    # plots
    - matplotlib
    - --extra-index-url https://download.pytorch.org/whl/cu121
    - -e git+https://example.org/clip.git@main#egg=clip
variables:
  torch: cuda
"""


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_torch_of_conda_moves_to_the_list_of_pip(end: str) -> None:
    after = migrated(ENVIRONMENT.replace("\n", end), "environment.yml", "torchax").split(end)
    before = ENVIRONMENT.split("\n")
    assert after == [
        *before[:8],
        *before[11:15],
        "    - torch==2.9.0   # the model",
        *(f"    - {each}" for each in (*TORCHAX[1:], "torchvision==0.24.0")),
        before[15],
        "    - --extra-index-url https://download.pytorch.org/whl/cpu",
        *before[17:],
    ]


@pytest.mark.parametrize("dash", ["- ", "  - ", "    -   "])
@pytest.mark.parametrize("last", [True, False])
def test_a_list_of_pip_is_made_where_there_is_none(dash: str, last: bool) -> None:
    before = f"name: a\ndependencies:\n{dash}python\n{dash}pytorch::pytorch" + "\n" * last
    indent = dash.partition("-")[0]
    assert migrated(before, "env.yaml") == (
        f"name: a\ndependencies:\n{dash}python\n{indent}- pip\n{indent}- pip:\n"
        f"{indent}  - torch==2.9.0\n{indent}  - torch_xla==2.9.0\n"
    )


def test_requirements_of_pip_in_an_environment() -> None:
    text = 'dependencies:\n- python\n- pip:\n  - "torch>=2"\n  - torchvision # v\n  - tqdm\n'
    assert migrated(text, "conda/gpu.yaml") == (
        'dependencies:\n- python\n- pip:\n  - "torch==2.9.0"\n  - "torch_xla==2.9.0"\n'
        "  - torchvision==0.24.0 # v\n  - tqdm\n"
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("cudatoolkit=11.3", "leave it out"),
        ("nvidia::cuda-toolkit", "leave it out"),
        ("xformers", "scaled_dot_product_attention"),
        ("cupy", "numpy"),
        ("python=3.8.5=h7579374_1", "`- python=3.11`"),
        ("python>=3.6,<3.9", "`- python=3.11`"),
    ],
)
def test_what_conda_has_for_cuda_alone_is_named(line: str, message: str) -> None:
    text = f"dependencies:\n  - pytorch\n  - {line}\n"
    assert message in reported(text, "environment.yml")[line]
    assert f"  - {line}\n" in migrated(text, "environment.yml")


def test_what_goes_with_torch_is_installed_by_pip_too() -> None:
    text = "dependencies:\n- pytorch\n- jax=0.4\n- pip:\n  - jaxlib\n"
    after = run(text, "torchax", "environment.yml")
    assert "  - jax==0.10.2\n  - libtpu==0.0.52\n  - jaxlib==0.10.2\n" in after.source.decode()
    (left,) = [d for d in constructs(after) if d.outcome is Outcome.REPORTED]
    assert left.construct == "jax=0.4" and "jax==0.10.2, by pip" in left.message


@pytest.mark.parametrize("line", ["python>=3.8", "python=3.12", "python=3", "python<3.13", "pip"])
def test_pythons_that_will_do_are_not_named(line: str) -> None:
    assert reported(f"dependencies:\n  - pytorch\n  - {line}\n", "environment.yml") == {}


def test_torch_stays_where_a_package_of_conda_brings_it_back() -> None:
    text = "dependencies:\n- pytorch=2.0\n- pytorch-cuda=11.8\n- pytorch-lightning\n"
    assert migrated(text, "environment.yml") == text
    found = reported(text, "environment.yml")
    assert "pytorch-lightning of conda's needs conda's pytorch" in found["pytorch=2.0"]
    assert "`- torch==2.9.0`, `- torch_xla==2.9.0`" in found["pytorch=2.0"]


def test_torch_that_pip_installs_too_is_not_required_twice() -> None:
    text = "dependencies:\n- pytorch\n- pip:\n  - torch==2.9.0\n"
    assert "- pytorch\n- pip:\n  - torch==2.9.0\n  - torch" in migrated(text, "environment.yml")
    assert "leave it out" in reported(text, "environment.yml")["pytorch"]


@pytest.mark.parametrize(
    "text",
    [
        "dependencies: [python, pytorch]\n",
        "dependencies:\n  - name: pytorch\n    version: 2\n",
        "dependencies:\n  - python\n  - &a pytorch\n",
        "dependencies:\n  - python\n  - pip:\n      torch\n",
        "dependencies:\n  - python\n    - pytorch\n",
        "dependencies:\n  - redis\n  - pytorch-operator\n",
        "other:\n  - pytorch\n",
    ],
)
def test_yaml_that_conda_does_not_write_stays(text: str) -> None:
    assert migrated(text, "environment.yml") == text


# ---- pyproject.toml ------------------------------------------------------------------------------

PROJECT = """[build-system]
requires = ["setuptools", "torch"]

# what it is
[project]
name = "torch-things"  # torch

    # indented
description = \"\"\"
dependencies = ["torch"]
\"\"\"
dependencies = [
    "numpy", # n
    'torch>=2.0',  # the model
    "torchvision[extra]>=0.1",
    "flash-attn; sys_platform == 'linux'",
]

[project.optional-dependencies]
all = ["tqdm", "torch"]
"x.y" = ["torchaudio"]

[[tool.uv.index]]
name = "pytorch-cu121"
url = 'https://download.pytorch.org/whl/cu121'
"""


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_project_keeps_its_layout(end: str) -> None:
    after = migrated(PROJECT.replace("\n", end), "pyproject.toml").replace(end, "\n")
    assert after == (
        PROJECT.replace("'torch>=2.0'", "'torch==2.9.0',\n    'torch_xla==2.9.0'")
        .replace('"torchvision[extra]>=0.1"', '"torchvision==0.24.0"')
        .replace('["tqdm", "torch"]', '["tqdm", "torch==2.9.0", "torch_xla==2.9.0"]')
        .replace('"torchaudio"', '"torchaudio==2.9.0"')
        .replace("whl/cu121", "whl/cpu")
    )
    assert tomllib.loads(after)["project"]["dependencies"][1:3] == [*TORCH]
    assert list(reported(PROJECT, "pyproject.toml")) == ["flash-attn; sys_platform == 'linux'"]


def test_places_are_those_of_the_file() -> None:
    found = {d.construct: str(d.range) for d in constructs(run(PROJECT, path="pyproject.toml"))}
    assert found["torch>=2.0"] == "14:6" and found["torchaudio"] == "21:11"


def test_tables_of_poetry_are_named_with_what_to_write() -> None:
    text = '[tool.poetry.dependencies]\npython = "^3.10"\ntorch = {version = "^2.0"}\n'
    assert migrated(text, "pyproject.toml") == text
    (message,) = reported(text, "pyproject.toml").values()
    assert '`torch = "2.9.0"`, `torch_xla = "2.9.0"`' in message


@pytest.mark.parametrize(
    "text",
    [
        '[project]\ndependencies = ["""torch"""]\n',
        '[project]\ndependencies = ["tor\\u0063h", "torchvision"]\n',
        '[project]\ndependencies = ["torch"\n',
    ],
)
def test_toml_that_is_not_understood_stays(text: str) -> None:
    assert migrated(text, "pyproject.toml") == text


# ---- setuptools ----------------------------------------------------------------------------------

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
        SETUP_CFG.replace("torch>=1.7", "torch==2.9.0\n    torch_xla==2.9.0").replace(
            "\ttorchvision", "\ttorchvision==0.24.0"
        )
    )
    assert list(reported(SETUP_CFG, "setup.cfg")) == ["one = torchaudio"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("install_requires=['torch']", "install_requires=['torch==2.9.0', 'torch_xla==2.9.0']"),
        ('install_requires=["a", "torch>1",]',
         'install_requires=["a", "torch==2.9.0", "torch_xla==2.9.0",]'),
        ("install_requires=[\n    'torch',  # t\n    # n\n    'numpy'\n]",
         "install_requires=[\n    'torch==2.9.0',\n    'torch_xla==2.9.0',  # t\n    # n\n"
         "    'numpy'\n]"),
        ("install_requires=[\n    'numpy',\n    'torch']",
         "install_requires=[\n    'numpy',\n    'torch==2.9.0',\n    'torch_xla==2.9.0']"),
        ("extras_require={'a': ['torchvision']}", "extras_require={'a': ['torchvision==0.24.0']}"),
        ("install_requires=read('requirements.txt')", None),
        ("keywords=['torch']", None),
        ("install_requires='torch'", None),
    ],
)  # fmt: skip
def test_setup_py(before: str, after: str | None) -> None:
    head = "from setuptools import setup\n"
    assert migrated(f"{head}setup({before})\n", "setup.py") == f"{head}setup({after or before})\n"


def test_setup_py_with_a_list_of_its_own() -> None:
    text = "import setuptools\nneeds = ['torch']\nsetuptools.setup(install_requires=needs)\n"
    assert "needs = ['torch==2.9.0', 'torch_xla==2.9.0']\n" in migrated(text, "setup.py")
    other = "def setup(**k):\n    pass\nsetup(install_requires=['torch'])\n"
    assert migrated(other, "setup.py") == other


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


# ---- the table of libraries ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("package", "module"),
    [("flash-attn", "flash_attn"), ("nvidia-cublas-cu12", None), ("cupy-cuda12x", "cupy"),
     ("transformer-engine-torch", "transformer_engine"), ("torchao", "torchao"),
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
            assert MENTIONED.search(plain), name
    assert of_package("tritonclient") is None  # a client of a server
