"""`d[mask] = x[mask]`, rewritten, does on a device what it did on the CPU, at random shapes.

Values, gradients, and what other views of the same memory see.
"""

from __future__ import annotations

import random

import pytest
import torch
import tpu_runtime as tpu
from helpers import migrated

from tests.runtime.support import DEVICE, TARGET, agree

tpu.setup()

MASKS = (
    "x < d",
    "d >= x",
    "d == n",
    "(d > n) & (x != d)",
    "~(d > n) | (x < n)",
    "(d > 0) ^ (d > x)",
)
TARGETS = ("first * 1", "(first * 1)[1:]", "(first * 1).transpose(0, -1)", "(first * 1)[..., ::2]")
VALUES = (
    "torch.broadcast_to(other, d.shape).clone()",
    "torch.broadcast_to(other, d.shape)",
    "d.view_as(d)[:]",
    "d.detach().flip(0)",
    "torch.sort(d, 0)[0]",
)
USES = ("d[{m}] = x[{m}]", "d[~{m}] = x[~{m}]", "d[{m}] = x[{m}]\n        x = d.flip(0)")


def program(seed: int) -> str:
    """A function that writes through masks, some of them several times."""
    draw = random.Random(seed)
    mask, use = draw.choice(MASKS), draw.choice(USES)
    return f"""import torch


def write(base, given, n):
    first, other = torch.abs(base), torch.neg(given)
    whole = {draw.choice(TARGETS)}
    d = torch.clone(whole) if {draw.random() < 0.3} else torch.narrow(whole, 0, 0, 2)
    x = torch.as_tensor({draw.choice(VALUES)})
    for _ in range({draw.randint(1, 3)}):
        mask = {mask}
        {use.format(m="mask")}
    return whole, d
"""


def run(source: str, seed: int, device: torch.device) -> list[torch.Tensor]:
    draw = random.Random(-seed - 1)
    shape = [draw.randint(3, 4) for _ in range(draw.randint(1, 3))]
    made = torch.Generator().manual_seed(seed)
    kind = draw.choice([torch.float32, torch.float32, torch.int64, torch.int32])
    values = [torch.randint(-3, 4, shape, generator=made) for _ in range(2)]
    base, given = (v.to(kind).to(device) for v in values)
    given = given[:1, ..., :1] if draw.random() < 0.5 else given
    for each in (base, given) if kind.is_floating_point else ():
        each.requires_grad_()
    names: dict[str, object] = {}
    exec(source, names)
    results = names["write"](base, given, draw.randint(0, 2))  # type: ignore[operator]
    if kind.is_floating_point:
        total = sum((r * torch.arange(r.numel(), device=device).view_as(r)).sum() for r in results)
        total.backward()
        results += tuple(torch.zeros(()) if v.grad is None else v.grad for v in (base, given))
    return [r.detach().cpu() for r in results]


@pytest.mark.parametrize("seed", range(60))
def test_the_choice_is_the_assignment(seed: int) -> None:
    source = program(seed)
    edited = migrated(source, TARGET, entry=False)
    assert edited.count(".copy_(torch.where(") == 1, edited
    try:
        expected = run(source, seed, torch.device("cpu"))
    except (RuntimeError, IndexError):  # the shapes don't fit, or a view can't be written
        with pytest.raises((RuntimeError, IndexError, ValueError)):
            run(edited, seed, DEVICE)
        return
    for found, right in zip(run(edited, seed, DEVICE), expected, strict=True):
        agree(found, right, 1e-6)
