"""A copy that is written again: what the tool wrote is renewed, all else stays."""

from __future__ import annotations

from pathlib import Path
from subprocess import CompletedProcess

from helpers import cli, committed, one_line, read_tree, wheel_for, write_tree

from tests.files.trees import GPU

MAIN = '\n\nif __name__ == "__main__":\n    print(f(torch.ones(2)))\n'
TO = ("--target", "torchax")


def copied(root: Path, *more: str) -> CompletedProcess[bytes]:
    return cli("src", *(more or TO), "-o", "to", cwd=root)


def test_a_copy_is_renewed_and_other_files_stay(tmp_path: Path) -> None:
    root = committed(tmp_path, {"src/a.py": GPU + MAIN, "src/b/c.py": GPU, "src/data.txt": "1"})
    assert copied(root).returncode == 0
    write_tree(root, {"to/run.log": "done", "to/b/weights.pt": "w"})
    (root / "src/b/c.py").unlink()
    write_tree(root, {"src/data.txt": "2", "src/new.py": GPU})
    run = copied(root, "--target", "torch_xla")
    assert run.returncode == 0, run.stderr
    found = read_tree(root / "to")
    assert found.keys() == {"a.py", "new.py", "data.txt", "run.log", "b/weights.pt"}
    assert b'"xla"' in found["a.py"] and found["data.txt"] == b"2"
    wheel = Path(wheel_for("torch_xla")).name
    assert [path.name for path in (root / "to/vendor").iterdir()] == [wheel]


def test_what_was_edited_in_a_copy_is_never_replaced(tmp_path: Path) -> None:
    root = committed(tmp_path, {"src/a.py": GPU})
    assert copied(root).returncode == 0
    edited = b"# mine\n" + (root / "to/a.py").read_bytes()
    (root / "to/a.py").write_bytes(edited)
    run = copied(root)
    assert run.returncode == 2 and (root / "to/a.py").read_bytes() == edited
    one_line(run.stderr, "-o to: edited since the last run: a.py; move them away")


def test_a_file_of_the_users_own_is_never_overwritten(tmp_path: Path) -> None:
    root = committed(tmp_path, {"src/a.py": GPU})
    assert copied(root).returncode == 0
    write_tree(root, {"to/b.py": "mine", "src/b.py": GPU})
    before = read_tree(root / "to")
    run = copied(root)
    assert run.returncode == 2 and read_tree(root / "to") == before
    one_line(run.stderr, "b.py: not from this tool, and would be overwritten; move it away")
