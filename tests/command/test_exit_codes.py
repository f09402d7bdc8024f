"""Exit code 1 says that something was found: whatever goes wrong ends with 2, and says so."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from helpers import cli, committed, one_line, write_tree

from migrator.cli import COMMANDS

GPU = "import torch\nx = torch.ones(1).cuda()\n"
# How each command is started; what it needs besides a file of GPU code, it has.
STARTED = {
    "assess": ["assess", "a.py"],
    "completion": ["completion", "bash"],
    "doctor": ["doctor"],
    "explain": ["explain", "MOV001"],
    "forecast": ["forecast", "a.py", "--chip", "v6e"],
    "init": ["init", "--target", "torchax"],
    "lsp": ["lsp"],
    "mcp": ["mcp"],
    "migrate": ["a.py", "--target", "torchax", "--check"],
    "remaining": ["remaining", "a.py", "--target", "torchax"],
    "record": ["record", "a.py", "-o", "golden"],
    "review": ["review", "HEAD", "--target", "torchax"],
    "rules": ["rules"],
    "runtime": ["runtime", "check"],
    "verify": ["verify", "a.py", "--target", "torchax"],
}


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("error", [KeyError("x"), RecursionError(), SystemError("broken")])
def test_an_error_that_nobody_foresaw_ends_with_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, error: Exception
) -> None:
    root = committed(tmp_path, {"a.py": GPU})
    module, _, attribute = COMMANDS[name].partition(":")

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(getattr(import_module(module), attribute), "callback", fail)
    found = cli(*STARTED[name], cwd=root)
    assert found.returncode == 2
    assert f"internal error: {type(error).__name__}" in found.stderr.decode().splitlines()[-1]


@pytest.mark.parametrize("verbose", [(), ("-v",)])
def test_an_internal_error_in_one_file_says_what_to_send(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verbose: tuple[str, ...]
) -> None:
    root = committed(tmp_path, {"a.py": GPU})

    def fail(*_: object, **__: object) -> None:
        raise KeyError("nobody foresaw this")

    monkeypatch.setattr("migrator.runs.worker.migrate_file", fail)
    found = cli("a.py", "--target", "torchax", "--check", *verbose, cwd=root)
    said = found.stdout.decode()
    assert found.returncode == 2
    assert "ERR003  internal error: KeyError: 'nobody foresaw this'" in said
    assert ("Traceback (most recent call last):" in said) == bool(verbose)
    last = said.splitlines()[-1]
    assert "please send its maintainers" in last and ("-v shows it" in last) != bool(verbose)


@pytest.mark.parametrize(
    "name", sorted({*COMMANDS} - {"forecast", "lsp", "mcp", "record", "verify"})
)
def test_output_that_can_not_be_written_ends_with_2(tmp_path: Path, name: str) -> None:
    root = committed(tmp_path, {"a.py": GPU})
    with Path("/dev/full").open("wb") as full:
        found = subprocess.run(
            [sys.executable, "-m", "migrator", *STARTED[name]],
            cwd=root, stdout=full, stderr=subprocess.PIPE,
        )  # fmt: skip
    assert found.returncode == 2
    one_line(found.stderr, "standard output: No space left on device")


def test_where_nothing_can_be_said_the_code_says_it(tmp_path: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        command = [sys.executable, "-m", "migrator", "nowhere", "--target", "torchax"]
        assert subprocess.run(command, cwd=tmp_path, stdout=full, stderr=full).returncode == 2


@pytest.mark.parametrize("how", [["--check"], ["--diff"], ["-o", "out"], []])
def test_a_link_to_itself_is_an_error_of_that_file(tmp_path: Path, how: list[str]) -> None:
    root = committed(tmp_path, {"a.py": f"import loop\n{GPU}"})
    for name in ("loop.py", "x.ipynb", "requirements.txt", "pkg"):
        (root / name).symlink_to(name)
    output = ["-o", str(tmp_path.parent / f"{tmp_path.name}-out")] if "-o" in how else how
    found = cli(".", "--target", "torchax", *output, cwd=root)
    assert found.returncode == 2 and b"Traceback" not in found.stderr
    lines = (found.stdout + found.stderr).decode().splitlines()
    for name in ("loop.py", "x.ipynb", "requirements.txt"):
        assert any(name in line and "ERR005" in line for line in lines), name
    assert b"a.py" in found.stdout  # the others are done


@pytest.mark.parametrize("form", ["json", "sarif", "github", "gitlab", "markdown"])
def test_a_link_to_itself_is_in_every_report(tmp_path: Path, form: str) -> None:
    root = write_tree(tmp_path, {"a.py": GPU})
    (root / "loop.py").symlink_to("loop.py")
    found = cli(".", "--target", "torchax", "--check", "--format", form, cwd=root)
    assert found.returncode == 2
    assert b"loop.py" in found.stdout
    assert b"cannot be read: Too many levels of symbolic links" in found.stdout
