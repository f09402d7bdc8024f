"""--stdin-filename: standard input as a file of a project."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers import cli, committed, one_line, read_tree, write_tree

from migrator.runs.run import migrate_content

HELPER = "import torch\n\n\ndef pick():\n    return torch.device('cuda')\n"
USER = "import torch\nfrom helper import pick\n\nif pick().type == 'cuda':\n    print(1)\n"
SCRIPT = "import torch\n\nif __name__ == '__main__':\n    print(torch.ones(2).cuda())\n"
TO = ("--target", "torchax")


def filtered(root: Path, name: str, text: str, *more: str) -> str:
    run = cli("-", *TO, "--stdin-filename", name, *more, cwd=root, stdin=text.encode())
    assert run.returncode == 0, run.stderr
    return run.stdout.decode()


@pytest.mark.parametrize("name", ["use.py", "new.py"])
def test_facts_are_those_around_the_file(tmp_path: Path, name: str) -> None:
    root = committed(tmp_path, {"helper.py": HELPER, "use.py": "x = 1  # what was saved\n"})
    before = read_tree(root)
    given = filtered(root, name, USER)
    assert read_tree(root) == before
    write_tree(root, {name: USER})
    cli(name, *TO, "--allow-dirty", cwd=root)
    assert given == (root / name).read_text() != USER
    assert cli("-", *TO, cwd=root, stdin=USER.encode()).stdout.decode() != given


def test_other_files_see_what_is_typed_not_what_is_saved(tmp_path: Path) -> None:
    files = {"a.py": "import b\n\nd = b.pick()\n", "b.py": "import a\n"}
    root = committed(tmp_path, files)
    typed = HELPER + "\n\nimport a\nif a.d.type == 'cuda':\n    print(1)\n"
    given = filtered(root, "b.py", typed)
    write_tree(root, {"b.py": typed})
    cli("b.py", *TO, "--allow-dirty", cwd=root)
    assert given == (root / "b.py").read_text()


def test_the_suffix_says_what_it_is(tmp_path: Path) -> None:
    cell = {"cell_type": "code", "execution_count": None, "id": "a", "metadata": {},
            "outputs": [], "source": ["import torch\n", "torch.ones(2).cuda()"]}  # fmt: skip
    book = json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    made = json.loads(filtered(tmp_path, "n.ipynb", book))
    assert 'torch.ones(2).to(\\"jax\\")' in json.dumps(made["cells"][0]["source"])
    assert "tpu-info" in filtered(tmp_path, "run.sh", "nvidia-smi\n")


def test_configuration_is_that_of_the_file(tmp_path: Path) -> None:
    table = '[tool.tpu-migrate]\ntarget = "torch_xla"\nexclude = ["third_party"]\n'
    root = committed(tmp_path, {"p/pyproject.toml": table, "p/a.py": "", "tpu.py": ""})
    gpu = b"import torch\n\n\ndef f(x):\n    return x.cuda()\n"
    run = cli("-", "--stdin-filename", "p/a.py", cwd=root, stdin=gpu)
    assert run.stdout == gpu.replace(b"x.cuda()", b'x.to("xla")')
    excluded = cli("-", "--stdin-filename", "p/third_party/b.py", cwd=root, stdin=gpu)
    assert (excluded.returncode, excluded.stdout) == (0, gpu)
    check = cli("-", "--stdin-filename", "p/third_party/b.py", "--check", cwd=root, stdin=gpu)
    assert check.returncode == 0
    none = cli("-", "--stdin-filename", "a.py", cwd=root, stdin=gpu)
    assert none.returncode == 2
    one_line(none.stderr, "no target")


def test_the_runtime_is_named_and_not_written(tmp_path: Path) -> None:
    root = committed(tmp_path, {"main.py": ""})
    run = cli("-", *TO, "--stdin-filename", "main.py", cwd=root, stdin=SCRIPT.encode())
    assert b"import tpu_runtime" in run.stdout and b"tpu_runtime" in run.stderr
    assert sorted(read_tree(root, runtime=True)) == ["main.py"]
    diff = cli("-", *TO, "--stdin-filename", "main.py", "--diff", cwd=root, stdin=SCRIPT.encode())
    assert diff.stdout.count(b"\n+++ ") + diff.stdout.startswith(b"+++ ") == 1
    write_tree(root, {"main.py": SCRIPT})
    cli("main.py", *TO, "--allow-dirty", "--runtime", "copy", cwd=root)
    again = (root / "main.py").read_bytes()
    run = cli("-", *TO, "--stdin-filename", "main.py", cwd=root, stdin=again)
    assert run.stdout == again and b"tpu_runtime" not in run.stderr  # it is there
    runtime = (root / "tpu_runtime/__init__.py").read_text()
    assert filtered(root, "tpu_runtime/__init__.py", runtime) == runtime


def test_diagnostics_as_json(tmp_path: Path) -> None:
    root = committed(tmp_path, {"p/a.py": ""})
    gpu = b"import torch\n\n\ndef f(x):\n    torch.cuda.Stream()\n    return x.cuda()\n"
    arguments = ("-", *TO, "--stdin-filename", "p/a.py", "--format", "json")
    run = cli(*arguments, "--check", cwd=root, stdin=gpu)
    assert run.returncode == 1
    (file,) = json.loads(run.stdout)["files"]
    assert file["path"] == "p/a.py"
    assert [d["code"] for d in file["diagnostics"]] == ["CUD003", "MOV001"]
    both = cli(*arguments, cwd=root, stdin=gpu)  # the source, and what is to be said of it
    assert both.stdout == gpu.replace(b"x.cuda()", b'x.to("jax")')
    assert json.loads(both.stderr)["files"] == [file]


def test_what_can_not_be_processed_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = cli("-", *TO, "--stdin-filename", "a.py", cwd=tmp_path, stdin=b"cuda = =\n")
    assert (run.returncode, run.stdout) == (2, b"cuda = =\n")
    huge = b"# cuda\n" * 700_000
    report = migrate_content(tmp_path / "a.py", huge)
    assert report.files[0].result.source == huge and report.exit_code == 2

    def broken(*arguments: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("migrator.runs.worker.migrate_file", broken)
    report = migrate_content(tmp_path / "a.py", b"cuda\n")
    assert report.files[0].result.source == b"cuda\n" and report.exit_code == 2


def test_without_a_dash(tmp_path: Path) -> None:
    gpu = b"import torch\n\n\ndef f(x):\n    return x.cuda()\n"
    run = cli(*TO, "--stdin-filename", "a.py", cwd=tmp_path, stdin=gpu)
    assert run.stdout == gpu.replace(b"x.cuda()", b'x.to("jax")')
    wrong = cli("a.py", *TO, "--stdin-filename", "a.py", cwd=tmp_path, stdin=gpu)
    assert wrong.returncode == 2
    one_line(wrong.stderr, "--stdin-filename", "standard input")
