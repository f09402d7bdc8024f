"""Comments above what is left to change by hand: where they stand, and that they leave no trace."""

from __future__ import annotations

import ast
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gpu_code import BLOCKS, EXPRESSIONS, IMPORTS, STATEMENTS
from helpers import TARGETS, cli, committed, one_line, read_tree, reported, run, write_tree
from tiers import thorough_but

from migrator import migrate_paths
from migrator.config import Config
from migrator.diagnostics import Outcome
from migrator.pipeline import todo
from migrator.pipeline.engine import migrate_file
from migrator.registry import registry
from migrator.rule import Example, Rule
from migrator.targets import targets

TO = ("--target", "torchax")
STREAM = (
    "TPU-TODO[CUD003]: streams have no counterpart; take them out, XLA overlaps the work itself"
)


def commented(source: str | bytes, path: str = "module.py", **options: Any) -> str:
    """What a file becomes with comments; they are gone without a trace when they are taken out."""
    plain = run(source, path=path, **options).source
    result = run(source, path=path, todo_comments=True, **options).source
    assert todo.strip(Path(path), result) == plain
    assert run(result, path=path, todo_comments=True, **options).source == result
    if path.endswith(".py"):
        assert ast.dump(ast.parse(result)) == ast.dump(ast.parse(plain))
    return result.decode("utf-8-sig", "replace")


def body(text: str) -> str:
    """Without the import above it, and with short comments."""
    return text.removeprefix("import torch\n").replace(STREAM, "TODO")


def check(before: str, after: str) -> None:
    assert body(commented(f"import torch\n{before}")) == after


# ---- where they stand ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("s = torch.cuda.Stream()\n", "# TODO\ns = torch.cuda.Stream()\n"),
        (
            "if a:\n    pass\nelif torch.cuda.Stream():\n    pass\n",
            "if a:\n    pass\n# TODO\nelif torch.cuda.Stream():\n    pass\n",
        ),
        (
            "if a:\n    b = 1\nelse: s = torch.cuda.Stream()\n",
            "if a:\n    b = 1\n# TODO\nelse: s = torch.cuda.Stream()\n",
        ),
        ("if a: s = torch.cuda.Stream()\n", "# TODO\nif a: s = torch.cuda.Stream()\n"),
        ("a = 1; s = torch.cuda.Stream()\n", "# TODO\na = 1; s = torch.cuda.Stream()\n"),
        (
            "a = 1 + \\\n  f(torch.cuda.Stream())\n",
            "# TODO\na = 1 + \\\n  f(torch.cuda.Stream())\n",
        ),
        ("\\\ns = torch.cuda.Stream()\n", "# TODO\n\\\ns = torch.cuda.Stream()\n"),
        (
            "f(\n    '''\n  x''', torch.cuda.Stream(),\n)\n",
            "# TODO\nf(\n    '''\n  x''', torch.cuda.Stream(),\n)\n",
        ),
        ("'''a\n'''; torch.cuda.Stream()\n", "# TODO\n'''a\n'''; torch.cuda.Stream()\n"),
        (
            "@one\n@two(torch.cuda.Stream())\ndef f():\n    pass\n",
            "# TODO\n@one\n@two(torch.cuda.Stream())\ndef f():\n    pass\n",
        ),
        (
            "@one\ndef f(s=torch.cuda.Stream()):\n    pass\n",
            "# TODO\n@one\ndef f(s=torch.cuda.Stream()):\n    pass\n",
        ),
        (
            "class A:\n\tdef f(self):\n\t\treturn torch.cuda.Stream()\n",
            "class A:\n\tdef f(self):\n\t\t# TODO\n\t\treturn torch.cuda.Stream()\n",
        ),
        (
            "try:\n    pass\nfinally:\n    # why\n    torch.cuda.Stream()  # what\n",
            "try:\n    pass\nfinally:\n    # why\n    # TODO\n    torch.cuda.Stream()  # what\n",
        ),
        ("s = torch.cuda.Stream()", "# TODO\ns = torch.cuda.Stream()"),
        ("\f\ns = torch.cuda.Stream()\n", "\f\n# TODO\ns = torch.cuda.Stream()\n"),
    ],
)
def test_above_the_statement(before: str, after: str) -> None:
    check(before, after)


def test_one_comment_for_each_reason_of_a_statement() -> None:
    text = commented(
        "import torch\nf(torch.cuda.Stream(), torch.cuda.Stream(), torch.cuda.CUDAGraph())\n"
    )
    assert [line.partition(":")[0] for line in text.splitlines()[1:-1]] == [
        "# TPU-TODO[CUD003]",
        "# TPU-TODO[CUD004]",
    ]


def test_an_exception_is_named_where_it_is_caught() -> None:
    source = "import torch\ntry:\n    f()\nexcept torch.cuda.CudaError:\n    pass\n"
    lines = commented(source).splitlines()
    assert lines[3].startswith("# TPU-TODO[CUD005]: ") and lines[4].startswith("except")


def test_line_ends_and_encodings_stay() -> None:
    text = "import torch\r\n\r\n\r\ndef f():\r\n    return torch.cuda.Stream()\r\n"
    made = run(text, todo_comments=True).source.decode()
    assert made.count("\r\n") == made.count("\n") == text.count("\n") + 1
    commented("\ufeff" + text)
    commented(text.replace("\r\n", "\r"))
    latin = (
        "# -*- coding: latin-1 -*-\nimport torch\n# \u00e9\nm = torch.nn.DataParallel('\u00e9')\n"
        "s = torch.cuda.Stream()\n"
    )
    assert "latin-1 -*-\nimport" in commented(latin.encode("latin-1"))
    # reasons hold an ellipsis or a dash at times: what ASCII has no letter for is a question mark
    assert "# TPU-TODO" in commented(latin.replace("\u00e9", "e").replace("latin-1", "ascii"))


def test_the_first_lines_of_a_file_stay_the_first() -> None:
    head = "#!/usr/bin/env python\n# -*- coding: utf-8 -*-\n'''About.'''\n"
    text = commented(f"{head}import apex\nimport torch\ns = torch.cuda.Stream()\n")
    assert text.startswith(f"{head}# TPU-TODO[LIB001]: ")
    assert ast.get_docstring(ast.parse(text)) == "About."


def test_lines_that_would_change_are_not_numbered() -> None:
    source = (
        "import torch\nmodel = torch.nn.DataParallel(net)\n"
        "loss = model(x).sum() / torch.cuda.device_count()\nloss.backward()\n"
    )
    plain = run(source)
    assert any("line 3" in d.message for d in plain.diagnostics)
    text = commented(source)
    assert "another line computes with the number of GPUs" in text and "line 3" not in text


# ---- what comes and goes ---------------------------------------------------------------------


def test_a_comment_goes_with_its_construct_and_changes_with_its_reason() -> None:
    made = commented("import torch\ns = torch.cuda.Stream()\ng = torch.cuda.CUDAGraph()\n")
    gone = made.replace("s = torch.cuda.Stream()\n", "s = None\n")
    again = run(gone, todo_comments=True).source.decode()
    assert STREAM not in again and "CUD004" in again
    old = made.replace("take them out", "leave them")
    assert run(old, todo_comments=True).source.decode() == made
    other = "import torch\ns = None\n"
    assert run(f"# {STREAM}\n{other}", todo_comments=True).source.decode() == other


def test_without_the_option_they_stay() -> None:
    made = commented("import torch\ns = torch.cuda.Stream()\n")
    assert run(made).source.decode() == made


def test_suppressed_constructs_get_none() -> None:
    source = (
        "import torch\ns = torch.cuda.Stream()  # tpu-migrate: ignore[CUD003]\n"
        "# tpu-migrate: off\ng = torch.cuda.CUDAGraph()\n# tpu-migrate: on\n"
        "t = torch.cuda.Stream()\n"
    )
    assert commented(source) == source.replace("t =", f"# {STREAM}\nt =")


def test_diagnostics_are_about_the_file_as_it_is() -> None:
    made = commented("import torch\ns = torch.cuda.Stream()\nt = torch.cuda.Stream()\n")
    assert [d.range.line for d in run(made, todo_comments=True).diagnostics] == [3, 5]


@pytest.mark.parametrize(
    "source",
    [
        "x = '''\n# TPU-TODO[CUD003]: text\n'''\n",
        "x = 1  # TPU-TODO[CUD003]: behind code\n",
        "# TPU-TODO: of a person\n# TODO[CUD003]: as well\n",
        "print('''# TPU-TODO[CUD003]: text\n''')\n",
    ],
)
def test_nothing_else_is_taken_out(source: str) -> None:
    assert todo.strip(Path("a.py"), source.encode()) == source.encode()


@pytest.mark.parametrize(
    "rest", ["print 'x'\n", "def f(:\n", "x = '''\n", "a\n  b\n c\n", "x = (\n", "\0\n", "# \xff\n"]
)
def test_what_does_not_parse_is_stripped_too(rest: str) -> None:
    data = f"s = 1\n{rest}t = 1\n".encode("latin-1")
    made = b"# TPU-TODO[CUD003]: reason\n" + data.replace(
        b"t = 1\n", b"\t# TPU-TODO[CUD004]: reason\nt = 1\n"
    )
    assert todo.strip(Path("a.py"), made) == data


# ---- examples of all rules -------------------------------------------------------------------

EXAMPLES = [
    pytest.param(rule, example, target, id=f"{rule.code}-{number}-{target}")
    for rule in registry().rules.values()
    for number, example in enumerate(rule.examples)
    for target in TARGETS
]


@pytest.mark.parametrize(("rule", "example", "target"), EXAMPLES)
def test_examples_come_back(rule: Rule, example: Example, target: str) -> None:
    path, words = Path(example.path), targets()[target]
    options = replace(example.options, todo_comments=True)
    result = migrate_file(path, example.before.encode(), words, options)
    assert todo.strip(path, result.source).decode() == example.expected(words)
    assert migrate_file(path, result.source, words, options).source == result.source
    left = {d.code for d in result.diagnostics if d.outcome is Outcome.REPORTED}
    for code in () if example.path.endswith(".json") else left:
        assert f"# TPU-TODO[{code}]: ".encode() in result.source


@pytest.mark.parametrize("number", thorough_but([0], [0, 2]))
def test_all_kinds_of_statements_come_back(number: int) -> None:
    head, words = IMPORTS[number]
    snippets = [*(f"value = {e}" for e in EXPRESSIONS), *STATEMENTS, *BLOCKS]
    for snippet in snippets:
        code = snippet.format(**words)
        indented = "\n".join(f"        {line}" for line in code.split("\n"))
        if "'''" in code or "yield" in code or "await" in code or "return" in code:
            indented = "        pass"
        for source in (head + code + "\n", f"{head}class A:\n    def f(x):\n{indented}\n"):
            try:
                ast.parse(source)
            except SyntaxError:
                continue
            text = commented(source)
            result = run(source)
            for diagnostic in result.diagnostics:
                if diagnostic.outcome is Outcome.REPORTED:
                    assert f"# TPU-TODO[{diagnostic.code}]: " in text, source


# ---- notebooks -----------------------------------------------------------------------------------


def book(*cells: str, **layout: Any) -> str:
    made = [
        {"cell_type": "code", "execution_count": None, "id": "a", "metadata": {}, "outputs": [],
         "source": cell.splitlines(keepends=True)}
        for cell in cells
    ]  # fmt: skip
    metadata = {"accelerator": "GPU", "colab": {"gpuType": "T4"}}
    return json.dumps({"cells": made, "metadata": metadata, "nbformat": 4}, **layout)


def cells(text: str) -> list[str]:
    return ["".join(cell["source"]) for cell in json.loads(text)["cells"]]


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
