"""Modules that are made of the pool of GPU code, at random."""

from __future__ import annotations

import ast
import codecs
import os
import tempfile
from pathlib import Path

from gpu_code import BLOCKS, EXPRESSIONS, IMPORTS, STATEMENTS
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.configuration import set_hypothesis_home_dir
from unrelated_code import UNRELATED

set_hypothesis_home_dir(Path(tempfile.gettempdir(), "tpu-migrate-hypothesis"))
# Modules for each property: of the first tier, of both (tests/conftest.py).
FEW, MANY = 40, 200
EXAMPLES = int(
    os.environ.get("TPU_MIGRATE_EXAMPLES", MANY if os.environ.get("TPU_MIGRATE_THOROUGH") else FEW)
)
PROPERTY = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize="TPU_MIGRATE_EXAMPLES" not in os.environ,  # the same modules in every CI run
    database=None,
    suppress_health_check=list(HealthCheck),
)


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
