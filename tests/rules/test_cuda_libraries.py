"""LIB001: libraries with kernels for CUDA, or for CUDA and the CPU; and what only looks so."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import cli, constructs, run, write_tree

from migrator.diagnostics import Outcome

FOR_CUDA = """
import tinycudann as tcnn
import gsplat
import nvdiffrast.torch as dr
import vllm
import flashinfer
import cudf
import horovod.torch as hvd
import py3nvml
from examples.pytorch.gpt.utils.parallel_gpt import ParallelGPT
from diff_gaussian_rasterization import GaussianRasterizer
from simple_knn._C import distCUDA2
from sageattention import sageattn
from liger_kernel.transformers import AutoLigerKernelForCausalLM
from awq import AutoAWQForCausalLM
from auto_gptq import AutoGPTQForCausalLM
from cuda import cudart
"""
AND_FOR_THE_CPU = """
import MinkowskiEngine as ME
from torch_scatter import scatter_std
import natten
import pytorch3d.ops
import kaolin
from spconv.pytorch import SparseConv3d
from mmcv.ops import MultiScaleDeformableAttention
from fbgemm_gpu.split_table_batched_embeddings_ops import SplitTableBatchedEmbeddingBagsCodegen
"""


def lines(text: str) -> list[str]:
    return text.strip().splitlines()


@pytest.mark.parametrize("line", lines(FOR_CUDA))
def test_a_library_for_cuda_is_reported(line: str) -> None:
    (found,) = constructs(run(f"{line}\n"))
    assert found.outcome is Outcome.REPORTED and " is for CUDA only: " in found.message


@pytest.mark.parametrize("line", lines(AND_FOR_THE_CPU))
def test_a_library_without_kernels_for_a_tpu_is_reported(line: str) -> None:
    (found,) = constructs(run(f"{line}\n"))
    assert found.outcome is Outcome.REPORTED and "and none for a TPU" in found.message


@pytest.mark.parametrize(
    "line", ["import faiss", "import nvtx", "import onnxruntime", "import torchao", "import mmcv"]
)
def test_what_runs_without_a_gpu_is_not(line: str) -> None:
    assert not constructs(run(f"{line}\n"))


def test_a_module_of_the_project_with_such_a_name_is_its_own(tmp_path: Path) -> None:
    write_tree(tmp_path / "project", {
        "pyproject.toml": "", "gsplat/__init__.py": "def draw(x):\n    return x * 2\n",
        "train.py": "import gsplat\nimport torch\nprint(gsplat.draw(torch.ones(2).cuda()))\n",
    })  # fmt: skip
    run = cli(".", "--target", "torchax", "--check", cwd=tmp_path / "project")
    assert b"100% automatic" in run.stdout + run.stderr
    assert b"LIB001" not in run.stdout + run.stderr


def test_a_package_is_no_library_only_because_its_folder_has_the_name(tmp_path: Path) -> None:
    kernel = "import torch\nimport triton\n\nx = torch.ones(3).cuda()\n"
    inits = {f"{folder}/__init__.py": "" for folder in ("lib", "lib/ops", "lib/ops/triton")}
    write_tree(tmp_path, inits | {"lib/ops/triton/kernel.py": kernel})
    done = cli("lib", "--check", "--target", "torchax", cwd=tmp_path).stdout.decode()
    assert "triton is for CUDA only" in done
