"""--diff-base: what a change has brought, in real repositories."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from helpers import cli, committed, git, write_tree

from migrator import migrate_paths
from tests.files.revisions import NEW, OLD, STREAM, append, commit, found, since

# ---- which lines count ---------------------------------------------------------------------------


def test_only_what_the_change_brought_counts(tmp_path: Path) -> None:
    root = committed(tmp_path, {"a.py": OLD, "b.py": OLD})
    assert since(root).check_code() == 0
    append(root / "a.py", "\n\ndef plain(x):\n    return x\n")
    report = since(root)
    assert report.check_code() == 0 and not report.changed
    append(root / "a.py", NEW + STREAM)
    report = since(root)
    assert found(report, root) == ["a.py:13:14 rewritten", "a.py:17:12 reported"]
    assert report.check_code() == 1
    assert [f.path.name for f in report.changed] == ["a.py"]


def test_a_construct_counts_where_any_of_its_lines_is_new(tmp_path: Path) -> None:
    call = "import torch\n\nx = torch.ones(\n    {},\n    device='cuda',\n)\n"
    root = committed(tmp_path, {"a.py": call.format(2) + "print(x)\n"})
    write_tree(root, {"a.py": call.format(3) + "print(x)\n"})
    assert since(root).check_code() == 0  # the device is on another line
    write_tree(root, {"a.py": call.format(2).replace("'cuda'", "'cuda:0'") + "print(x)\n"})
    assert found(since(root), root) == ["a.py:5:12 rewritten"]


def test_staged_committed_and_untracked_changes_count(tmp_path: Path) -> None:
    root = committed(tmp_path, {"a.py": OLD, "b.py": OLD, "c.py": OLD, ".gitignore": "gen.py\n"})
    base = git(root, "rev-parse", "HEAD").strip()
    append(root / "a.py", NEW)
    commit(root)
    append(root / "b.py", NEW)
    git(root, "add", "b.py")
    append(root / "c.py", NEW)
    write_tree(root, {"new/d.py": OLD, "gen.py": OLD})
    assert found(since(root, base), root) == [
        "a.py:9:14 rewritten", "b.py:9:14 rewritten", "c.py:9:14 rewritten",
        "new/d.py:5:14 rewritten",
    ]  # fmt: skip
    assert found(since(root, base, "c.py"), root) == ["c.py:9:14 rewritten"]


def test_what_the_base_has_got_meanwhile_is_no_change(tmp_path: Path) -> None:
    root = committed(tmp_path, {"a.py": OLD})
    git(root, "branch", "-M", "main")
    git(root, "checkout", "-qb", "feature")
    append(root / "a.py", NEW)
    commit(root)
    git(root, "checkout", "-q", "main")
    write_tree(root, {"a.py": OLD.replace("x.cuda()", "x.float()")})
    commit(root)
    git(root, "checkout", "-q", "feature")
    assert found(since(root, "main"), root) == ["a.py:9:14 rewritten"]


def test_renames_and_deleted_files(tmp_path: Path) -> None:
    body = OLD + "".join(f"\n\ndef f{n}():\n    return {n}\n" for n in range(20))
    root = committed(tmp_path, {"a.py": body, "gone.py": OLD})
    git(root, "mv", "a.py", "moved to.py")
    git(root, "rm", "-q", "gone.py")
    assert since(root).check_code() == 0
    append(root / "moved to.py", NEW)
    assert len(found(since(root), root)) == 1


@pytest.mark.parametrize("name", ["a b.py", "ä/größe.py", "a\nb.py", "a\tb.py", '"q".py', "[x].py"])
def test_any_name(tmp_path: Path, name: str) -> None:
    root = committed(tmp_path, {name: OLD, "x.py": OLD})
    append(root / name, NEW)
    assert found(since(root), root) == [f"{name}:9:14 rewritten"]


def test_line_ends(tmp_path: Path) -> None:
    windows = OLD.replace("\n", "\r\n")
    root = committed(tmp_path, {"a.py": windows, "b.py": OLD})
    append(root / "a.py", NEW.replace("\n", "\r\n"))
    assert found(since(root), root) == ["a.py:9:14 rewritten"]
    write_tree(root, {"a.py": windows, "b.py": windows})
    git(root, "config", "core.autocrlf", "true")  # git takes them for the same
    assert since(root).check_code() == 0


def test_attributes_and_configuration_of_git_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = committed(tmp_path, {"a.py": OLD, ".gitattributes": "*.py binary diff=odd\n"})
    for key, value in {
        "diff.odd.textconv": "false", "diff.external": "false", "diff.noprefix": "true",
        "color.ui": "always", "diff.context": "9", "diff.renames": "false",
    }.items():  # fmt: skip
        git(root, "config", key, value)
    monkeypatch.setenv("GIT_DIFF_OPTS", "-u9")
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", "false")
    append(root / "a.py", NEW)
    assert found(since(root), root) == ["a.py:9:14 rewritten"]


def test_an_error_counts_in_a_file_that_is_touched(tmp_path: Path) -> None:
    root = committed(tmp_path, {"a.py": "print 'cuda'\n", "b.py": "print 'cuda'\n"})
    assert since(root).check_code() == 0
    append(root / "a.py", "x = 1\n")
    assert since(root).check_code() == 2


def test_a_command_over_several_lines(tmp_path: Path) -> None:
    script = "set -e\nsrun \\\n  --gres=gpu:{} \\\n  python train.py\n"
    root = committed(tmp_path, {"run.sh": script.format(1), "train.py": OLD})
    assert since(root).check_code() == 0
    write_tree(root, {"run.sh": script.format(2)})
    assert found(since(root), root) == ["run.sh:2:1 reported"]


def test_requirements_count_where_the_project_has_gpu_code(tmp_path: Path) -> None:
    root = committed(tmp_path, {"requirements.txt": "numpy\n", "a.py": OLD})
    append(root / "requirements.txt", "torch==2.1\n")
    assert found(since(root), root) == ["requirements.txt:2:1 rewritten"]
    write_tree(root, {"a.py": "x = 1\n"})
    assert since(root).check_code() == 0


# ---- facts and companions ------------------------------------------------------------------------

SCRIPT = (
    "import torch\nfrom helper import pick\n\n\ndef main():\n    x = torch.ones(2).to(pick())\n"
    "    print(x)\n\n\nif __name__ == '__main__':\n    main()\n"
)
HELPER = "import torch\n\n\ndef pick():\n    return torch.device('cuda')\n"


def test_facts_come_from_files_that_did_not_change(tmp_path: Path) -> None:
    text = "import torch\nfrom helper import pick\n\ndevice = pick()\n"
    root = committed(tmp_path, {"helper.py": HELPER, "use.py": text})
    append(root / "use.py", "if device.type == 'cuda':\n    print(1)\n")
    whole = found(migrate_paths([root / "use.py"]), root)
    assert found(since(root), root) == [each for each in whole if each.startswith("use.py")] != []


def test_a_runtime_that_is_missing_counts_with_its_script(tmp_path: Path) -> None:
    root = committed(tmp_path, {"helper.py": HELPER, "main.py": SCRIPT})
    append(root / "main.py", "# the end\n")
    report = since(root)
    assert report.check_code() == 0 and not report.companions
    migrate_paths([root], write=True, allow_dirty=True)
    commit(root)
    append(root / "main.py", "# really\n")
    assert since(root).check_code() == 0
    shutil.rmtree(root / "vendor")
    assert since(root).companions and since(root).check_code() == 1


def test_the_set_up_counts_where_it_would_be_put_in(tmp_path: Path) -> None:
    clean = "import os\n\nif __name__ == '__main__':\n    print(os.name)\n"
    root = committed(tmp_path, {"helper.py": HELPER, "main.py": clean})
    using = clean.replace("import os\n", "import os\nimport helper\n")
    write_tree(root, {"main.py": using.replace("(os.name)", "(os.name, helper.pick())")})
    report = since(root)
    assert [f.path.name for f in report.changed] == ["main.py"]
    commit(root)
    append(root / "main.py", "    print(helper.pick)\n")
    assert since(root).check_code() == 0


def diff_since_head(root: Path) -> bytes:
    return cli(".", "--target", "torchax", "--diff", "--diff-base=HEAD", cwd=root).stdout


@pytest.mark.parametrize("end", ["\n", "\r\n", ""])
def test_a_diff_has_the_edits_of_the_change_alone(tmp_path: Path, end: str) -> None:
    def ended(text: str) -> bytes:
        return (text.replace("\n", "\r\n") if end == "\r\n" else text.rstrip("\n") + end).encode()

    root = committed(tmp_path, {"a.py": OLD, ".gitattributes": "* -text\n"})
    write_tree(root, {"a.py": ended(OLD + NEW)})
    if end == "\r\n":
        write_tree(root, {"a.py": ended(OLD)})
        commit(root)
        write_tree(root, {"a.py": ended(OLD + NEW)})
    git(root, "apply", stdin=diff_since_head(root))
    assert (root / "a.py").read_bytes() == ended(OLD + NEW.replace(".cuda()", '.to("jax")'))


def test_a_diff_brings_the_imports_that_its_edits_need(tmp_path: Path) -> None:
    root = committed(tmp_path, {"a.py": OLD})
    append(root / "a.py", "\n\ndef wait():\n    torch.cuda.synchronize()")
    git(root, "apply", stdin=diff_since_head(root))
    text = (root / "a.py").read_text()
    assert "import torch\nimport tpu_runtime\n" in text and "x.cuda()" in text
    assert text.endswith("    tpu_runtime.synchronize()")


# ---- notebooks -----------------------------------------------------------------------------------


def book(cells: Sequence[str], indent: int = 1, count: int = 0) -> str:
    made = [
        {"cell_type": "code", "execution_count": count, "id": f"c{n}", "metadata": {},
         "outputs": [{"name": "stdout", "output_type": "stream", "text": [f"{count}\n"]}],
         "source": cell.splitlines(keepends=True)}
        for n, cell in enumerate(cells)
    ]  # fmt: skip
    return json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5},
                      indent=indent)  # fmt: skip


FIRST = "import torch\nx = torch.ones(2).cuda()\n"


def test_cells_are_compared_not_their_json(tmp_path: Path) -> None:
    root = committed(tmp_path, {"n.ipynb": book([FIRST, "y = x.cuda()\nz = 1\n"])})
    again = book([FIRST, "y = x.cuda()\nz = 1\n"], indent=4, count=7)
    write_tree(root, {"n.ipynb": again})
    assert since(root).check_code() == 0  # run again, and written by another program
    cells = [FIRST, "w = x.cuda()\n", "y = x.cuda()\nz = 2\nv = x.cuda()"]
    write_tree(root, {"n.ipynb": book(cells)})
    assert found(since(root), root) == [
        "n.ipynb:cell 2:1:7 rewritten", "n.ipynb:cell 3:3:7 rewritten",
    ]  # fmt: skip


def test_a_diff_has_the_edits_of_new_cells_and_the_set_up(tmp_path: Path) -> None:
    cells = ["import torch\n", "x = torch.ones(2).cuda()\n", "y = 1\n"]
    root = committed(tmp_path, {"n.ipynb": book(cells)})
    write_tree(root, {"n.ipynb": book([*cells[:2], "y = 1\nz = x.cuda()\n"])})
    git(root, "apply", stdin=diff_since_head(root))
    first, *others = json.loads((root / "n.ipynb").read_text())["cells"]
    assert "tpu_runtime.setup()" in "".join(first["source"])
    assert ["".join(cell["source"]) for cell in others] == [cells[1], 'y = 1\nz = x.to("jax")\n']


def test_a_notebook_that_was_none_is_new(tmp_path: Path) -> None:
    root = committed(tmp_path, {"n.ipynb": "{}"})
    write_tree(root, {"n.ipynb": book([FIRST])})
    assert found(since(root), root) == ["n.ipynb:cell 1:2:19 rewritten"]
