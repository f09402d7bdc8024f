"""Settings in force, files that are looked at, a first configuration, and what is ignored where."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from helpers import cli, committed, one_line, read_tree, write_tree

from .scripts import GPU, STREAM, TO, out


def test_the_settings_in_force_are_a_configuration(tmp_path: Path) -> None:
    table = '[tool.tpu-migrate]\ntarget = "torchax"\nignore = ["CUD005"]\n'
    write_tree(tmp_path, {"pyproject.toml": table, "a.py": GPU})
    text = out(cli(".", "--show-settings", "--unsafe", cwd=tmp_path))
    assert text.startswith("# from pyproject.toml\n")
    found = tomllib.loads(text)
    assert found["target"] == ["torchax"] and found["ignore"] == ["CUD005"] and found["unsafe"]
    assert 'runtime = "wheel"  # default' in text
    write_tree(tmp_path, {"tpu-migrate.toml": text})
    for paths in ((".",), ()):  # here, if nothing is named
        assert tomllib.loads(out(cli(*paths, "--show-settings", cwd=tmp_path))) == found
    assert read_tree(tmp_path)["a.py"] == GPU.encode()


def test_the_files_that_are_looked_at(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a.py": GPU, "b/c.py": "", "data.bin": ""})
    run = cli(".", *TO, "--show-files", "--exclude", "b", cwd=tmp_path)
    assert out(run).splitlines() == ["a.py"]


@pytest.mark.parametrize("project", [False, True])
def test_a_first_configuration(tmp_path: Path, project: bool) -> None:
    write_tree(tmp_path, {"a.py": GPU} | ({"pyproject.toml": "[project]"} if project else {}))
    run = cli("init", "--target", "torchax", "--hook", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert 'target = ["torchax"]\n' in out(cli(".", "--show-settings", cwd=tmp_path))
    assert "entry: tpu-migrate --hook" in (tmp_path / ".pre-commit-config.yaml").read_text()
    again = cli("init", "--target", "torch_xla", cwd=tmp_path)
    assert again.returncode == 2
    one_line(again.stderr, "has settings already; change them there")


def test_what_is_ignored_in_some_files(tmp_path: Path) -> None:
    settings = 'target = "torchax"\n[per-file-ignores]\n"tests/*" = ["CUD"]\n'
    files = {"tpu-migrate.toml": settings, "tests/a.py": STREAM, "b.py": STREAM}
    text = out(cli(".", "--check", cwd=write_tree(tmp_path, files)))
    assert "b.py:2:5  CUD003" in text and "tests/a.py" not in text
    assert "1 kept (1 by comments), 1 reported (0% automatic, not counting those)" in text


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("1", "must be a table"),
        ('{ "a" = "CUD" }', "must be a list of codes"),
        ('{ "a" = ["XYZ"] }', "no rule begins with 'XYZ'"),
    ],
)
def test_ignores_that_are_wrong(tmp_path: Path, value: str, said: str) -> None:
    write_tree(tmp_path, {"tpu-migrate.toml": f"per-file-ignores = {value}\n", "a.py": GPU})
    run = cli(".", *TO, "--check", cwd=tmp_path)
    assert run.returncode == 2
    one_line(run.stderr, "tpu-migrate.toml per-file-ignores", said)


def test_comments_for_all_that_is_reported(tmp_path: Path) -> None:
    both = "import torch\ns, m = torch.cuda.Stream(), torch.cuda.CUDAGraph()  # keep me\n"
    root = committed(
        tmp_path, {"a.py": STREAM + GPU, "b.py": both, "Dockerfile": "FROM nvidia/cuda:12\n"}
    )
    run = cli(".", *TO, "--add-ignores", cwd=root)
    assert run.returncode == 0, run.stderr
    stream = STREAM.replace("Stream()\n", "Stream()  # tpu-migrate: ignore[CUD003]\n")
    assert (root / "a.py").read_text() == stream + GPU
    assert "# keep me  # tpu-migrate: ignore[CUD003, CUD004]\n" in (root / "b.py").read_text()
    assert "Dockerfile: is no Python module" in out(run)
    assert "reported" not in out(cli("a.py", "b.py", *TO, "--check", cwd=root))
    before = read_tree(root)
    assert cli(".", *TO, "--add-ignores", cwd=root).returncode == 0
    assert read_tree(root) == before


def test_comments_stand_where_python_counts_lines(tmp_path: Path) -> None:
    """A form feed ends no line for Python, but one for `str.splitlines`."""
    root = committed(tmp_path, {"a.py": "import torch\n\x0c\n" + STREAM.partition("\n")[2]})
    assert cli("a.py", *TO, "--add-ignores", cwd=root).returncode == 0
    *_, last = (root / "a.py").read_text().split("\n")[:-1]
    assert last == "s = torch.cuda.Stream()  # tpu-migrate: ignore[CUD003]"
