"""Integers, bytes and booleans: what is rewritten gives what older versions of PyTorch gave."""

import pytest
import torch
from helpers import constructs, migrated, run

HEAD = """\
import torch

x = torch.tensor([3.0, -1.0, 2.0, 0.0]).cuda()
mask = x > 1
names = torch.arange(8)
"""
REWRITTEN = {
    "y = x[1 - mask]": ("y = x[~mask]", [-1.0, 0.0]),
    "y = x[1 - (x > 1)]": ("y = x[~(x > 1)]", [-1.0, 0.0]),
    "y = (1 - mask) * x": ("y = (~mask) * x", [0.0, -1.0, 0.0, 0.0]),
    "y = (1 - mask).float()": ("y = (~mask).float()", [0.0, 1.0, 0.0, 1.0]),
    "y = (1 - x.eq(0)).long()": ("y = (~x.eq(0)).long()", [1, 1, 1, 0]),
    "y = x.masked_fill(1 - mask, 5)": ("y = x.masked_fill(~mask, 5)", [3.0, 5.0, 2.0, 5.0]),
    "y = names[x.argmax() / 1]": ("y = names[x.argmax() // 1]", 0),
    "best, at = x.topk(2)\ny = names[at / mask.dim()]": ("y = names[at // mask.dim()]", [0, 2]),
    "at = x.sort()[1]\nrow = at / 2\ny = names[row]": ("row = at // 2\ny = names[row]",
                                                         [0, 1, 1, 0]),
}  # fmt: skip


@pytest.mark.parametrize("lines", REWRITTEN)
def test_it_gives_what_it_gave(lines: str) -> None:
    after, expected = REWRITTEN[lines]
    code = migrated(f"{HEAD}{lines}\n")
    assert code.endswith(f"{after}\n")
    scope: dict[str, torch.Tensor] = {}
    exec(code.replace(".to('jax')", "").replace('.to("jax")', ""), scope)
    assert scope["y"].tolist() == expected
    with pytest.raises((RuntimeError, IndexError, TypeError)):
        exec(f"{HEAD}{lines}\n".replace(".cuda()", ""), {})


OLD = "y = torch.gesv(x, x)[0]\n"  # gone since PyTorch 1.2
REPORTED = (
    "y = (1 - mask) + mask",
    "y = 1 - mask\nprint(y)",
    "y = mask - mask",
    "y = x - mask",
    "y = mask - 1",
    "y = -mask",
    "y = ~mask.byte()",
    "y = ~torch.zeros(3, dtype=torch.uint8)",
    "y = names[x.argmax() / args.width]",
    "y = names[x.long() / 2]",
    f"{OLD}y = names / 2",
    f"{OLD}y = x.argmax() / names",
    "for i in xrange(3):\n    y = x.long() / x.size(0)",
)
AS_IT_STANDS = (
    "y = x.argmax() / 2",
    "y = (x > 1).sum() / len(x)",
    "y = 1 - mask.float()",
    "y = 1 - mask.byte()",
    "y = ~mask",
    "y = 1 - (a > b)",  # may be numbers
    "y = x[0] - x[1]",
    "y = names[x.argmax() // 2]",
    f"{OLD}y = x / 2",
    f"{OLD}y = x.size(0) / 2",
    f"{OLD}y = x.argmax().float() / 2",
    "if torch.__version__ < '1.2':\n    y = x[1 - mask]",
    "y = x[1 - mask]  # tpu-migrate: ignore[UPG008]",
)


@pytest.mark.parametrize("lines", REPORTED)
def test_what_it_means_now_is_reported(lines: str) -> None:
    found = [d for d in constructs(run(f"{HEAD}{lines}\n")) if d.code == "UPG008"]
    assert [str(d.outcome) for d in found] == ["reported"]


@pytest.mark.parametrize("lines", AS_IT_STANDS)
def test_what_means_the_same_stays(lines: str) -> None:
    found = [d for d in constructs(run(f"{HEAD}{lines}\n")) if d.code == "UPG008"]
    assert all(str(d.outcome) == "kept" for d in found)
    assert lines.rpartition("\n")[2] in migrated(f"{HEAD}{lines}\n")
