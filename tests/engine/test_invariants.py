"""Invariants of every migration, on generated modules: whatever the code, whatever its layout."""

from __future__ import annotations

import ast
import codecs
from collections import Counter
from dataclasses import dataclass

import pytest
from gpu_code import BLOCKS, EXPRESSIONS, IMPORTS, STATEMENTS
from gpu_modules import MODULES, PROPERTY, indented, is_python
from helpers import TARGETS, comments, constructs, errors, run
from hypothesis import example, given
from hypothesis import strategies as st
from unrelated_code import UNRELATED

from migrator.diagnostics import Outcome
from migrator.formats.python_source import decode
from migrator.pipeline.result import Result

# What tools read may go with the line of code that it is about.
FOR_TOOLS = ("# noqa", "# type:", "# pragma", "# fmt:", "# pylint", "# tpu-migrate")


# ---- what holds ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Lines:
    """The lines of a file by what a migration may do to them."""

    text: list[str]
    touched: set[int]  # line numbers of statements that were edited, and of imports
    dedented: bool  # a `with` was taken out, so that indentation may differ


def lines_of(result: Result) -> Lines:
    text = decode(result.original).text
    tree = ast.parse(text)
    spans = []
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt | ast.ExceptHandler):
            body = getattr(node, "body", None)
            start = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
            end = node.end_lineno or start
            if isinstance(body, list):  # of a compound statement, only what is above its body
                end = max(start, body[0].lineno - 1 if body[0].lineno > start else start)
            spans.append((start, end, node))
    touched: set[int] = set()
    edits = [d for d in result.diagnostics if d.outcome is Outcome.REWRITTEN]
    for start, end, node in spans:
        inside = [d for d in edits if start <= d.range.line <= end]
        if inside or isinstance(node, ast.Import | ast.ImportFrom):
            touched.update(range(start, end + 1))
    return Lines(text.split("\n"), touched, any(isinstance(n, ast.With) for *_, n in spans))


def check(source: bytes, target: str, **options: bool) -> Result:
    """All invariants of one migration."""
    result = run(source, target, **options)
    assert not errors(result), errors(result)
    ast.parse(result.source)
    again = run(result.source, target, **options)
    assert again.source.decode("latin-1") == result.source.decode("latin-1"), "not idempotent"
    assert run(source, target, **options) == result, "not deterministic"
    places = [(d.range, d.code, d.message) for d in result.diagnostics]
    assert places == sorted(places)
    assert all(d.message for d in constructs(result) if d.outcome is not Outcome.REWRITTEN)
    if not any(d.outcome is Outcome.REWRITTEN for d in result.diagnostics):
        added = [d for d in result.diagnostics if d.code == "SET001"]
        assert result.changed == bool(added), "changed without a word"
    if source.startswith(codecs.BOM_UTF8):
        assert result.source.startswith(codecs.BOM_UTF8)
    check_untouched_lines(result)
    check_comments(result)
    return result


@dataclass(frozen=True)
class _Shown:
    """A line as it is compared: a `with` that goes moves its body; another line may be the last."""

    dedented: bool
    open_ended: bool

    def __call__(self, line: str) -> str:
        if self.dedented or line.lstrip().startswith("#"):  # a comment may outlive its block
            line = line.lstrip()
        return line.rstrip("\r") if self.open_ended else line


def check_untouched_lines(result: Result) -> None:
    lines = lines_of(result)
    shown = _Shown(lines.dedented, not result.original.endswith(b"\n"))
    new = [shown(line) for line in decode(result.source).text.split("\n")]
    at = 0
    for number, line in enumerate(lines.text, 1):
        wanted = shown(line)
        if number in lines.touched or not wanted.strip():
            continue
        if wanted.strip() in ("else:", "pass") or wanted.lstrip().startswith("if "):
            continue  # a block that was emptied goes with its header
        try:
            at = new.index(wanted, at) + 1
        except ValueError:
            raise AssertionError(f"line {number} is gone or moved: {line!r}") from None


def check_comments(result: Result) -> None:
    lost = comments(result.original) - comments(result.source)
    text = decode(result.original).text
    tries = (n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Try))
    for block in tries:  # a fallback goes with its import, and what is said about it
        if all(isinstance(each, ast.Import | ast.ImportFrom) for each in block.body):
            lines = text.split("\n")[block.lineno - 1 : block.end_lineno]
            lost -= Counter(line[line.index("#") :].strip() for line in lines if "#" in line)
    assert all(comment.startswith(FOR_TOOLS) for comment in lost), f"comments lost: {lost}"


# ---- the properties ------------------------------------------------------------------------------


@PROPERTY
@given(source=MODULES, target=st.sampled_from(TARGETS), entry=st.booleans(), unsafe=st.booleans())
def test_invariants(source: bytes, target: str, entry: bool, unsafe: bool) -> None:
    check(source, target, entry=entry, unsafe=unsafe)


@PROPERTY
@given(source=MODULES, target=st.sampled_from(TARGETS))
def test_invariants_of_single_scripts(source: bytes, target: str) -> None:
    check(source, target)


CASES = [
    pytest.param(imports + code.format(**words) + "\n", id=f"{number}-{code[:40]!r}")
    for number, code in enumerate([*EXPRESSIONS, *STATEMENTS, *BLOCKS])
    for imports, words in (IMPORTS[0], IMPORTS[number % (len(IMPORTS) - 1) + 1])
]


@pytest.mark.parametrize("source", CASES)
def test_invariants_of_each_construct(source: str) -> None:
    for target in TARGETS:
        check(source.encode(), target)
        check(source.replace("\n", "\r\n").rstrip().encode(), target, entry=True, unsafe=True)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("code", UNRELATED)
def test_unrelated_code_stays(code: str, target: str) -> None:
    line = code.format()
    for source in (
        line,
        f"import torch\n\n{line}\nx = x.cuda()\n",
        f"def f(x):\n{indented(line)}\n    x\n",
    ):
        result = run(source, target)
        kept = result.source.decode().replace("x = x.to('jax')", "").replace('x = x.to("jax")', "")
        assert not errors(result)
        assert all(part in kept for part in line.splitlines())
        if "x.cuda()" not in source:
            assert result.source == source.encode()


@PROPERTY
@given(source=MODULES, target=st.sampled_from(TARGETS))
def test_a_file_without_edits_comes_back_as_it_was(source: bytes, target: str) -> None:
    ignored = run(source, target, ignore=tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ"))
    assert not ignored.changed
    assert ignored.source is source or ignored.source == source
    assert not any(d.outcome is Outcome.REWRITTEN for d in ignored.diagnostics)


@PROPERTY
@given(source=MODULES, target=st.sampled_from(TARGETS))
@example(
    source=b"import torch\nif gpu:\n    torch.cuda.synchronize()\n\n\x0ctorch.cuda.empty_cache()\n",
    target="torch_xla",
)
def test_line_ends_and_encoding_stay(source: bytes, target: str) -> None:
    """New lines end like the others; every other line keeps its own end."""
    result = run(source, target)
    if b"\r" not in source:
        assert b"\r" not in result.source
    elif b"\n" not in source.replace(b"\r\n", b""):
        assert b"\n" not in result.source.replace(b"\r\n", b"")
    assert result.source.endswith((b"\n", b"\r")) == source.endswith((b"\n", b"\r"))
    assert decode(result.source).encoding == decode(source).encoding


STEP = """import torch

model = torch.nn.Linear(8, 1).cuda()  # modèle\t
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\x20
for step in range(5):
\tx = torch.randn(64, 8).cuda()
\t# gewöhnlich
\twith torch.autocast("cuda"):\t# ü
\t\tloss = model(x).square().mean()
\tloss.backward()
\toptimizer.step()
\tprint("é\t", loss.item())
"""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("first", "encoding"),
    [("", "utf-8"), ("\ufeff", "utf-8"), ("# -*- coding: latin-1 -*-\n", "latin-1")],
)
def test_the_same_is_edited_in_any_encoding(
    first: str, encoding: str, end: str, target: str
) -> None:
    """Every other byte stays, also of a step that moves into a function."""
    plain = run(STEP, target, entry=True).source.decode()
    expected = (first + plain).replace("\n", end).encode(encoding)
    source = (first + STEP).replace("\n", end).encode(encoding)
    assert run(source, target, entry=True).source == expected


@PROPERTY
@given(text=st.text(alphabet="x=cuda()'\"\n\t .:#\\[]{}0é\ufeff\u2028", max_size=60))
def test_any_text_is_survived(text: str) -> None:
    source = f"import torch\nx.cuda()\n{text}".encode()
    result = run(source)
    if errors(result):
        assert result.source == source
        assert [d.code for d in result.diagnostics] in (["ERR001"], ["ERR002"])
        assert not is_python(source)
    else:
        ast.parse(result.source)


@pytest.mark.parametrize(
    "source",
    [
        b"import torch\r\r\rdef f(x):\r    return x.cuda()\r",  # line ends of old Macs
        b"import torch\r\r\rdef f(x):\r    return x.cuda()\r\r  \r ",
        b"import torch\n\n\x0cdef f(x):\n    y = x.cuda()\n\x0c    return y\n",
        b"\x0cimport torch\r\n\r\n \x0c\x0cdef f(x):\r\n    return x.cuda()\r\n",
        b"import torch\ndef f(x):\n    if x:\n        pass\n\x0c    else:\n        x.cuda()\n",
        b'import torch\ns = """\n\x0cx""" + \\\n\x0cf()\n#\x0c\n\x0cdef f(x): x.cuda()\n',
    ],
)
def test_form_feeds_and_line_ends_of_old_macs_stay(source: bytes) -> None:
    assert run(source).source == source.replace(b".cuda()", b'.to("jax")')


def test_a_module_with_line_ends_of_old_macs_gets_the_runtime() -> None:
    result = run(b"import torch\rx = torch.ones(2).cuda()\r", entry=True)
    assert b"\rimport tpu_runtime\r" in result.source
    assert result.companions == {"tpu_runtime"}


@PROPERTY
@given(source=st.binary(max_size=80))
def test_any_bytes_are_survived(source: bytes) -> None:
    source = b"torch.cuda\n" + source
    result = run(source)
    assert result.source == source or not errors(result)
