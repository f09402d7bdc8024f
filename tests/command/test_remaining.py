"""`tpu-migrate remaining`: what is left, with its programs, its examples and its check."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers import cli, one_line, read_tree, write_tree

from migrator import find_remaining
from migrator.errors import UsageError

FILES = {
    "train.py": "import torch\nfrom lib.net import attend\n\nmodel = torch.nn.Linear(2, 2).cuda()\n"
    "attend(model(torch.ones(2, 2).cuda()))\n",
    "lib/__init__.py": "",
    "lib/net.py": "import torch\nfrom flash_attn.bert_padding import pad_input\n\n\n"
    "def attend(x):\n    return pad_input(x, torch.cuda.Stream())\n",
    "other.py": "import cupy\n\nprint(cupy.ones(1))\n",
}


def test_each_has_its_place_its_programs_and_its_check(tmp_path: Path) -> None:
    root = write_tree(tmp_path, FILES)
    before = read_tree(root)
    left = find_remaining([root], "torchax")
    found = {(each.path.name, each.code, each.name): each for each in left.remaining}
    library = next(each for key, each in found.items() if key[2].startswith("flash_attn"))
    assert library.place == f"{root / 'lib/net.py'}:2:1"
    assert library.programs == [root / "train.py"]
    assert library.check == f"tpu-migrate verify {root / 'train.py'} --target torchax"
    assert library.cure is not None and library.cure.key == "flash_attn"
    assert "for CUDA only" in library.reason and library.effort == "hours"
    cupy = next(each for key, each in found.items() if key[2] == "cupy")
    assert cupy.programs == [root / "other.py"]
    assert read_tree(root) == before


def test_the_same_constructs_as_in_the_report(tmp_path: Path) -> None:
    """None is left out: not where several depend on one line, either."""
    root = write_tree(tmp_path, {**FILES, "ranks.py": RANKS})
    left = find_remaining([root], "torchax")
    reported = {
        f"{file.path}:{d.range}"
        for file in left.report.files
        for d in file.result.diagnostics
        if d.outcome == "reported"
    }
    own = {each.place for each in left.remaining if not each.keeps}
    kept = {place.split("  ")[0] for each in left.remaining for place in each.keeps}
    assert own | kept == reported
    (obstacle,) = (each for each in left.remaining if each.keeps)
    assert (obstacle.path.name, obstacle.range.line, len(obstacle.keeps)) == ("ranks.py", 6, 4)
    assert obstacle.construct == "dist.all_swap_of_the_future"


RANKS = """import torch
import torch.distributed as dist

dist.init_process_group("nccl")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2).cuda())
dist.all_swap_of_the_future(model)
"""


def test_an_example_and_its_test_are_told_apart(tmp_path: Path) -> None:
    root = write_tree(tmp_path, {"a.py": "import torch\ns = torch.cuda.Stream()\n"})
    lines = cli("remaining", ".", "--target", "torchax", cwd=root).stdout.decode().splitlines()
    begins = lines.index("  a test of these lines, which runs below them:")
    assert lines[begins - 1] == "" and lines[begins + 1] == "    device = 'jax'"
    example = [at for at, line in enumerate(lines) if line.startswith("    def prefetched(")]
    assert example and example[0] < begins


def test_json_and_exit_codes(tmp_path: Path) -> None:
    root = write_tree(tmp_path, FILES)
    run = cli("remaining", ".", "--target", "torchax", "--format", "json", cwd=root)
    assert run.returncode == 1
    document = json.loads(run.stdout)
    first = document["remaining"][0]
    assert (first["path"], first["start"]) == ("lib/net.py", {"line": 2, "column": 1})
    assert first["by_hand"] == "flash_attn" and first["programs"] == ["train.py"]
    example = document["by_hand"]["flash_attn"]
    assert "device = 'jax'" in example["check"] and "tpu_runtime.setup()" in example["check"]
    (root / "broken.py").write_text("x.cuda( =\n")
    assert cli("remaining", "broken.py", "--target", "torchax", cwd=root).returncode == 2
    (root / "fine.py").write_text("import torch\n\ntorch.ones(1).cuda()\n")
    done = cli("remaining", "fine.py", cwd=root)
    assert done.returncode == 0 and done.stdout == b"0 places to change by hand on torchax\n"


def test_the_terminal_says_an_example_once(tmp_path: Path) -> None:
    root = write_tree(tmp_path, {"a.py": "import flash_attn\nimport xformers.ops\n"})
    said = cli("remaining", "a.py", "--target", "torch_xla", cwd=root).stdout.decode()
    assert said.count("def attention") == 1
    assert "as at a.py:1:8" in said and "a.py:2:8  LIB001  xformers.ops" in said
    assert "device = 'xla'" in said


def test_wrong_usage(tmp_path: Path) -> None:
    one_line(cli("remaining", cwd=tmp_path).stderr, "no PATH given")
    with pytest.raises(UsageError, match="no such file"):
        find_remaining([tmp_path / "nothing.py"])
