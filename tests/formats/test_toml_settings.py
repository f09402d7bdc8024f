"""Configurations in TOML, and settings that are harmless in any form."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import constructs, run

from migrator.diagnostics import Outcome
from migrator.formats.file_kinds import line_kind


def test_toml_says_the_same_as_yaml() -> None:
    text = """model = "small"  # device = "cuda"
device = "cuda"
[trainer]
eval_device="cuda:0"  # the first
inner = { device = "cuda", n = 1 }
n_gpus = 8
backend = "nccl"
accelerator = "gpu"
mixed_precision = "fp16"
attn_implementation = "flash_attention_2"
name = "run_on_cuda"
[project]
cuda_version = "12"
"""
    result = run(text, path="conf/train.toml")
    assert result.source.decode() == (
        text.replace('\ndevice = "cuda"\n', '\ndevice = "jax"\n')
        .replace('eval_device="cuda:0"', 'eval_device="jax"')
        .replace('device = "cuda", n', 'device = "jax", n')
        .replace("flash_attention_2", "sdpa")
    )
    left = [d.construct for d in constructs(result) if d.outcome is Outcome.REPORTED]
    assert left == [
        "n_gpus = 8", 'backend = "nccl"', 'accelerator = "gpu"', 'mixed_precision = "fp16"',
    ]  # fmt: skip
    assert line_kind(Path("Cargo.toml")) is None  # its features have such names


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("profiler:\n  # what to trace\n\n  cpu: True\n  cuda: True\n", True),
        ("a:\n  my_profiling:\n    use_cuda: true  # too\nb: 1\n", True),
        ('{"profile": {\n  "cuda": true,\n  "cpu": true}}\n', True),
        ("[a.profiler]\ncpu = true\ncuda = true\n", True),
        ("[profiler]\ncpu = true\n[model]\ncuda = true\n", False),
        ("profiler:\n  on: True\ncuda: True\n", False),
        ("model:\n  cuda: True\n", False),
        ("profiler:\n  gpus: 4\n", False),
    ],
)
def test_what_a_profiler_traces_is_harmless(text: str, kept: bool) -> None:
    suffix = {"{": "json", "[": "toml"}.get(text[0], "yaml")
    (found,) = constructs(run(text, path=f"a.{suffix}"))
    assert found.outcome is (Outcome.KEPT if kept else Outcome.REPORTED)
