"""What a rewrite may drop: only what is shown to do nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import DEVICE, TARGETS, migrated, reported, run, write_tree

from migrator import migrate_paths

LINES = (
    "x = x.cuda({})",
    "device = torch.device(f'cuda:{{{}}}')",
    "torch.cuda.set_device({})",
    "loader = torch.utils.data.DataLoader(data, pin_memory={})",
    "model = torch.nn.DataParallel(model, device_ids=[{}])",
    "with torch.cuda.device({}):\n    run()",
    "g = torch.Generator(device={})",
    "torch.backends.cudnn.benchmark = {}",
)
ACTS = (
    "queue.get()",
    "next(ids)",
    "get_rank()",  # whatever it is called
    "local_rank.pop()",
    "torch.randint(8, (1,)).item()",
    "(n := 0)",
)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("acts", ACTS)
@pytest.mark.parametrize("line", LINES)
def test_what_may_do_something_is_not_dropped(line: str, acts: str, target: str) -> None:
    source = (
        f"import torch\nfrom mine import get_rank, ids, queue, local_rank\n{line.format(acts)}\n"
    )
    assert acts in migrated(source, target)


@pytest.mark.parametrize(
    "index",
    [
        "0", "gpus[0]", "args.gpu", "int(os.environ['LOCAL_RANK'])", "os.environ.get('GPU', 0)",
        "dist.get_rank() % torch.cuda.device_count()", "y.get_device()", "min(rank, 3)",
        "own_rank()", "{'a': 0}.get('a')", "next(model.parameters()).device",
    ],
)  # fmt: skip
def test_what_only_gives_a_value_is_dropped(index: str) -> None:
    source = f"""import os
import torch
import torch.distributed as dist

model = torch.nn.Linear(1, 1)


def own_rank():
    if not dist.is_initialized():
        return 0
    assert dist.is_available(), "a launcher is missing"
    rank = dist.get_rank()
    return rank


x = x.cuda({index})
"""
    assert 'x = x.to("jax")' in migrated(source).replace("'jax'", '"jax"')


@pytest.mark.parametrize(
    "body", ["seen.append(1)", "global n\n    n = 1", "print(1)", "yield 1", "assert seen.pop()"]
)
def test_a_function_of_the_project_is_looked_into(tmp_path: Path, body: str) -> None:
    files = {
        "ranks.py": f"def pick():\n    {body}\n    return 0\n\n\ndef only():\n    return 0\n",
        "use.py": "import torch\nfrom ranks import only, pick\n\n\ndef f(x):\n"
        "    return x.cuda(only()), x.cuda(pick())\n",
    }
    write_tree(tmp_path, files)
    (result,) = [f.result for f in migrate_paths([tmp_path]).files if f.path.name == "use.py"]
    assert 'return x.to("jax"), x.cuda(pick())' in result.source.decode()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("test", ["torch.rand(1) > 0.5", "len(queue.get())", "getattr(it(), 'x')"])
def test_a_test_that_does_something_stays(test: str, target: str) -> None:
    source = f"import torch\nif {test}:\n    torch.cuda.empty_cache()\n"
    assert f"if {test}:\n    pass\n" in migrated(source, target)


def test_what_would_be_dropped_is_said() -> None:
    result = run("x = x.cuda(queue.get())\n")
    assert reported(result) == ["x.cuda"]
    (found,) = result.diagnostics
    assert found.message == "the rewrite would drop queue.get(); move it to its own line"
    assert DEVICE["torchax"] not in result.source.decode()


def test_a_look_into_keyword_arguments_is_dropped() -> None:
    source = """import torch

def make(options, **kwargs):
    return torch.cuda.amp.GradScaler(enabled={}.get("fp16", False))
"""
    assert 'torch.amp.GradScaler("cpu", enabled=False)' in migrated(source.format("kwargs"))
    assert 'options.get("fp16", False)' in migrated(source.format("options"))


ITERATORS = """
import torch
numbers = iter([0, 1])
lines = open("gpus")
def walk():
    yield 0
steps = walk()
class Things:
    @property
    def gpu(self):
        self.asked = True
        return 0
    @property
    def plain(self):
        return self._plain
    def __getitem__(self, key):
        return self.queue.pop()
things = Things()
held = [0, 1]
"""


@pytest.mark.parametrize(
    ("index", "acts"),
    [
        ("min(numbers)", True),
        ("list(steps)[0]", True),
        ("[int(line) for line in lines][0]", True),
        ("things.gpu", True),
        ("things[0]", True),
        ("things.plain", False),
        ("max(held)", False),
        ("[int(number) for number in held][0]", False),
        ("list(range(3))[0]", False),
    ],
)
def test_an_iterator_that_is_read_and_a_property_that_acts_stay(index: str, acts: bool) -> None:
    assert (index in migrated(f"{ITERATORS}torch.cuda.set_device({index})\n")) is acts


def test_what_a_new_condition_would_leave_out_stays() -> None:
    source = "import torch\nfrom mine import pick\ntorch.cuda.set_device({})\n"
    assert migrated(source.format("pick()"), "torch_tpu") == source.format("pick()")
    assert "if torch.cuda.is_available():" in migrated(source.format("1"), "torch_tpu")
