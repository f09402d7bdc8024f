"""LIB021: what takes the place of Liger's kernels."""

from __future__ import annotations

import pytest
import torch
from helpers import TARGETS, constructs, migrated, run

from migrator.diagnostics import Outcome

HEAD = "import torch\nfrom liger_kernel.transformers import {}\n"
EACH = (
    ("LigerRMSNorm", "(hidden_size=8)", "torch.nn.RMSNorm(normalized_shape=8, eps=1e-6)"),
    ("LigerRMSNorm", "(8, 1e-5, in_place=False)", "torch.nn.RMSNorm(8, 1e-5)"),
    ("LigerLayerNorm", "(8, bias=False)", "torch.nn.LayerNorm(8, eps=1e-6)"),
    ("LigerCrossEntropyLoss", "(reduction='sum')", "torch.nn.CrossEntropyLoss(reduction='sum')"),
)
REPORTED = (
    ("LigerRMSNorm", "y = LigerRMSNorm(8, offset=1.0)"),
    ("LigerRMSNorm", "y = LigerRMSNorm(8, 1e-6, 1.0)"),
    ("LigerRMSNorm", "y = LigerRMSNorm(8)\nprint(y.variance_epsilon)"),
    ("LigerLayerNorm", "y = LigerLayerNorm(8, bias=True)"),
    ("apply_liger_kernel_to_llama", "patch = apply_liger_kernel_to_llama"),
    ("AutoLigerKernelForCausalLM", "y = AutoLigerKernelForCausalLM.from_pretrained(n, rope=True)"),
    ("LigerSwiGLUMLP", "y = LigerSwiGLUMLP(config)"),
)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("name", "arguments", "expected"), EACH)
def test_torchs_class_is_made(name: str, arguments: str, expected: str, target: str) -> None:
    text = migrated(f"{HEAD.format(name)}y = {name}{arguments}\n", target)
    assert text == f"import torch\ny = {expected}\n"
    eval(expected, {"torch": torch})  # torch has these arguments


@pytest.mark.parametrize(("name", "text"), REPORTED)
def test_what_has_no_counterpart_stays(name: str, text: str) -> None:
    source = f"{HEAD.format(name)}{text}\n"
    result = run(source)
    assert result.source.decode() == source
    said = [d.code for d in constructs(result) if d.outcome is Outcome.REPORTED]
    assert "LIB021" in said


def test_a_trainer_takes_no_kernels() -> None:
    text = 'import transformers\nargs = transformers.TrainingArguments("out"{})\n'
    source = text.format(", use_liger_kernel=True")
    assert text.format("").splitlines()[-1] in migrated(source, "torchax")
