"""What of the runtime is written beside a program: what it needs, and nothing that is missing."""

from __future__ import annotations

import ast
import builtins
import runpy
from pathlib import Path

import pytest
from helpers import REPOSITORY, TARGETS, write_tree
from migrator.rules import libraries_in_pytorch

from migrator import migrate_paths
from migrator.config import Config
from migrator.runs.bundle import INIT, NOTHING, Needs, bundle
from migrator.targets import portable, targets

ONCE = (
    "import torch\n\nmodel = torch.nn.Linear(4, 2).cuda()\nprint(model(torch.ones(3, 4).cuda()))\n"
)
LOOP = ONCE + "for x in torch.ones(8, 3, 4).cuda():\n    print(model(x))\n"
TRAINING = """import torch

model = torch.nn.Linear(4, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for x in torch.ones(8, 3, 4):
    loss = model(x.cuda()).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
# The files with operators that come with names that lead to them.
ALL = "pooling.py adaptive_pooling.py linalg.py attention.py"
PROGRAMS = {
    "once": ONCE,
    "writes": ONCE + "model.weight[0] = 1\n",
    "loop": LOOP,
    "training": TRAINING,
    "by hand": TRAINING + "import tpu_runtime\n\n@tpu_runtime.train_step\ndef step(x):\n    pass\n",
    "autocast": ONCE.replace("print(", "with torch.cuda.amp.autocast():\n    print("),
    "memory": ONCE + "print(torch.cuda.max_memory_allocated())\n",
    "ranks": "import torch.distributed as dist\n" + ONCE + "print(dist.is_available())\n",
    "copies": ONCE.replace("model(", "torch.nn.DataParallel(model)("),
    "recurrence": ONCE.replace("Linear", "LSTM"),
}


def written(folder: Path, target: str, **config: object) -> dict[str, bytes]:
    """The runtime that is there after a run."""
    options = Config(**config)  # type: ignore[arg-type]
    report = migrate_paths([folder], target, config=options, write=True, allow_dirty=True)
    assert report.exit_code == 0, report.errors or report.failures
    return {p.name: p.read_bytes() for p in (folder / "tpu_runtime").iterdir()}


def of(folder: Path, source: str, target: str = "torchax") -> set[str]:
    """The files that a program gets."""
    write_tree(folder, {"main.py": source})
    return set(written(folder, target))


def whole(target: str) -> set[str]:
    return set(bundle(targets()[target]).files)


# ---- a copy is complete --------------------------------------------------------------------------


def bound(tree: ast.Module) -> set[str]:
    """All names that a file has or gives to something."""
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(names=aliases) | ast.Import(names=aliases):
                found.update(alias.asname or alias.name for alias in aliases)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
                found.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
    return found


def missing(files: dict[str, bytes]) -> set[str]:
    """What the files of a runtime import, name or install that none of them has."""
    trees = {name: ast.parse(content) for name, content in files.items()}
    found: set[str] = set()
    for name, tree in trees.items():
        for node in tree.body:
            match node:
                case ast.ImportFrom(level=1, module=None, names=aliases):
                    inside = {f"{alias.name}.py" for alias in aliases}
                    found |= {f"{name}: {other}" for other in inside - files.keys()}
                case ast.ImportFrom(level=1, module=str(module), names=aliases):
                    there = bound(trees[f"{module}.py"]) if f"{module}.py" in files else set()
                    found |= {f"{name}: {a.name}" for a in aliases if a.name not in there}
    init = trees[INIT]
    used = {n.id for n in ast.walk(init) if isinstance(n, ast.Name)}
    public = next(n.value for n in init.body if isinstance(n, ast.Assign))
    used |= set(ast.literal_eval(public))
    return found | {f"{INIT}: {name}" for name in used - bound(init) - set(vars(builtins))}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_what_is_written_imports_nothing_that_is_missing(
    tmp_path: Path, target: str, program: str
) -> None:
    write_tree(tmp_path, {"main.py": PROGRAMS[program]})
    files = written(tmp_path, target)
    assert not missing(files)
    assert files.keys() < whole(target)


@pytest.mark.parametrize("target", TARGETS)
def test_every_file_is_there_for_some_program(target: str) -> None:
    """And each of them alone, with what it needs, is complete."""
    it = bundle(targets()[target])
    for name in it.files:
        files = it.of(NOTHING, [name])
        assert name in files and not missing(files)
    init = ast.parse(it.files[INIT])
    public = {a.name for n in init.body if isinstance(n, ast.ImportFrom) for a in n.names}
    public |= {*libraries_in_pytorch._MODULES.values(), "stylegan_ops"}  # imported by their names
    said = [ast.literal_eval(n.value) for content in it.files.values()
            for n in ast.parse(content).body if isinstance(n, ast.Assign)
            and ast.unparse(n.targets[0]) == "NEEDED_BY"]  # fmt: skip
    words = {word.replace("*", "x") for text in said for word in text.split()}
    assert it.of(Needs(words, public)).keys() == it.files.keys()


# ---- how much it is ------------------------------------------------------------------------------


@pytest.mark.parametrize(("target", "lines"), [("torchax", 4600), ("torch_xla", 2000)])
def test_for_inference_it_is_small(target: str, lines: int, tmp_path: Path) -> None:
    """On torchax, every copy records operators."""
    programs = runpy.run_path(str(REPOSITORY / "benchmarks" / "runtime_lines.py"))["PROGRAMS"]
    name, source = programs["20 lines, one image"]
    write_tree(tmp_path, {name: source})
    files = written(tmp_path, target).values()
    assert sum(len(content.splitlines()) for content in files) < lines


# ---- what a program needs ------------------------------------------------------------------------


def test_programs_get_what_they_need(tmp_path: Path) -> None:
    found = {name: of(tmp_path / name, source) for name, source in PROGRAMS.items()}
    once = found["once"]
    assert {"tensors.py", "parameters.py", "seeds.py", "views.py"} <= once
    rare = {"operators.py", "edges.py", "buffers.py", "generators.py", "arithmetic.py"}
    assert not once & rare
    once = found["writes"]
    assert rare <= once
    assert not once & {"pooling.py", "linalg.py", "attention.py",
                       "parts.py", "training_steps.py", "tracing.py", "guards.py", "backwards.py",
                       "parallel.py", "process_group.py", "mesh.py", "memory.py"}  # fmt: skip
    assert found["loop"] >= once | {"parts.py", "tracing.py", "guards.py", "report.py"}
    assert not found["loop"] & {"training_steps.py", "backwards.py"}
    assert found["training"] >= found["loop"] | {"optimizers.py", "backwards.py"}
    assert found["by hand"] >= found["training"] | {"training_steps.py"}
    assert found["autocast"] == once | {"amp.py", "imported.py"}
    assert found["memory"] == once | {"memory.py"}
    assert found["ranks"] >= once | {"process_group.py"}
    assert found["copies"] >= once | {"parallel.py", "mesh.py"}
    assert found["recurrence"] == once | {"recurrence.py", "layers.py", "derivatives.py"}


@pytest.mark.parametrize(
    "line",
    [
        "import transformers",  # who knows what it does with a model
        "import importlib\nimportlib.import_module('plugin')",
        "exec(open('more.py').read())",
        "torch.hub.load('somebody/models', 'net')",
        "from tpu_runtime import *",
        "import tpu_runtime\nprint(vars(tpu_runtime))",
        "import pickle\nmodel = pickle.load(open('model.pkl', 'rb'))",
        "model = torch.load('model.pt', weights_only=False)",
    ],
)
def test_a_program_that_can_not_be_read_gets_all(tmp_path: Path, line: str) -> None:
    assert of(tmp_path, f"{line}\n{ONCE}") == whole("torchax")


@pytest.mark.parametrize(
    ("line", "repeats"),
    [
        ("for p in model(x)[0]:\n    print(p.item())", False),
        ("print([f'{v.item():.2f}' for v in model(x)[0]])", False),
        ("for p in x:\n    print(torch.nn.functional.softmax(p, 0))", False),
        ("ys = [model(p) for p in x]", True),
        ("while True:\n    x = model.predict(x)", True),
        ("ys = list(map(model, x))", True),
        ("import http.server\nserve = http.server.HTTPServer(('', 80), Handler)", True),
        ("import threading\nthreading.Thread(target=work).start()", True),
    ],
)
def test_what_may_call_a_model_again_is_compiled(tmp_path: Path, line: str, repeats: bool) -> None:
    found = of(tmp_path, f"{ONCE}x = torch.ones(2, 4).cuda()\n{line}\n")
    assert ("parts.py" in found) == repeats


@pytest.mark.parametrize(
    ("line", "file"),
    [
        ("x = torch.nn.MaxPool2d(2)(x)", "pooling.py"),
        ("x = torch.nn.AdaptiveMaxPool2d(2)(x)", "pooling.py adaptive_pooling.py"),
        ("x = torch.nn.functional.interpolate(x, 4, mode='area')", "pooling.py"),
        ("import torchvision\nmodel = torchvision.models.resnet18()", "pooling.py"),
        ("x = x.inverse()", "linalg.py"),
        ("x = torch.linalg.solve(x, x)", "linalg.py"),
        ("model = torch.nn.TransformerEncoderLayer(4, 2)", "attention.py"),
        ("import torchvision\nmodel = torchvision.models.vit_b_16()", "pooling.py attention.py"),
        ("model = getattr(torch.nn, name)()", ALL),
        ("model = vars(torch.nn)[name]()", ALL),
        ("x = getattr(model, 'weight')", ""),
        ("model.load_state_dict(torch.load('model.pt', weights_only=True))", ""),
    ],
)
def test_mends_of_operators_come_with_their_names(tmp_path: Path, line: str, file: str) -> None:
    found = of(tmp_path, f"{ONCE}{line}\n") & set(ALL.split())
    assert found == set(file.split())


def test_loops_in_a_model_are_no_second_call(tmp_path: Path) -> None:
    loop = "for layer in self.layers:\n            x = layer(x)\n        return x"
    model = f"class Net(torch.nn.Module):\n    def forward(self, x):\n        {loop}\n"
    assert "parts.py" not in of(tmp_path, ONCE.replace("\n\n", f"\n\n{model}\n\n", 1))


def test_what_is_imported_counts(tmp_path: Path) -> None:
    train = "def train(model, x):\n    model(x).sum().backward()\n"
    main = ONCE.replace("import torch\n", "import torch\n\nfrom lib.loop import train\n")
    write_tree(tmp_path, {"main.py": main, "lib/loop.py": train, "lib/__init__.py": ""})
    assert "backwards.py" in written(tmp_path, "torchax")


def test_names_of_the_runtime_are_found_however_it_is_imported(tmp_path: Path) -> None:
    for number, line in enumerate((
        "import tpu_runtime as rt\nrt.profile()",
        "from tpu_runtime import profile",
        "from tpu_runtime.profiling import profile",
        "import tpu_runtime.profiling",
    )):  # fmt: skip
        assert "profiling.py" in of(tmp_path / str(number), f"{ONCE}{line}\n")


def test_a_module_alone_gets_all(tmp_path: Path) -> None:
    """Who calls it is not known."""
    write_tree(tmp_path, {"ops.py": "import torch\n\n\ndef f():\n    torch.cuda.synchronize()\n"})
    assert set(written(tmp_path, "torchax")) == whole("torchax")


def test_a_portable_program_gets_all(tmp_path: Path) -> None:
    write_tree(tmp_path, {"main.py": ONCE})
    report = migrate_paths([tmp_path], "torchax", config=Config(portable=True))
    assert len(report.companions) == len(bundle(portable(targets()["torchax"])).files)


def test_all_can_be_asked_for(tmp_path: Path) -> None:
    write_tree(tmp_path, {"main.py": ONCE})
    assert set(written(tmp_path, "torchax", runtime="copy")) == whole("torchax")


@pytest.mark.parametrize(
    ("line", "usual"),
    [
        ("y = model(x)[0].softmax(-1).topk(3)\nprint(y.values.tolist())", False),  # `values`
        ("values, places = model(x)[0].softmax(-1).topk(3)\nprint(values[0].item())", True),
        ("from torchvision import models\nm = models.resnet50(weights='DEFAULT').eval()", True),
        ("from torchvision import models\nm = models.vit_b_16(weights='DEFAULT').eval()", False),
        ("import argparse\nparser = argparse.ArgumentParser()\n"
         "parser.add_argument('--n', type=int, default=3)\nargs = parser.parse_args()\n"
         "print(args)", True),
        ("class Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
         "        self.data = torch.nn.Linear(2, 2)\n    def forward(self, x):\n"
         "        return torch.relu(self.data(x))", True),
        ("x.data = x", False),
        ("x += 1", False),
        ("x[0] = 1", False),
        ("x.add_(1)", False),
        ("torch.exp(x, out=x)", False),
        ("y = x // 2", False),
        ("y = x ** 2", False),
        ("y = x[[0, 1]]", False),
        ("y = x[x > 0]", False),
        ("y = x.type(torch.uint8)", False),
        ("y = abs(x)", False),
        ("y = torch.nn.functional.gelu(x, approximate='tanh')", False),
        ("from helper import work\nwork(x)", False),
        ("def add(x):\n    x.grad\n    return x", False),
        ("g = torch.Generator()", False),
        ("e = torch.nn.Embedding(10, 4)", True),
        ("e = torch.nn.Embedding(10, 4, max_norm=1.0)", False),
        ("e = torch.nn.Embedding(10, 4, None, 1.0)", False),
        ("e = torch.nn.Embedding(*(10, 4, None, 1.0))", False),
        ("e = torch.nn.Embedding(10, 4, **{'max_norm': 1.0})", False),
        ("make = torch.nn.Embedding\ne = make(10, 4, None, 1.0)", False),
        ("from torch.nn import Embedding as E\ne = E(10, 4, None, 1.0)", False),
        ("e = torch.nn.EmbeddingBag(10, 4, 1.0)", False),
        ("y = torch.nn.functional.embedding(x, x, None, 1.0)", False),
        ("m = torch.nn.MaxPool2d(2, 2, 0)", True),
        ("m = torch.nn.MaxPool2d(2, 2, 0, 1, True)", False),
        ("m = torch.nn.Conv2d(1, 1, 3, 1, 1, 2)", False),
        ("y = torch.nn.functional.relu(x, True)", False),
    ],
)  # fmt: skip
def test_what_is_more_than_a_call_of_usual_layers(tmp_path: Path, line: str, usual: bool) -> None:
    found = of(tmp_path, f"{ONCE}x = torch.ones(2, 4).cuda()\n{line}\n")
    assert ("edges.py" not in found) == usual


# ---- runs that follow ----------------------------------------------------------------------------


def test_a_program_that_grows_gets_more_and_nothing_goes(tmp_path: Path) -> None:
    small = of(tmp_path, ONCE)
    more = of(tmp_path, TRAINING)
    assert small < more
    assert of(tmp_path, ONCE) == more  # what is there may be another program's
    assert not migrate_paths([tmp_path], "torchax").companions


def test_two_programs_of_a_folder_share_a_copy(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a.py": ONCE, "b.py": PROGRAMS["memory"]})
    together = set(written(tmp_path, "torchax"))
    assert "memory.py" in together
    migrate_paths([tmp_path / "a.py"], "torchax", write=True, allow_dirty=True)
    assert {p.name for p in (tmp_path / "tpu_runtime").iterdir()} == together


def test_a_copy_of_another_version_is_brought_up_to_date(tmp_path: Path) -> None:
    of(tmp_path, ONCE)
    folder = tmp_path / "tpu_runtime"
    (folder / "views.py").write_text("# older\n")
    (folder / "parts.py").write_text("# older\n")
    files = written(tmp_path, "torchax")
    it = bundle(targets()["torchax"]).files
    assert files["views.py"] == it["views.py"] and files["parts.py"] == it["parts.py"]
    assert not missing(files)
