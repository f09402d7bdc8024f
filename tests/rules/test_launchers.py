"""What starts programs on GPUs: launchers of processes, SLURM, containers and their images."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import TARGETS, constructs, run, write_tree

from migrator import migrate_paths
from migrator.config import Config
from migrator.diagnostics import Outcome
from migrator.files.discover import discover

INFERS = """import torch
import torch.distributed as dist

dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_rank())
model = torch.load("model.pt").cuda().eval()
with torch.no_grad():
    print(model(torch.ones(2, 2).cuda()))
"""
TRAINS = """import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

dist.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
model = DDP(torch.nn.Linear(2, 2).cuda(rank), device_ids=[rank])
sampler = DistributedSampler(data)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in DataLoader(data, batch_size=4, sampler=sampler):
    optimizer.zero_grad()
    model(x.cuda(rank)).mean().backward()
    optimizer.step()
"""


def line(text: str, target: str = "torchax", path: str = "a.sh", **options: object) -> str:
    """What is said of the one construct of a line that stays."""
    result = run(f"{text}\n", target, path, **options)
    assert result.source.decode() == f"{text}\n"
    (found,) = constructs(result)
    assert found.outcome in (Outcome.REPORTED, Outcome.KEPT)
    return found.message


def script(
    tmp_path: Path, command: str, program: str = INFERS, target: str = "torchax", **config: object
) -> str:
    """What becomes of a command beside a program, which is migrated with it."""
    write_tree(tmp_path, {"scripts/run.sh": f"set -e\n{command}\n", "train.py": program,
                          "tools/test.py": INFERS, "tools/__init__.py": ""})  # fmt: skip
    report = migrate_paths([tmp_path], target, config=Config(**config))  # type: ignore[arg-type]
    assert not report.failures
    (found,) = [f.result for f in report.files if f.path.name == "run.sh"]
    return found.source.decode().removeprefix("set -e\n").removesuffix("\n")


@pytest.mark.parametrize(
    ("command", "after"),
    [
        ("torchrun --nproc_per_node=8 train.py --lr 0.1", "python train.py --lr 0.1"),
        ("torchrun --standalone --nnodes 1 --nproc-per-node $GPUS train.py", "python train.py"),
        ("OMP_NUM_THREADS=4 torchrun --nproc_per_node 2 train.py && echo ok",
         "OMP_NUM_THREADS=4 python train.py && echo ok"),
        ("python3 -m torch.distributed.launch --use_env --nproc_per_node=2 train.py -x",
         "python3 train.py -x"),
        ("torchrun \\\n  --nproc_per_node=8 \\\n  --master_port 29500 \\\n  train.py \\\n  --lr 1",
         "python train.py \\\n  --lr 1"),
        ("torchrun --nproc_per_node=2 -m tools.test --n 1", "python -m tools.test --n 1"),
        ("torchrun --nproc_per_node=2 tools/test.py", "python tools/test.py"),
    ],
)  # fmt: skip
def test_one_process_takes_the_place_of_all(tmp_path: Path, command: str, after: str) -> None:
    assert script(tmp_path, command, shard="tp") == after
    for target in TARGETS:
        assert script(tmp_path, command, target=target) == command


@pytest.mark.parametrize(
    "command",
    [
        "torchrun --nnodes=2 --nproc_per_node=8 train.py",
        "torchrun --node_rank=1 --nproc_per_node=8 train.py",
        "torchrun --nproc_per_node=8 --no_python ./train.py",
        "torchrun --nproc_per_node=8 other.py",
        "torchrun --nproc_per_node=8 $PROGRAM",
        "torchrun --nproc_per_node=8 /train.py",
        "torchrun --nproc_per_node=8 ../train.py/../nowhere.py",
        "torchrun --nproc_per_node=$GPUS train.py --ulysses_size $GPUS",
        "torchrun --nproc_per_node=8 train.py --launcher pytorch",
        "torchrun --nproc_per_node=8 train.py --device cuda",
        "torchrun a.py && torchrun train.py",
        "torchrun",
    ],
)
def test_a_command_that_is_not_surely_one_process_stays(tmp_path: Path, command: str) -> None:
    assert script(tmp_path, command, shard="tp") == command


def test_the_command_follows_its_program(tmp_path: Path) -> None:
    command = "torchrun --nproc_per_node=8 train.py"
    assert script(tmp_path, command, TRAINS, shard="fsdp") == command
    alone = {"shard": "fsdp", "unsafe": True}
    assert script(tmp_path, command, TRAINS, **alone) == "python train.py"
    assert script(tmp_path, command, "import torch\nx.cuda()\n", **alone) == command
    assert script(tmp_path, command, portable=True) == command


@pytest.mark.parametrize(
    ("text", "torchax", "torch_xla"),
    [
        ("torchrun --nproc_per_node=8 train.py --lr 1", "as on GPUs", "as on GPUs"),
        ("torchrun --nnodes=2 train.py", "as on GPUs", "as on GPUs"),
        ("accelerate launch train.py", "`torchrun` a process", "`torchrun` a process"),
        ("python -m accelerate.commands.launch a.py", "one device", "one device"),
        ("deepspeed train.py --deepspeed_config x.json", "shard over a mesh", "explain SHD001"),
        ("mpirun -np 8 python train.py", "by torchrun", "by torchrun"),
        ("horovodrun -np 4 python train.py", "by torchrun", "by torchrun"),
    ],
)  # fmt: skip
def test_launchers_are_named_with_what_takes_their_place(
    text: str, torchax: str, torch_xla: str
) -> None:
    assert torchax in line(text)
    assert torch_xla in line(text, "torch_xla")


def test_with_shard_one_process_is_started() -> None:
    found = line("torchrun --nproc_per_node=8 train.py --lr 1", shard="tp")
    assert "`python train.py --lr 1`" in found
    assert "several hosts" in line("torchrun --nnodes=2 train.py", shard="tp")
    assert "one process drives all devices" in line("mpirun -np 8 python a.py", shard="tp")


@pytest.mark.parametrize(
    "text",
    [
        "#SBATCH --gres=gpu:4", "#SBATCH --gpus-per-node=8", "#SBATCH --gpus 4", "#SBATCH -G 4",
        "#SBATCH --partition=gpu", "srun --gres=gpu:8 -n8 python train.py", "sbatch --gpus=2 a.sh",
    ],
)  # fmt: skip
def test_slurm_is_asked_for_no_gpus(text: str) -> None:
    assert "gcloud compute tpus tpu-vm ssh" in line(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("docker run --gpus all -it image", "--privileged --net=host"),
        ("docker run --runtime=nvidia image", "--privileged --net=host"),
        ("nvidia-docker run image", "--privileged --net=host"),
        ("conda install pytorch torchvision cudatoolkit=11.3 -c pytorch", "`pip install torch==2"),
        ("CUDA_VISIBLE_DEVICES=0,1 python train.py", "means nothing on a TPU"),
    ],
)
def test_other_commands(text: str, message: str) -> None:
    assert message in line(text)
    assert message in line(f"\t{text}", path="Makefile")


@pytest.mark.parametrize(
    ("path", "text", "outcome"),
    [
        ("Dockerfile", "ENV PATH /usr/local/nvidia/bin:/usr/local/cuda/bin:${PATH}", Outcome.KEPT),
        ("a.sh", 'export LD_LIBRARY_PATH="/usr/local/cuda/lib64:$PATH"  # CUDA', Outcome.KEPT),
        ("a.sh", "export CUDA_HOME=/usr/local/cuda-11.8", Outcome.KEPT),
        ("a.sh", "PATH=/usr/local/cuda/bin:$PATH python t.py", Outcome.REPORTED),
        ("a.sh", "MODEL_PATH=runs/cuda", Outcome.REPORTED),
    ],
)
def test_folders_on_a_path_are_no_use_of_a_gpu(path: str, text: str, outcome: Outcome) -> None:
    assert {d.outcome for d in constructs(run(f"{text}\n", "torchax", path))} == {outcome}


@pytest.mark.parametrize(
    "image",
    ["nvidia/cuda:12.1.0-devel-ubuntu22.04", "pytorch/pytorch:2.1.0-cuda11.8-cudnn8-runtime",
     "nvcr.io/nvidia/pytorch:23.10-py3", "pytorch/pytorch:latest AS base"],
)  # fmt: skip
def test_images_for_cuda_are_named(image: str) -> None:
    assert "python:3.11" in line(f"FROM {image}", path="Dockerfile")
    assert "python:3.11" in line(f"    image: {image}", path="compose.yaml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("    runtime: nvidia", "`privileged: true`"),
        ("          - driver: nvidia", "`privileged: true`"),
        ("            capabilities: [gpu]", "`privileged: true`"),
        ("              - gpu", "`privileged: true`"),
        ("      - NVIDIA_VISIBLE_DEVICES=all", "`privileged: true`"),
        ("            nvidia.com/gpu: 1", "`google.com/tpu: 8`"),
    ],
)
def test_containers_in_yaml(text: str, message: str) -> None:
    assert message in line(text, path="docker-compose.yml")


@pytest.mark.parametrize(
    "text",
    ["srun -n 4 ./solve", "mpirun -np 4 ./solve", "#SBATCH --mem=4G", "FROM python:3.8",
     "docker run -it image", "echo deepspeed", "conda install numpy", "image: nginx",
     "- gpustat", "driver: local", "ldconfig  # torchrun, docker --gpus all"],
)  # fmt: skip
def test_what_has_nothing_to_do_with_gpus_is_not_named(text: str) -> None:
    for path in ("a.sh", "Dockerfile", "a.yaml"):
        assert not constructs(run(f"{text}\n", path=path))


def test_makefiles_are_found(tmp_path: Path) -> None:
    files = dict.fromkeys(("Makefile", "a.mk"), "train:\n\tpython x.py --device cuda\n")
    write_tree(tmp_path, files)
    assert len(discover([tmp_path]).files) == 2
    for name, text in files.items():
        assert run(text, path=name).source.decode() == text.replace("cuda", "jax")


TRAIN = """
import argparse, torch
parser = argparse.ArgumentParser()
parser.add_argument("--cuda", action="store_true")
parser.add_argument("--gpu-ids", default="0")
args = parser.parse_args()
device = torch.device("cuda" if args.cuda else "cpu")
"""


@pytest.mark.parametrize(
    ("command", "outcome"),
    [
        ("python train.py \\\n    --cuda \\\n    --data ../data", Outcome.KEPT),
        ("CUDA_VISIBLE_DEVICES=0 python3 -u train.py --gpu-ids 0,1 --cuda", Outcome.KEPT),
        ("python train.py --use-cuda", Outcome.REPORTED),  # no option that it has
        ("python other.py --cuda", Outcome.REPORTED),
        ("python train.py --cuda && python other.py --cuda", Outcome.REPORTED),
        ("python train.py --cuda --data cuda/data", Outcome.REPORTED),
    ],
)
def test_options_of_a_program_of_the_project_are_its_own(
    tmp_path: Path, command: str, outcome: Outcome
) -> None:
    write_tree(tmp_path, {"scripts/run.sh": f"{command}\n", "train.py": TRAIN})
    report = migrate_paths([tmp_path], "torchax")
    (script,) = [f.result for f in report.files if f.path.name == "run.sh"]
    assert {d.outcome for d in constructs(script) if d.code == "CMD001"} == {outcome}


BY_TIMM = """import torch
from timm import utils
from torch.nn.parallel import DistributedDataParallel as DDP


def main(args, net):
    device = utils.init_distributed_device(args)
    return DDP(net.cuda(), device_ids=[args.local_rank]), device
"""


@pytest.mark.parametrize(
    ("target", "start"), [("torchax", "('jax')"), ("torch_xla", "('xla', init_method='xla://')")]
)
def test_ranks_that_a_library_starts_are_reported(target: str, start: str) -> None:
    result = run(BY_TIMM, target)
    (found,) = [d for d in constructs(result) if d.outcome is Outcome.REPORTED]
    assert found.code == "DST001"
    assert f"torch.distributed.init_process_group{start}" in found.message


def test_a_function_of_the_project_starts_ranks_as_it_says(tmp_path: Path) -> None:
    own = "import torch.distributed as dist\n\n\ndef init_distributed_device(args):\n"
    own += "    dist.init_process_group('nccl', rank=args.local_rank)\n"
    write_tree(tmp_path, {"timm/__init__.py": "", "timm/utils.py": own, "train.py": BY_TIMM})
    report = migrate_paths([tmp_path], "torchax")
    assert not [d for f in report.files for d in constructs(f.result)
                if d.outcome is Outcome.REPORTED]  # fmt: skip


@pytest.mark.parametrize(("program", "outcome"), [
    (TRAINS, Outcome.KEPT), ("import torch\nx = torch.ones(2).cuda()\n", Outcome.REPORTED),
])  # fmt: skip
def test_nccl_in_a_setting_beside_a_program(program: str, outcome: Outcome, tmp_path: Path) -> None:
    setting = "dist_params:\n  backend: nccl\n"
    write_tree(tmp_path, {"options/train/a.yml": setting, "package/train.py": program})
    (found,) = [
        d for f in migrate_paths([tmp_path], "torchax").files if f.path.name == "a.yml"
        for d in constructs(f.result)
    ]  # fmt: skip
    assert found.code == "CFG001" and found.outcome is outcome


@pytest.mark.parametrize(("setting", "reads", "outcome"), [
    ("num_gpu: 4  # 0 for the CPU", 'opt["num_gpu"] > 1', Outcome.KEPT),
    ("  NUM_GPUS: 8", "cfg.NUM_GPUS", Outcome.KEPT),
    ("gpus: 2", "opt.get('gpus')", Outcome.KEPT),
    ("num_gpu: 4", "other['num_gpus']", Outcome.REPORTED),  # nobody asks for it
    ("gpus: -1", "cfg.gpus", Outcome.REPORTED),
    ("gpus: [0, 1]", "cfg.gpus", Outcome.REPORTED),
    ("gpu: 1", "cfg.gpu", Outcome.REPORTED),  # which one
])  # fmt: skip
def test_how_many_devices_a_program_is_told(
    setting: str, reads: str, outcome: Outcome, tmp_path: Path
) -> None:
    program = f"import torch\nif {reads}:\n    net.cuda()\n"
    write_tree(tmp_path, {"options/train/a.yml": f"{setting}\n", "package/train.py": program})
    (found,) = [
        d for f in migrate_paths([tmp_path], "torchax").files if f.path.name == "a.yml"
        for d in constructs(f.result)
    ]  # fmt: skip
    assert found.code == "CFG001" and found.outcome is outcome
