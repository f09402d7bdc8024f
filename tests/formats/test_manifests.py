"""Requirements in environment.yml, pyproject.toml, setup.py and setup.cfg."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from helpers import constructs, run

from migrator import migrate_paths
from migrator.analysis.libraries import LIBRARIES, MENTIONED, of_package
from migrator.diagnostics import Outcome

TORCH = "torch==2.9.0", "torch_xla[tpu]==2.9.0"
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
        f"{indent}  - torch==2.9.0\n{indent}  - torch_xla[tpu]==2.9.0\n"
    )


def test_requirements_of_pip_in_an_environment() -> None:
    text = 'dependencies:\n- python\n- pip:\n  - "torch>=2"\n  - torchvision # v\n  - tqdm\n'
    assert migrated(text, "conda/gpu.yaml") == (
        'dependencies:\n- python\n- pip:\n  - "torch==2.9.0"\n  - "torch_xla[tpu]==2.9.0"\n'
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
    text = "dependencies:\n- pytorch=2.0\n- pytorch-cuda=11.8\n- pytorch-scatter\n"
    assert migrated(text, "environment.yml") == text
    found = reported(text, "environment.yml")
    assert "pytorch-scatter of conda's needs conda's pytorch" in found["pytorch=2.0"]
    assert "`- torch==2.9.0`, `- torch_xla[tpu]==2.9.0`" in found["pytorch=2.0"]


def test_what_pypi_has_under_the_same_name_moves_with_torch() -> None:
    text = (
        "dependencies:\n- python=3.9\n- pytorch::pytorch=2.0\n- pytorch-cuda=11.8\n"
        "- torchmetrics=0.10.3 # of old\n- torchdiffeq=0.2\n- scipy\n- pip\n- pip:\n  - tqdm\n"
    )
    assert migrated(text, "environment.yml") == (
        "dependencies:\n- python=3.11\n- scipy\n- pip\n- pip:\n  - torch==2.9.0\n"
        "  - torch_xla[tpu]==2.9.0\n  - torchmetrics==0.10.3 # of old\n"
        "  - torchdiffeq==0.2.*\n  - tqdm\n"
    )


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


TPU = ["torch~=2.9.0", "torch_xla[tpu]~=2.9.0"]
TPU_EXTRA = 'tpu = [\n    "torch~=2.9.0",\n    "torch_xla[tpu]~=2.9.0",\n]\n'


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_project_keeps_its_layout(end: str) -> None:
    after = migrated(PROJECT.replace("\n", end), "pyproject.toml").replace(end, "\n")
    assert after == (
        PROJECT.replace('"x.y" = ["torchaudio"]\n', f'"x.y" = ["torchaudio"]\n{TPU_EXTRA}')
        .replace("whl/cu121", "whl/cpu")
        .replace('["setuptools", "torch"]', '["setuptools", "torch==2.9.0"]')
    )
    assert tomllib.loads(after)["project"]["optional-dependencies"]["tpu"] == TPU
    assert list(reported(PROJECT, "pyproject.toml")) == ["flash-attn; sys_platform == 'linux'"]


def test_places_are_those_of_the_file() -> None:
    found = {d.construct: str(d.range) for d in constructs(run(PROJECT, path="pyproject.toml"))}
    assert found["torch>=2.0"] == "14:6" and found["torchaudio"] == "21:11"


POETRY = """[tool.poetry.dependencies]
python = ">=3.11,<3.14"
torch = "^2.0"  # the model
torchvision = { version = "^0.15", source = "pytorch" }
numpy = "^2.1"

[[tool.poetry.source]]
name = "pytorch"
url = "https://download.pytorch.org/whl/cu118"
"""


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_table_of_poetry(end: str) -> None:
    after = migrated(POETRY.replace("\n", end), "pyproject.toml").replace(end, "\n")
    assert after == (
        POETRY.replace('"^2.0"', '"==2.9.0"\ntorch_xla = {version = "==2.9.0", extras = ["tpu"]}')
        .replace("^0.15", "==0.24.0")
        .replace("cu118", "cpu")
    )
    assert reported(POETRY, "pyproject.toml") == {}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            'torch = {version = "^2.0", optional = true}',
            '`torch_xla = {version = "==2.9.0", extras = ["tpu"]}`',
        ),
        ('torch = [{version = "^2", markers = "a"}]', '`torch = "==2.9.0"`'),
        ('torch = {git = "https://github.com/pytorch/pytorch"}', '`torch = "==2.9.0"`'),
        ('[tool.poetry.dependencies.torch]\nversion = "^2.0"\nsource = "x"', "torch_xla"),
        ('xformers = "*"', "scaled_dot_product_attention"),
        ('numpy = "^1.26"', "numpy>=2,<3"),
        ('torch-scatter = {version = "2.1+pt20cu118"}', "built for CUDA"),
    ],
)
def test_entries_of_poetry_that_a_person_has_to_look_at_are_named(line: str, message: str) -> None:
    text = f"[tool.poetry.dependencies]\n{line}\n"
    assert migrated(text, "pyproject.toml") == text
    (found,) = reported(text, "pyproject.toml").values()
    assert message in found


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('torch_xla = "^2.1"', 'torch_xla = {version = "==2.9.0", extras = ["tpu"]}'),
        (
            'torch-xla = { version = "^2.1" }',
            'torch-xla = { version = "==2.9.0", extras = ["tpu"] }',
        ),
        ('torch_xla = {extras=[], version="2"}', 'torch_xla = {extras=["tpu"], version="==2.9.0"}'),
        (
            'torch_xla = {version = "2.1", extras = ["pallas"], source = "a"}',
            'torch_xla = {version = "==2.9.0", extras = ["tpu", "pallas"], source = "a"}',
        ),
        (
            'torch_xla = {version = "2.1", extras = ["tpu"]}',
            'torch_xla = {version = "==2.9.0", extras = ["tpu"]}',
        ),
    ],
)
@pytest.mark.parametrize(
    ("path", "table"),
    [("pyproject.toml", "[tool.poetry.dependencies]"), ("Pipfile", "[packages]"),
     ("pixi.toml", "[pypi-dependencies]")],
)  # fmt: skip
def test_a_table_says_extras_beside_the_version(
    path: str, table: str, before: str, after: str
) -> None:
    assert migrated(f"{table}\n{before}\n", path) == f"{table}\n{after}\n"


def test_constraints_of_uv_have_no_extras() -> None:
    text = '[tool.uv]\nconstraint-dependencies = ["torch_xla[tpu]~=2.1", "torch"]\n'
    assert migrated(text, "pyproject.toml") == text.replace("[tpu]~=2.1", "==2.9.0").replace(
        '"torch"', '"torch==2.9.0"'
    )


PIPFILE = """[[source]]
url = "https://pypi.org/simple"
name = "pypi"

[[source]]
url = "https://download.pytorch.org/whl/cu113/"
name = "pytorch"

[packages]
torch = {index="pytorch", version="==1.11.0+cu113"}
torchvision = "*"
apex = {git = "https://github.com/NVIDIA/apex"}

[requires]
python_version = "3.8"

[scripts]
train = "python train.py --device cuda"
"""


def test_a_pipfile() -> None:
    after = migrated(PIPFILE, "Pipfile", "torchax")
    assert after == (
        PIPFILE.replace("whl/cu113/", "whl/cpu")
        .replace('1.11.0+cu113"}', '2.9.0"}\n' + "\n".join(
            f'{name} = "=={version}"' for name, version in (t.split("==") for t in TORCHAX[1:])
        ))
        .replace('torchvision = "*"', 'torchvision = "==0.24.0"')
        .replace("--device cuda", "--device jax")
    )  # fmt: skip
    assert set(reported(PIPFILE, "Pipfile")) == {'apex = {git = "https://github.com/NVIDIA/apex"}',
                                                 "3.8"}  # fmt: skip


PIXI = """[dependencies]
python = "3.12.*"
pytorch-gpu = ">=2.1"
cuda-version = "12.*"

[system-requirements]
cuda = "12"

[feature.gpu]
pypi-dependencies = { torch = { version = ">=2", index = "INDEX/cu124" } }

[tasks]
train = { cmd = "python train.py --device cuda", description = "on cuda" }
""".replace("INDEX", "https://download.pytorch.org/whl")


def test_pixi_in_a_file_of_its_own_and_in_that_of_the_project() -> None:
    after = PIXI.replace(
        '{ version = ">=2", index = "https://download.pytorch.org/whl/cu124" }',
        '{ version = "==2.9.0", index = "https://download.pytorch.org/whl/cpu" }, '
        'torch_xla = {version = "==2.9.0", extras = ["tpu"]}',
    ).replace("--device cuda", "--device xla")
    assert migrated(PIXI, "pixi.toml") == after
    found = reported(PIXI, "pixi.toml")
    assert set(found) == {'pytorch-gpu = ">=2.1"', 'cuda-version = "12.*"', 'cuda = "12"'}
    assert (
        '`torch = "==2.9.0"`, `torch_xla = {version = "==2.9.0", extras = ["tpu"]}`'
        in found['pytorch-gpu = ">=2.1"']
    )
    inside = re.sub(r"(?m)^\[", "[tool.pixi.", PIXI)
    assert migrated(inside, "pyproject.toml") == re.sub(r"(?m)^\[", "[tool.pixi.", after)


def test_where_uv_takes_packages_from() -> None:
    text = """[project]
dependencies = ["torch"]
[tool.uv]
find-links = ["https://download.pytorch.org/whl/torch_stable.html"]
index = [{ name = "cpu", url = "https://download.pytorch.org/whl/cpu" },
         { name = "cu128", url = "https://download.pytorch.org/whl/cu128" }]
[tool.uv.sources]
torch = [{ index = "cpu", extra = "cpu" }, { index = "cu128", extra = "cu128" }]
torchvision = { git = "https://github.com/pytorch/vision" }
torch-scatter = { url = "https://example.org/torch_scatter-2.1+pt20cu118-cp311-none-any.whl" }
flash-attn = { index = "cpu" }
"""
    assert migrated(text, "pyproject.toml") == text.replace(
        '["torch"]', '["torch==2.9.0", "torch_xla[tpu]==2.9.0"]'
    )
    found = reported(text, "pyproject.toml")
    assert "one of several" in found.pop("https://download.pytorch.org/whl/cu128")
    assert [key.partition(" ")[0] for key in found] == [
        "find-links", "torchvision", "torch-scatter", "flash-attn",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "key",
    ["[dependency-groups]\ngpu", "[tool.hatch.envs.gpu]\ndependencies",
     "[tool.hatch.envs.gpu]\nextra-dependencies", "[tool.pdm.dev-dependencies]\ngpu",
     "[tool.uv]\noverride-dependencies", "[tool.rye]\ndev-dependencies",
     "[tool.tox.env.py311]\ndeps"],
)  # fmt: skip
def test_lists_of_other_tools(key: str) -> None:
    text = f"{key} = ['tqdm', 'torchvision>=0.1']\n"
    assert migrated(text, "pyproject.toml") == text.replace(">=0.1", "==0.24.0")


def test_inline_tables_hold_lists() -> None:
    text = '[project]\noptional-dependencies = { a = ["torch"], "b.c" = ["xformers"] }\n'
    assert migrated(text, "pyproject.toml") == text.replace(
        '"torch"', '"torch==2.9.0", "torch_xla[tpu]==2.9.0"'
    )
    assert list(reported(text, "pyproject.toml")) == ["xformers"]


@pytest.mark.parametrize(
    "text",
    [
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
    assert reported(text, "requirements.txt") == {}  # torch_xla does without


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
