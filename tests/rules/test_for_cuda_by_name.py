"""What is for CUDA alone, named in a configuration, passed on in a dictionary, or compiled."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from helpers import constructs, migrated, run, write_tree

from migrator import migrate_paths
from migrator.diagnostics import Outcome


def left(source: str, path: str = "module.py") -> list[str]:
    found = constructs(run(source, path=path))
    return [each.message for each in found if each.outcome is Outcome.REPORTED]


# ---- configurations ------------------------------------------------------------------------------

SETTINGS = [
    ("optimizer:\n  _component_: bitsandbytes.optim.PagedAdamW8bit\n", "bitsandbytes is for CUDA"),
    ("opt:\n  _target_: deepspeed.ops.adam.FusedAdam\n", "deepspeed is for CUDA only"),
    ("opt:\n  class_path: bitsandbytes.optim.Adam8bit\n", "bitsandbytes is for CUDA"),
    ("s:\n  _target_: lightning.pytorch.strategies.DeepSpeedStrategy\n", "shards over GPUs"),
    ("trainer:\n  strategy: deepspeed_stage_2\n", "shards over GPUs"),
    ("deepspeed_config:\n  zero_stage: 2\n", "shards over GPUs"),
    ('pip:\n  # for the GPU\n  - "xformers==0.0.22"\n', "xformers is for CUDA only"),
    ('python_packages:  # torch\n  - "torch==2.1.0"\n', "the target needs torch==2.9.0"),
]


@pytest.mark.parametrize(("text", "words"), SETTINGS)
def test_a_setting_gets_a_word(text: str, words: str) -> None:
    (message,) = left(text, "config.yaml")
    assert words in message


def test_deepspeeds_own_configuration() -> None:
    text = '{\n  "zero_optimization": {\n    "stage": 2\n  },\n  "train_batch_size": 8\n}\n'
    (message,) = left(text, "ds_config.json")
    assert "shards over GPUs" in message


@pytest.mark.parametrize("text", [
    "opt:\n  _target_: torch.optim.AdamW\n", "model:\n  _target_: mmcv.cnn.ConvModule\n",
    "pip:\n  # torch\n  - \"einops==0.8.0\"\n", "strategy: ddp\n",
    "deepspeed_config:\n  zero_stage: 0\n", "pip:\n  # cuda\n  - 'torch==2.9.0'  # as needed\n",
])  # fmt: skip
def test_no_other_setting_does(text: str) -> None:
    assert left(text, "config.yaml") == []


# ---- classes that are passed on ------------------------------------------------------------------


def test_deepspeed_by_a_dictionary() -> None:
    source = (
        "import lightning as L\nfrom lightning.pytorch.strategies import DeepSpeedStrategy as S\n"
        "settings = {'strategy': S(stage=2)}\ntrainer = L.Trainer(accelerator='cpu', **settings)\n"
    )
    assert any("DeepSpeed shards over GPUs" in message for message in left(source))


def test_deepspeed_as_an_argument_is_reported_once() -> None:
    source = (
        "import lightning as L\nfrom lightning.pytorch.strategies import DeepSpeedStrategy\n"
        "trainer = L.Trainer(strategy=DeepSpeedStrategy(stage=2))\n"
    )
    assert len([message for message in left(source) if "shards over GPUs" in message]) == 1


def test_a_provider_of_optimum() -> None:
    source = "from optimum.onnxruntime import ORTModelForCausalLM as M\n"
    (message,) = left(f"{source}m = M.from_pretrained('x', provider='CUDAExecutionProvider')\n")
    assert "no provider for a TPU" in message
    assert left(f"{source}m = M.from_pretrained('x', provider='CPUExecutionProvider')\n") == []


# ---- extensions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [
    "e.load('a', ['a.cpp', 'b.cc'])", "e.load(name='a', sources=['a.cpp'], with_cuda=False)",
    "e.load_inline('a', [source])", "e.load_inline('a', cpp_sources=s, cuda_sources=None)",
    "e.CppExtension('a', ['a.cpp'])", "build = {'build_ext': e.BuildExtension}",
    "found = e.CUDA_HOME is not None",
])  # fmt: skip
def test_an_extension_for_the_cpu_is_kept(code: str) -> None:
    assert left(f"import torch.utils.cpp_extension as e\n{code}\n") == []


@pytest.mark.parametrize("code", [
    "e.load('a', ['a.cpp', 'b.cu'])", "e.load(name='a', sources=files)",
    "e.load('a', ['a.cpp'], with_cuda=True)", "e.load('a', ['a.cpp'], **options)",
    "e.load_inline('a', s, cuda_sources=k)", "e.load_inline('a', s, k)",
    "e.CUDAExtension('a', ['a.cu'])", "compile = e.load",
])  # fmt: skip
def test_one_for_cuda_is_reported(code: str) -> None:
    assert len(left(f"import torch.utils.cpp_extension as e\n{code}\n")) == 1


def test_torchao_runs_without_a_gpu() -> None:
    assert left("import torch\nimport torchao\nfrom torchao.quantization import quantize_\n") == []


# ---- libraries that the tested PyTorch can't load ------------------------------------------------


@pytest.mark.parametrize("line", [
    "import torchtext", "from torchtext.data import Field", "from basicsr.archs import x",
    "from pytorchvideo import transforms", "import gfpgan", "from allennlp.nn import util",
    "import torchmeta.modules",
])  # fmt: skip
def test_a_library_that_cannot_be_imported_any_more(line: str) -> None:
    (message,) = left(f"{line}\n")
    assert re.search(r"torchvision no longer has|is for PyTorch [12]\.\d", message)


@pytest.mark.parametrize("line", [
    "import imgaug as use", "from imgaug import augmenters as use",
    "from tensorboard_logger import configure as use", "from stable_baselines import PPO2 as use",
])  # fmt: skip
def test_a_library_without_a_release_for_others_of_today(line: str) -> None:
    (reported,) = [
        each
        for each in constructs(run(f"import torch\n{line}\nuse(torch.ones(3).cuda())\n"))
        if each.outcome is Outcome.REPORTED
    ]
    assert reported.code == "UPG001" and reported.range.line == 2


def test_a_copy_of_the_library_in_the_project_is_its_own(tmp_path: Path) -> None:
    """Also where the package imports itself."""
    files = {
        "torchmeta/__init__.py": "from torchmeta import modules\nfrom torchmeta.toy import x\n",
        "torchmeta/toy.py": "x = 1\n",
        "torchmeta/modules.py": "import torch\nclass Meta(torch.nn.Module): pass\n",
        "train.py": "from torchmeta.modules import Meta\nnet = Meta().cuda()\n",
    }
    report = migrate_paths([write_tree(tmp_path, files)], "torchax")
    found = [d for f in report.files for d in f.result.diagnostics if d.code == "LIB001"]
    assert {d.message for d in found} == {"the project's own module"}


def test_the_rest_of_pytorchvideo_can() -> None:
    assert left("from pytorchvideo.data import make_clip_sampler\n") == []


def test_modules_that_are_gone() -> None:
    source = "import torch\nfrom torchvision.transforms.functional_tensor import resize\n"
    text = migrated(f"{source}y = resize(torch.ones(3).cuda())\n", "torchax")
    assert "from torchvision.transforms._functional_tensor import resize\n" in text


@pytest.mark.parametrize(
    "head", ["from typing import TYPE_CHECKING\nif ", "import typing\nif typing."]
)
def test_an_import_for_types_alone_is_never_run(head: str) -> None:
    assert left(f"{head}TYPE_CHECKING:\n    import deepspeed\n    from vllm import LLM\n") == []
    assert len(left(f"{head}TYPE_CHECKING:\n    pass\nelse:\n    import deepspeed\n")) == 1
