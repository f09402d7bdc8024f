"""The precision that products ask a TPU for."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
import tpu_runtime as tpu
from target import needs_libtpu
from tpu_runtime.lazy import lazy_graph

from migrator.verify import compile_for_tpu

tpu.setup()
pytestmark = pytest.mark.usefixtures("no_programs")


def written(folder: Path, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    monkeypatch.setenv("TPU_RUNTIME_PROGRAMS", str(folder))
    query, key, value = (torch.randn(8, 2, 256, 64).to(dtype).to("jax") for _ in range(3))
    mixed = F.scaled_dot_product_attention(query, key, value)
    lazy_graph.run()
    assert mixed.dtype == dtype
    return [*folder.glob("*.mlir")]


@pytest.mark.parametrize(
    ("dtype", "precision"), [(torch.float32, "HIGHEST"), (torch.bfloat16, "DEFAULT")]
)
def test_only_float32_asks_for_more_passes(
    dtype: torch.dtype, precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "".join(file.read_text("utf-8") for file in written(tmp_path, dtype, monkeypatch))
    asked = re.findall(r"dot_general .*precision = \[(\w+), (\w+)\]", text)
    assert asked == [(precision, precision)] * 2


@needs_libtpu
def test_attention_in_bfloat16_compiles_for_a_tpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = written(tmp_path, torch.bfloat16, monkeypatch)
    command = [sys.executable, compile_for_tpu.__file__, "v6e:1x1", "200", *map(str, programs)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["programs"] and not any(each["error"] for each in found["programs"]), found
