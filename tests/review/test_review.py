"""`tpu-migrate review`: a change is explained line by line, in real repositories."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers import (
    REPOSITORY,
    TARGETS,
    cli,
    committed,
    git,
    one_line,
    read_tree,
    wheel_for,
    write_tree,
)
from markdown_it import MarkdownIt

LIBRARY = (
    "import torch\n\n\ndef f(x):\n    y = x.cuda()\n    return y\n\n\n"
    "def g(x):\n    return x.cuda()\n"
)
SCRIPT = (
    "import torch\nfrom lib import f\n\n\ndef main():\n    x = torch.ones(2).cuda()\n"
    "    torch.cuda.synchronize()\n    print(f(x))\n\n\n"
    'if __name__ == "__main__":\n    main()\n'
)


def migrated(root: Path, files: dict[str, str], *options: str, target: str = "torchax") -> Path:
    committed(root, files)
    run = cli(".", "--target", target, *options, cwd=root)
    assert run.returncode == 0, run.stderr
    return root


def reviewed(root: Path, revisions: str = "HEAD", *options: str, code: int = 0) -> dict[str, Any]:
    run = cli("review", revisions, *options, "--format", "json", cwd=root)
    assert run.returncode == code, (run.stdout, run.stderr)
    found: dict[str, Any] = json.loads(run.stdout)
    return found


def changes(document: dict[str, Any], path: str) -> list[tuple[str, str, list[str]]]:
    """Kind, codes and new lines of what changed in a file."""
    [file] = [f for f in document["files"] if f["path"] == path]
    return [
        (c["kind"], ",".join(c.get("codes", [])) or c.get("label", ""), c["after"])
        for c in file["changes"]
    ]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("options", [(), ("--portable",), ("--unsafe",), ("--todo-comments",)])
def test_what_the_tool_made_is_explained(
    tmp_path: Path, target: str, options: tuple[str, ...]
) -> None:
    files = {
        "main.py": SCRIPT + "s = torch.cuda.Stream()\nh = torch.ones(2).half()\n",
        "lib.py": LIBRARY,
        "requirements.txt": "torch\n",
        "run.sh": "python main.py --device cuda\n",
    }
    root = migrated(tmp_path, files, *options, target=target)
    git(root, "add", "-A")
    git(root, "commit", "-qm", "migrated")
    found = reviewed(root, "HEAD~1..")
    assert found["target"] == (f"{target} --portable" if "--portable" in options else target)
    assert found["summary"].keys() == {"different", "missing", "by hand", "made"}
    assert found["summary"]["made"] > 4
    others = {"requirements.txt"} if "--portable" in options else {"requirements.txt", "run.sh"}
    wheel = wheel_for(target, portable="--portable" in options)
    assert {f["path"] for f in found["files"]} == {"main.py", "lib.py", wheel} | others
    if "--unsafe" in options:
        [main] = [f for f in found["files"] if f["path"] == "main.py"]
        assert main["flags"] == ["--unsafe"]


def test_the_apps_are_explained(tmp_path: Path) -> None:
    files = {
        path.relative_to(REPOSITORY).as_posix(): path.read_text()
        for app in ("video_transformer", "mshnet")
        for path in (REPOSITORY / "reference_apps" / app).glob("*.py")
    }
    for target in TARGETS:
        root = migrated(tmp_path / target, files, target=target)
        assert reviewed(root)["target"] == target


def test_each_kind_of_change(tmp_path: Path) -> None:
    root = migrated(tmp_path, {"main.py": SCRIPT, "lib.py": LIBRARY})
    main, lib = (root / "main.py").read_text(), (root / "lib.py").read_text()
    (root / "main.py").write_text(main.replace('.to("jax")', '.to("xla:0")').replace("2", "3"))
    (root / "lib.py").write_text(
        "import os\n" + lib.replace('return x.to("jax")', "return x.cuda()")
    )
    found = reviewed(root, code=1)
    kinds = {(kind, name): lines for kind, name, lines in changes(found, "main.py")}
    assert '    x = torch.ones(3).to("xla:0")' in kinds["different", "MOV001,CUD001"]
    assert [c[:2] for c in changes(found, "lib.py")] == [
        ("by hand", ""), ("made", "MOV001"), ("missing", "MOV001")
    ]  # fmt: skip
    assert found["files"][0]["path"] == "main.py"  # what differs comes first
    text = cli("review", "HEAD", cwd=root).stdout.decode()
    assert text.index("Different from") < text.index("Missing") < text.index("By hand")
    assert '    +    x = torch.ones(3).to("xla:0")\n' in text and "\n    the tool makes:\n" in text
    assert "lib.py:1\n    +import os\n" in text
    assert "lib.py:11  MOV001  x.cuda() becomes x.to(device)\n    -    return x.cuda()" in text


def test_an_edit_beside_one_of_the_tools_is_told_apart(tmp_path: Path) -> None:
    root = migrated(tmp_path, {"lib.py": LIBRARY})
    lib = (root / "lib.py").read_text()
    (root / "lib.py").write_text(
        lib.replace("    return y\n", "    return y + 1\n").replace("def f", "# f\ndef f")
    )
    kinds = [c[:2] for c in changes(reviewed(root, code=1), "lib.py")]
    assert kinds == [("by hand", ""), ("made", "MOV001"), ("by hand", ""), ("made", "MOV001")]


def test_the_facts_of_other_files_are_those_of_the_revision(tmp_path: Path) -> None:
    """What `lib` returns says what becomes of the caller; it is read where it was."""
    caller = "import torch\nfrom lib import make\n\nx = make()\nprint(x.is_cuda)\n"
    lib = "import torch\n\n\ndef make():\n    return torch.ones(2).cuda()\n"
    root = migrated(tmp_path, {"caller.py": caller, "lib.py": lib})
    git(root, "add", "-A")
    git(root, "commit", "-qm", "migrated")
    (root / "lib.py").write_text("def make():\n    return [1]\n")
    git(root, "commit", "-qam", "another lib")
    before = read_tree(root, runtime=True)
    reviewed(root, "HEAD~2..HEAD~1")
    assert read_tree(root, runtime=True) == before and git(root, "status", "-s") == ""


def test_the_working_tree_with_what_git_does_not_have_yet(tmp_path: Path) -> None:
    root = migrated(tmp_path, {"main.py": SCRIPT, "lib.py": LIBRARY})
    write_tree(root, {"more.py": "x = 1\n", "notes.md": "n\n"})
    found = reviewed(root, code=1)
    [more] = [f for f in found["files"] if f["path"] == "more.py"]
    assert more["status"] == "added" and found["others"] == ["notes.md"]
    assert changes(found, wheel_for("torchax")) == [("made", "runtime", [])]
    reviewed(root, "HEAD", "main.py", "lib.py", "vendor")  # only these


def test_a_wheel_that_was_changed_or_left_out(tmp_path: Path) -> None:
    """Nobody can read it in a pull request."""
    root = migrated(tmp_path, {"main.py": SCRIPT, "lib.py": LIBRARY})
    wheel = root / wheel_for("torchax")
    wheel.write_bytes(wheel.read_bytes().replace(b"import", b"Import", 1))
    found = reviewed(root, code=1)
    assert changes(found, wheel_for("torchax")) == [("different", "runtime", [])]
    wheel.unlink()
    found = reviewed(root, code=1)
    assert changes(found, "tpu_runtime/") == [("missing", "runtime", [])]


def test_a_copy_that_was_changed_or_left_out(tmp_path: Path) -> None:
    root = migrated(tmp_path, {"main.py": SCRIPT, "lib.py": LIBRARY}, "--runtime", "copy")
    device = root / "tpu_runtime" / "device.py"
    device.write_text(device.read_text() + "# mine\n")
    found = reviewed(root, code=1)
    assert changes(found, "tpu_runtime/") == [("different", "runtime: device.py", [])]
    shutil.rmtree(root / "tpu_runtime")
    found = reviewed(root, code=1)
    assert changes(found, "tpu_runtime/") == [("missing", "runtime", [])]


def test_a_renamed_file_is_compared_with_what_it_was(tmp_path: Path) -> None:
    root = migrated(tmp_path, {"lib.py": LIBRARY * 3})
    git(root, "mv", "lib.py", "tools.py")
    [file] = reviewed(root)["files"]
    assert (file["path"], file["old_path"], file["status"]) == ("tools.py", "lib.py", "renamed")


def test_since_two_branches_parted(tmp_path: Path) -> None:
    root = committed(tmp_path, {"lib.py": LIBRARY, "other.py": "x = 1\n"})
    git(root, "branch", "-M", "main")
    git(root, "checkout", "-qb", "change")
    cli("lib.py", "--target", "torch_xla", cwd=root)
    git(root, "commit", "-qam", "migrated")
    git(root, "checkout", "-q", "main")
    (root / "other.py").write_text("x = 2\n")
    git(root, "commit", "-qam", "more")
    found = reviewed(root, "main...change")
    assert [f["path"] for f in found["files"]] == ["lib.py"] and found["target"] == "torch_xla"
    reviewed(root, "main..change", code=1)  # this takes back what main has since


def notebook(*cells: str, outputs: int = 0) -> str:
    made = [{"cell_type": "code", "execution_count": outputs, "id": f"c{n}", "metadata": {},
             "outputs": [], "source": cell.splitlines(keepends=True)}
            for n, cell in enumerate(cells)]  # fmt: skip
    return json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1)


def test_cells_of_a_notebook(tmp_path: Path) -> None:
    cells = ["import torch\n", "x = torch.ones(2).cuda()\ny = 1\n"]
    root = migrated(tmp_path, {"n.ipynb": notebook(*cells)})
    text = (root / "n.ipynb").read_text()
    (root / "n.ipynb").write_text(text.replace("y = 1", "y = 2").replace(": 0,", ": 7,"))
    found = reviewed(root, code=1)
    [file] = [f for f in found["files"] if f["path"] == "n.ipynb"]
    told = {(c["kind"], c["cell"], c["line"]) for c in file["changes"]}
    assert ("by hand", 2, 2) in told and ("made", 2, 1) in told
    write_tree(root, {"n.ipynb": text.replace(": 0,", ": 7,")})
    [file] = [f for f in reviewed(root)["files"] if f["path"] == "n.ipynb"]
    assert {c["kind"] for c in file["changes"]} == {"made"}


def test_a_notebook_with_other_cells_is_compared_by_its_file(tmp_path: Path) -> None:
    root = migrated(tmp_path, {"n.ipynb": notebook("import torch\nx = y.cuda()\n", "z = x\n")})
    book = json.loads((root / "n.ipynb").read_text())
    book["cells"].insert(1, {**book["cells"][1], "id": "new", "source": ["print(x)\n"]})
    (root / "n.ipynb").write_text(json.dumps(book, indent=1))
    [file] = [f for f in reviewed(root, code=1)["files"] if f["path"] == "n.ipynb"]
    by_hand = [line for c in file["changes"] if c["kind"] == "by hand" for line in c["after"]]
    assert any("print(x)" in line for line in by_hand)
    made = [line for c in file["changes"] if c["kind"] == "made" for line in c["after"]]
    assert any("jax" in line for line in made)


def test_a_review_as_markdown(tmp_path: Path) -> None:
    root = migrated(tmp_path, {"main.py": SCRIPT, "lib.py": LIBRARY})
    (root / "lib.py").write_text(LIBRARY + "```\n</details><script>x</script> @you\n```\n")
    run = cli("review", "HEAD", "--format", "markdown", cwd=root)
    assert run.returncode == 1
    rendered = MarkdownIt("commonmark", {"html": True}).enable("table").render(run.stdout.decode())
    assert "<script" not in rendered
    assert rendered.count("<details>") == rendered.count("</details>") == 1
    assert "2 changes to look at" in rendered
    assert "@you" not in re.sub(r"<(code|pre)\b.*?</\1>", "", rendered, flags=re.S)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nope"], ["no revision 'nope'"]),
        (["nope..HEAD"], ["no revision 'nope'"]),
        (["--", "-x"], ["no revision '-x'"]),
    ],
)
def test_wrong_use_is_one_line(tmp_path: Path, arguments: list[str], words: list[str]) -> None:
    root = committed(tmp_path, {"a.py": "x = 1\n"})
    run = cli("review", *arguments, cwd=root)
    assert run.returncode == 2 and not run.stdout
    one_line(run.stderr, *words)


def test_a_change_that_names_no_target(tmp_path: Path) -> None:
    root = committed(tmp_path, {"a.py": "x = 1\n"})
    (root / "a.py").write_text("x = 2\n")
    one_line(
        cli("review", "HEAD", cwd=root).stderr,
        "--target keras_jax or tf_tpu or torch_tpu or torch_xla or torchax",
    )
    assert changes(reviewed(root, "HEAD", "--target", "torchax", code=1), "a.py") == [
        ("by hand", "", ["x = 2"])
    ]
    one_line(cli("review", "HEAD", cwd=tmp_path.parent).stderr, "not under version control")


def test_an_old_text_that_can_not_be_read_is_an_error(tmp_path: Path) -> None:
    root = committed(tmp_path, {"a.py": "print x.cuda()\n"})
    (root / "a.py").write_text("print(x.to('jax'))\n")
    found = reviewed(root, code=2)
    assert "a.py: not valid Python" in found["errors"][0]
