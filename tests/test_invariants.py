"""Invariants of every migration, on generated modules: whatever the code, whatever its layout."""

from __future__ import annotations

import ast
import codecs
import os
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from helpers import (
    BLOCKS,
    EXPRESSIONS,
    IMPORTS,
    STATEMENTS,
    TARGETS,
    UNRELATED,
    comments,
    constructs,
    errors,
    run,
)
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from hypothesis.configuration import set_hypothesis_home_dir

from migrator.diagnostics import Outcome
from migrator.engine import Result
from migrator.formats.python import decode

set_hypothesis_home_dir(Path(tempfile.gettempdir(), "tpu-migrate-hypothesis"))
EXAMPLES = int(os.environ.get("TPU_MIGRATE_EXAMPLES", "100"))
PROPERTY = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize="TPU_MIGRATE_EXAMPLES" not in os.environ,  # the same modules in every CI run
    database=None,
    suppress_health_check=list(HealthCheck),
)

# Rules that take whole statements out: a comment inside or at the end of such a line may go.
DELETING = {"CUD002", "PRE001", "PRE002", "RUN002", "RUN003", "MOV005"}


# ---- what holds ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Lines:
    """The lines of a file by what a migration may do to them."""

    text: list[str]
    touched: set[int]  # line numbers of statements that were edited, and of imports
    dropped: set[int]  # line numbers of statements that may be gone altogether
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
    dropped: set[int] = set()
    edits = [d for d in result.diagnostics if d.outcome is Outcome.REWRITTEN]
    for start, end, node in spans:
        inside = [d for d in edits if start <= d.range.line <= end]
        if inside or isinstance(node, ast.Import | ast.ImportFrom):
            touched.update(range(start, end + 1))
        if isinstance(node, ast.Import | ast.ImportFrom) or {d.code for d in inside} & DELETING:
            dropped.update(range(start, end + 1))
    return Lines(
        text.split("\n"), touched, dropped, any(isinstance(n, ast.With) for *_, n in spans)
    )


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
    lines = lines_of(result)
    lost = comments(result.original) - comments(result.source)
    allowed: Counter[str] = Counter()
    for number in lines.dropped:
        code, mark, comment = lines.text[number - 1].partition("#")
        if code.strip() and mark:
            allowed[(mark + comment).strip()] += 1
    assert not lost - allowed, f"comments lost: {lost - allowed}"


# ---- modules -------------------------------------------------------------------------------------

SIMPLE = [
    *EXPRESSIONS,
    *(s for s in STATEMENTS if not s.startswith(("if ", "for ", "while ", "with "))),
]


# Lines with several statements.
LINES = (
    "@1; @2", "@1;@2 ;  # both", "x = 1; @1; y = 2", "if gpu: @1", "if gpu: @1; @2  # on the GPU",
    "if gpu: @1\nelif c: @2\nelse: pass", "for v in xs: @1; @2", "try: @1\nexcept E: @2",
    "with f() as g: @1", "class K: @1", "def h(): @1; return y", "while c: @1\nelse: @2",
)  # fmt: skip

# Places for an expression; doubled braces, since the whole module is a format string.
WRAPPINGS = (
    "@@", "y = @@", "y = @@  # keep this", "f(@@)", "f(a, *b, k=@@, **c)", "y = [@@, 'cuda_x']",
    "y = lambda: @@", "y = [@@ for q in qs]", "y = {{'k': @@}}", "y = (  # why\n    @@  # so\n)",
    "y = @@ if c else None", 'y = f"{{(@@)}} cuda"', "assert @@, 'cuda'", "é = 'ü✓'; y = @@",
    "if @@:\n    pass  # on the GPU", "y = (@@).z", "y = -(@@) ** 2", "y = not (@@)",
    "del y; @@; y = 0", "with f(@@) as y, g():\n    pass", "@deco(@@)\ndef d(a=@@):\n    pass",
    "y[@@] = 1", "y = ((@@))", "y = @@;", "return_ = yield_ = @@", "for q in f(@@): pass",
    "while f(@@): break", "class K(B, k=@@):\n    a = @@", "print(@@, sep='')   ",
    "y = a or @@ or b", "y = @@\\\n    , 2",
)  # fmt: skip


@st.composite
def leaves(draw: st.DrawFn) -> str:
    """One construct in one of many wrappings, or some unrelated code."""
    shape = draw(st.integers(0, 11))
    if shape == 0:
        first, second = draw(st.sampled_from(SIMPLE)), draw(st.sampled_from(SIMPLE))
        return draw(st.sampled_from(LINES)).replace("@1", first).replace("@2", second)
    if shape < 3:
        return draw(st.sampled_from(STATEMENTS))
    if shape < 5:
        return draw(st.sampled_from(BLOCKS))
    if shape < 7:
        return draw(st.sampled_from(UNRELATED))
    expression = draw(st.sampled_from(EXPRESSIONS))
    return draw(st.sampled_from(WRAPPINGS)).replace("@@", expression)


def indented(code: str, depth: int = 1) -> str:
    return "".join(
        line if not line.strip() else " " * 4 * depth + line for line in code.splitlines(True)
    )


# Places for statements: @@ stands for them, indented once, @@@@ indented twice.
CONTAINERS = (
    "if gpu:\n@@", "if gpu:\n    pass\nelse:\n@@", "with open(path) as file:  # enter\n@@",
    "try:\n@@except Exception:\n    raise\n", "try:\n    pass\nexcept Exception:  # never\n@@",
    "try:\n    pass\nfinally:\n@@", "def function(self, x):\n@@", "async def function(x=1):\n@@",
    "class Class(Base):\n@@", "for item in items:\n@@", "while True:\n@@",
    "match value:\n    case 1:\n@@@@    case _:\n        pass\n",
    "def outer():\n    def inner():\n@@@@",
    "class A:\n    def __init__(self, device='cuda'):\n        self.device = device\n@@@@",
)  # fmt: skip


@st.composite
def bodies(draw: st.DrawFn, depth: int = 0) -> str:
    """Statements, some of them in containers, with comments and blank lines between."""
    parts = []
    for _ in range(draw(st.integers(1, 4 if depth else 6))):
        gaps = ["", "", "", "\n", "# note\n", "\n\n# section\n\n", "\f\n"]
        gap = draw(st.sampled_from([*gaps, "\n\f"] if depth == 0 else gaps))
        if depth < 2 and draw(st.integers(0, 3)) == 0:
            inner = draw(bodies(depth + 1))
            container = draw(st.sampled_from(CONTAINERS))
            place = "@@@@" if "@@@@" in container else "@@"
            parts.append(gap + container.replace(place, indented(inner, len(place) // 2)))
        else:
            parts.append(gap + draw(leaves()) + "\n")
    return "".join(parts)


@st.composite
def layouts(draw: st.DrawFn, text: str) -> bytes:
    """The same code in another file layout."""
    if draw(st.booleans()):
        text = retabbed(text, draw(st.sampled_from(["\t", "  "])))
    ending = draw(st.sampled_from(["as it is"] * 4 + ["", "\n    \n  "]))
    if ending != "as it is":
        text = text.rstrip("\n") + ending
    newline = draw(st.sampled_from(["\n", "\n", "\r\n", "mixed"]))
    if newline == "mixed":
        flips = draw(st.lists(st.booleans(), min_size=1, max_size=5))
        pieces = text.split("\n")
        ends = ["\r\n" if flips[i % len(flips)] else "\n" for i in range(len(pieces) - 1)]
        text = "".join(a + b for a, b in zip(pieces, [*ends, ""], strict=True))
    else:
        text = text.replace("\n", newline)
    encoding = draw(st.sampled_from(["utf-8", "utf-8", "bom", "latin-1"]))
    if encoding == "latin-1":
        text = text.encode("ascii", "ignore").decode()  # what latin-1 has not
        head = f"# -*- coding: latin-1 -*-{newline if newline != 'mixed' else chr(10)}# café\n"
        return (head + text).encode("latin-1")
    return (codecs.BOM_UTF8 if encoding == "bom" else b"") + text.encode()


def retabbed(text: str, indent: str) -> str:
    """Other indentation, in code only: lines inside strings of several lines stay as they are."""
    inside = False
    result = []
    for line in text.split("\n"):
        stripped = line.lstrip(" ")
        depth, rest = divmod(len(line) - len(stripped), 4)
        result.append(line if inside else indent * depth + " " * rest + stripped)
        if line.count("'''") % 2:
            inside = not inside
    return "\n".join(result)


@st.composite
def modules(draw: st.DrawFn) -> bytes:
    head = draw(st.sampled_from([
        "", "#!/usr/bin/env python\n", '"""Docstring: cuda."""\n\n',
        "from __future__ import annotations\n", "# comment\n\n", "\n\n",
        "# -*- tab -*-\n'''Two\nlines.'''\n",
    ]))  # fmt: skip
    imports, words = draw(st.sampled_from(IMPORTS))
    tail = draw(st.sampled_from(["", "", "if __name__ == '__main__':\n    main()\n", "# end\n"]))
    text = draw(bodies()).format(**words)
    return draw(layouts(head + imports + text + tail))


def is_python(source: bytes) -> bool:
    try:
        ast.parse(source)
        return True
    except SyntaxError:  # some wrappings do not fit all expressions
        return False


MODULES = modules().filter(is_python)


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
