"""The code that a golden was recorded from, out of git."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from migrator.verify.golden_code import commit_of, how_to_verify_original, restored
from migrator.verify.goldens import ScriptGolden, digest
from migrator.verify.recordings import RecordSettings
from migrator.verify.script import Script
from tests.verify.support import recording


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of a repository, with a script, a module, and data that git does not have."""
    folder = tmp_path / "repository" / "src"
    (folder / "nets").mkdir(parents=True)
    (folder / "train.py").write_text("print(1)\n")
    (folder / "nets" / "net.py").write_text("size = 3\n")
    git(tmp_path / "repository", "init", "-q")
    commit(folder)
    (folder / "data.csv").write_text("1,2\n")
    return folder


def git(root: Path, *arguments: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    command = ["git", "-C", str(root), *who, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def commit(folder: Path) -> None:
    git(folder, "add", "*.py")
    git(folder, "commit", "-q", "-m", "code")


def golden(folder: Path) -> ScriptGolden:
    return ScriptGolden(
        recording(),
        [],
        RecordSettings(),
        "train.py",
        [],
        "GPU",
        digest(folder),
        commit_of(folder),
    )


def test_the_code_of_a_golden_comes_back_with_the_data_that_is_there(
    folder: Path, tmp_path: Path
) -> None:
    known = golden(folder)
    assert known.commit == git(folder, "rev-parse", "HEAD").strip()
    (folder / "train.py").write_text("print(2)\n")
    (folder / "new.py").write_text("import nets\n")
    (folder / "nets" / "net.py").rename(folder / "nets" / "other.py")
    commit(folder)
    script = restored(Script(folder, "train.py", []), known, tmp_path / "copy")
    assert script is not None and script.folder == tmp_path / "copy"
    found = {p.relative_to(script.folder).as_posix() for p in script.folder.rglob("*.*")}
    assert found == {"train.py", "nets/net.py", "data.csv"}
    assert (script.folder / "train.py").read_text() == "print(1)\n"
    assert (folder / "train.py").read_text() == "print(2)\n"


def test_code_that_no_commit_has_is_not_guessed(folder: Path, tmp_path: Path) -> None:
    known = golden(folder)
    (folder / "train.py").write_text("print(2)\n")
    assert commit_of(folder) is None
    changed = replace(known, source=digest(folder))  # recorded as it was then, uncommitted
    assert restored(Script(folder, "train.py", []), changed, tmp_path / "copy") is None
    gone = replace(known, commit="0" * 40)
    assert restored(Script(folder, "train.py", []), gone, tmp_path / "other") is None


def test_a_folder_without_git_has_no_commit(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print(1)\n")
    assert commit_of(tmp_path) is None


def test_the_original_of_a_migrated_script_is_verified_in_a_worktree(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Migrated in place, committed, or edited after that: each command is what a user types."""
    root, script = folder.parent, folder / "train.py"
    words = ["train.py", "--target", "torchax", "--", "--name", "a b"]

    def said() -> list[str]:
        text = how_to_verify_original(script, lambda source: b"migrated" in source, words)
        return [line.strip() for line in text.splitlines() if line]

    monkeypatch.chdir(folder)
    script.write_text("print('migrated')\n")
    beside = Path("..", "..", "repository-original")
    verify = "tpu-migrate verify train.py --target torchax -- --name 'a b'"
    tree = f"git worktree add --detach {beside}"
    assert said() == [f"{tree} HEAD", f"cd {beside / 'src'}", verify]
    commit(folder)
    migrated = git(root, "rev-parse", "--short", "HEAD").strip()
    script.write_text("print('migrated', 2)\n")
    commit(folder)
    tree, *_ = said()
    assert tree.endswith(f"{migrated}~1'")
    subprocess.run(tree, shell=True, check=True, capture_output=True)
    assert (root.parent / "repository-original" / "src" / "train.py").read_text() == "print(1)\n"
    words[0] = str(script)
    monkeypatch.chdir(root.parent)
    assert said()[1:] == ["cd repository-original", verify.replace("train.py", "src/train.py")]


def test_without_git_or_an_original_there_no_command_is_said(tmp_path: Path, folder: Path) -> None:
    script = tmp_path / "alone.py"
    script.write_text("1\n")
    assert how_to_verify_original(script, lambda _: False, []) == ""
    assert how_to_verify_original(folder / "train.py", lambda _: True, []) == ""
