"""What is said of a run as a whole: how much was automatic, what is left, what --unsafe adds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from helpers import cli, write_tree

from migrator import migrate_source
from migrator.config import Config
from migrator.diagnostics import Effort, Outcome, Safety
from migrator.registry import registry
from migrator.report.explain import markdown
from migrator.report.statistics import MANY

TO = ("--target", "torchax", "--check")
MOVE = "import torch\ny = x.cuda()\n"
STREAM = "import torch\ns = torch.cuda.Stream()\n"  # hours
EXTENSION = "from torch.utils.cpp_extension import load\nops = load(name='ops')\n"  # a rewrite
STRING = "name = 'cuda'\nprint(name)\n"  # minutes
HALF = "import torch\nmodel = model.half()\n"
RANKS = (
    "import torch\nimport torch.distributed as dist\n"
    "from torch.nn.parallel import DistributedDataParallel\n"
    "from torch.utils.data.distributed import DistributedSampler\n\n\n"
    "def main(rank, world):\n"
    "    dist.init_process_group('nccl', rank=rank, world_size=world)\n"
    "    model = DistributedDataParallel(make().to(rank), device_ids=[rank])\n"
    "    sampler = DistributedSampler(data)\n"
    "    loader = torch.utils.data.DataLoader(data, batch_size=4, sampler=sampler)\n"
    "    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    "    for x, y in loader:\n"
    "        optimizer.zero_grad()\n"
    "        torch.nn.functional.mse_loss(model(x.to(rank)), y.to(rank)).backward()\n"
    "        optimizer.step()\n\n\n"
    "if __name__ == '__main__':\n"
    "    torch.multiprocessing.spawn(main, args=(2,), nprocs=2)\n"
)


def squeezed(output: bytes) -> str:
    return " ".join(output.decode().split())


def document(root: Path, *more: str) -> dict[str, Any]:
    run = cli(".", *TO, "--format", "json", *more, cwd=root)
    found = json.loads(run.stdout)
    found["files"] = {Path(file["path"]).name: file for file in found["files"]}
    return dict(found)


# ---- effort --------------------------------------------------------------------------------------


def test_json_has_share_and_effort_of_each_file_and_of_all(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a.py": MOVE, "b.py": MOVE + STREAM, "c.py": EXTENSION, "d.py": STRING})
    found = document(tmp_path)
    assert {n: (f["automatic"], f["effort"]) for n, f in found["files"].items()} == {
        "a.py": (100.0, None),
        "b.py": (50.0, "hours"),
        "c.py": (0.0, "rewrite"),
        "d.py": (0.0, "minutes"),
    }
    assert found["files"]["b.py"]["left"] == [{"code": "CUD003", "effort": "hours", "count": 1}]
    left = {(each["code"], each["effort"]) for each in found["summary"]["left"]}
    assert left == {("CUD003", "hours"), ("LIB002", "rewrite"), ("DEV002", "minutes")}
    assert found["summary"]["effort"] == "rewrite" and found["summary"]["automatic"] == 40.0
    efforts = [(d["code"], d.get("effort")) for d in found["files"]["b.py"]["diagnostics"]]
    assert ("CUD003", "hours") in efforts and ("MOV001", None) in efforts


def test_many_minutes_are_hours(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a.py": STRING * MANY, "b.py": STRING * (MANY + 1)})
    found = document(tmp_path)
    assert [f["effort"] for f in found["files"].values()] == ["minutes", "hours"]
    assert found["summary"]["effort"] == "hours"


def test_a_kernel_in_triton_is_a_rewrite_and_a_library_with_a_counterpart_is_not(
    tmp_path: Path,
) -> None:
    write_tree(tmp_path, {"a.py": "import triton\n", "b.py": "import flash_attn\n"})
    found = document(tmp_path)["files"]
    assert [found[name]["effort"] for name in ("a.py", "b.py")] == ["rewrite", "hours"]


def test_the_worst_files_come_first_and_there_is_a_limit(tmp_path: Path) -> None:
    files = {f"m{n:02}.py": STRING for n in range(12)}
    write_tree(tmp_path, {**files, "a.py": MOVE, "y.py": STREAM, "z.py": EXTENSION + MOVE})
    text = cli(".", *TO, "--statistics", cwd=tmp_path).stdout
    assert "\nMOV001 2 rewritten: x.cuda() becomes x.to(device)\n" in text.decode()
    rows = text.decode().partition("To do by hand, by file\n")[2].splitlines()
    assert rows[:3] == [
        "z.py takes a rewrite: 1 of 2 constructs, LIB002",
        "y.py takes hours: 1 of 1 construct, CUD003",
        "m00.py takes minutes: 1 of 1 construct, DEV002",
    ]
    assert rows[10] == "and 4 more files"
    said = "by hand: 1 has to be written anew, 1 takes hours, 12 take minutes each"
    assert said in squeezed(text)


def test_nothing_is_said_of_effort_where_nothing_is_left(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a.py": MOVE})
    text = cli(".", *TO, "--statistics", cwd=tmp_path).stdout
    assert b"by hand" not in text and b"takes" not in text and b"100% automatic" in text
    assert document(tmp_path)["summary"]["effort"] is None


def test_each_rule_says_what_it_takes() -> None:
    for rule in registry().rules.values():
        assert f"Effort: {rule.effort} (" in markdown(rule)
    efforts = {code: rule.effort for code, rule in registry().rules.items()}
    assert efforts["LIB002"] is Effort.REWRITE and efforts["DST001"] is Effort.HOURS
    assert efforts["DEV002"] is Effort.MINUTES


# ---- safety --------------------------------------------------------------------------------------


def test_the_summary_says_what_unsafe_would_add(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a.py": HALF + MOVE, "b.py": HALF})
    before = squeezed(cli(".", *TO, cwd=tmp_path).stdout)
    assert "--unsafe would rewrite 2 more, which may change results: PRE005 ×2" in before
    found = document(tmp_path)
    assert found["summary"]["unsafe"] == {"PRE005": 2}
    assert found["files"]["a.py"]["unsafe"] == {"PRE005": 1}
    after = squeezed(cli(".", *TO, "--unsafe", cwd=tmp_path).stdout)
    assert "--unsafe would" not in after
    assert document(tmp_path, "--unsafe")["summary"]["unsafe"] == {}


def test_what_unsafe_would_add_to_a_program_with_ranks_is_what_it_adds(tmp_path: Path) -> None:
    """Its reports are all of one rule; its edits are not."""
    write_tree(tmp_path, {"main.py": RANKS})
    held = document(tmp_path, "--shard", "fsdp")
    done = document(tmp_path, "--shard", "fsdp", "--unsafe")
    added = [d for d in done["files"]["main.py"]["diagnostics"] if d["outcome"] == "rewritten"]
    counts: dict[str, int] = {}
    for each in added:
        counts[each["code"]] = counts.get(each["code"], 0) + 1
    assert len(counts) > 1 and held["summary"]["unsafe"] == counts
    assert held["summary"]["rewritten"] == 0
    assert {d["safety"] for d in added} == {"unsafe"}
    assert all("batch size is that of one rank" in d["why"] for d in added)


def test_each_edit_says_how_safe_it_is_and_why() -> None:
    result = migrate_source(HALF + MOVE, config=Config(unsafe=True))
    done = {d.code: d for d in result.diagnostics if d.outcome is Outcome.REWRITTEN}
    assert done["MOV001"].safety is Safety.SAFE and "same meaning" in done["MOV001"].why
    assert done["PRE005"].safety is Safety.UNSAFE and "float16" in done["PRE005"].why


def test_verbose_shows_safety_and_why(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a.py": HALF + MOVE})
    text = squeezed(cli(".", *TO, "--unsafe", "-v", cwd=tmp_path).stdout)
    assert "PRE005 rewritten unsafe model.half (float16" in text
    assert "MOV001 rewritten safe x.cuda" in text


def test_flags_of_the_configuration_hold_where_the_command_line_says_nothing(
    tmp_path: Path,
) -> None:
    config = "[tool.tpu-migrate]\nunsafe = true\n"
    write_tree(tmp_path, {"pyproject.toml": config, "a.py": HALF})
    assert document(tmp_path)["summary"]["rewritten"] == 1
