"""What programs fetch, install or choose by name: nothing of it is passed over in silence."""

from __future__ import annotations

import pytest
from helpers import TARGETS, codes, migrated, reported, run


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("import colossalai\n", "LIB001"),
        ("from kernels import get_kernel\nk = get_kernel('a/flash-attn3')\n", "LIB007"),
        ("from transformers import BitsAndBytesConfig as B\nc = B()\n", "LIB007"),
        ("m = M.from_pretrained('a', load_in_8bit=True)\n", "LIB007"),
        ("m = M.from_pretrained('a', device_map='auto')\n", "LIB007"),
        ("p.add_argument('--dist-backend', default='nccl')\n", "DST006"),
        ("hparams = dict(dist_backend='nccl')\n", "DST006"),
        ("import os\nos.system('pip install flash-attn')\n", "CMD001"),
        ("import subprocess\nsubprocess.run('pip install xformers', shell=True)\n", "CMD001"),
        ("import subprocess\nsubprocess.run(['pip', 'install', '-q', 'xformers'])\n", "REQ001"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("target", TARGETS)
def test_it_is_reported(source: str, code: str, target: str) -> None:
    result = run(f"import torch\n{source}", target)
    assert set(codes(result.diagnostics)) == {code}
    assert len(reported(result)) == len(result.diagnostics) == 1


@pytest.mark.parametrize(
    "source",
    [
        "m = M.from_pretrained('a', load_in_8bit=False)\n",
        "m = M.from_pretrained('a', device_map='cpu')\n",
        "m = M.from_pretrained('a', device_map={'': 'cpu'})\n",
        "import subprocess\nsubprocess.run(['pip', 'install', 'tqdm'])\n",
    ],
)
def test_it_is_not(source: str) -> None:
    assert not reported(run(f"import torch\n{source}"))


def test_a_program_installs_the_tested_versions() -> None:
    head = "import torch\nimport subprocess\nimport sys\n"
    call = "subprocess.check_call([sys.executable, '-m', 'pip', 'install', 'torch'])\n"
    after = migrated(head + call, "torch_xla")
    assert after == head + call.replace("'torch'", "'torch==2.9.0', 'torch_xla[tpu]==2.9.0'")


def test_a_back_end_that_is_chosen_beside_the_start() -> None:
    source = (
        "import argparse\nimport torch\nimport torch.distributed as dist\n\n"
        "p = argparse.ArgumentParser()\np.add_argument('--dist-backend', default='nccl')\n"
        "args = p.parse_args()\ndist.init_process_group(args.dist_backend)\n"
        "x = torch.ones(2).cuda()\ndist.all_reduce(x)\n"
    )
    result = run(source)
    assert "init_process_group('jax')" in result.source.decode()
    (named,) = [d for d in result.diagnostics if d.code == "DST006"]
    assert named.outcome is not None and str(named.outcome) == "kept"


@pytest.mark.parametrize(("target", "group"), [("torchax", "jax"), ("torch_xla", "xla")])
@pytest.mark.parametrize(
    "line",
    [
        "if dist.get_backend() == 'nccl':\n    group = dist.new_group(backend='gloo')",
        "kind = dist.get_backend(group)\nassert kind in ['gloo', 'nccl']",
        "print('nccl' != dist.get_backend())",
    ],
)
def test_a_back_end_that_is_asked_for_is_the_targets(line: str, target: str, group: str) -> None:
    head = "import torch\nimport torch.distributed as dist\ndist.init_process_group('nccl')\n"
    after = migrated(f"{head}x = torch.ones(2).cuda()\ndist.all_reduce(x)\n{line}\n", target)
    assert line.replace("nccl", group) in after


def test_what_only_looks_like_a_back_end_is_kept() -> None:
    kept = "def f(kind):\n    kind = kind or dist.get_backend()\n    return kind == 'nccl'\n"
    assert "kind == 'nccl'" in migrated(STARTS + kept)


STARTS = """import torch
import torch.distributed as dist


def init(args):
    args.dist_backend = "nccl"
    print(args.rank, flush=True)
    dist.init_process_group(backend=args.dist_backend, rank=args.rank, world_size=2)


def train(x):
    dist.all_reduce(x.cuda())
"""


@pytest.mark.parametrize(("target", "group"), [("torchax", "jax"), ("torch_xla", "xla")])
def test_a_back_end_that_is_assigned_for_the_start_alone(target: str, group: str) -> None:
    after = migrated(STARTS, target)
    assert f'args.dist_backend = "{group}"' in after
    assert "args.dist_backend, " in after.partition("init_process_group(")[2]
    assert migrated(after, target) == after


@pytest.mark.parametrize(
    "other",
    [
        'def is_fast(args):\n    return args.dist_backend == "nccl"\n',
        'def choose(args):\n    args.dist_backend = "gloo"\n',
        'def options(p):\n    p.add_argument("--dist-backend")\n',
    ],
)
def test_what_is_said_elsewhere_keeps_the_name(other: str) -> None:
    after = migrated(STARTS + other)
    assert 'args.dist_backend = "nccl"' in after
    assert 'backend="jax"' in after


def test_another_back_end_is_named_where_processes_start() -> None:
    assert 'backend="jax"' in migrated(STARTS.replace("nccl", "gloo"))


@pytest.mark.parametrize(
    ("help_text", "after"),
    [
        ("device to use (cuda or cpu)", "device to use (jax or cpu)"),
        ("cpu/cuda", "cpu/jax"),
        ("cuda device, i.e. 0 or 0,1,2,3 or cpu", None),
        ("needs cuda 11.8", None),
    ],
)
def test_help_names_the_choices(help_text: str, after: str | None) -> None:
    source = "import torch\np.add_argument('--device', default='cuda', help={!r})\n"
    expected = source.replace("'cuda'", "'jax'").format(after or help_text)
    assert migrated(source.format(help_text)) == expected


def test_gradients_are_switched_off_once() -> None:
    source = "import torch\nwith torch.no_grad(), torch.inference_mode():\n    f()\n"
    assert migrated(source) == "import torch\nwith torch.no_grad():\n    f()\n"


def test_a_batch_size_for_each_device_names_no_gpu() -> None:
    line = "torchrun --nproc_per_node=8 train.py --device-batch-size=16\n"
    assert not reported(run(line, path="run.sh"))


def test_pytorch_is_no_package_of_pip() -> None:
    assert reported(run("pytorch==1.3.1\n", path="requirements.txt")) == ["pytorch==1.3.1"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('torch.accelerator.current_accelerator() if {} else "cuda"', 'torch.device("jax")'),
        ('torch.accelerator.current_accelerator().type if {} else "cuda"', '"jax"'),
        ("torch.accelerator.current_accelerator() if {} else choose()", None),
    ],
)
def test_a_choice_for_an_older_torch_is_none(before: str, after: str | None) -> None:
    choice = before.format('hasattr(torch, "accelerator")')
    text = migrated(f"import torch\ndevice = {choice}\n")
    assert ("hasattr" not in text) is (after is not None)
    assert after is None or f"device = {after}\n" in text
