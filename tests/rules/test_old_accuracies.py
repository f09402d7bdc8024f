"""Accuracies of old examples of PyTorch: `prec1[0]` of a sum over one dimension, and a view of what
compares a transposed tensor."""

from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import migrated, write_tree

from migrator import migrate_paths

ACCURACY = """\
def accuracy(output, target, topk=(1,)):
    correct = output.topk(max(topk), 1)[1].t().eq(target.view(1, -1))
    res = []
    for k in topk:
        correct_k = @SUM@
        res.append(correct_k.mul_(100.0 / target.size(0)))
    return res
"""
SUM = "correct[:k].view(-1).float().sum(0)"
TRAIN = """\
import torch
@IMPORT@
x = torch.ones(3, 6).cuda()
prec1, prec5 = accuracy(x, torch.zeros(3).long().cuda(), topk=(1, 5))
meter.update(prec1[0], x.size(0))
"""


def _source(total: str) -> str:
    return TRAIN.replace("@IMPORT@", "\n\n" + ACCURACY.replace("@SUM@", total) + "\n")


def test_the_number_is_taken() -> None:
    text = migrated(_source(SUM))
    assert "meter.update(prec1.item(), x.size(0))" in text
    seen: list[float] = []
    scope = {"meter": type("Meter", (), {"update": lambda self, value, n: seen.append(value)})()}
    exec(text.replace('.to("jax")', ""), scope)
    assert seen and isinstance(seen[0], float)


@pytest.mark.parametrize(
    "total",
    [
        "correct[:k].view(-1).float().sum(0, keepdim=True)",
        "correct[:k].view(-1).float().sum(0, True)",
        "correct[:k].float().sum(0)",
        "correct[:k].view(-1, 1).float().sum(0)",
        "count(correct, k)",
    ],
)
def test_what_keeps_a_dimension_stays(total: str) -> None:
    assert "prec1[0]" in migrated(_source(total))


def test_a_list_that_gets_something_else_stays() -> None:
    source = _source(SUM).replace("    return res", "    res.append(output)\n    return res")
    assert "prec1[0]" in migrated(source)


def test_the_function_may_be_in_another_file(tmp_path: Path) -> None:
    files = {
        "utils.py": ACCURACY.replace("@SUM@", SUM),
        "train.py": TRAIN.replace("@IMPORT@", "from utils import accuracy"),
    }
    report = migrate_paths([write_tree(tmp_path, files)], "torchax")
    [text] = [f.result.source.decode() for f in report.files if f.path.name == "train.py"]
    assert "prec1.item()" in text


@pytest.mark.parametrize("names", ["", "__all__ = ['accuracy']\n"])
def test_a_package_may_bring_it_by_a_star_import(tmp_path: Path, names: str) -> None:
    files = {
        "utils/__init__.py": "from .meters import *\nfrom .eval import *\n",
        "utils/meters.py": "__all__ = ['Meter']\nclass Meter: pass\ndef accuracy(): return 1\n",
        "utils/eval.py": names + ACCURACY.replace("@SUM@", SUM),
        "train.py": TRAIN.replace("@IMPORT@", "from utils import accuracy"),
    }
    report = migrate_paths([write_tree(tmp_path, files)], "torchax")
    [text] = [f.result.source.decode() for f in report.files if f.path.name == "train.py"]
    assert "prec1.item()" in text


def test_what_a_library_may_bring_as_well_stays(tmp_path: Path) -> None:
    files = {
        "utils/__init__.py": "from .eval import *\nfrom metrics_of_a_library import *\n",
        "utils/eval.py": ACCURACY.replace("@SUM@", SUM),
        "train.py": TRAIN.replace("@IMPORT@", "from utils import accuracy"),
    }
    report = migrate_paths([write_tree(tmp_path, files)], "torchax")
    [text] = [f.result.source.decode() for f in report.files if f.path.name == "train.py"]
    assert "prec1[0]" in text


VIEW = """\
import torch
def accuracy(output, target, maxk):
    _, pred = output.cuda().topk(maxk, 1, True, True)
    pred = pred.t()
    correct = @COMPARED@
    return [correct[:k].@READ@ for k in (1, maxk)]
"""
READ = "view(-1).float().sum(0)"


def _viewed(compared: str, read: str = READ) -> str:
    return migrated(VIEW.replace("@COMPARED@", compared).replace("@READ@", read))


@pytest.mark.parametrize(
    "compared", ["pred.eq(target.view(1, -1).expand_as(pred))", "pred == target.view(1, -1)"]
)
def test_what_compares_a_transposed_tensor_has_no_view_as_one_row(compared: str) -> None:
    text = _viewed(compared)
    scope: dict[str, Any] = {}
    exec(text.replace('.to("jax")', ""), scope)
    output = torch.randn(8, 9, generator=torch.Generator().manual_seed(0))
    top1, top5 = scope["accuracy"](output, torch.arange(8), 5)
    assert top1 == (output.argmax(1) == torch.arange(8)).sum()
    assert top5 == (output.topk(5, 1)[1] == torch.arange(8)[:, None]).sum()
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        exec(
            VIEW.replace("@COMPARED@", compared).replace("@READ@", READ).replace(".cuda()", ""),
            scope,
        )
        scope["accuracy"](output, torch.arange(8), 5)


@pytest.mark.parametrize(
    ("compared", "read"),
    [
        ("output.eq(target[:, None])", READ),
        ("pred.eq(target.view(1, -1))", "view(-1).zero_()"),
        ("pred.eq(target.view(1, -1))", "view(-1, 2).float().sum(0)"),
        ("count(pred, target)", READ),
    ],
)
def test_other_views_stay(compared: str, read: str) -> None:
    assert f"correct[:k].{read}" in _viewed(compared, read)
