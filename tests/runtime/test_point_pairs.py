"""torch_cluster's neighbours of the runtime, against its CUDA kernels in loops."""

import math
from itertools import product

import pytest
import torch
import tpu_runtime as tpu
from library_references import made
from target import WORD
from torch import Tensor
from tpu_runtime import torch_cluster

tpu.setup()

Pairs = list[tuple[int, int]]
INTEGERS = (torch.int64, torch.int32)  # torchax has the latter alone


def distance(a: Tensor, b: Tensor, cosine: bool = False) -> float:
    a, b = a.double(), b.double()
    if cosine:
        return 1 - float(a @ b / (a.norm() * b.norm()))
    return float(((a - b) ** 2).sum())


def candidates(x: Tensor, y: Tensor, batch_x: list[int], batch_y: list[int]) -> list[list[int]]:
    return [[j for j in range(len(x)) if batch_x[j] == batch_y[i]] for i in range(len(y))]


def nearest(
    x: Tensor, y: Tensor, k: int, batch_x: list[int], batch_y: list[int], cosine: bool = False
) -> Pairs:
    pairs = []
    for i, near in enumerate(candidates(x, y, batch_x, batch_y)):
        near.sort(key=lambda j: round(distance(x[j], y[i], cosine), 6))
        pairs += [(i, j) for j in near[:k]]
    return pairs


def within(
    x: Tensor, y: Tensor, r: float, batch_x: list[int], batch_y: list[int], most: int, loop: bool
) -> Pairs:
    pairs = []
    for i, near in enumerate(candidates(x, y, batch_x, batch_y)):
        found = [j for j in near if distance(x[j], y[i]) < r * r and (loop or i != j)]
        pairs += [(i, j) for j in found[:most]]
    return pairs


def listed(pairs: Tensor) -> Pairs:
    assert pairs.dtype in INTEGERS and pairs.device.type == WORD
    rows, columns = pairs.cpu().tolist()
    return list(zip(rows, columns, strict=True))


EXAMPLES = [0] * 9 + [1] * 2 + [3] * 9  # the second is smaller than k, the third has no points


def points() -> tuple[Tensor, Tensor]:
    x, y = made((20, 3), (6, 3))
    x[4] = x[2]
    x[15:18] = x[14]
    return x, y


@pytest.mark.parametrize(("k", "cosine"), [(1, False), (4, False), (3, True), (50, False)])
def test_nearest(k: int, cosine: bool) -> None:
    x, y = points()
    batch = [0, 0, 1, 1, 3, 3]
    given = x.to(WORD).requires_grad_(), y.to(WORD)
    found = torch_cluster.knn(*given, k, cosine=cosine)
    assert listed(found) == nearest(x, y, k, [0] * 20, [0] * 6, cosine)
    of_examples = (torch.tensor(each).to(WORD) for each in (EXAMPLES, batch))
    found = torch_cluster.knn(*given, k, *of_examples, cosine)
    assert listed(found) == nearest(x, y, k, EXAMPLES, batch, cosine)


@pytest.mark.parametrize(("r", "most"), [(0.9, 32), (2.0, 3), (0.01, 1)])
def test_within_a_radius(r: float, most: int) -> None:
    x, y = points()
    batch = [0, 0, 1, 1, 3, 3]
    of_examples = (torch.tensor(each).to(WORD) for each in (EXAMPLES, batch))
    found = torch_cluster.radius(x.to(WORD), y.to(WORD), r, *of_examples, most)
    assert listed(found) == within(x, y, r, EXAMPLES, batch, most, True)


@pytest.mark.parametrize(("loop", "turned"), [*product([False, True], [False, True])])
def test_graphs(loop: bool, turned: bool) -> None:
    (x, _), batch = points(), torch.tensor(EXAMPLES).to(WORD)
    given = x.to(WORD)
    flow = "target_to_source" if turned else "source_to_target"
    around = nearest(x, x, 3 if loop else 4, EXAMPLES, EXAMPLES)
    pairs = [(i, j) for i, j in around if loop or i != j]
    found = torch_cluster.knn_graph(given, 3, batch, loop, flow)
    assert listed(found if turned else found.flip(0)) == pairs
    found = torch_cluster.radius_graph(given, 1.2, batch, loop, 3, flow)
    pairs = within(x, x, 1.2, EXAMPLES, EXAMPLES, 3, loop)
    assert listed(found if turned else found.flip(0)) == pairs


def test_numbers_on_a_line_and_no_points() -> None:
    x = torch.tensor([0.0, 1.0, 3.0, math.pi]).to(WORD)
    assert listed(torch_cluster.knn_graph(x, 1)) == [(1, 0), (0, 1), (3, 2), (2, 3)]
    assert listed(torch_cluster.radius(x, x[:1], 1.0)) == [(0, 0)]  # nearer than the radius
    for nothing in (torch_cluster.knn(x[:0], x, 1), torch_cluster.radius(x, x[:0], 1.0)):
        assert nothing.shape == (2, 0) and nothing.dtype in INTEGERS


def test_gradients_pass_through_what_is_gathered() -> None:
    """Edges have none themselves; features of neighbours do, as with the library."""
    (x, _), (weights,) = points(), made((20, 3))
    sums = []
    for place in (WORD, "cpu"):
        given = x.to(place).requires_grad_()
        source, at = torch_cluster.knn_graph(given, 3)
        assert not source.requires_grad
        moved = (given[source] - given[at]).tanh()
        (moved.sum(0) * weights.to(place)[:1]).sum().backward()
        assert given.grad is not None
        sums.append(given.grad.cpu())
    assert torch.allclose(*sums, atol=1e-5)
