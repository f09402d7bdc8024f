"""TODO comments in notebooks, other files and by the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers import cli, committed, one_line, read_tree, reported, run, write_tree

from migrator import migrate_paths
from migrator.config import Config
from migrator.diagnostics import Outcome
from migrator.pipeline import todo
from tests.engine.commented import STREAM, TO, book, cells, commented


@pytest.mark.parametrize("layout", [{"indent": 1}, {}, {"separators": (",", ":")}])
def test_in_the_cell_of_the_construct(layout: dict[str, Any]) -> None:
    text = book(
        "import torch",
        "%%time\ns = torch.cuda.Stream()",
        "!nvidia-smi -q",
        "%%bash\nnvidia-smi\n",
        "a = 1\n\nfor i in x:\n    %time s = torch.cuda.Stream()\n    !nvidia-smi \\\n      -q\n",
        **layout,
    )
    made = commented(text, "a.ipynb")
    found = [cell.replace(STREAM, "TODO") for cell in cells(made)][1:]
    smi = "# TPU-TODO[CMD001]: asks NVIDIA's driver; `tpu-info` shows what a TPU does"
    assert found == [
        "%%time\n# TODO\ns = torch.cuda.Stream()",
        f"{smi}\n!nvidia-smi -q",
        "%%bash\ntpu-info\n",
        "a = 1\n\nfor i in x:\n    # TODO\n    %time s = torch.cuda.Stream()\n"
        f"    {smi}\n    !nvidia-smi \\\n      -q\n",
    ]


def test_comments_alone_ask_for_no_tpu_and_a_cell_may_be_one_string() -> None:
    text = book("import torch\n", 's = torch.cuda.Stream("</a>")\nprint("\u00e9 \\n")')
    one = json.loads(text)
    for cell in one["cells"]:
        cell["source"] = "".join(cell["source"])
    for layout in (text, json.dumps(one).replace("/a", "\\/a")):
        plain = run(layout, path="a.ipynb", select=("CUD",), entry=False)
        assert not plain.changed and reported(plain)
        made = commented(layout, "a.ipynb", select=("CUD",))
        assert json.loads(made)["metadata"]["accelerator"] == "GPU"
        assert "TPU-TODO" in made


# ---- other files -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "before", "after"),
    [
        ("run.sh", "#!/bin/sh\nnvidia-smi -q\n", "#!/bin/sh\n@\nnvidia-smi -q\n"),
        ("run.sh", "#SBATCH --gres=gpu:1\necho\n", "@\n#SBATCH --gres=gpu:1\necho\n"),
        ("run.sh", "  nvidia-smi \\\n  -q\n", "  @\n  nvidia-smi \\\n  -q\n"),
        ("run.sh", 'x="$(dirname "$0")"\nnvidia-smi -q', 'x="$(dirname "$0")"\n@\nnvidia-smi -q'),
        ("run.sh", "cat > a <<EOF\nnvidia-smi -q\nEOF\n", ""),
        ("run.sh", "cat <<< a\r\nnvidia-smi -q\r\n", "cat <<< a\r\n@\r\nnvidia-smi -q\r\n"),
        ("run.sh", "sh -c '\nnvidia-smi -q\n'\n", ""),
        ("run.sh", 'x="\n\'"\nnvidia-smi -q\n', 'x="\n\'"\n@\nnvidia-smi -q\n'),
        ("run.sh", "# it's\nnvidia-smi -q\n", "# it's\n@\nnvidia-smi -q\n"),
        ("run.sh", 'x="$(echo "it\'s")"\nnvidia-smi -q\n', ""),
        ("Dockerfile", "# syntax=x\nFROM nvidia/cuda\n", "# syntax=x\n@\nFROM nvidia/cuda\n"),
        ("requirements.txt", "torch==2.9.0\nxformers\n", None),
        ("c.yaml", "a:\n  - gpus: 4\n", "a:\n  @\n  - gpus: 4\n"),
        ("c.yaml", "a: |\n\n  gpus: 4\n", ""),
        ("c.yaml", "a:\n  b: >-\n   x\n  gpus: 4\n", "a:\n  b: >-\n   x\n  @\n  gpus: 4\n"),
        ("c.yaml", "a: 'x\n  y'\ngpus: 4\n", ""),
        ("c.json", '{"gpus": 4}\n', ""),
    ],
)  # fmt: skip
def test_lines(path: str, before: str, after: str | None) -> None:
    """Where `#` may be no comment, there is none."""
    result = run(before, path=path)
    assert reported(result)
    made = commented(before, path)
    messages = {d.code: d.message for d in result.diagnostics if d.outcome is Outcome.REPORTED}
    for code, message in messages.items():
        made = made.replace(f"# TPU-TODO[{code}]: {message}", "@")
    if after is None:
        assert made.endswith("@\nxformers\n")
    else:
        assert made == (after or before)


# ---- the command ---------------------------------------------------------------------------------

FILES = {
    "a.py": "import torch\ns = torch.cuda.Stream()\n",
    "old.py": "print 'x'\n# TPU-TODO[CUD003]: stays from before\nx = 1\n",
    "run.sh": "nvidia-smi -q\n",
    "n.ipynb": book("import torch\ns = torch.cuda.Stream()"),
}


def test_in_and_out_again(tmp_path: Path) -> None:
    root = committed(tmp_path, {**FILES, "old.py": "print 'x'\n"})
    assert cli(".", *TO, "--ignore", "SET", "--todo-comments", cwd=root).returncode == 0
    written = read_tree(root)
    assert sum(b"# TPU-TODO[" in data for data in written.values()) == 3
    run = cli(".", "--strip-todo", "--check", cwd=root)
    assert run.returncode == 1 and read_tree(root) == written
    diff = cli("a.py", "--strip-todo", "--diff", cwd=root).stdout.decode()
    assert f"-# {STREAM}" in diff
    run = cli(".", "--strip-todo", cwd=root)
    assert run.returncode == 0 and b"3 changed" in run.stdout
    assert read_tree(root) == {
        name: (content if name != "old.py" else "print 'x'\n").encode()
        for name, content in FILES.items()
    }


def test_strip_needs_no_target_and_no_sound_code(tmp_path: Path) -> None:
    write_tree(tmp_path, {"p/old.py": FILES["old.py"]})
    assert cli("p", "--strip-todo", "-o", "q", cwd=tmp_path).returncode == 0
    assert (tmp_path / "q" / "old.py").read_text() == "print 'x'\nx = 1\n"
    run = cli("-", "--strip-todo", "-q", cwd=tmp_path, stdin=FILES["old.py"].encode())
    assert run.returncode == 0 and run.stdout == b"print 'x'\nx = 1\n"
    both = cli("p", *TO, "--strip-todo", "--todo-comments", cwd=tmp_path)
    assert both.returncode == 2
    one_line(both.stderr, "--todo-comments", "--strip-todo")


def test_strip_guards_what_git_does_not_hold(tmp_path: Path) -> None:
    root = write_tree(tmp_path, {"old.py": FILES["old.py"]})
    run = cli(".", "--strip-todo", cwd=root)
    assert run.returncode == 2
    one_line(run.stderr, "old.py", "not under version control")


def test_in_the_configuration(tmp_path: Path) -> None:
    config = '[tool.tpu-migrate]\ntarget = "torchax"\ntodo-comments = true\n'
    root = write_tree(tmp_path, {"pyproject.toml": config, "a.py": FILES["a.py"]})
    assert cli("a.py", "--allow-dirty", cwd=root).returncode == 0
    assert STREAM in (root / "a.py").read_text()


def test_comments_make_no_gpu_project_of_what_is_around(tmp_path: Path) -> None:
    """Requirements stay where no code is migrated, with comments or without."""
    write_tree(tmp_path, {"a.py": FILES["a.py"], "requirements.txt": "torch==1.13\n"})
    for comments in (False, True):
        report = migrate_paths([tmp_path], config=Config(todo_comments=comments))
        assert [f.path.name for f in report.changed] == (["a.py"] if comments else [])


def test_what_the_comments_say_is_no_fact(tmp_path: Path) -> None:
    """A program that does not train does not train because of words in a comment."""
    source = (
        "import torch\nimport torch.distributed as dist\n\n\n@torch.no_grad()\ndef main():\n"
        "    dist.init_process_group('nccl')\n    rank = dist.get_rank()\n"
        "    x = torch.ones(2).cuda(rank)\n    s = torch.cuda.Stream()\n    print(x)\n\n\n"
        "if __name__ == '__main__':\n    main()\n"
    )
    comment = "    # TPU-TODO[CUD003]: no .backward() and no optim\n    s ="
    made = source.replace("    s =", comment)
    plain = migrate_paths([write_tree(tmp_path / "a", {"main.py": source})]).files[0].result
    other = migrate_paths([write_tree(tmp_path / "b", {"main.py": made})]).files[0].result
    assert plain.changed and other.source == plain.source.replace(b"    s =", comment.encode())


def test_in_a_file_that_a_cell_writes() -> None:
    text = book("%%writefile train.py\nimport torch\n\nif x:\n    s = torch.cuda.Stream()\n")
    made = commented(text, "a.ipynb")
    code = f"import torch\n\nif x:\n    # {STREAM}\n    s = torch.cuda.Stream()\n"
    assert cells(made) == [f"%%writefile train.py\n{code}"]
    assert todo.strip(Path("a.ipynb"), made.encode()) == text.encode()
