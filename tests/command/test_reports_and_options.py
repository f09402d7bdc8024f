"""Reports, and options of a run."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import cli, committed, one_line, read_tree, wheel_for, write_tree

from migrator import __version__
from migrator.cli.migrate import migrate_command
from migrator.cli.option_groups import GROUPS
from migrator.registry import registry
from tests.command.scripts import ADVICE, GPU, SCRIPT, STREAM, TO, TPU, out, squeezed


def test_json(tmp_path: Path) -> None:
    write_tree(
        tmp_path, {"a.py": GPU, "b.py": STREAM + ADVICE, "c.py": "x = 1\n", "d.py": "cuda = =\n"}
    )
    run = cli(".", *TO, "--check", "--format", "json", "--statistics", cwd=tmp_path)
    assert run.returncode == 2 and not run.stderr
    document = json.loads(run.stdout)
    assert (document["version"], document["target"]) == (__version__, "torchax")
    files = {Path(file["path"]).name: file for file in document["files"]}
    assert {name: file["changed"] for name, file in files.items()} == {
        "a.py": True, "b.py": False, "d.py": False,
    }  # fmt: skip
    assert files["a.py"]["diagnostics"] == [{
        "code": "MOV001", "severity": "info", "outcome": "rewritten", "message": "",
        "construct": "x.cuda", "safety": "safe",
        "why": "same meaning, within the documented tolerance",
        "start": {"line": 5, "column": 14}, "end": {"line": 5, "column": 18},
    }]  # fmt: skip
    kinds = [(d["severity"], d["outcome"]) for d in files["b.py"]["diagnostics"]]
    assert ("warning", "reported") in kinds and ("advice", None) in kinds
    assert [d["severity"] for d in files["d.py"]["diagnostics"]] == ["error"]
    summary = document["summary"]
    assert summary["scanned"] == 4 and summary["changed"] == 1 and summary["advice"] == 1
    assert (
        summary["constructs"] == summary["rewritten"] + summary["kept"] + summary["reported"] == 3
    )
    assert {"code": "MOV001", "rewritten": 1} in document["statistics"]
    assert "statistics" not in json.loads(
        out(cli(".", *TO, "--check", "--format", "json", cwd=tmp_path))
    )


def test_json_lists_companions(tmp_path: Path) -> None:
    write_tree(tmp_path, {"main.py": SCRIPT})
    run = cli("main.py", *TO, "--check", "--format", "json", cwd=tmp_path)
    assert json.loads(run.stdout)["companions"] == [str(Path(wheel_for("torchax")))]


def test_json_with_a_diff_is_still_json(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a.py": GPU})
    assert json.loads(cli(".", *TO, "--diff", "--format", "json", cwd=tmp_path).stdout)["files"]


def test_quiet_and_verbose(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a.py": GPU + "y.to(d, non_blocking=True)\n", "b.py": "cuda = =\n"})
    quiet = cli(".", *TO, "--check", "-q", cwd=tmp_path)
    assert out(quiet).splitlines() == [line for line in out(quiet).splitlines() if "ERR001" in line]
    assert "b.py:1" in out(quiet)
    normal, verbose = (out(cli(".", *TO, "--check", *v, cwd=tmp_path)) for v in ((), ("-v",)))
    assert "non_blocking" not in normal and "MOV005  kept" in verbose
    assert "5:14  MOV001  rewritten" in verbose


def test_what_is_right_is_told_of_files_that_stay(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a.py": "import torch\n\n\ndef f(m, p):\n    torch.save(m, p)\n"})
    normal, verbose = (out(cli(".", *TO, "--check", *v, cwd=tmp_path)) for v in ((), ("-v",)))
    assert "1 GPU construct: 1 kept (100% automatic)" in normal and "a.py" not in normal
    assert re.search(r"^a\.py  stays as it is\n +5:5  IOS002  kept +torch\.save", verbose, re.M)


def test_statistics(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a.py": GPU * 3 + STREAM})
    text = squeezed(out(cli(".", *TO, "--check", "--statistics", cwd=tmp_path)))
    assert f"MOV001 3 rewritten: {registry().rules['MOV001'].summary}" in text
    assert "CUD003 1 reported: " in text


def test_many_places_with_one_reason_are_all_listed(tmp_path: Path) -> None:
    """Every construct that is left has its line and column somewhere."""
    write_tree(tmp_path, {"a.py": "import torch\n" + "s = torch.cuda.Stream()\n" * 40})
    text = out(cli(".", *TO, "--check", cwd=tmp_path))
    assert all(f"{line}:5" in text for line in range(2, 42))


def test_version_and_help(tmp_path: Path) -> None:
    assert out(cli("--version", cwd=tmp_path)).strip().endswith(__version__)
    text = out(cli("--help", cwd=tmp_path))
    assert "PATH" in text and "--target" in text and "explain" in text
    for option in ("--diff", "--check", "--select", "--unsafe", "--allow-dirty", "--format"):
        assert option in out(cli("migrate", "--help", cwd=tmp_path))


def test_what_a_command_is_for_is_said_whole(tmp_path: Path) -> None:
    commands = out(cli("--help", cwd=tmp_path)).partition("Commands:\n")[2].splitlines()
    assert len(commands) >= 10
    assert all(line.endswith(".") and not line.endswith("...") for line in commands)


def test_every_option_of_a_run_is_in_one_group_of_the_help(tmp_path: Path) -> None:
    named = [name for names in GROUPS.values() for name in names]
    options = {p.name for p in migrate_command.params if p.param_type_name == "option"}
    assert len(named) == len(set(named)) and options == set(named)
    text = out(cli("--help", cwd=tmp_path))
    titles = [line[:-1] for line in text.splitlines() if line.endswith(":") and line[0] != " "]
    assert titles == [*GROUPS, "Other options", "Commands"]


def test_without_arguments_it_shows_its_help(tmp_path: Path) -> None:
    result = cli(cwd=tmp_path)
    assert result.returncode == 2
    assert result.stderr.startswith(b"Usage: tpu-migrate PATH... --target")
    assert len(result.stderr.splitlines()) > 30


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["check", "."],
            "check: no such file or folder, and no command: tpu-migrate PATH --target",
        ),
        (["undo"], "undo: no such file or folder, and no command: tpu-migrate PATH --undo"),
        (
            [".", "--fix"],
            "no such option: --fix; tpu-migrate PATH --target TARGET rewrites in place",
        ),
        (["completion"], "Missing argument '{bash|zsh|fish|powershell}'. Choose from:"),
    ],
)
def test_words_of_other_tools_are_told_what_to_say(
    tmp_path: Path, words: list[str], said: str
) -> None:
    result = cli(*words, cwd=tmp_path)
    assert result.returncode == 2 and said in result.stderr.decode()
    assert len(result.stderr.splitlines()) == 1


def test_rules_and_explain(tmp_path: Path) -> None:
    table = out(cli("rules", cwd=tmp_path))
    assert all(code in table and rule.name in table for code, rule in registry().rules.items())
    text = out(cli("explain", "mov001", cwd=tmp_path))
    assert "MOV001" in text and 'x.to("jax")' in text.replace("'", '"') and "torch_xla" in text
    for code, rule in registry().rules.items():
        text = squeezed(out(cli("explain", code, cwd=tmp_path))).lower()
        assert f"{code} {rule.name}".lower() in text
    one_line(cli("explain", "XYZ999", cwd=tmp_path).stderr, "XYZ999", "tpu-migrate rules")


# ---- options -------------------------------------------------------------------------------------


def test_select_ignore_unsafe(tmp_path: Path) -> None:
    source = "import torch\n" + GPU + "torch.cuda.empty_cache()\nm = m.half()\n"
    filtered = {
        options: out(cli("-", *TO, *options, cwd=tmp_path, stdin=source.encode()))
        for options in (
            ("--select", "MOV001"), ("--select", "MOV,CUD"), ("--select", "MOV", "--select", "CUD"),
            ("--ignore", "MOV"), ("--unsafe",),
        )
    }  # fmt: skip
    texts = list(filtered.values())
    assert 'to("jax")' in texts[0] and "empty_cache" in texts[0]
    assert 'to("jax")' in texts[1] and "empty_cache" not in texts[1] and texts[1] == texts[2]
    assert "x.cuda()" in texts[3] and "empty_cache" not in texts[3]
    assert ".bfloat16()" in texts[4]


def test_precision_and_runtime(tmp_path: Path) -> None:
    write_tree(tmp_path, {"main.py": SCRIPT})
    options = ("--precision", "high", "--runtime", "package", "--allow-dirty")
    assert cli(".", *TO, *options, cwd=tmp_path).returncode == 0
    assert 'setup(precision="high")' in (tmp_path / "main.py").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["main.py"]


@pytest.mark.parametrize("pattern", ["old", "old/", "old/*", "old/b.py", "b.py", "*/b.py"])
def test_exclude(tmp_path: Path, pattern: str) -> None:
    write_tree(tmp_path, {"a.py": GPU, "old/b.py": GPU})
    cli(".", *TO, "--exclude", pattern, "--allow-dirty", cwd=tmp_path)
    assert (tmp_path / "a.py").read_text() == TPU
    assert (tmp_path / "old" / "b.py").read_text() == GPU


def test_folders_that_are_no_source_are_passed_over(tmp_path: Path) -> None:
    names = [".git", "venv", ".venv", "node_modules", "__pycache__", "build_env/lib/site-packages"]
    write_tree(
        tmp_path, {f"{name}/x.py": GPU for name in names} | {"a.py": GPU, "env/pyvenv.cfg": ""}
    )
    write_tree(tmp_path, {"env/b.py": GPU})
    text = out(cli(".", *TO, "--check", cwd=tmp_path))
    assert "1 files scanned" in text or "1 file scanned" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("a.py",), ("no target", "--target")),
        (("a.py", "--target", "cpu"), ("--target", "cpu", "torchax")),
        (("missing.py", *TO), ("missing.py", "no such file")),
        (("reveiw", "HEAD"), ("reveiw", "no such file", "review?")),
        ((*TO,), ("no PATH",)),
        (("a.py", *TO, "--diff", "--check"), ("--diff", "--check")),
        (("a.py", *TO, "--diff", "-o", "q"), ("-o", "--diff")),
        (("a.py", "b.py", *TO, "-o", "q"), ("-o", "one path")),
        (("-", *TO, "-o", "q"), ("-o", "standard input")),
        (("-", "a.py", *TO), ("-",)),
        (("a.py", *TO, "--select", "XYZ"), ("--select", "XYZ")),
        (("a.py", *TO, "--nonsense"), ("--nonsense",)),
        (("a.py", *TO, "--jobs", "0"), ("--jobs",)),
        (("a.py", *TO, "--precision", "low"), ("--precision",)),
        (("a.py", *TO, "--format", "xml"), ("--format",)),
    ],
)
def test_wrong_usage_is_one_line(
    tmp_path: Path, arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    write_tree(tmp_path, {"a.py": GPU, "b.py": GPU})
    run = cli(*arguments, cwd=tmp_path, stdin=b"")
    assert run.returncode == 2 and run.stdout == b""
    one_line(run.stderr, "tpu-migrate: ", *words)
    assert read_tree(tmp_path) == {"a.py": GPU.encode(), "b.py": GPU.encode()}


@pytest.mark.parametrize(
    "arguments",
    [(*TO, "--check", "a.py", "--diff-base", "HEAD"), ("review", "HEAD"), ("--hook", *TO, "a.py")],
)
def test_without_git_one_line_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    root = committed(tmp_path, {"a.py": GPU})
    monkeypatch.setenv("PATH", str(tmp_path))
    run = cli(*arguments, cwd=root)
    assert run.returncode == 2 and run.stdout == b""
    one_line(run.stderr, "tpu-migrate: ", "git is not installed, or not on PATH")
    assert (root / "a.py").read_text() == GPU


def test_a_quiet_run_with_nothing_to_do_loads_neither_rules_nor_rich(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a.py": "x = 1\n"})
    code = (
        "import sys\nfrom migrator.cli import main\n"
        "try:\n    main()\nexcept SystemExit as done:\n    assert not done.code\n"
        "assert not {'rich', 'migrator.rules', 'libcst'} & sys.modules.keys()"
    )
    subprocess.run(
        [sys.executable, "-c", code, "a.py", *TO, "--check", "-q"], cwd=tmp_path, check=True
    )
