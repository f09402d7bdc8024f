"""Programs that stay in part stay with all their files: half of one would be wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import TARGETS, cli, constructs, write_tree

from migrator import migrate_paths
from migrator.config import Config
from migrator.diagnostics import Outcome
from migrator.editor.analysis import Moment
from migrator.editor.analyst import Analyst
from migrator.editor.documents import Document, Text
from migrator.result import Result
from migrator.run import migrate_content
from migrator.run_report import Report

# What neither target follows (`split_group`).
TRAIN = (
    "import torch\nimport torch.distributed as dist\nfrom model import Net\n"
    "from options import parse\n\n\ndef main():\n"
    '    dist.init_process_group("nccl")\n    group = dist.split_group([[0]])\n'
    "    net = Net().cuda()\n    dist.all_reduce(net.weight, group=group)\n\n\n"
    'if __name__ == "__main__":\n    main()\n'
)
MODEL = (
    "import torch\nfrom torch import nn\n\n\nclass Net(nn.Linear):\n    def forward(self, x):\n"
    "        return super().forward(x.cuda())\n"
)
OPTIONS = (
    "import argparse\n\n\ndef parse():\n    parser = argparse.ArgumentParser()\n"
    '    parser.add_argument("--device", default="cuda")\n    return parser.parse_args()\n'
)
GENERATE = 'import torch\nfrom model import Net\n\nif __name__ == "__main__":\n    Net().cuda()\n'
APART = "import torch\nfrom text import words\n\nx = torch.ones(len(words)).cuda()\n"
PROGRAM = {"train.py": TRAIN, "model.py": MODEL, "options.py": OPTIONS}
SHARED = {**PROGRAM, "generate.py": GENERATE, "apart.py": APART, "text.py": "words = []\n"}


def by_name(report: Report) -> dict[str, Result]:
    assert not report.failures
    return {file.path.name: file.result for file in report.files}


@pytest.mark.parametrize("target", TARGETS)
def test_a_file_that_ignores_the_rule_stays_alone(tmp_path: Path, target: str) -> None:
    """As a test of a library may, that starts ranks of its own."""
    files = {**SHARED, "train.py": f"# tpu-migrate: ignore-file[DST001]\n{TRAIN}"}
    found = by_name(migrate_paths([write_tree(tmp_path, files)], target))
    changed = {name for name, result in found.items() if result.changed}
    assert changed == {"model.py", "options.py", "generate.py", "apart.py"}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("jobs", [1, 2])
def test_all_files_of_a_program_stay(
    tmp_path: Path, target: str, jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("migrator.pool._POOL_BYTES", 0)
    write_tree(tmp_path, PROGRAM)
    report = migrate_paths([tmp_path], target, config=Config(jobs=jobs))
    assert not report.changed and not report.companions
    found = [d for d in constructs(by_name(report)["options.py"]) if d.construct == '"cuda"']
    assert [(d.code, d.outcome) for d in found] == [("DST001", Outcome.REPORTED)]
    assert found[0].message.startswith("train.py imports this file")
    assert "split_group" in found[0].message and "(train.py, line 9)" in found[0].message


@pytest.mark.parametrize("target", TARGETS)
def test_a_program_that_shares_a_file_stays_too(tmp_path: Path, target: str) -> None:
    """The model is for one device or for the other; what shares no code for one is migrated."""
    write_tree(tmp_path, SHARED)
    results = by_name(migrate_paths([tmp_path], target))
    assert [name for name, result in results.items() if result.changed] == ["apart.py"]
    (found,) = constructs(results["generate.py"])
    assert found.outcome is Outcome.REPORTED
    assert "shares model.py with train.py" in found.message


def test_what_only_a_file_without_devices_connects_is_migrated(tmp_path: Path) -> None:
    text = TRAIN.replace("import Net\n", "import Net\nfrom text import words\n")
    write_tree(tmp_path, {**SHARED, "train.py": text})
    assert by_name(migrate_paths([tmp_path]))["apart.py"].changed


def test_a_report_keeps_no_program(tmp_path: Path) -> None:
    """Streams are for a person; all else is right without them."""
    train = "import torch\nfrom model import Net\n\nnet = Net().cuda()\ns = torch.cuda.Stream()\n"
    write_tree(tmp_path, {"train.py": train, "model.py": MODEL})
    results = by_name(migrate_paths([tmp_path]))
    assert results["train.py"].changed and results["model.py"].changed


def test_a_clean_file_connects_a_program(tmp_path: Path) -> None:
    """What starts it says nothing of GPUs."""
    files = {
        "main.py": "import train\nimport extra\n\nif __name__ == '__main__':\n    train.main()\n",
        "extra.py": "def f(x):\n    return x.cuda()\n",
    }
    write_tree(tmp_path, {**PROGRAM, **files})
    report = migrate_paths([tmp_path])
    assert not report.changed and len(report.files) == 5


@pytest.mark.parametrize("name", ["model.py", "options.py", "generate.py", "apart.py"])
def test_single_files_pipes_and_editors_say_the_same(tmp_path: Path, name: str) -> None:
    write_tree(tmp_path, SHARED)
    expected = by_name(migrate_paths([tmp_path]))[name]
    path, content = tmp_path / name, SHARED[name].encode()
    for report in (
        migrate_paths([path]),
        migrate_paths([path], from_hook=True),
        migrate_content(path, content),
    ):
        assert by_name(report)[name] == expected
    document = Document(path.as_uri(), path, (Text(path.as_uri(), 1, SHARED[name]),))
    moment = Moment(document, {}, Config(targets=("torchax",)), [tmp_path], 1)
    assert Analyst().analysis(moment).result == expected


def test_with_unsafe_edits_all_of_it_is_migrated(tmp_path: Path) -> None:
    """What --unsafe rewrites, it rewrites in all files; and they are counted."""
    train = (
        "import torch\nimport torch.distributed as dist\nfrom model import Net\n"
        "from torch.utils.data import DataLoader, DistributedSampler\n\n\ndef main():\n"
        '    dist.init_process_group("nccl")\n    net = Net().cuda()\n'
        "    loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))\n"
        "    net(next(iter(loader))).mean().backward()\n\n\n"
        'if __name__ == "__main__":\n    main()\n'
    )
    write_tree(tmp_path, {"train.py": train, "model.py": MODEL})
    safe = migrate_paths([tmp_path], config=Config(shard="fsdp"))
    assert not safe.changed
    unsafe = migrate_paths([tmp_path], config=Config(shard="fsdp", unsafe=True))
    assert len(unsafe.changed) == 2
    (model,) = [file for file in safe.files if file.path.name == "model.py"]
    assert sum(model.unsafe.values()) == 1


def test_comments_for_what_is_left_say_why(tmp_path: Path) -> None:
    write_tree(tmp_path, PROGRAM)
    once = migrate_paths([tmp_path], config=Config(todo_comments=True))
    text = by_name(once)["model.py"].source.decode()
    assert "# TPU-TODO[DST001]" in text and ".cuda()" in text
    for file in once.files:
        file.path.write_bytes(file.result.source)
    again = migrate_paths([tmp_path], config=Config(todo_comments=True))
    assert not again.changed


def test_packages_stay_as_they_are_where_all_code_does(tmp_path: Path) -> None:
    write_tree(tmp_path, {**PROGRAM, "requirements.txt": "torch==2.1\n"})
    assert not migrate_paths([tmp_path]).changed


def test_the_summary_of_a_program_that_stays(tmp_path: Path) -> None:
    write_tree(tmp_path, PROGRAM)
    done = cli("--check", "--target", "torchax", tmp_path, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stdout.count(b"and a program stays whole") == 2
