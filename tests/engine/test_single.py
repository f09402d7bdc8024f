"""One rewrite on its own gives a program, and all of them end where a migration does."""

from __future__ import annotations

import ast
import builtins
from pathlib import Path

import pytest
from helpers import REPOSITORY, TARGETS
from tiers import thorough_but

from migrator.analysis.syntax.names import Names
from migrator.config import Config
from migrator.editor.single import single
from migrator.options import Options
from migrator.pipeline.engine import migrate_file
from migrator.pipeline.result import Result
from migrator.registry import registry
from migrator.rule import Example
from migrator.runs.worker import Worker
from migrator.targets import targets

EXAMPLES = [
    pytest.param(example, id=f"{rule.code}-{number}")
    for rule in registry().rules.values()
    for number, example in enumerate(rule.examples)
]
# All of them hold it; the long ones take a minute each.
APPS = [p for p in sorted((REPOSITORY / "reference_apps").rglob("*.py")) if p.stat().st_size < 4000]


def migrated(source: bytes, target: str, options: Options, path: str = "a.py") -> Result:
    return migrate_file(Path(path), source, targets()[target], options)


def only(source: str, at: str, target: str = "torchax", code: str = "", **options: object) -> str:
    """A snippet in which what is found at some text is rewritten, and nothing else."""
    made = Options(entry=False, **options)  # type: ignore[arg-type]
    whole = migrated(source.encode(), target, made)
    found = [d for d in whole.diagnostics if at in d.construct and d.is_edit]
    wanted = next(d for d in found if d.code.startswith(code))
    return single(Path("a.py"), whole, wanted, [targets()[target]], made).source.decode()


def assert_consistent(whole: Result, after: bytes) -> None:
    """No name is left without a binding that had one, and no import without a use.

    But for those that the whole migration leaves so: `import torch` stays.
    """
    assert unbound(after) <= unbound(whole.original)
    assert unused(after) <= unused(whole.original) | unused(whole.source)


def unbound(source: bytes) -> set[str]:
    names = Names(ast.parse(source))
    loads = [n for found in names.by_id.values() for n in found if isinstance(n.ctx, ast.Load)]
    return {n.id for n in loads if not names.lookup(n)} - set(dir(builtins))


def unused(source: bytes) -> set[str]:
    names = Names(ast.parse(source))
    bound = {a.asname or a.name.split(".")[0] for i in names.imports for a in i.names}
    return {name for name in bound if not any(names.uses(name, names.top))}


# ---- what belongs together -----------------------------------------------------------------------


def test_a_rewrite_brings_the_import_that_it_needs() -> None:
    source = "import torch\n\nx = torch.ones(2).cuda()\nm = torch.cuda.max_memory_allocated()\n"
    memory = "m = tpu_runtime.max_memory_allocated()\n"
    alone = f"import torch\nimport tpu_runtime\n\nx = torch.ones(2).cuda()\n{memory}"
    assert only(source, "max_memory_allocated") == alone
    assert only(source, ".cuda") == source.replace(".cuda()", '.to("jax")')


def test_an_import_goes_with_its_last_use() -> None:
    source = """import torch
from torch.cuda import synchronize

synchronize()
x = torch.ones(2)
synchronize(0)
"""
    first = migrated(source.encode(), "torchax", Options(entry=False))
    places = [d for d in first.diagnostics if d.construct.startswith("synchronize")]
    assert len(places) == 2
    for wanted in places:
        part = single(Path("a.py"), first, wanted, [targets()["torchax"]], Options(entry=False))
        assert "from torch.cuda import synchronize\n" in part.source.decode()
        rest = migrated(part.source, "torchax", Options(entry=False))
        assert rest.source == first.source
        assert "import synchronize" not in rest.source.decode()


def test_a_type_goes_with_what_is_converted_to_it() -> None:
    source = """import torch

cuda = torch.cuda.is_available()
Tensor = torch.cuda.FloatTensor if cuda else torch.FloatTensor


def step(images):
    real = images.type(Tensor)
    return real


def other(x):
    return torch.ones(2).cuda()
"""
    part = only(source, "torch.cuda.FloatTensor")
    assert "tpu_runtime.cast(images, Tensor)" in part
    assert "torch.ones(2).cuda()" in part  # what has nothing to do with it stays


def test_what_is_beside_it_on_a_line_stays() -> None:
    source = 'import torch\n\nx, y = a.cuda(), b.to("cuda")\n'
    assert only(source, "a.cuda") == 'import torch\n\nx, y = a.to("jax"), b.to("cuda")\n'


def test_an_import_of_a_library_goes_with_its_uses_and_nothing_more() -> None:
    source = """import torch
from apex.optimizers import FusedAdam

model = torch.nn.Linear(4, 2).cuda()
optimizer = FusedAdam(model.parameters())
"""
    part = only(source, "import FusedAdam")
    assert "apex" not in part and "FusedAdam(" not in part
    assert ".cuda()" in part


def test_a_cell_of_a_notebook_by_itself() -> None:
    book = (
        b'{"cells": [{"cell_type": "code", "source": "import torch\\nx = torch.ones(2).cuda()"},'
        b'{"cell_type": "code", "source": "y = x.to(\'cuda\')"}], "metadata": {}, "nbformat": 4}'
    )
    options, path = Options(), Path("a.ipynb")
    whole = migrate_file(path, book, targets()["torchax"], options)
    wanted = next(d for d in whole.diagnostics if d.range.cell == 2 and d.is_edit)
    part = single(path, whole, wanted, [targets()["torchax"]], options)
    assert b"y = x.to('jax')" in part.source and b"ones(2).cuda()" in part.source


# ---- the property --------------------------------------------------------------------------------


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("example", EXAMPLES)
def test_every_rewrite_of_the_examples(example: Example, target: str) -> None:
    options = Options(
        entry=example.script, unsafe=example.unsafe, portable=example.portable,
        shard=example.shard, replace=example.replace,
    )  # fmt: skip
    path, words = Path(example.path), targets()[target]
    now = migrate_file(path, example.before.encode(), words, options)
    end, steps = now.source, 0
    while now.changed:
        parts = [single(path, now, d, [words], options) for d in now.diagnostics if d.is_edit]
        changing = [part for part in parts if part.changed]
        for part in changing:
            if path.suffix == ".py":
                assert_consistent(now, part.source)
        assert changing, "nothing can be rewritten by itself"
        now = migrate_file(path, changing[0].source, words, options)
        steps += 1
        assert steps < 50
    assert now.source == end


@pytest.mark.parametrize("target", thorough_but(TARGETS[:1], TARGETS))
def test_every_rewrite_of_the_apps(target: str) -> None:
    """Each in turn; the files around it are those of the app."""
    made = 0
    for path in APPS:
        worker = Worker([path.parent], [targets()[target]], Config())
        options, words = Options(), targets()[target]
        project = worker.project(path)
        now = migrate_file(path, path.read_bytes(), words, options, project)
        end = now.source
        while now.changed:
            wanted = next(d for d in now.diagnostics if d.is_edit)
            part = single(path, now, wanted, [words], options, project)
            assert part.changed
            assert_consistent(now, part.source)
            made += part.source != end
            project = project.with_files({path.resolve(): part.source})
            now = migrate_file(path, part.source, words, options, project)
        assert now.source == end
    assert made > 10
