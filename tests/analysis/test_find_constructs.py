"""The inventory against a second, independent count of GPU constructs: none may be missed."""

from __future__ import annotations

import ast
import re
from collections import Counter
from dataclasses import dataclass

import pytest
from gpu_code import BLOCKS, EXPRESSIONS, IMPORTS, STATEMENTS
from gpu_modules import MODULES, PROPERTY
from helpers import REPOSITORY, TARGETS, constructs, errors, outcomes, run
from hypothesis import given
from hypothesis import strategies as st
from unrelated_code import UNRELATED

from migrator.analysis.cuda_libraries import MODULES as CUDA_MODULES
from migrator.formats.python_source import decode
from migrator.pipeline.result import Result

# ---- a counter of its own ------------------------------------------------------------------------

CHAIN = re.compile(
    r"torch\.(?:cuda|accelerator|amp|distributed|backends\.cuda|backends\.cudnn)\."
    r"|torch\.(?:load|save|compile|autocast|inference_mode)\Z"
    r"|torch\.set_default_(?:device|tensor_type|dtype)\Z"
    r"|torch\.set_float32_matmul_precision\Z|torch\.version\.cuda\Z"
    r"|torch\.(?:Tensor|nn\.Module)\.cuda\Z"
    r"|torch\.nn\.(?:DataParallel|SyncBatchNorm)|torch\.utils\.cpp_extension"
)
DEVICE = re.compile(r"cuda(?::\d+)?")
LIBRARIES = {
    "apex", "flash_attn", "triton", "xformers", "bitsandbytes", "deepspeed", "cupy", "pynvml",
}  # fmt: skip


@dataclass(frozen=True, order=True)
class Place:
    """Where something was counted: a line and a column (from 1, in characters)."""

    line: int
    column: int
    what: str


class Counter2(ast.NodeVisitor):
    """Counts with nothing but `ast`; imports are followed, everything else is taken as written."""

    def __init__(self, text: str) -> None:
        self.lines = re.split(r"\r\n|\r|\n", text)
        self.places: list[Place] = []
        self.meaning: dict[str, str] = {}
        self.hidden: list[set[str]] = []  # parameters that hide an import
        self.docstrings: set[int] = set()

    def place(self, node: ast.expr | ast.stmt | ast.alias, what: str, at_end: bool = False) -> None:
        line = (node.end_lineno or 0) if at_end else node.lineno
        column = (node.end_col_offset or 0) - 1 if at_end else node.col_offset
        before = self.lines[line - 1].encode()[:column].decode(errors="ignore")
        self.places.append(Place(line, len(before) + 1, what))

    def dotted(self, node: ast.expr) -> str | None:
        if isinstance(node, ast.Name):
            if any(node.id in names for names in self.hidden):
                return None
            return self.meaning.get(node.id)
        if isinstance(node, ast.Attribute):
            base = self.dotted(node.value)
            return f"{base}.{node.attr}" if base else None
        return None

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            head = alias.name.partition(".")[0]
            self.meaning[alias.asname or head] = alias.name if alias.asname else head
            if head in LIBRARIES:
                self.place(alias, alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            if not node.level:
                self.meaning[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        if not node.level and (node.module or "").partition(".")[0] in LIBRARIES:
            self.place(node, str(node.module))

    def function(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        arguments = node.args
        around = [*arguments.defaults, *arguments.kw_defaults, *getattr(node, "decorator_list", ())]
        for part in around:
            if part is not None:
                self.visit(part)
        self.hidden.append({a.arg for a in ast.walk(arguments) if isinstance(a, ast.arg)})
        for part in node.body if isinstance(node.body, list) else [node.body]:
            self.visit(part)
        self.hidden.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.document(node)
        self.function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.document(node)
        self.function(node)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.function(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.document(node)
        self.generic_visit(node)

    def visit_Module(self, node: ast.Module) -> None:
        self.document(node)
        self.generic_visit(node)

    def document(self, node: ast.AST) -> None:
        match node:
            case ast.Module(body=[ast.Expr(value=value), *_]):
                self.docstrings.add(id(value))
            case ast.FunctionDef(body=[ast.Expr(value=value), *_]):
                self.docstrings.add(id(value))
            case ast.AsyncFunctionDef(body=[ast.Expr(value=value), *_]):
                self.docstrings.add(id(value))
            case ast.ClassDef(body=[ast.Expr(value=value), *_]):
                self.docstrings.add(id(value))

    def visit_Name(self, node: ast.Name) -> None:
        self.reference(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if not self.reference(node):
            self.visit(node.value)

    def reference(self, node: ast.Name | ast.Attribute) -> bool:
        name = self.dotted(node)
        if name is not None and CHAIN.match(name):
            self.place(node, name)
            return True
        return name is not None

    def visit_Call(self, node: ast.Call) -> None:
        function = node.func
        if isinstance(function, ast.Attribute) and function.attr in ("cuda", "half", "pin_memory"):
            if self.dotted(function) is None:
                self.place(function, f".{function.attr}()", at_end=True)
        for keyword in node.keywords:
            if keyword.arg == "pin_memory" and not _is_false(keyword.value):
                self.place(keyword.value, "pin_memory=", at_end=True)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str) and DEVICE.fullmatch(node.value):
            if id(node) not in self.docstrings:
                self.place(node, node.value)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        for value in node.values:
            if isinstance(value, ast.FormattedValue):
                self.visit(value)


def _is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and not node.value


def counted(source: bytes) -> list[Place]:
    text = decode(source).text
    counter = Counter2(text)
    counter.visit(ast.parse(text))
    return sorted(counter.places)


def missed(source: bytes, result: Result) -> list[Place]:
    """What the counter finds and no diagnostic with an outcome covers."""
    ranges = [d.range for d in constructs(result)]
    return [
        place
        for place in counted(source)
        if not any(
            (r.line, r.column) <= (place.line, place.column) < (r.end_line, r.end_column)
            for r in ranges
        )
    ]


# ---- nothing is missed ---------------------------------------------------------------------------

SNIPPETS = [*EXPRESSIONS, *STATEMENTS, *BLOCKS]
WITH_A_CONSTRUCT_THAT_THE_COUNTER_KNOWS = 150


@pytest.mark.parametrize("target", TARGETS)
def test_each_snippet(target: str) -> None:
    counting = 0
    for number, code in enumerate(SNIPPETS):
        imports, words = IMPORTS[number % len(IMPORTS)]
        source = (imports + code.format(**words) + "\n").encode()
        assert not missed(source, run(source, target)), source.decode()
        counting += bool(counted(source))
    assert counting > WITH_A_CONSTRUCT_THAT_THE_COUNTER_KNOWS  # the counter itself is no fake


@PROPERTY
@given(source=MODULES, target=st.sampled_from(TARGETS), entry=st.booleans())
def test_generated_modules(source: bytes, target: str, entry: bool) -> None:
    assert not missed(source, run(source, target, entry=entry))


APPS = sorted((REPOSITORY / "reference_apps").rglob("*.py"))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("path", APPS, ids=lambda path: path.stem)
def test_reference_apps(path, target: str) -> None:  # type: ignore[no-untyped-def]
    source = path.read_bytes()
    result = run(source, target, entry=None)
    assert not errors(result)
    assert not missed(source, result)
    again = run(result.source, target, entry=None)
    assert again.source == result.source


def test_the_apps_hold_constructs() -> None:
    assert sum(len(counted(path.read_bytes())) for path in APPS) > 20


# ---- what is left is what is reported ------------------------------------------------------------


@PROPERTY
@given(source=MODULES, target=st.sampled_from(TARGETS))
def test_every_construct_has_one_outcome(source: bytes, target: str) -> None:
    found = constructs(run(source, target))
    places = Counter((d.range, d.construct) for d in found)
    assert max(places.values(), default=1) == 1
    assert all(d.outcome in ("rewritten", "kept", "reported") for d in found)
    assert not [d for d in found if d.code == "GEN001"]


@PROPERTY
@given(source=MODULES, target=st.sampled_from(TARGETS))
def test_what_is_still_there_was_kept_or_reported(source: bytes, target: str) -> None:
    """Constructs that the output still holds are not counted as rewritten."""
    result = run(source, target)
    known = Counter(what for place in counted(source) for what in [place.what])
    still = Counter(what for place in counted(result.source) for what in [place.what])
    still = Counter({w: n for w, n in still.items() if w in known})  # e.g. torch.amp.GradScaler
    unlike = [d for d in constructs(result) if d.outcome != "rewritten"]
    places = {
        place: any(
            (d.range.line, d.range.column)
            <= (place.line, place.column)
            < (d.range.end_line, d.range.end_column)
            for d in unlike
        )
        for place in counted(source)
    }
    left = Counter(place.what for place, stays in places.items() if stays)
    surplus = {w: n for w, n in (still - left).items() if w not in REWRITTEN_TO_THEMSELVES}
    assert not surplus


# A rewrite of these keeps the name: other arguments, or another method of the same name.
REWRITTEN_TO_THEMSELVES = {
    "torch.load", "torch.amp.GradScaler", "torch.autocast", "torch.set_default_device",
    "torch.distributed.init_process_group",
}  # fmt: skip


# ---- the prefilter -------------------------------------------------------------------------------

FORMS = [
    "import torch as th\nm = th.load(p, map_location=d)\n", "import torch as th\nth.save(m, p)\n",
    "import torch as th\nf = th.compile(f)\n",
    "from torch import (\n    nn,\n    load,\n)\nm = load(p)\n", "import torch\nx = x.to(0)\n",
    "import torch\nx = x.to(rank)\n", "import torch\nx = x.to(args.gpu)\n",
    "import torch\nx = x.to(\n    rank)\n", "import torch\nx = x.to(self.rank)\n",
    "import torch\nx = x.to(args.local_rank, torch.float)\n",
    "import torch\nx = torch.ones(2, device = rank)\n", "import torch\nd = torch.device( 0 )\n",
    "x = x.to(args.local_rank, non_blocking=True)\n", "x = x.to(d, non_blocking=True)\n",
    "import torch\nd = torch.device(args.gpu)\n",
    "import torch\nx = torch.zeros(2, device=args.gpu)\n",
    "import torch\ng = torch.Generator(device=device)\n",
    "import torch.multiprocessing as mp\nmp.spawn(f)\n",
    "from torch.nn import SyncBatchNorm\nSyncBatchNorm(3)\n", "import torch\ntorch.version.hip\n",
    "import torch\nt = torch.Event(enable_timing=True)\n", "import torch\nt = torch.Tensor.half\n",
    "from torch.utils.cpp_extension import load\nops = load(name='ops', sources=src)\n",
    "from torch.amp import custom_fwd\n@custom_fwd\ndef f(x): pass\n",
    "import torch\nx = x.half ()\n", "import torch\ni = x.get_device ()\n",
]  # fmt: skip
LIBRARY_FORMS = [f"import {name}\n" for name in sorted(CUDA_MODULES)]


@pytest.mark.parametrize("source", [*FORMS, *LIBRARY_FORMS])
def test_the_prefilter_hides_nothing(source: str) -> None:
    """A word in a comment that lets every file through must not bring up anything new."""
    found = outcomes(run(source + "# cuda\n"))
    assert found
    assert outcomes(run(source)) == found


@pytest.mark.parametrize("code", [*SNIPPETS, *UNRELATED])
def test_the_prefilter_hides_no_snippet(code: str) -> None:
    source = "import torch as th\n" + code.format(torch="th", cuda="th.cuda", amp="th.cuda.amp")
    assert outcomes(run(source + "\n")) == outcomes(run(source + "\n# cuda\n"))


def test_a_kernel_of_numba_is_one_construct() -> None:
    """Whatever it uses of numba.cuda; what starts it is counted apart."""
    source = """
from numba import cuda
import numba.cuda as nc

@cuda.jit("(float32[:],)", device=True)
def area(a):
    return a[cuda.grid(1)]

@nc.jit
def kernel(n, out):
    shared = cuda.shared.array(shape=(64,), dtype=float)
    nc.syncthreads()
    out[cuda.grid(1)] = area(shared)

def run(x):
    kernel[1, 2](3, cuda.to_device(x))
"""
    found = [d.construct for d in constructs(run(source)) if d.code == "LIB002"]
    assert found == ["cuda.jit", "nc.jit", "cuda.to_device"]
