"""Comments above what is left to change by hand: where they stand, and that they leave no trace."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest
from gpu_code import BLOCKS, EXPRESSIONS, IMPORTS, STATEMENTS
from helpers import reported_codes, run
from tiers import thorough_but

from migrator.diagnostics import Outcome
from migrator.pipeline import todo
from migrator.pipeline.engine import migrate_file
from migrator.registry import registry
from migrator.rule import Example, Rule
from migrator.targets import targets
from tests.engine.commented import STREAM, check, commented

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
    for target in rule.targets
]


@pytest.mark.parametrize(("rule", "example", "target"), EXAMPLES)
def test_examples_come_back(rule: Rule, example: Example, target: str) -> None:
    path, words = Path(example.path), targets()[target]
    options = replace(example.options, todo_comments=True)
    result = migrate_file(path, example.before.encode(), words, options)
    plain = migrate_file(path, example.before.encode(), words, example.options).source.decode()
    expected = example.expected(words) if example.speaks_of(words) else plain
    assert todo.strip(path, result.source).decode() == expected
    assert migrate_file(path, result.source, words, options).source == result.source
    left = reported_codes(result)
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
