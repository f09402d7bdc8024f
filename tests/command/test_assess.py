"""`tpu-migrate assess`, and `--target auto`: which target gets how far with which program."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from helpers import TARGETS, cli, one_line, read_tree, write_tree

from migrator.assess.assessment import assess, choose
from migrator.config import Config

FILES = {
    "train.py": "import torch\nfrom lib.net import Net\n\nmodel = Net().cuda()\n"
    "torch.cuda.synchronize()\n",
    "lib/__init__.py": "",
    "lib/net.py": "import torch\n\n\nclass Net(torch.nn.Module):\n"
    "    def forward(self, x):\n        return x.cuda()\n",
    "lib/alone.py": "import torch\n\n\ndef f(x):\n    return x.cuda(torch.cuda.Stream())\n",
    "plain.py": "print(1)\n",
}


def test_each_program_has_the_files_that_it_imports(tmp_path: Path) -> None:
    root = write_tree(tmp_path / "p", FILES)
    found = assess([root], Config())
    (program,) = found.programs
    assert program.path == root / "train.py" and program.files == 2
    assert {standing.target for standing in program.standings} == {*TARGETS, "torch_tpu"}
    assert all(standing.work.automatic == 100 for standing in program.standings)
    (rest,) = found.elsewhere
    assert rest.path is None and rest.best.work.outcomes.total() > 0
    assert not (root / "tpu_runtime").exists()


def test_the_table(tmp_path: Path) -> None:
    root = write_tree(tmp_path / "p", FILES | {"requirements.txt": "apex\n"})
    said = cli("assess", ".", cwd=root)
    assert said.returncode == 0 and not said.stderr
    head, train, rest, *_ = said.stdout.decode().splitlines()
    assert head.split()[:2] == ["program", "files"] and all(target in head for target in TARGETS)
    assert re.match(r"train\.py +2 +100% +100% ", train)
    assert re.match(r"\(other files\) +\d +100% +1 left +1 left ", rest)
    assert (
        "\n(other files), which no program imports: requirements.txt, lib/alone.py\n"
        in said.stdout.decode()
    )
    next_one = r"^(for example: )?tpu-migrate \. --target \w+ --diff$"
    assert re.search(next_one, said.stdout.decode(), re.MULTILINE)


def test_no_target_is_named_where_nothing_decides(tmp_path: Path) -> None:
    (tmp_path / "equal.py").write_text("import torch\n\nx = torch.ones(1).cuda()\n")
    (tmp_path / "better.py").write_text(SCRIPTED)
    said = cli("assess", ".", cwd=tmp_path).stdout.decode()
    taken = dict(re.findall(r"^(\w+)\.py .*% +(\w+)", said, re.MULTILINE))
    assert taken["equal"] == "any" and taken["better"] in (*TARGETS, "torch_tpu")


def test_of_targets_that_get_as_far_it_is_said_what_they_do_to_the_code(tmp_path: Path) -> None:
    source = "import torch\n\nx = torch.ones(1).cuda()\nprint(x.sum())\n"
    (tmp_path / "run.py").write_text(source)
    said = cli("assess", ".", cwd=tmp_path).stdout.decode()
    lines = [line.strip() for line in said.splitlines()]
    begins = tuple(line.partition("; for ")[0] for line in lines)
    assert "torch_tpu: changes 7 lines, adds the runtime, still runs on GPUs" in begins
    found = assess([tmp_path], Config()).whole[0]
    (torchax,) = (each for each in found.standings if each.target == "torchax")
    shown = cli("run.py", "--target", "torchax", "--diff", cwd=tmp_path).stdout.decode()
    diff = [line for line in shown.splitlines() if re.match(r"[-+](?![-+])", line)]
    assert torchax.lines == len(diff) > 2
    runtime = "adds the runtime, no longer runs on GPUs"
    assert f"torchax: changes {len(diff)} lines, {runtime}" in begins
    assert lines[-1] == "for example: tpu-migrate . --target torchax --diff"
    (tmp_path / "run.py").write_text(SCRIPTED)  # one gets further: no line weighs those
    said = cli("assess", ".", cwd=tmp_path).stdout.decode()
    assert "changes" not in said and "\ntpu-migrate . --target" in said


SCRIPTED = """import torch

model = torch.jit.script(torch.nn.BatchNorm1d(2).cuda().eval())
print(model.graph, model(torch.ones(2, 2).cuda()).sum())
"""
LIGHTNING = "import pytorch_lightning as pl\ntrainer = pl.Trainer(accelerator='gpu')\n"


def test_what_is_left_decides(tmp_path: Path) -> None:
    """Only what the rules say of the code: no target is preferred for its name."""
    taken = {}
    for name, source in {"a": SCRIPTED, "b": LIGHTNING}.items():
        root = write_tree(tmp_path / name, {"run.py": source})
        (found,) = choose([root], Config())
        ranked = [standing.work.reported for standing in found.standings]
        assert ranked == sorted(ranked)
        taken[name] = found
    better = taken["a"]
    assert better.standings[0].work.reported < better.standings[1].work.reported
    done = f"{better.best.target}: 100% of its GPU code is done automatically, against "
    assert better.why.startswith(done)


def test_a_list_of_requirements_decides_nothing(tmp_path: Path) -> None:
    """Nothing but what is said of the code does; and where that is the same, it is said what each
    target is for."""
    plain = {"run.py": "import torch\n\nx = torch.ones(1).cuda()\n"}
    (alone,) = choose([write_tree(tmp_path / "a", plain)], Config())
    lists = "torch==2.9.0\nnvidia-ml-py\napex\ncupy-cuda12x\n"
    (beside,) = choose([write_tree(tmp_path / "b", plain | {"requirements.txt": lists})], Config())
    assert beside.best.work.reported
    assert (beside.best.target, beside.equal) == (alone.best.target, alone.equal)
    assert beside.why.endswith("nothing in the code favours one of them")
    said = "\n".join(beside.compared)
    for what_for in (
        "for code that must keep running on GPUs",  # torch_tpu
        "for a training step as one program",  # torchax
        "for code that uses it already: it has had no commits since",  # torch_xla
    ):
        assert said.count(what_for) == 1


def test_target_auto_takes_what_is_said(tmp_path: Path) -> None:
    root = write_tree(tmp_path / "a", {"run.py": SCRIPTED})
    (found,) = choose([root], Config())
    done = cli(".", "--target", "auto", "-o", "../out", cwd=root)
    assert done.stderr.decode().splitlines()[0] == f"--target {found.why}"
    cli(".", "--target", found.best.target, "-o", "../by-name", cwd=root)
    assert read_tree(tmp_path / "out", runtime=True) == read_tree(
        tmp_path / "by-name", runtime=True
    )


@pytest.mark.parametrize(
    "arguments",
    [("-",), (".", "--hook"), (".", "--check", "--diff-base=HEAD"), (".", "--target", "torchax")],
)
def test_target_auto_is_for_whole_programs(arguments: tuple[str, ...], tmp_path: Path) -> None:
    root = write_tree(tmp_path / "a", {"run.py": SCRIPTED})
    refused = cli(*arguments, "--target", "auto", cwd=root, stdin=b"")
    assert refused.returncode == 2
    one_line(refused.stderr, "--target auto")


def test_a_path_is_needed_and_has_to_be_there(tmp_path: Path) -> None:
    for arguments in ((), ("missing",)):
        refused = cli("assess", *arguments, cwd=tmp_path)
        assert refused.returncode == 2
        one_line(refused.stderr)


def test_nothing_for_gpus(tmp_path: Path) -> None:
    root = write_tree(tmp_path / "p", {"plain.py": "print(1)\n"})
    said = cli("assess", ".", cwd=root)
    assert said.returncode == 0 and said.stdout.decode().count("\n") == 1
