"""What may be written, and how."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from helpers import COPY, committed, git, read_tree, write_tree

from migrator import migrate_paths
from migrator.config import Config
from migrator.errors import UsageError
from migrator.files.overwriting import unsafe_to_write
from migrator.files.staging import write
from tests.files.trees import GPU, TPU

# ---- what may be written -------------------------------------------------------------------------


def test_a_committed_file_may_be_written(tmp_path: Path) -> None:
    root = committed(tmp_path, {"a.py": GPU})
    assert migrate_paths([root], write=True).exit_code == 0
    assert (root / "a.py").read_text() == TPU


def test_a_staged_file_may_be_written(tmp_path: Path) -> None:
    root = committed(tmp_path, {"a.py": "old\n"})
    (root / "a.py").write_text(GPU)
    git(root, "add", "a.py")
    migrate_paths([root], write=True)
    assert (root / "a.py").read_text() == TPU
    assert git(root, "show", ":a.py") == GPU  # the index still holds what was there


def test_a_new_staged_file_may_be_written(tmp_path: Path) -> None:
    root = committed(tmp_path, {"b.txt": ""})
    write_tree(root, {"a.py": GPU})
    git(root, "add", "a.py")
    migrate_paths([root], write=True)
    assert (root / "a.py").read_text() == TPU


def test_before_the_first_commit_the_index_counts(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a.py": GPU})
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    migrate_paths([tmp_path], write=True)
    assert (tmp_path / "a.py").read_text() == TPU


@pytest.mark.parametrize("state", ["modified", "untracked", "ignored", "no repository"])
def test_a_file_that_git_does_not_hold_is_refused(tmp_path: Path, state: str) -> None:
    files = {"a.py": GPU, "b.py": GPU, "ä ö.py": GPU, ".gitignore": "c.py\n"}
    if state == "no repository":
        write_tree(tmp_path, dict(files))
        wrong = tmp_path / "a.py"
    else:
        committed(tmp_path, dict(files))
        wrong = tmp_path / {"modified": "ä ö.py", "untracked": "d.py", "ignored": "c.py"}[state]
        wrong.write_text(f"{GPU}# by hand\n")
    before = read_tree(tmp_path)
    with pytest.raises(UsageError, match="--allow-dirty") as error:
        migrate_paths([tmp_path], write=True)
    assert wrong.name in str(error.value) and "\n" not in str(error.value)
    assert read_tree(tmp_path, runtime=True) == before  # nothing at all was written
    migrate_paths([tmp_path], write=True, allow_dirty=True)
    assert wrong.read_text().startswith(TPU)


def test_a_read_only_file_is_refused(tmp_path: Path) -> None:
    root = committed(tmp_path, {"a.py": GPU, "b.py": GPU, "c.py": "x = 1\n"})
    for name in ("b.py", "c.py"):  # the other one does not change
        (root / name).chmod(0o444)
    before = read_tree(root)
    with pytest.raises(UsageError, match=r"b\.py is read-only; nothing was written\."):
        migrate_paths([root], write=True, allow_dirty=True)
    assert read_tree(root, runtime=True) == before
    migrate_paths([root], write=True, config=Config(exclude=("b.py",)))
    assert (root / "a.py").read_text() == TPU


def test_dirty_files_that_do_not_change_are_no_obstacle(tmp_path: Path) -> None:
    root = committed(tmp_path, {"a.py": GPU, "b.py": "x = 1\n"})
    (root / "b.py").write_text("x = 2\n")
    (root / "notes.txt").write_text("mine\n")
    migrate_paths([root], write=True)
    assert (root / "a.py").read_text() == TPU


def test_our_own_last_output_counts_as_clean(tmp_path: Path) -> None:
    root = committed(tmp_path, {"a.py": GPU})
    migrate_paths([root], write=True)
    again = migrate_paths([root], "torch_xla", write=True)  # reads it as the GPU code it was
    assert [file.path.name for file in again.changed] == ["a.py"]
    (root / "a.py").write_text(TPU + GPU)  # edited since: refused again
    with pytest.raises(UsageError):
        migrate_paths([root], write=True)


def test_own_output_may_be_overwritten_by_a_later_run(tmp_path: Path) -> None:
    """A first run with --select, then the rest: no commit is needed between the two."""
    root = committed(tmp_path, {"a.py": f"import torch\n{GPU}torch.cuda.empty_cache()\n"})
    migrate_paths([root], write=True, config=Config(select=("MOV",)))
    migrate_paths([root], write=True)
    assert (root / "a.py").read_text() == f"import torch\n{TPU}"


def test_a_file_in_a_linked_work_tree_or_submodule(tmp_path: Path) -> None:
    root = committed(tmp_path / "main", {"a.py": GPU})
    git(root, "worktree", "add", "-q", "../tree")
    migrate_paths([tmp_path / "tree"], write=True)
    assert (tmp_path / "tree" / "a.py").read_text() == TPU
    assert (root / "a.py").read_text() == GPU


def test_new_files_are_never_a_problem(tmp_path: Path) -> None:
    assert unsafe_to_write({tmp_path / "new.py": None}) == []


@pytest.mark.parametrize("flag", ["assume-unchanged", "skip-worktree"])
def test_work_that_git_is_told_not_to_look_at_is_not_lost(tmp_path: Path, flag: str) -> None:
    root = committed(tmp_path, {"a.py": "old\n"})
    git(root, "update-index", f"--{flag}", "a.py")
    (root / "a.py").write_text(GPU)
    with pytest.raises(UsageError, match=flag):
        migrate_paths([root], write=True)
    assert (root / "a.py").read_text() == GPU


def test_other_line_ends_in_the_work_tree_are_no_changes(tmp_path: Path) -> None:
    root = committed(tmp_path, {"a.py": GPU, ".gitattributes": "*.py text eol=crlf\n"})
    (root / "a.py").unlink()
    git(root, "checkout", "-q", "a.py")
    assert b"\r\n" in (root / "a.py").read_bytes()
    migrate_paths([root], write=True)
    assert (root / "a.py").read_bytes() == TPU.replace("\n", "\r\n").encode()


def test_programs_that_the_configuration_of_git_names_are_not_run(tmp_path: Path) -> None:
    root = committed(tmp_path / "p", {"a.py": GPU})
    hook = tmp_path / "hook"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)
    git(root, "config", "core.fsmonitor", str(hook))
    migrate_paths([root], write=True)
    migrate_paths([root], diff_base="HEAD")
    assert not (tmp_path / "ran").exists()


def test_companions_that_the_user_edited_are_refused(tmp_path: Path) -> None:
    root = committed(tmp_path, {"a.py": "import torch\ntorch.cuda.seed()\n"})
    migrate_paths([root], config=COPY, write=True)
    git(root, "add", "-A")
    git(root, "commit", "-qm", "migrated")
    module = root / "tpu_runtime" / "device.py"
    module.write_text(module.read_text() + "# mine\n")
    (root / "b.py").write_text("import torch\ntorch.cuda.seed()\n")
    git(root, "add", "b.py")
    with pytest.raises(UsageError, match=r"device\.py"):
        migrate_paths([root], write=True)
    assert module.read_text().endswith("# mine\n")


# ---- writing -------------------------------------------------------------------------------------


def test_permissions_stay(tmp_path: Path) -> None:
    path = tmp_path / "run.py"
    path.write_text("old")
    path.chmod(0o750)
    write(path, b"new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o750
    assert path.read_bytes() == b"new"


def test_new_files_get_the_usual_permissions(tmp_path: Path) -> None:
    write(tmp_path / "deep" / "er.py", b"new")
    (tmp_path / "plain").write_text("")
    modes = {
        stat.S_IMODE(p.stat().st_mode) for p in (tmp_path / "deep" / "er.py", tmp_path / "plain")
    }
    assert len(modes) == 1


def test_links_stay_links(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    real, link = tmp_path / "real" / "a.py", tmp_path / "a.py"
    real.write_text("old")
    link.symlink_to(Path("real", "a.py"))
    write(link, b"new")
    assert link.is_symlink() and real.read_bytes() == b"new" and not real.is_symlink()


@pytest.mark.parametrize("call", ["Path.replace", "os.fdopen", "os.fsync"])
def test_an_interrupted_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    path = tmp_path / "a.py"
    path.write_text("old")

    def interrupted(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    owner, _, name = call.partition(".")
    monkeypatch.setattr({"os": os, "Path": Path}[owner], name, interrupted)
    with pytest.raises(KeyboardInterrupt):
        write(path, b"new")
    monkeypatch.undo()
    assert path.read_text() == "old"


def test_names_may_be_as_long_as_the_file_system_has_them(tmp_path: Path) -> None:
    name = f"{'n' * 252}.py"
    root = committed(tmp_path, {name: GPU})
    migrate_paths([root], write=True)
    assert (root / name).read_text() == TPU


def test_what_is_not_kept_of_a_file_is_said(tmp_path: Path) -> None:
    root = committed(tmp_path / "p", {"a.py": GPU})
    os.link(root / "a.py", tmp_path / "other.py")
    os.setxattr(root / "a.py", "user.mine", b"kept")
    report = migrate_paths([root], write=True)
    assert report.notes == [f"{root / 'a.py'}: its other hard links keep the old content"]
    assert (tmp_path / "other.py").read_text() == GPU
    assert os.getxattr(root / "a.py", "user.mine") == b"kept"
