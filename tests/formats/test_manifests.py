"""Manifests of conda."""

from __future__ import annotations

import pytest
from helpers import constructs, run

from migrator.diagnostics import Outcome
from tests.formats.manifests import TORCHAX, migrated, reported

TORCH = "torch==2.9.0", "torch_xla[tpu]==2.9.0"


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
        ("cudatoolkit=11.3", "remove it"),
        ("nvidia::cuda-toolkit", "remove it"),
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


EXPORTED = """\
# This file may be used to create an environment using:
# $ conda create --name <env> --file <this file>
absl-py=0.9.0=pypi_0
cudatoolkit=10.1.243=h6bb024c_0
numpy=1.18.1=py37h4f9e942_0
python=3.7.6=h0371630_2
pytorch=1.4.0=py3.7_cuda10.1.243_cudnn7.6.3_0
torchvision=0.5.0=pypi_0
x264=1!152.20180806=h14c3975_0
"""


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_what_conda_has_exported_is_read_as_its_packages(end: str) -> None:
    """`conda list --export > requirements.txt`: conda reads no requirements of pip's there."""
    text = EXPORTED.replace("\n", end)
    assert migrated(text, "requirements.txt") == text
    found = {line.strip(): message for line, message in reported(text, "requirements.txt").items()}
    assert [line.partition("=")[0] for line in found] == [
        "cudatoolkit", "numpy", "python", "pytorch", "torchvision",
    ]  # fmt: skip
    messages = list(found.values())
    assert "remove it" in messages[0]
    assert "numpy>=2,<3" in messages[1]
    assert messages[2].endswith("Python 3.11 to 3.12: `python=3.11`")
    assert all(each in messages[3] for each in TORCH)
    assert "torchvision==0.24.0 by pip" in messages[4]


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
    assert "remove it" in reported(text, "environment.yml")["pytorch"]


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


@pytest.mark.parametrize(
    ("path", "list_of"),
    [
        ("requirements.txt", "{}\n"),
        ("environment.yml", "dependencies:\n  - python=3.11\n  - py{}\n"),
        ("pyproject.toml", '[tool.poetry.dependencies]\npython = "^3.11"\ntorch = "{}"\n'),
    ],
)
@pytest.mark.parametrize(
    ("version", "is_reported"),
    [("==1.8.0", True), ("<2.3", True), (">=1.8", False), ("==2.13.0", False), ("*", False)],
)
def test_a_pytorch_that_lacks_the_words_of_the_migrated_code_is_reported(
    path: str, list_of: str, version: str, is_reported: bool
) -> None:
    """Code in PyTorch's own words for any device runs on GPUs, too, but not with torch 1.8: the
    list that the run named as the way to install its runtime had that."""
    asked = version if path.endswith(".toml") else f"torch{version.replace('*', '')}"
    result = run(list_of.format(asked), "torch_tpu", path=path)
    said = [d.message for d in result.diagnostics if d.outcome is Outcome.REPORTED]
    runs_with = "excludes every version that the migrated code runs with: torch>=2.11,<=2.15.0"
    assert said == [runs_with] * is_reported
    portable = run(list_of.format(asked), "torchax", path=path, portable=True)  # by the runtime
    assert not any(d.outcome is Outcome.REPORTED for d in portable.diagnostics)
