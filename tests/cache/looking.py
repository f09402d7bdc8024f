"""A project, and what a run that only looks at it says."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path

from helpers import cli, write_tree

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


# ---- what changes a result ---------------------------------------------------------------------


def same_time(root: Path) -> None:
    """As many bytes, and the time of the content put back."""
    file, status = root / "train.py", (root / "train.py").stat()
    file.write_text(TRAIN.replace(".cuda()", ".half()"))
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert file.stat().st_mtime_ns == status.st_mtime_ns
    assert file.stat().st_size == status.st_size


def renamed_over(root: Path) -> None:
    (root / "new").write_text(GPU)
    (root / "new").replace(root / "tools/other.py")
    (root / "tools/other.py").write_text(GPU + "f(1).cuda()\n")


EDITS: dict[str, Callable[[Path], object]] = {
    "a file": lambda r: (r / "train.py").write_text("import torch\nx = torch.ones(1).cuda()\n"),
    "at the same time": same_time,
    "put in its place": renamed_over,
    "what a program imports": lambda r: (r / "lib/model.py").write_text(MODEL + "    bias = 1\n"),
    "now for several ranks": lambda r: (r / "lib/model.py").write_text(RANKS + "Model = None\n"),
    "a new file": lambda r: (r / "lib/new.py").write_text(GPU),
    "a new script without a name": lambda r: (r / "go").write_text("#!/usr/bin/python\n" + GPU),
    "a new folder": lambda r: write_tree(r, {"more/deep/new.py": GPU}),
    "a file is gone": lambda r: (r / "tools/other.py").unlink(),
    "another name": lambda r: (r / "tools/other.py").rename(r / "tools/another.py"),
    "what starts it": lambda r: (r / "README.md").write_text("python -m project.train\n"),
    "a command": lambda r: (r / "run.sh").write_text("CUDA_VISIBLE_DEVICES=0 python train.py\n"),
    "configuration": lambda r: (r / "pyproject.toml").write_text(
        '[tool.tpu-migrate]\nignore = ["MOV"]\n'
    ),
    "an environment": lambda r: (r / "tools/pyvenv.cfg").write_text(""),
    "a program beside": lambda r: (r / "ddp.py").write_text("import lib.model\n" + RANKS),
    "a module of torch's name": lambda r: (r / "torch.py").write_text("cuda = None\n"),
    "not the top of a project": lambda r: (r / ".git").rename(r / "git"),
    "no right to read": lambda r: (r / "train.py").chmod(0),
}
