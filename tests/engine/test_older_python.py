"""`x.cuda(async=True)`, which is no Python since 3.7."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import TARGETS, cli, constructs, errors, migrated, run, write_tree

from migrator.diagnostics import Outcome

HEAD = "import torch\n\n\n"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "given", ["async=True", "async = True", "0, async=flag", "\n    async=True, # fast\n"]
)
def test_the_argument_has_its_new_name(given: str, target: str) -> None:
    text = migrated(f"{HEAD}def f(x, flag):\n    return x.cuda({given})\n", target)
    assert "non_blocking" in text and "async" not in text and ".cuda" not in text
    compile(text, "f.py", "exec")


def test_everything_else_stays() -> None:
    source = (
        f"{HEAD}# x.cuda(async=True)\ntext = 'f(async=True)'\nd = 'cuda'\n"
        "async def g():\n    async_ = 1\n    return f(x.to(d, async=True), is_async=False)\n"
    )
    after = source.replace("'cuda'", "'jax'").replace("d, async=", "d, non_blocking=")
    assert migrated(source) == after


def test_each_is_an_upgrade_at_its_place() -> None:
    result = run(f"{HEAD}x = y.cuda(async=True); z = torch.zeros(2).cuda()\n")
    found = [(d.code, d.range.line, d.range.column) for d in constructs(result)]
    assert ("UPG003", 4, 12) in found
    assert ("MOV001", 4, 44) in found
    assert all(d.outcome is Outcome.REWRITTEN for d in constructs(result))


@pytest.mark.parametrize(
    "line",
    [
        "print x.cuda(async=True)", "async = x.cuda()", "x.cuda(async=1",
        "x.cuda(async=True); pool.map(f, x, async=True)",  # whose argument has another new name
    ],
)  # fmt: skip
def test_what_is_still_no_python_is_refused(line: str) -> None:
    source = f"{HEAD}{line}\n"
    result = run(source)
    assert errors(result) and result.source.decode() == source


def test_it_is_left_where_upgrades_are() -> None:
    source = f"{HEAD}x.cuda(async=True)\n"
    result = run(source, ignore=("UPG",))
    assert errors(result) and result.source.decode() == source


def test_other_files_know_what_is_in_it(tmp_path: Path) -> None:
    write_tree(
        tmp_path,
        {
            "train.py": "from net import moved\nif __name__ == '__main__':\n    print(moved(1))\n",
            "net.py": f"{HEAD}def moved(x):\n    return torch.ones(x).cuda(async=True)\n",
        },
    )
    cli(".", "--target", "torchax", "--allow-dirty", cwd=tmp_path)
    assert "tpu_runtime.setup()" in (tmp_path / "train.py").read_text()
    assert 'to("jax", non_blocking=True)' in (tmp_path / "net.py").read_text()


def test_a_second_run_changes_nothing(tmp_path: Path) -> None:
    path = write_tree(tmp_path, {"f.py": f"{HEAD}x = torch.ones(1).cuda(async=True)\n"}) / "f.py"
    cli("f.py", "--target", "torchax", "--allow-dirty", cwd=tmp_path)
    once = path.read_text()
    cli("f.py", "--target", "torchax", "--allow-dirty", cwd=tmp_path)
    assert path.read_text() == once and "non_blocking=True" in once
