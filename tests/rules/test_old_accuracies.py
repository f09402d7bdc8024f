"""`prec1[0]` of an accuracy that is a sum over one dimension, as in old examples of PyTorch."""

from pathlib import Path

import pytest
from helpers import constructs, migrated, run, write_tree

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
    plain = text.replace('.to("jax")', "").replace(".view(-1).float", ".reshape(-1).float")
    exec(plain, scope)
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
    assert not [d for d in constructs(run(_source(total))) if d.code == "UPG005"]


def test_a_list_that_gets_something_else_stays() -> None:
    source = _source(SUM).replace("    return res", "    res.append(output)\n    return res")
    assert not [d for d in constructs(run(source)) if d.code == "UPG005"]


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
