"""Masks of bytes, which `masked_fill` and others refuse, become booleans."""

import pytest
import torch
from helpers import migrated

HEAD = "import torch\n\nx = torch.ones(2, 3).cuda()\nmask = torch.ByteTensor([1, 0])\n"


@pytest.mark.parametrize(
    ("call", "given"),
    [
        ("torch.masked_select(x, @)", "mask.unsqueeze(1)"),
        ("torch.masked_fill(x, @, 0)", "mask.view(2, 1)"),
        ("x.masked_fill(@, 0)", "mask.unsqueeze(1).expand(2, 3)"),
        ("x.masked_select(@)", "torch.ByteTensor([1, 0, 1])"),
        ("x.masked_fill_(@, 0)", "torch.zeros(2, 1, dtype=torch.uint8)"),
    ],
)
def test_a_mask_of_bytes_becomes_one_of_booleans(call: str, given: str) -> None:
    text = migrated(f"{HEAD}y = {call.replace('@', given)}\n")
    assert text.endswith(f"y = {call.replace('@', f'{given}.bool()')}\n")
    scope = {"torch": torch, "x": torch.ones(2, 3), "mask": torch.ByteTensor([1, 0])}
    with pytest.raises(RuntimeError, match=r"BoolTensor|boolean"):
        exec(f"y = {call.replace('@', given)}", scope)
    exec(text.splitlines()[-1], scope)


@pytest.mark.parametrize("given", ["mask.unsqueeze(1) == 0", "mask.unsqueeze(1).bool()", "other"])
def test_other_masks_stay(given: str) -> None:
    assert migrated(f"{HEAD}y = x.masked_fill({given}, 0)\n").endswith(
        f"y = x.masked_fill({given}, 0)\n"
    )
