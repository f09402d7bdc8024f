"""Configuration, and input that is bad: one clear line."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from helpers import cli, committed, git, one_line, read_tree, shell, write_tree

from tests.command.scripts import GPU, SCRIPT, STREAM, TO, TPU, out


def configured(root: Path, table: str) -> CompletedProcess[bytes]:
    write_tree(root, {"pyproject.toml": f"[tool.tpu-migrate]\n{table}\n", "p/a.py": GPU + STREAM})
    return cli("p", "--check", cwd=root)


def test_configuration_is_used_and_the_command_line_wins(tmp_path: Path) -> None:
    assert "a.py" in out(configured(tmp_path, 'target = "torch_xla"'))
    text = 'target = "torch_xla"\nselect = ["CUD"]\nexclude = ["gen*"]\njobs = 1\nunsafe = true\n'
    write_tree(tmp_path, {"p/generated.py": GPU})
    assert "1 file scanned, 0 would change" in out(configured(tmp_path, text))
    diff = cli("p/a.py", "--diff", "--select", "MOV", *TO, cwd=tmp_path)
    assert b'x.to("jax")' in diff.stdout


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("colour = 1", ("unknown key 'colour'", "known: ", "pyproject.toml")),
        ("target = 1", ("target", "string")),
        ('target = "cpu"', ("cpu", "torchax")),
        ('select = "MOV"', ("select", "list of strings")),
        ("select = [1]", ("select", "list of strings")),
        ("select = 1", ("select", "list of strings")),
        ("exclude = true", ("exclude", "list of strings")),
        ('select = ["XYZ"]', ("XYZ",)),
        ('unsafe = "yes"', ("unsafe", "true or false")),
        ("jobs = 1.5", ("jobs", "whole number")),
        ("jobs = true", ("jobs", "whole number")),
        ("jobs = -1", ("jobs",)),
        ('precision = "low"', ("precision", "one of")),
        ('runtime = "bundled"', ("runtime", "wheel, package, copy", "'bundled' is 'copy' now")),
        ("x = [", ("not valid TOML", "pyproject.toml")),
    ],
)
def test_wrong_configuration_is_one_line(
    tmp_path: Path, table: str, words: tuple[str, ...]
) -> None:
    write_tree(tmp_path, {"pyproject.toml": f"[tool.tpu-migrate]\n{table}\n", "a.py": GPU})
    run = cli("a.py", "--check", *(() if "target" in table else TO), cwd=tmp_path)
    assert run.returncode == 2
    one_line(run.stderr, *words)


def test_a_table_that_is_none(tmp_path: Path) -> None:
    write_tree(tmp_path, {"pyproject.toml": "[tool]\ntpu-migrate = 3\n", "a.py": GPU})
    one_line(cli(".", *TO, cwd=tmp_path).stderr, "[tool.tpu-migrate]", "not a table")


def test_configuration_outside_of_the_project_is_not_read(tmp_path: Path) -> None:
    write_tree(tmp_path, {"pyproject.toml": "[tool.tpu-migrate]\ncolour = 1\n"})
    root = committed(tmp_path / "p", {"a.py": GPU, "pyproject.toml": "[project]\nname = 'p'\n"})
    assert cli(".", *TO, "--check", cwd=root).returncode == 1


# ---- bad input -----------------------------------------------------------------------------------


@pytest.fixture
def bad(tmp_path: Path) -> Iterator[Path]:
    """A project with one of everything that goes wrong, between files that are fine."""
    root = committed(
        tmp_path,
        {
            "a_fine.py": GPU,
            "syntax.py": "x = = 'cuda'\n",
            "coding.py": b"s = 'cuda \xff'\n",
            "unknown.py": b"# coding: nonsense\ns = 'cuda'\n",
            "nul.py": b"s = 'cuda'\0\n",
            "binary.py": b"\x7fELF\2\1\1\0\0\0",
            "utf16.py": GPU.encode("utf-16"),
            "cafe.py": b"a = 1\nb = 2\n# caf\xe9\n",
            "generated.py": b"x = 'cuda'\n" * 500_000,
            "deep.py": "x = " + "(" * 3000 + "'cuda'" + ")" * 3000 + "\n",
            "z_fine.py": GPU,
        },
    )
    (root / "folder.py").mkdir()
    (root / "dangling.py").symlink_to("nowhere")
    (root / "self.py").symlink_to("self.py")
    (root / "loop").mkdir()
    (root / "loop" / "up").symlink_to("..")
    (root / "loop" / "b.py").write_text(GPU)
    git(root, "add", "loop/b.py")
    yield root


ERRORS = {
    "syntax.py": "ERR001", "coding.py": "ERR001", "unknown.py": "ERR001", "nul.py": "ERR001",
    "binary.py": "ERR001", "utf16.py": "ERR001", "cafe.py": "ERR002",
    "generated.py": "ERR004", "deep.py": "ERR001", "dangling.py": "ERR005", "self.py": "ERR005",
}  # fmt: skip


EVERYTHING = "[tool.tpu-migrate]\ntarget = 'torch_xla'\nexclude = ['*']\n"


@pytest.mark.parametrize(
    ("source", "first"), [(GPU, "torch_tpu, torch_xla, torchax"), ("import keras\n", "keras_jax")]
)
def test_without_a_target_those_of_the_codes_framework_come_first(
    tmp_path: Path, source: str, first: str
) -> None:
    write_tree(tmp_path, {"p/a.py": source, "p/b.py": source, "p/README": "import keras"})
    run = cli("p", cwd=tmp_path)
    assert run.returncode == 2
    assert f"--target auto chooses one by the code, or name it ({first}, " in one_line(run.stderr)


def test_a_configuration_that_excludes_everything_is_said(tmp_path: Path) -> None:
    write_tree(tmp_path, {"pyproject.toml": EVERYTHING, "a.py": GPU})
    run = cli(".", "--check", cwd=tmp_path)
    assert run.returncode == 0
    assert "note  all that is there is excluded, by *" in out(run)


def test_a_trusted_configuration_is_the_only_one(tmp_path: Path) -> None:
    write_tree(tmp_path, {"p/pyproject.toml": EVERYTHING, "p/a.py": GPU, "p/b/c.py": GPU})
    write_tree(tmp_path, {"own.toml": "[tool.tpu-migrate]\ntarget = 'torchax'\nexclude = ['b']\n"})
    run = cli("p", "--diff", "--config", "own.toml", cwd=tmp_path)
    assert out(run).count('+    return x.to("jax")') == 1
    run = cli("p", "--diff", "--isolated", "--target", "torchax", cwd=tmp_path)
    assert out(run).count('+    return x.to("jax")') == 2
    write_tree(tmp_path, {"p/pyproject.toml": "no TOML"})
    assert cli("p", "--check", "--isolated", *TO, cwd=tmp_path).returncode == 1
    assert cli("p", "--check", "--config", "own.toml", cwd=tmp_path).returncode == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--config", "none.toml"), "none.toml: cannot be read: No such file or directory"),
        (("--config", "a.py"), "a.py: not valid TOML"),
        (("--config", "b.toml"), "b.toml: [tool.tpu-migrate] has an unknown key 'colour'"),
        (("--config", "b.toml", "--isolated"), "choose one of --config and --isolated"),
    ],
)
def test_a_configuration_that_can_not_be_taken_is_one_line(
    tmp_path: Path, options: tuple[str, ...], words: str
) -> None:
    write_tree(tmp_path, {"a.py": GPU, "b.toml": "[tool.tpu-migrate]\ncolour = 1\n"})
    run = cli(".", *TO, *options, cwd=tmp_path)
    assert run.returncode == 2
    assert run.stderr.decode().startswith(f"tpu-migrate: {words}")
    assert run.stderr.count(b"\n") == 1


def test_one_bad_file_stops_nothing(bad: Path) -> None:
    before = read_tree(bad)
    run = cli(".", *TO, cwd=bad)
    assert run.returncode == 2
    text = out(run) + run.stderr.decode()
    assert "Traceback" not in text
    for name, code in ERRORS.items():
        lines = [line for line in text.splitlines() if line.startswith(f"{name}:")]
        assert len(lines) == 1 and code in lines[0], (name, lines)
    new = {"a_fine.py", "z_fine.py", "loop/b.py"}
    assert read_tree(bad) == before | dict.fromkeys(new, TPU.encode())


def test_errors_in_json(bad: Path) -> None:
    run = cli(".", *TO, "--check", "--format", "json", cwd=bad)
    document = json.loads(run.stdout)
    found = {
        file["path"]: d["code"]
        for file in document["files"]
        for d in file["diagnostics"]
        if d["severity"] == "error"
    }
    assert {Path(path).name: code for path, code in found.items()} == ERRORS


@pytest.mark.parametrize("name", ["syntax.py", "dangling.py", "self.py", "nul.py"])
def test_a_bad_file_named_alone(bad: Path, name: str) -> None:
    run = cli(name, *TO, cwd=bad)
    assert run.returncode == 2
    assert name in (out(run) + run.stderr.decode())
    assert "Traceback" not in run.stderr.decode()


def test_a_copy_with_bad_files_is_whole(bad: Path) -> None:
    run = cli(".", *TO, "-o", "../copy_of_bad", cwd=bad)
    assert run.returncode == 2
    copied = read_tree(bad.parent / "copy_of_bad")
    assert copied == read_tree(bad) | {
        name: TPU.encode() for name in ("a_fine.py", "z_fine.py", "loop/b.py")
    }


def test_as_a_process_of_its_own(bad: Path) -> None:
    run = shell("tpu-migrate . --target torchax --check", bad)
    assert run.returncode == 2
    assert b"syntax.py:1:" in run.stdout and b"Traceback" not in run.stdout + run.stderr
    fine = shell("tpu-migrate a_fine.py --target torchax --diff | git apply -", bad)
    assert fine.returncode == 0
    assert (bad / "a_fine.py").read_text() == TPU


def test_a_closed_pipe_is_no_traceback(tmp_path: Path) -> None:
    write_tree(tmp_path, {f"f{i}.py": SCRIPT for i in range(50)})
    run = shell("tpu-migrate . --target torchax --diff 2>&1 | head -n 1", tmp_path)
    assert run.stdout.startswith(b"--- a/f0.py") and b"Traceback" not in run.stdout + run.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="a folder that is in use can't be removed")
def test_a_current_folder_that_is_gone_is_said(tmp_path: Path) -> None:
    """Its error names no file: "No such file or directory" told nobody what was missing."""
    gone = tmp_path / "gone"
    gone.mkdir()
    for command in ("verify train.py --target torchax", "../train.py --target torchax --diff"):
        result = shell(f"cd gone && rmdir ../gone && tpu-migrate {command}", tmp_path)
        assert result.returncode == 2
        assert result.stderr.decode().splitlines()[-1] == (
            "tpu-migrate: the current folder was removed or replaced: go into it again (cd)"
        )
        gone.mkdir()
