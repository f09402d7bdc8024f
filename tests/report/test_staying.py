"""A program that stays is one paragraph: the line in the way, what hangs on it, what helps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers import cli, write_tree

TRAIN = """import torch
import torch.distributed as dist
from lib import net, exchange
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("nccl")
sampler = DistributedSampler([1, 2])
model = torch.nn.parallel.DistributedDataParallel(net.Net().cuda())
exchange.unknown(model)
"""
FILES = {
    "p/train.py": TRAIN,
    "p/lib/__init__.py": "",
    "p/lib/net.py": "import torch\n\n\nclass Net(torch.nn.Module):\n"
    "    def forward(self, x):\n        return x.cuda()\n",
    "p/lib/exchange.py": "import torch.distributed as dist\n\n\ndef unknown(x):\n"
    "    return dist.all_swap_of_the_future(x)\n",
    "other.py": "import torch\n\ntorch.cuda.current_stream()\nprint(torch.ones(2).cuda())\n",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return write_tree(tmp_path / "project", FILES)


def check(project: Path, *options: str) -> str:
    return cli(
        ".", "--check", "--jobs", "1", "--target", "torchax", *options, cwd=project
    ).stdout.decode()


def test_the_terminal(project: Path) -> None:
    said = check(project)
    _, _, paragraph = said.partition("Programs that stay as they are\n")
    paragraph, _, left = paragraph.partition("\n\n")
    first, *rest = paragraph.splitlines()
    assert first.startswith("p/lib/exchange.py:5  DST001  keeps ") and "in 3 files" in first
    assert first.endswith("all_swap_of_the_future is not supported")
    assert len(rest) == 2 and "tpu-migrate assess" in rest[-1]
    assert "exchange.py" not in left and "other.py:3" in left


def test_nothing_is_lost_for_programs(project: Path) -> None:
    report = json.loads(check(project, "--format", "json"))
    (program,) = report["staying"]
    (obstacle,) = program["obstacles"]
    assert (obstacle["path"], obstacle["line"]) == ("p/lib/exchange.py", 5)
    held = [d for f in report["files"] for d in f["diagnostics"] if d["code"] == "DST001"]
    assert program["constructs"] == obstacle["constructs"] == len(held) > 4
    assert program["files"] == ["p/lib/exchange.py", "p/lib/net.py", "p/train.py"]
    assert report["summary"]["reported"] == len(held) + 1


def test_markdown(project: Path) -> None:
    left = check(project, "--format", "markdown").partition("Reported: change these by hand")[2]
    told = [line for line in left.splitlines() if line.startswith("* ")]
    assert sum("exchange.py" in line for line in told) == 1
    assert "exchange.py:5" in told[0] and "in 3 files" in told[0]


def test_the_page(project: Path) -> None:
    check(project, "--report", "run.html")
    page = (project / "run.html").read_text()
    assert "Programs that stay as they are" in page and "exchange.py</bdi>:5" in page


def test_programs_that_share_nothing_are_told_apart(project: Path) -> None:
    write_tree(project, {f"q{name[1:]}": text for name, text in FILES.items() if name[0] == "p"})
    programs = json.loads(check(project, "--format", "json"))["staying"]
    assert [program["files"][0] for program in programs] == [
        "p/lib/exchange.py",
        "q/lib/exchange.py",
    ]
    assert {len(program["files"]) for program in programs} == {3}
    # their files have the same names, by which nobody could tell which one is meant
    assert [[o["path"] for o in program["obstacles"]] for program in programs] == [
        ["p/lib/exchange.py"],
        ["q/lib/exchange.py"],
    ]


def test_programs_with_one_obstacle_are_told_together(project: Path) -> None:
    """Each calls the function of a library that is in the way, and neither imports the other."""
    write_tree(project, {"p/again.py": TRAIN})
    (program,) = json.loads(check(project, "--format", "json"))["staying"]
    assert {"p/again.py", "p/train.py"} < set(program["files"])
    assert len(program["obstacles"]) == 1
