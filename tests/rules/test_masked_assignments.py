"""Writing through a mask: torch.where where all shapes are shown to be one, else as it is."""

from __future__ import annotations

import pytest
from helpers import TARGETS, migrated

HEAD = "import torch\nx = torch.rand(4, 3).cuda()\nd = torch.full((4, 3), 0.5).cuda()\n"
X, D = "x = torch.rand(4, 3)", "d = torch.full((4, 3), 0.5)"


def edited(lines: str, target: str = "torchax") -> str:
    return migrated(f"import torch\n{X}.cuda()\n{D}.cuda()\n{lines}\n", target, entry=False)


REWRITTEN = {
    "m = x < d\nd[m] = x[m]": "d.copy_(torch.where(m, x, d))",
    "m = d >= x\nd[m] = x[m]  # kept": "d.copy_(torch.where(m, x, d))  # kept",
    "m = d == x\nx[~m] = d[~m]": "x.copy_(torch.where(~m, d, x))",
    "d[x < d] = x[x < d]": "d.copy_(torch.where(x < d, x, d))",
    "m = x < d\nprint(m)\nif y:\n    d[m] = x[m]": "d.copy_(torch.where(m, x, d))",
    "for _ in range(3):\n    m = x < d\n    d[m] = x[m]": "d.copy_(torch.where(m, x, d))",
    "m = d == 2\nd[m] = x[m]": "d.copy_(torch.where(m, x, d))",
    "m = (d > 0) & ~(x > y)\nd[m] = x[m]": "d.copy_(torch.where(m, x, d))",
    "d = d.sort(dim=-1)[0][:, :2]\nx = d[:, :1].repeat(1, 2)\nd[d > y] = x[d > y]": (
        "d.copy_(torch.where(d > y, x, d))"
    ),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("lines", REWRITTEN)
def test_a_mask_of_the_target_becomes_a_choice(lines: str, target: str) -> None:
    assert REWRITTEN[lines] in edited(lines, target)


@pytest.mark.parametrize(
    "lines",
    [
        "m = x > 0\nd[m] = x[m]",  # d may have more dimensions
        "m = x < d.mean()\nd[m] = x[m]",
        "m = x < d\nd[m] += x[m]",
        "m = x < d\nd[m] = y[m]",
        "m = x < d\nd[m] = x[n]",
        "m = (d > 0) & y\nd[m] = x[m]",  # y may hold numbers: then m has positions
        "d[d > f()] = x[d > f()]",
        "d = d[:1].expand(4, 3)\nd[d > y] = x[d > y]",
        "m = d + x\nd[m] = x[m]",
        "m = x < d\nd = d[0]\nd[m] = x[m]",
        "x = f()\nm = d > 0\nd[m] = x[m]",  # it may be NumPy's
        "m = x < d\nd.unsqueeze_(0)\nd[m] = x[m]",
        "m = x < d\nif y:\n    m = x > d\nd[m] = x[m]",
        "m = x < d\nfor _ in range(2):\n    d[m] = x[m]\n    d = d[0]",
        "import numpy as np\nx, d = np.ones(3), np.ones(3)\nm = x < d\nd[m] = x[m]",
        "m = x < d\nd[m, 0] = x[m, 0]",
        "m = x < d\nd[m] = d[m]",
    ],
)
def test_other_masks_stay(lines: str) -> None:
    assert lines in edited(lines)


def test_a_file_without_words_of_gpus_is_looked_at() -> None:
    source = (
        "import torch\n\n\ndef nearest(xyz):\n    dist, distance = torch.abs(xyz), torch.ones(3)\n"
        "    mask = dist < distance\n"
        "    distance[mask] = dist[mask]\n    return distance\n"
    )
    assert "distance.copy_(torch.where(mask, dist, distance))" in migrated(source, entry=False)
