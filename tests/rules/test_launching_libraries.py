"""Libraries that start a program's ranks, or compute in its place: Horovod, DeepSpeed, ONNX."""

from pathlib import Path

import pytest
from helpers import reported_codes, run, write_tree

from migrator import migrate_paths
from migrator.diagnostics import Outcome

HOROVOD = """\
import horovod.torch as hvd
import torch

hvd.init()
torch.cuda.set_device(hvd.local_rank())
model = torch.nn.Linear(2, 2).cuda()
"""
DEEPSPEED = """\
import argparse

import deepspeed
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--deepspeed", action="store_true")
args = parser.parse_args()
model = torch.nn.Linear(2, 2).cuda()
if {}:
    model, _, _, _ = deepspeed.initialize(model=model)
"""


@pytest.mark.parametrize("target", ["torchax", "torch_xla", "torch_tpu"])
@pytest.mark.parametrize("source", [HOROVOD, DEEPSPEED.format("True")])
def test_a_program_whose_ranks_a_library_makes_stays_whole(
    tmp_path: Path, source: str, target: str
) -> None:
    write_tree(tmp_path, {"main.py": source})
    report = migrate_paths([tmp_path], target)
    assert not report.changed
    [file] = report.files
    assert any("makes the ranks of this program" in d.message for d in file.result.diagnostics)


def test_a_library_behind_an_option_that_is_off_keeps_nothing(tmp_path: Path) -> None:
    write_tree(tmp_path, {"main.py": DEEPSPEED.format("args.deepspeed")})
    [file] = migrate_paths([tmp_path], "torchax").changed
    assert b'.to("jax")' in file.result.source


def test_what_a_launcher_gives_is_no_default(tmp_path: Path) -> None:
    """DeepSpeed-Chat: without the launcher, the program would not run at all."""
    source = DEEPSPEED.format("args.local_rank != -1")
    option = '"--local_rank", type=int, default=-1'
    source = source.replace('"--deepspeed", action="store_true"', option)
    write_tree(tmp_path, {"main.py": source})
    assert not migrate_paths([tmp_path], "torchax").changed


UTILS = """import torch
import torch.distributed as dist


def reduce(x):
    if dist.is_initialized():
        dist.all_reduce(x)
    return x.cuda()
"""


@pytest.mark.parametrize("target", ["torchax", "torch_xla"])
def test_all_of_such_a_program_stays_by_the_line_that_makes_them(
    tmp_path: Path, target: str
) -> None:
    main = f"from utils import reduce\n{DEEPSPEED.format('True')}reduce(model.weight)\n"
    report = migrate_paths([write_tree(tmp_path, {"main.py": main, "utils.py": UTILS})], target)
    assert not report.changed
    for file in report.files:
        assert file.result.gate is not None and file.result.gate.obstacle is not None
        assert (
            file.result.gate.obstacle.line == main[: main.index("deepspeed.init")].count("\n") + 1
        )
        assert {d.code for d in file.result.diagnostics if d.outcome} == {"DST001"}


@pytest.mark.parametrize("target", ["torchax", "torch_xla"])
def test_nobody_says_that_a_group_is_there_if_none_is_made(tmp_path: Path, target: str) -> None:
    """The program migrates as it runs by default, and DeepSpeed's branch is reported."""
    main = f"from utils import reduce\n{DEEPSPEED.format('args.deepspeed')}reduce(model.weight)\n"
    report = migrate_paths([write_tree(tmp_path, {"main.py": main, "utils.py": UTILS})], target)
    found = {d.construct: d for f in report.files for d in f.result.diagnostics if d.outcome}
    assert found["dist.all_reduce"].message.endswith("where a program makes one")
    assert found["deepspeed"].outcome is Outcome.REPORTED
    made = f"{main}torch.distributed.init_process_group('nccl')\n"
    report = migrate_paths([write_tree(tmp_path, {"main.py": made})], target)
    found = {d.construct: d for f in report.files for d in f.result.diagnostics if d.outcome}
    assert found["dist.all_reduce"].message == "the target's process group does the same"


@pytest.mark.parametrize(
    ("providers", "is_reported"),
    [
        ('["CUDAExecutionProvider", "CPUExecutionProvider"]', True),
        ('[("TensorrtExecutionProvider", {}), "CUDAExecutionProvider"]', True),
        ('["CPUExecutionProvider"]', False),
    ],
)
def test_a_provider_of_onnx_runtime_for_gpus_is_reported(providers: str, is_reported: bool) -> None:
    source = f"import onnxruntime as ort\nort.InferenceSession('m.onnx', providers={providers})\n"
    found = reported_codes(run(source))
    assert ("LIB009" in found) == is_reported
