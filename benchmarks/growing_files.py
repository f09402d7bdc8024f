"""Files of the other kinds that the tool reads, of any length: for growth.py, and its test."""

from __future__ import annotations

import json
from collections.abc import Callable

_TORCH = "import torch\nx = torch.ones(1)\n"


def _cells(*sources: str) -> str:
    cell = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None}
    cells = [{**cell, "source": [source]} for source in ("import torch\n", *sources)]
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


_PROJECT = "[project]\nname = 'a'\nversion = '1'\n"
# Other files than modules, and long lists on one line: the path, and the text.
FORMATS: dict[str, tuple[str, Callable[[int], str]]] = {
    "requirements": ("requirements.txt", lambda n: "torch\n" * n),
    "requirements of CUDA": (
        "requirements.txt", lambda n: "".join(f"nvidia-x{i}-cu12\n" for i in range(n))
    ),
    "indexes": (
        "requirements.txt",
        lambda n: "torch\n" + "--extra-index-url https://download.pytorch.org/whl/cu121\n" * n,
    ),
    "constraints": ("constraints.txt", lambda n: "torch\n" * n),
    "torchrun in a script": ("run.sh", lambda n: "torchrun --nproc_per_node 8 a.py\n" * n),
    "commands of pip in a script": ("run.sh", lambda n: "pip install torch\n" * n),
    "continued lines": ("run.sh", lambda n: "CUDA_VISIBLE_DEVICES=0 \\\n  python a.py\n" * n),
    "a Makefile": ("Makefile", lambda n: "a:\n" + "\tCUDA_VISIBLE_DEVICES=0 python a.py\n" * n),
    "a Dockerfile": (
        "Dockerfile", lambda n: "FROM nvidia/cuda:12.1\n" + "RUN torchrun --gpus 8 a.py\n" * n
    ),
    "YAML": ("a.yaml", lambda n: "".join(f"k{i}:\n  device: cuda\n" for i in range(n))),
    "commands in YAML": (
        "a.yaml",
        lambda n: "".join(f"k{i}: CUDA_VISIBLE_DEVICES=0 python a.py\n" for i in range(n)),
    ),
    "JSON": (
        "a.json",
        lambda n: "{" + ",\n".join(f'"k{i}": {{"device": "cuda"}}' for i in range(n)) + "}",
    ),
    "an environment of conda": (
        "environment.yml", lambda n: "dependencies:\n- pytorch\n" + "- pytorch-cuda=12\n" * n
    ),
    "an environment of pip": (
        "environment.yml", lambda n: "dependencies:\n- pip\n- pip:\n" + "  - torch\n" * n
    ),
    "TOML": (
        "pyproject.toml", lambda n: f"{_PROJECT}dependencies = [\n" + "  'torch',\n" * n + "]\n"
    ),
    "TOML on one line": (
        "pyproject.toml", lambda n: f"{_PROJECT}dependencies = [" + "'torch', " * n + "]\n"
    ),
    "extras in TOML": (
        "pyproject.toml",
        lambda n: f"{_PROJECT}[project.optional-dependencies]\n"
        + "".join(f"e{i} = ['torch']\n" for i in range(n)),
    ),
    "tables of Poetry": (
        "pyproject.toml",
        lambda n: "".join(
            f"[tool.poetry.group.g{i}.dependencies]\ntorch = '1'\n" for i in range(n)
        ),
    ),
    "setup.cfg": ("setup.cfg", lambda n: "[options]\ninstall_requires =\n" + "  torch\n" * n),
    "setup.py": (
        "setup.py",
        lambda n: "from setuptools import setup\nsetup(install_requires=["
        + "'torch', " * n + "])\n",
    ),
    "cells": ("a.ipynb", lambda n: _cells(*(f"x{i} = x.cuda()\n" for i in range(n)))),
    "commands in cells": ("a.ipynb", lambda n: _cells(*["!pip install torch\n"] * n)),
    "files in cells": (
        "a.ipynb",
        lambda n: _cells(
            *(f"%%writefile a{i}.py\nimport torch\nx = torch.ones(1).cuda()\n" for i in range(n))
        ),
    ),
    "a list of devices": (
        "a.py", lambda n: f"{_TORCH}d = [" + "'cuda', " * n + "]\nx = x.to(d[0])\n"
    ),
    "parameters of a test": (
        "a.py",
        lambda n: f"{_TORCH}import pytest\n@pytest.mark.parametrize('d', ["
        + "'cuda', " * n + "])\n"
        "def test(d):\n    y = torch.ones(1, device=d)\n",
    ),
}  # fmt: skip
