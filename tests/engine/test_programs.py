"""Programs that stay in part stay with all their files: half of one would be wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers import TARGETS, cli, constructs, write_tree

from migrator import migrate_paths
from migrator.config import Config
from migrator.diagnostics import Outcome
from migrator.editor.analysis import Moment
from migrator.editor.analyst import Analyst
from migrator.editor.open_documents import OpenDocument, Text
from migrator.pipeline.result import Result
from migrator.runs.run import migrate_content
from migrator.runs.run_report import Report

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
    monkeypatch.setattr("migrator.runs.pool._POOL_BYTES", 0)
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
    document = OpenDocument(path.as_uri(), path, (Text(path.as_uri(), 1, SHARED[name]),))
    moment = Moment(document, {}, Config(targets=("torchax",)), [tmp_path], 1)
    assert Analyst().analysis(moment).result == expected


def test_a_file_is_named_by_its_path_where_another_has_its_name(tmp_path: Path) -> None:
    """The other one only matters where one process does the work of all ranks."""
    train = (
        "import torch\nimport torch.distributed as dist\nfrom a.utils import share\n"
        'from b.utils import batch_size\n\ndist.init_process_group("nccl")\n'
        "share(torch.ones(batch_size).cuda())\n"
    )
    share = (
        "import torch.distributed as dist\n\n\ndef share(x):\n    dist.split_group([[0]])\n"
        "    dist.all_reduce(x)\n"
    )
    parts = {"a/__init__.py": "", "b/__init__.py": "", "b/utils.py": "batch_size = 3\n"}
    write_tree(tmp_path, {"train.py": train, "a/utils.py": share, **parts})
    said = [d.message for d in by_name(migrate_paths([tmp_path]))["train.py"].diagnostics]
    assert said and all("(a/utils.py, line 5)" in message for message in said)


def test_the_folder_of_a_text_need_not_exist(tmp_path: Path) -> None:
    """What lies above it is no project of its own."""
    write_tree(tmp_path, {"net.py": "import torch\n\nx = torch.ones(2).cuda()\n"})
    text = b'import net\n\nif __name__ == "__main__":\n    print(net.x)\n'
    assert not migrate_content(tmp_path / "missing" / "main.py", text).changed


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
    assert done.stdout.count(b"DST001") == 1
    assert b"  keeps 6 constructs in " in done.stdout


# Two programs that share a file, of which one stays.
UTILS = (
    "import torch\n\n\ndef count(net):\n    return len(list(net.parameters()))\n\n\n"
    "def device():\n    return torch.device('cuda')\n"
)
OTHER = (
    "import torch\nimport utils\n\nif __name__ == '__main__':\n"
    "    net = torch.nn.Linear(2, 2).cuda()\n    print(utils.count(net))\n"
)


def _shared(tmp_path: Path, of_the_one: str, of_the_other: str, utils: str = UTILS) -> set[str]:
    """The files that change where `train.py` stays, and each says something of `utils`."""
    train = TRAIN.replace("import Net\n", "import Net\nimport utils\n")
    train = train.replace("    net = Net()", f"    {of_the_one}\n    net = Net()")
    other = OTHER.replace("utils.count(net)", of_the_other)
    files = {**PROGRAM, "train.py": train, "utils.py": utils, "other.py": other}
    results = by_name(migrate_paths([write_tree(tmp_path, files)]))
    for name, result in results.items():  # by itself, it is the same
        assert by_name(migrate_paths([tmp_path / name]))[name] == result
    return {name for name, result in results.items() if result.changed}


def test_a_shared_file_is_for_those_that_get_to_what_changes(tmp_path: Path) -> None:
    assert _shared(tmp_path, "utils.count(net)", "utils.device()") == {"utils.py", "other.py"}


def test_a_shared_file_stays_for_the_one_that_stays(tmp_path: Path) -> None:
    """And the other is migrated without it, if it does not get to what stays there."""
    assert _shared(tmp_path / "a", "utils.device()", "utils.count(net)") == {"other.py"}
    assert _shared(tmp_path / "b", "utils.device()", "utils.device()") == set()


@pytest.mark.parametrize(
    "of_the_one",
    [
        "print(getattr(utils, 'device')())",
        "if torch.cuda.is_available(): utils.device()",
        "start(utils)",
        "utils.count(net, [utils.device])",
    ],
)
def test_the_one_that_stays_may_get_there_in_any_way(tmp_path: Path, of_the_one: str) -> None:
    assert _shared(tmp_path, of_the_one, "utils.device()") == set()


@pytest.mark.parametrize(
    "changed",
    [
        "\nDEVICE = 'cuda:0'\nt = torch.ones(1).cuda()\n",
        "\n\ndef seed():\n    torch.cuda.manual_seed(0)\n",
    ],
)
def test_what_runs_with_an_import_is_got_to(tmp_path: Path, changed: str) -> None:
    """A statement at the top; and the runtime that a rewrite has to import."""
    assert _shared(tmp_path, "utils.count(net)", "utils.device()", UTILS + changed) == set()


# A library whose `part` neither target serves, and a program that does not call it.
LIBRARY = (
    "import torch\nimport torch.distributed as dist\n\n\n"
    "def part(net):\n    net = net.cuda()\n    return dist.split_group([[0]])\n\n\n"
    "def device():\n    return torch.device('cuda')\n"
)
CALLER = (
    "import torch\nimport torch.distributed as dist\nimport library\nfrom model import Net\n\n\n"
    'def main():\n    dist.init_process_group("nccl")\n    net = Net().to(library.device())\n'
    "    dist.all_reduce(net.weight)\n\n\n"
    'if __name__ == "__main__":\n    main()\n'
)
SERVED = {"library.py": LIBRARY, "train.py": CALLER, "model.py": MODEL}


@pytest.mark.parametrize("target", TARGETS)
def test_a_function_that_nothing_names_stays_by_itself(tmp_path: Path, target: str) -> None:
    results = by_name(migrate_paths([write_tree(tmp_path, SERVED)], target))
    assert all(result.changed for result in results.values())
    library = results["library.py"]
    assert LIBRARY.split("\n\n\n")[1] in library.source.decode()  # `part`, all of it
    said = {d.range.line: d.message for d in constructs(library) if d.outcome is Outcome.REPORTED}
    assert said.keys() == {6, 7}
    assert "split_group is not supported; the program does not reach it" in said[7]
    assert said[6].startswith("stays with line 7, where")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "said",
    [
        "library.part(net)",
        "getattr(library, 'part')(net)",
        "for step in [library.part]: step(net)",
        "start(library)",
    ],
)
def test_a_program_that_names_it_stays_whole(tmp_path: Path, target: str, said: str) -> None:
    caller = CALLER.replace("    dist.all_reduce", f"    {said}\n    dist.all_reduce")
    write_tree(tmp_path, {**SERVED, "train.py": caller})
    assert not migrate_paths([tmp_path], target).changed


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("option", "changed"), [("action='store_true'", 3), ("default=True", 0)])
def test_what_an_option_selects(tmp_path: Path, target: str, option: str, changed: int) -> None:
    """Nobody gets there without the option, so what it leads to is reported, and the rest goes."""
    asked = f"    p = argparse.ArgumentParser()\n    p.add_argument('--split', {option})\n"
    asked += "    if p.parse_args().split:\n        net.cuda()\n        library.part(net)\n"
    caller = CALLER.replace("    dist.all_reduce", f"{asked}    dist.all_reduce")
    write_tree(tmp_path, {**SERVED, "train.py": f"import argparse\n{caller}"})
    assert len(migrate_paths([tmp_path], target).changed) == changed


@pytest.mark.parametrize("target", TARGETS)
def test_the_branch_that_an_option_selects_stays(tmp_path: Path, target: str) -> None:
    branch = "        net.cuda()\n        dist.split_group([[0]])\n"
    asked = (
        "    p = argparse.ArgumentParser()\n    p.add_argument('--split', action='store_true')\n"
    )
    asked += f"    if p.parse_args().split:\n{branch}"
    caller = CALLER.replace("    dist.all_reduce", f"{asked}    dist.all_reduce")
    write_tree(tmp_path, {"train.py": f"import argparse\n{caller}", "model.py": MODEL,
                          "library.py": LIBRARY})  # fmt: skip
    result = by_name(migrate_paths([tmp_path], target))["train.py"]
    assert result.changed and branch in result.source.decode()
    left = [d.range.line for d in constructs(result) if d.outcome is Outcome.REPORTED]
    assert left == [14, 15]


@pytest.mark.parametrize("target", TARGETS)
def test_a_test_keeps_no_program(tmp_path: Path, target: str) -> None:
    """What starts ranks for a test of its own stays, and the library is migrated."""
    test = "import torch.distributed as dist\nimport library\n\n\ndef test_part():\n"
    test += '    dist.init_process_group("gloo")\n    library.part(net.cuda())\n'
    write_tree(tmp_path, {**SERVED, "test_library.py": test})
    results = by_name(migrate_paths([tmp_path], target))
    assert [name for name, result in results.items() if not result.changed] == ["test_library.py"]
    assert any(d.outcome is Outcome.REPORTED for d in constructs(results["test_library.py"]))


def test_a_program_that_is_called_a_test_is_one(tmp_path: Path) -> None:
    """`test_net.py` evaluates a model, for whoever starts it."""
    program = f"{CALLER}    library.part(net)\n"
    results = by_name(migrate_paths([write_tree(tmp_path, {**SERVED, "test_net.py": program})]))
    assert not any(result.changed for result in results.values())


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("source", "changed"),
    [
        ("from torch.distributed import rpc\n\ndef start():\n    rpc.init_rpc('a')\n", True),
        ("from torch.distributed import rpc\n\nrpc.init_rpc('a')\n", False),
    ],
)
def test_rpc_that_nobody_starts_makes_no_ranks(
    tmp_path: Path, target: str, source: str, changed: bool
) -> None:
    """A program that imports such a library is one for one device."""
    write_tree(tmp_path, {"remote.py": source, "train.py": f"import remote\n{GENERATE}",
                          "model.py": MODEL})  # fmt: skip
    results = by_name(migrate_paths([tmp_path], target))
    assert results["train.py"].changed is results["model.py"].changed is changed
    assert "ranks=True" not in results["train.py"].source.decode()


@pytest.mark.parametrize("target", TARGETS)
def test_files_of_one_name_are_told_apart(tmp_path: Path, target: str) -> None:
    """Each package has an `__init__.py`; one starts the ranks, another one is in the way."""
    files = {
        "ranks/__init__.py": "import torch.distributed as dist\n\n"
        'dist.init_process_group("nccl")\n',
        "parts/__init__.py": "import torch.distributed as dist\n\ndist.split_group([[0]])\n",
        "train.py": f"import ranks\nimport parts\n{GENERATE}",
        "model.py": MODEL,
    }
    results = by_name(migrate_paths([write_tree(tmp_path, files)], target))
    assert not any(result.changed for result in results.values())
    (found,) = constructs(results["train.py"])
    assert "which ranks/__init__.py starts" in found.message
    assert "(parts/__init__.py, line 3)" in found.message


@pytest.mark.parametrize("target", TARGETS)
def test_a_notebook_names_the_line_of_another_file_that_keeps_it(
    tmp_path: Path, target: str
) -> None:
    lines = ["import torch", "import train", *["# …"] * 20, "train.main()", "torch.ones(2).cuda()"]
    source = [f"{line}\n" for line in lines]
    cell = {"cell_type": "code", "source": source, "metadata": {}, "outputs": []}
    book = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    tree = write_tree(tmp_path, {**PROGRAM, "try.ipynb": json.dumps(book)})
    report = migrate_paths([tree], target)
    kept = constructs(by_name(report)["try.ipynb"])
    assert [d.outcome for d in kept] == [Outcome.REPORTED]
    assert "(train.py, line 9)" in kept[0].message


@pytest.mark.parametrize("target", TARGETS)
def test_a_question_about_the_back_end_keeps_no_program(tmp_path: Path, target: str) -> None:
    asked = "    if dist.get_backend() == dist.Backend.NCCL:\n        print('nccl')\n"
    train = TRAIN.replace("    group = dist.split_group([[0]])\n", asked)
    train = train.replace(", group=group", "")
    results = by_name(migrate_paths([write_tree(tmp_path, {**PROGRAM, "train.py": train})], target))
    assert all(results[name].changed for name in PROGRAM)
    assert all(d.outcome != Outcome.REPORTED for d in constructs(results["train.py"]))
    given = train.replace("== dist.Backend.NCCL", "in known(dist.Backend.NCCL)")
    results = by_name(migrate_paths([write_tree(tmp_path, {"train.py": given})], target))
    assert not results["train.py"].changed
