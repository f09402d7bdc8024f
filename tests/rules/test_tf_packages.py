"""What TensorFlow programs are installed with and started by, for the targets that run them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers import write_tree

from migrator import migrate_paths
from migrator.options import Options
from migrator.pipeline.engine import migrate_file
from migrator.pipeline.result import Result
from migrator.targets import find_target

TPU = "tensorflow-tpu==2.19.1\nlibtpu==0.0.10\nkeras==3.15.1\n"
JAX = "keras==3.15.1\njax==0.10.2\njaxlib==0.10.2\nlibtpu==0.0.52\ntensorflow-cpu==2.21.0\n"
LIBRARY = """[project]
name = "a"
dependencies = ["tensorflow>=2"]

[build-system]
requires = ["hatchling"]
"""


def migrated(name: str, text: str, target: str = "tf_tpu") -> Result:
    return migrate_file(Path(name), text.encode(), find_target(target), Options())


@pytest.mark.parametrize(
    ("before", "on_tpu", "on_jax"),
    [
        ("numpy\ntensorflow>=2.4\n", f"numpy\n{TPU}", f"numpy\n{JAX}"),
        ("tensorflow-gpu==2.8  # fast\n", *(f"{t[:-1]}  # fast\n" for t in (TPU, JAX))),
        ("tensorflow[and-cuda]\n", TPU, JAX),
        (
            "keras<3\ntensorflow\n",
            "keras==3.15.1\ntensorflow-tpu==2.19.1\nlibtpu==0.0.10\n",
            JAX,
        ),
        (TPU, TPU, None),
        (JAX, None, JAX),
        ("scikit-learn\ntensorflow-datasets\n", *2 * ["scikit-learn\ntensorflow-datasets\n"]),
    ],
)  # fmt: skip
def test_requirements_get_what_was_tested(
    before: str, on_tpu: str | None, on_jax: str | None
) -> None:
    for target, wanted in (("tf_tpu", on_tpu), ("keras_jax", on_jax)):
        if wanted is not None:
            text = migrated("requirements.txt", before, target).source.decode()
            assert text == wanted
            assert migrated("requirements.txt", text, target).source.decode() == text


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("requirements.txt", "tensorflow-text==2.8.0\n", "depends on `tensorflow`"),
        ("requirements.txt", "tensorflow; sys_platform == 'linux'\n", "instead"),
        ("requirements.txt", "nvidia-cudnn-cu12\n", "CUDA"),
        ("pyproject.toml", LIBRARY, "needs"),
        ("Dockerfile", "FROM tensorflow/tensorflow:2.15.0-gpu\n", "python:3.12"),
        ("a.sh", "docker run --gpus all a python train.py\n", "--privileged"),
        ("a.sh", "export XLA_FLAGS=--xla_gpu_autotune_level=2\n", "XLA flags for GPUs"),
        ("a.sh", "CUDA_VISIBLE_DEVICES=-1 python train.py\n", "has to name it"),
        ("a.sh", "pip install tf-models-official\n", "--no-deps"),
    ],
)
def test_what_has_no_counterpart_is_named(name: str, text: str, said: str) -> None:
    result = migrated(name, text)
    assert result.source.decode() == text
    reported = [d.message for d in result.diagnostics if d.outcome == "reported"]
    assert len(reported) == 1 and said in reported[0]


CONDA = "name: a\ndependencies:\n  - python=3.11\n{}  - numpy\n"


def test_what_conda_installs_moves_to_the_list_of_pip() -> None:
    before = CONDA.format("  - tensorflow-gpu=2.10  # fast\n  - tensorflow=2.10\n")
    first, *others = (f"    - {line}" for line in TPU.splitlines())
    listed = "".join(f"{line}\n" for line in (f"{first}  # fast", *others))
    after = f"{CONDA.format('')}  - pip\n  - pip:\n{listed}"
    assert migrated("environment.yml", before).source.decode() == after
    assert migrated("environment.yml", after).source.decode() == after


@pytest.mark.parametrize(
    ("packages", "said"),
    [
        (("tensorflow-gpu", "tensorflow-datasets"), "move all of these to the pip section"),
        (("cudatoolkit=11.2",), "part of CUDA"),
        (("keras=2.10",), "from pip: remove it here"),
        (("tensorflow", "pip:\n    - tensorflow-cpu==2.19.1"), "conda has no build for TPUs"),
    ],
)
def test_what_conda_cannot_give_is_named(packages: tuple[str, ...], said: str) -> None:
    text = CONDA.format("".join(f"  - {each}\n" for each in packages))
    found = [d for d in migrated("environment.yml", text).diagnostics if d.outcome == "reported"]
    assert said in found[0].message


def test_what_conda_has_exported_stays_and_is_named() -> None:
    text = "numpy=1.26=py311_0\ntensorflow=2.10.0=gpu_py39h0\n"
    result = migrated("requirements.txt", text)
    assert result.source.decode() == text
    (found,) = [d for d in result.diagnostics if d.outcome == "reported"]
    assert "conda has no build for TPUs" in found.message and "by pip" in found.message


def test_a_setup_py_is_told_what_the_target_takes() -> None:
    text = (
        "from setuptools import setup\n\nBASE = ['numpy', 'tensorflow-gpu>=2.4']\n"
        "setup(name='a', install_requires=BASE, extras_require={'t': ['tensorflow-text']})\n"
    )
    result = migrated("setup.py", text)
    assert result.source.decode() == text
    found = [(d.range.line, d.message) for d in result.diagnostics if d.outcome == "reported"]
    assert [line for line, _ in found] == [3, 4]
    assert "tensorflow-tpu==2.19.1" in found[0][1] and "--no-deps" in found[1][1]


def test_commands_install_what_runs_on_a_tpu() -> None:
    before = (
        "#!/bin/sh\nexport TF_FORCE_GPU_ALLOW_GROWTH=true CUDA_VISIBLE_DEVICES=0,1\n"
        "pip install -U 'tensorflow[and-cuda]' tensorflow-gpu tqdm && nvidia-smi\n"
        "python train.py\n"
    )
    result = migrated("run.sh", before)
    words = TPU.strip().replace("\n", " ")
    assert f"pip install -U {words} tqdm && nvidia-smi" in result.source.decode().replace("'", "")


def test_a_notebook_installs_and_asks_for_a_tpu() -> None:
    install = "!pip install -q tensorflow==2.8.0 imageio\n"
    cells = [install, "!nvidia-smi\n", "import tensorflow as tf\nm = tf.keras.Sequential()\n"]
    book = {
        "cells": [{"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None,
                   "source": [cell]} for cell in cells],
        "metadata": {"accelerator": "GPU"}, "nbformat": 4, "nbformat_minor": 0,
    }  # fmt: skip
    result = migrated("a.ipynb", json.dumps(book))
    made = json.loads(result.source)
    first, second, _ = ("".join(cell["source"]) for cell in made["cells"])
    assert first == f"!pip install -q {' '.join(TPU.split())} imageio\n"
    assert second == "!tpu-info\n"
    book["cells"] = book["cells"][2:]  # type: ignore[index]
    advice = [d.message for d in migrated("a.ipynb", json.dumps(book)).diagnostics]
    assert any("%pip install tensorflow-tpu==2.19.1" in message for message in advice)


def test_requirements_of_a_project_without_such_programs_stay(tmp_path: Path) -> None:
    files = {"requirements.txt": "tensorflow\n", "a.py": "print(1)\n"}
    report = migrate_paths([write_tree(tmp_path, files)], "tf_tpu")
    assert {f.path.name: f.result.source.decode() for f in report.files} == files
