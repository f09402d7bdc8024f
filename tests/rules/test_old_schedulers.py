"""A scheduler's `verbose` that is given without its name, and lists of Python 2."""

import pytest
import torch
from helpers import constructs, migrated, run

from migrator.analysis import old_calls
from migrator.analysis.upgrade_tables import removed_arguments

HEAD = (
    "import torch\nfrom torch.optim.lr_scheduler import *\nfrom torch.optim import lr_scheduler\n"
)
MODEL = "\nx = torch.ones(3).cuda()\n"
WITH_PLACE = [(gone.name, gone.takes) for gone in removed_arguments().values() if gone.takes]


@pytest.mark.parametrize(("name", "takes"), WITH_PLACE)
def test_it_goes(name: str, takes: int) -> None:
    given = ", ".join(f"a{place}" for place in range(takes))
    head = f"import torch\n{MODEL}"
    for value in ("True", "False"):
        source = f"{head}y = {name}({given}, {value})\n"
        assert f"y = {name}({given})\n" in migrated(source)
        assert old_calls.may_be_in(source.encode())
    assert f"y = {name}({given})\n" in migrated(f"{head}y = {name}({given})\n")
    found = [
        d for d in constructs(run(f"{head}y = {name}({given}, v)\n")) if d.code == "UPG003"
    ]  # fmt: skip
    said = [str(d.outcome) for d in found]
    assert said == ([] if name.endswith("ReduceLROnPlateau") else ["reported"])


def test_what_comes_after_it_stays() -> None:
    """PyTorch 1.7 had `verbose` in front of `threshold`, which PyTorch 2 has in its place."""
    call = "lr_scheduler.ReduceLROnPlateau(o, 'min', 0.1, 2, {}0.5)"
    line = migrated(f"{HEAD}{MODEL}y = {call.format('True, ')}\n").splitlines()[-1]
    assert line == f"y = {call.format('')}"
    given = {
        "lr_scheduler": torch.optim.lr_scheduler,
        "o": torch.optim.SGD([torch.ones(1)], lr=1.0),
    }
    exec(line, given)
    assert given["y"].threshold == 0.5  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("d.keys()[0]", "list(d.keys())[0]"),
        ("d.values()[-1]", "list(d.values())[-1]"),
        ("d.items()[:2]", "list(d.items())[:2]"),
        ("zip(a, b)[0]", "list(zip(a, b))[0]"),
        ("map(f, a)[1:]", "list(map(f, a))[1:]"),
        ("d.keys()[i]", "d.keys()[i]"),  # may be an array
        ("d.values()[0, 1]", "d.values()[0, 1]"),
        ("f.map(a)[0]", "f.map(a)[0]"),
        ("torch.keys()[0]", "torch.keys()[0]"),
    ],
)
def test_a_list_of_python_2_is_made_one(before: str, after: str) -> None:
    source = f"import torch\n{MODEL}y = {before}\n"
    assert migrated(source).endswith(f"y = {after}\n")
    assert before == after or old_calls.may_be_in(source.encode())


def test_a_zip_of_the_programs_own_stays() -> None:
    source = f"import torch\n{MODEL}\n\ndef zip(a):\n    return a\n\n\ny = zip(a)[0]\n"
    assert migrated(source).endswith("y = zip(a)[0]\n")
