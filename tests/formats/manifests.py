"""Manifests of the tests, and what they become."""

from __future__ import annotations

from helpers import constructs, run

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


POETRY = """[tool.poetry.dependencies]
python = ">=3.11,<3.14"
torch = "^2.0"  # the model
torchvision = { version = "^0.15", source = "pytorch" }
numpy = "^2.1"

[[tool.poetry.source]]
name = "pytorch"
url = "https://download.pytorch.org/whl/cu118"
"""
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
