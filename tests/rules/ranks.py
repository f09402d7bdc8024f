"""Programs with ranks."""

from __future__ import annotations

from pathlib import Path

from migrator.config import Config
from tests.helpers import constructs, migrated, run

UNSAFE = Config(unsafe=True, shard="fsdp")
TOGETHER = Config(shard="tp")
HEAD = """import os
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

def main(rank, world_size, args):
    dist.init_process_group("nccl", rank=rank, world_size=world_size)
    sampler = DistributedSampler(data)
    model = DDP(net.cuda(rank), device_ids=[rank])
"""


def line(source: str, target: str = "torchax") -> str:
    """What the last line of a program becomes, below HEAD and inside of its function."""
    text = migrated(f"{HEAD}    {source}\n", target, unsafe=True, shard="fsdp")
    return text.splitlines()[-1].strip()


def obstacle(source: str) -> str:
    """Why a program stays whole."""
    result = run(HEAD + source, unsafe=True, shard="fsdp")
    assert not result.changed and not result.companions
    assert {d.code for d in constructs(result)} == {"DST001"}
    (message,) = {d.message for d in constructs(result)}
    return message


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)


INFERENCE = """import os
import torch
import torch.distributed as dist

@torch.no_grad()
def main(args):
    dist.init_process_group("nccl", init_method="env://", world_size=args.world_size)
    model = net.cuda()
"""
# In the way of karpathy/nanoGPT: a launcher's variable decides whether there are ranks at all.
LAUNCHED = """\
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

device = "cuda"
batch_size = 4
ddp = int(os.environ.get("RANK", -1)) != -1
if ddp:
    dist.init_process_group("nccl")
    rank = int(os.environ["RANK"])
    world_size = dist.get_world_size()
    device = f"cuda:{rank}"
else:
    rank = 0
    world_size = 1
seen = world_size * batch_size * 3.5
model = net.to(device)
if ddp:
    model = DDP(model, device_ids=[rank])
raw = model.module if ddp else model
for step in range(9):
    x = torch.randn(batch_size, 3, device=device)
    if ddp and step == 8:
        dist.barrier()
if ddp:
    dist.destroy_process_group()
"""
