"""The workspace: nothing is lost, whatever is written and whatever goes wrong."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest
from helpers import cli, committed, git, read_tree, write_tree

from migrator import migrate_paths
from migrator.config import Config, UsageError
from migrator.files import workspace
from migrator.files.workspace import check_output, copy, unsafe_to_write, write

GPU = "def f(x):\n    return x.cuda()\n"
TPU = 'def f(x):\n    return x.to("jax")\n'


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TPU_MIGRATE_CACHE", str(tmp_path_factory.mktemp("cache")))


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


def test_dirty_files_that_do_not_change_are_no_obstacle(tmp_path: Path) -> None:
    root = committed(tmp_path, {"a.py": GPU, "b.py": "x = 1\n"})
    (root / "b.py").write_text("x = 2\n")
    (root / "notes.txt").write_text("mine\n")
    migrate_paths([root], write=True)
    assert (root / "a.py").read_text() == TPU


def test_our_own_last_output_counts_as_clean(tmp_path: Path) -> None:
    root = committed(tmp_path, {"a.py": GPU})
    migrate_paths([root], write=True)
    text = migrate_paths([root], "torch_xla", write=True)
    assert not text.changed
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
    assert unsafe_to_write([tmp_path / "new.py"]) == []


def test_companions_that_the_user_edited_are_refused(tmp_path: Path) -> None:
    root = committed(tmp_path, {"a.py": "import torch\ntorch.cuda.seed()\n"})
    migrate_paths([root], write=True)
    git(root, "add", "-A")
    git(root, "commit", "-qm", "migrated")
    module = root / "tpu_runtime" / "seeds.py"
    module.write_text(module.read_text() + "# mine\n")
    (root / "b.py").write_text("import torch\ntorch.cuda.seed()\n")
    git(root, "add", "b.py")
    with pytest.raises(UsageError, match=r"seeds\.py"):
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


@pytest.mark.parametrize("call", ["os.replace", "os.fdopen", "Path.chmod"])
def test_an_interrupted_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    path = tmp_path / "a.py"
    path.write_text("old")

    def interrupted(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    owner, _, name = call.partition(".")
    monkeypatch.setattr({"os": os, "Path": Path}[owner], name, interrupted)
    if call == "os.replace":
        monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write(path, b"new")
    monkeypatch.undo()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]  # and no temporary file


def test_one_file_that_can_not_be_written_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = committed(tmp_path, {"a.py": GPU, "b.py": GPU, "c.py": GPU})
    really = workspace.write

    def full(path: Path, content: bytes) -> None:
        if path.name == "b.py":
            raise OSError(28, "No space left on device")
        really(path, content)

    monkeypatch.setattr(workspace, "write", full)
    report = migrate_paths([root], write=True)
    assert report.exit_code == 2
    assert len(report.errors) == 1 and "b.py" in report.errors[0]
    assert [(root / n).read_text() for n in ("a.py", "b.py", "c.py")] == [TPU, GPU, TPU]


def test_unchanged_files_are_not_written(tmp_path: Path) -> None:
    root = committed(tmp_path, {"a.py": GPU, "b.py": "x = 1\n", "c.py": "loss = y.cpu()\n"})
    times = {name: (root / name).stat().st_mtime_ns for name in ("b.py", "c.py")}
    migrate_paths([root], write=True)
    assert times == {name: (root / name).stat().st_mtime_ns for name in times}


def test_a_user_without_a_home_is_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("TPU_MIGRATE_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", none)
    monkeypatch.delenv("LOCALAPPDATA", raising=False)
    assert workspace.cache_folder().is_absolute()


def test_a_cache_that_can_not_be_written_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").write_text("a file")
    monkeypatch.setenv("TPU_MIGRATE_CACHE", str(tmp_path / "cache"))
    root = committed(tmp_path / "p", {"a.py": GPU})
    migrate_paths([root], write=True)
    assert (root / "a.py").read_text() == TPU


# ---- -o ------------------------------------------------------------------------------------------


def test_the_copy_is_whole_and_the_source_untouched(tmp_path: Path) -> None:
    root = committed(tmp_path / "in", {"a.py": GPU, "data/x.bin": b"\0\1", "run.sh": "#!/bin/sh\n"})
    write_tree(root, {"untracked.py": GPU, "untracked.txt": "t"})
    (root / "run.sh").chmod(0o755)
    (root / "link.py").symlink_to("a.py")
    (root / "empty").mkdir()
    before = read_tree(root, runtime=True)
    migrate_paths([root], output=tmp_path / "out")
    out = tmp_path / "out"
    assert read_tree(root, runtime=True) == before
    new = TPU.encode()
    assert read_tree(out) == before | {"a.py": new, "untracked.py": new, "link.py": new}
    assert (out / "link.py").is_symlink() and not (out / "a.py").is_symlink()
    assert not (out / ".git").exists() and (out / "empty").is_dir()
    assert stat.S_IMODE((out / "run.sh").stat().st_mode) == 0o755


def test_a_copy_of_one_file(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a.py": "import torch\ntorch.cuda.seed()\n", "b.py": GPU})
    migrate_paths([tmp_path / "a.py"], output=tmp_path / "out")
    assert sorted(read_tree(tmp_path / "out")) == ["a.py"]
    assert (tmp_path / "out" / "tpu_runtime" / "__init__.py").is_file()
    assert not (tmp_path / "tpu_runtime").exists()


@pytest.mark.parametrize("place", [".", "inner", "deep/er", "full", "file", ".."])
def test_an_output_that_mixes_with_something_is_refused(tmp_path: Path, place: str) -> None:
    root = write_tree(tmp_path / "p", {"a.py": GPU})
    write_tree(tmp_path, {"full/x": "", "file": ""})
    output = tmp_path / place if place in ("full", "file") else root / place
    with pytest.raises(UsageError):
        check_output(root, output)
    with pytest.raises(UsageError):
        migrate_paths([root], output=output)
    assert read_tree(root) == {"a.py": GPU.encode()}


def test_an_output_inside_through_a_link_is_refused(tmp_path: Path) -> None:
    root = write_tree(tmp_path / "p", {"a.py": GPU})
    (tmp_path / "link").symlink_to(root)
    with pytest.raises(UsageError):
        check_output(root, tmp_path / "link" / "out")


def test_an_empty_folder_is_a_fine_output(tmp_path: Path) -> None:
    root = write_tree(tmp_path / "p", {"a.py": GPU})
    (tmp_path / "out").mkdir()
    migrate_paths([root], output=tmp_path / "out")
    assert read_tree(tmp_path / "out") == {"a.py": TPU.encode()}


def test_a_copy_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_tree(tmp_path / "p", {"a.py": GPU})

    def interrupted(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "copytree", interrupted)
    with pytest.raises(KeyboardInterrupt):
        copy(root, tmp_path / "out", {})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["p"]


def test_links_that_can_not_be_made_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tree(tmp_path, {"p/a.py": GPU})
    (tmp_path / "p/link.py").symlink_to("a.py")

    def refuse(*_: object, **__: object) -> None:
        raise OSError(1314, "A required privilege is not held by the client")  # as on Windows

    monkeypatch.setattr(os, "symlink", refuse)
    (problem,) = copy(tmp_path / "p", tmp_path / "q", {Path("a.py"): TPU.encode()})
    assert "link.py: not copied: " in problem and "privilege" in problem
    assert (tmp_path / "q/a.py").read_text() == TPU


def test_files_that_can_not_be_copied_are_named(tmp_path: Path) -> None:
    root = write_tree(tmp_path / "p", {"a.py": GPU})
    os.mkfifo(root / "pipe")
    (root / "dangling").symlink_to("nowhere")
    report = migrate_paths([root], output=tmp_path / "out")
    assert any("pipe" in error for error in report.errors)
    assert (tmp_path / "out" / "a.py").read_text() == TPU
    assert (tmp_path / "out" / "dangling").is_symlink()


def test_a_copy_that_can_not_be_written_is_one_line(tmp_path: Path) -> None:
    tree = write_tree(tmp_path, {"a.py": "import torch\nx = torch.ones(1).cuda()\n"})
    result = cli("a.py", "--target", "torchax", "-o", "a.py/x", cwd=tree)
    assert result.returncode == 2
    assert result.stderr.decode().startswith("tpu-migrate: -o a.py/x: can not be made: ")
    assert (tree / "a.py").is_file()
