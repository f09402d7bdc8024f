"""A project, and what a run that only looks at it says."""

from __future__ import annotations

import re
import time
from pathlib import Path

from helpers import cli

from migrator.files import witness

GPU = "import torch\n\n\ndef f(x):\n    return x.cuda()\n"
TRAIN = """\
import torch
from lib.model import Model

if __name__ == "__main__":
    model = Model().cuda()
    print(model(torch.ones(2, 2, device="cuda")))
"""
MODEL = "import torch\n\n\nclass Model(torch.nn.Linear):\n    pass\n"
RANKS = """\
import torch.distributed as dist


def lr(base):
    return base * dist.get_world_size() ** 0.5


if __name__ == "__main__":
    dist.init_process_group("nccl")
    print(lr(1.0))
"""
TREE = {
    "train.py": TRAIN, "lib/__init__.py": "", "lib/model.py": MODEL, "tools/other.py": GPU,
    "README.md": "python train.py\n", "requirements.txt": "torch\n", "run.sh": "python train.py\n",
}  # fmt: skip
# A program that begins so has in `looked` everything that Python opens or lists.
HEARING = """
import json, os, sys
looked = set()
def hear(event, arguments):
    if event in ("open", "os.listdir", "os.scandir") and isinstance(arguments[0], str):
        looked.add(os.path.abspath(arguments[0]))
sys.addaudithook(hear)
from migrator.files.witness import Witness
"""
LOOK = ("--target", "torchax", "--diff", "--verbose")


def look(root: Path, *more: str) -> tuple[int, bytes, bytes]:
    """What a run says, without how long it took."""
    run = cli(".", *LOOK, *more, cwd=root)
    return run.returncode, run.stdout, re.sub(rb"\(\d+\.\d\d s\)", b"(time)", run.stderr)


def aged(root: Path) -> None:
    """Wait until no file of a tree is as young as a tick of the file system's clock."""
    files = [*root.rglob("*"), root]
    while max(max(f.stat().st_ctime_ns, f.stat().st_mtime_ns) for f in files) > (
        time.time_ns() - witness._TICK
    ):
        time.sleep(0.1)
