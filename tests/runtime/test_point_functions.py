"""What the runtime has of libraries for point clouds, against their formulas in loops."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import tpu_runtime as tpu
from library_references import agrees, made
from target import TARGET, WORD
from tiers import thorough_but
from torch import Tensor
from tpu_runtime import chamfer, knn_cuda, pointnet2_utils

from migrator import migrate_paths
from migrator.config import Config
from tests.runtime.several_devices import execute

tpu.setup()


def squared(a: Tensor, b: Tensor) -> float:
    return float(((a.double() - b.double()) ** 2).sum())


def test_farthest_points() -> None:
    (points,) = made((2, 40, 3))
    points[:, 7] = 0.01  # near the origin: padding
    points[0, 20] = points[0, 3]
    expected = []
    for cloud in points:
        nearest, chosen = [math.inf] * 40, [0]
        while len(chosen) < 12:
            nearest = [min(d, squared(p, cloud[chosen[-1]])) for d, p in
                       zip(nearest, cloud, strict=True)]  # fmt: skip
            far = [d if float(p.square().sum()) > 1e-3 else -1 for d, p in
                   zip(nearest, cloud, strict=True)]  # fmt: skip
            chosen.append(int(np.argmax(far)))
        expected.append(chosen)
    found = pointnet2_utils.furthest_point_sample(points.to(WORD).requires_grad_(), 12)
    assert found.dtype == torch.int32 and not found.requires_grad
    assert found.cpu().tolist() == expected
    turned = points.transpose(1, 2).contiguous().to(WORD).transpose(1, 2)
    assert pointnet2_utils.furthest_point_sample(turned, 12).cpu().tolist() == expected
    origin = torch.zeros(1, 3, 3).to(WORD)
    assert pointnet2_utils.furthest_point_sample(origin, 3).cpu().tolist() == [[0, 0, 0]]


def within(radius: float, count: int, points: Tensor, centres: Tensor) -> list[Any]:
    rows = []
    for cloud, middle in zip(points, centres, strict=True):
        for centre in middle:
            near = [i for i, p in enumerate(cloud) if squared(p, centre) < radius**2][:count]
            rows.append(near + [near[0] if near else 0] * (count - len(near)))
    return rows


@pytest.mark.parametrize(("radius", "count"), [(0.9, 4), (3.0, 4), (0.5, 40)])
def test_ball_query(radius: float, count: int) -> None:
    points, centres = made((2, 30, 3), (2, 5, 3))
    centres[1, 2] = 100  # nothing is near
    found = pointnet2_utils.ball_query(radius, count, points.to(WORD), centres.to(WORD))
    assert found.dtype == torch.int32 and found.shape == (2, 5, count)
    assert found.flatten(0, 1).cpu().tolist() == within(radius, count, points, centres)


def test_groups() -> None:
    points, centres, features = made((2, 30, 3), (2, 5, 3), (2, 6, 30))
    index = torch.tensor(within(1.0, 4, points, centres)).unflatten(0, (2, 5))

    def expected(points: Tensor, centres: Tensor, features: Tensor) -> Tensor:
        groups = []
        for b in range(2):
            columns = [torch.cat([points[b, i] - centres[b, p], features[b, :, i]])
                       for p in range(5) for i in index[b, p].tolist()]  # fmt: skip
            groups.append(torch.stack(columns, 1).unflatten(1, (5, 4)))
        return torch.stack(groups)

    group = pointnet2_utils.QueryAndGroup(1.0, 4)
    agrees(group, expected, points, centres, features)
    given = points.to(WORD), centres.to(WORD)
    assert torch.allclose(group(*given).cpu(), expected(points, centres, features)[:, :3])
    alone = pointnet2_utils.QueryAndGroup(1.0, 4, use_xyz=False)(*given, features.to(WORD))
    assert torch.equal(alone.cpu(), expected(points, centres, features)[:, 3:])
    everything = pointnet2_utils.GroupAll()(given[0], None, features.to(WORD)).cpu()
    assert torch.equal(everything, torch.cat([points.transpose(1, 2), features], 1)[:, :, None])


def test_features_of_some_points() -> None:
    (features,) = made((2, 6, 30))
    index = torch.tensor([[3, 29, 3], [0, 1, 2]], dtype=torch.int32)
    agrees(
        lambda x: pointnet2_utils.gather_operation(x, index.to(WORD)),
        lambda x: torch.stack([x[b][:, index[b].tolist()] for b in range(2)]),
        features,
    )


def nearest(points: Tensor, others: Tensor, count: int) -> tuple[Tensor, Tensor]:
    distances = torch.tensor(
        [[[math.sqrt(squared(p, o)) for o in others[b]] for p in points[b]] for b in range(2)]
    )
    return distances.sort(-1).values[..., :count], distances.argsort(-1)[..., :count]


def test_three_nearest() -> None:
    unknown, known, features = made((2, 7, 3), (2, 9, 3), (2, 4, 9))
    distances, index = pointnet2_utils.three_nn(unknown.to(WORD).requires_grad_(), known.to(WORD))
    right, at = nearest(unknown, known, 3)
    assert not distances.requires_grad and index.dtype == torch.int32
    assert torch.allclose(distances.cpu(), right) and index.cpu().tolist() == at.tolist()
    weight = right / right.sum(-1, keepdim=True)

    def expected(x: Tensor) -> Tensor:
        rows = [sum(weight[b, i, k] * x[b, :, at[b, i, k]] for k in range(3))
                for b in range(2) for i in range(7)]  # fmt: skip
        return torch.stack(rows, 1).unflatten(1, (2, 7)).transpose(0, 1)

    agrees(
        lambda x: pointnet2_utils.three_interpolate(x, index, weight.to(WORD)), expected, features
    )


@pytest.mark.parametrize("turned", [False, True])
def test_nearest_neighbours(turned: bool) -> None:
    reference, query = made((2, 9, 3), (2, 5, 3))
    right, at = nearest(query, reference, 4)
    given = [x.to(WORD) if turned else x.transpose(1, 2).to(WORD) for x in (reference, query)]
    found = knn_cuda.KNN(k=4, transpose_mode=turned)(*given)
    distances, index = (x.cpu() if turned else x.cpu().transpose(1, 2) for x in found)
    assert torch.allclose(distances, right) and index.tolist() == at.tolist()


class Chamfer(torch.autograd.Function):
    """How projects use the extension."""

    @staticmethod
    def forward(ctx: Any, xyz1: Tensor, xyz2: Tensor) -> tuple[Tensor, Tensor]:
        dist1, dist2, idx1, idx2 = chamfer.forward(xyz1, xyz2)
        ctx.save_for_backward(xyz1, xyz2, idx1, idx2)
        return dist1, dist2

    @staticmethod
    def backward(ctx: Any, grad_dist1: Tensor, grad_dist2: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        xyz1, xyz2, idx1, idx2 = ctx.saved_tensors
        return chamfer.backward(xyz1, xyz2, idx1, idx2, grad_dist1, grad_dist2)


def test_chamfer_distance() -> None:
    points, others = made((2, 6, 3), (2, 8, 3))

    def expected(points: Tensor, others: Tensor) -> Tensor:
        parts = []
        for b in range(2):
            rows = [[((p - o) ** 2).sum() for o in others[b]] for p in points[b]]
            parts += [torch.stack(row).min() for row in rows]
            parts += [torch.stack(column).min() for column in zip(*rows, strict=True)]
        return torch.stack(parts)

    def found(points: Tensor, others: Tensor) -> Tensor:
        return torch.cat(Chamfer.apply(points, others), 1).flatten()

    agrees(found, expected, points, others)


# ---- migrated programs ---------------------------------------------------------------------------

PROGRAM = """
import torch
import chamfer
from knn_cuda import KNN
from pointnet2_ops import pointnet2_utils
from torch_scatter import scatter_mean


class Chamfer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        dist1, dist2, idx1, idx2 = chamfer.forward(a, b)
        ctx.save_for_backward(a, b, idx1, idx2)
        return dist1, dist2

    @staticmethod
    def backward(ctx, grad1, grad2):
        a, b, idx1, idx2 = ctx.saved_tensors
        return chamfer.backward(a, b, idx1, idx2, grad1, grad2)


torch.manual_seed(0)
device = torch.device("cuda")
net = torch.nn.Linear(3, 3).to(device)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
points = torch.randn(2, 32, 3).to(device)
knn = KNN(k=4, transpose_mode=True)
for _ in range(3):
    chosen = pointnet2_utils.furthest_point_sample(points, 8)
    centres = pointnet2_utils.gather_operation(points.transpose(1, 2).contiguous(), chosen)
    _, near = knn(points, centres.transpose(1, 2).contiguous())
    moved = net(points).transpose(1, 2).contiguous()
    groups = pointnet2_utils.grouping_operation(moved, near.int()).flatten(2)
    number = torch.arange(32, device=device) // 4
    pooled = scatter_mean(groups, number, dim=2, dim_size=8)
    dist1, dist2 = Chamfer.apply(pooled.transpose(1, 2).contiguous(), points)
    loss = dist1.mean() + dist2.mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
"""


def written_out() -> list[float]:
    """The same by torch's own functions, on the CPU."""
    torch.manual_seed(0)
    net = torch.nn.Linear(3, 3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    points = torch.randn(2, 32, 3)
    losses = []
    for _ in range(3):
        chosen = [torch.zeros(2, dtype=torch.long)]
        for _ in range(7):
            apart = torch.cdist(points, points)[torch.arange(2)[:, None], torch.stack(chosen, 1)]
            chosen.append(apart.amin(1).argmax(1))
        rows = torch.arange(2)[:, None]
        centres = points[rows, torch.stack(chosen, 1)]
        near = torch.cdist(centres, points).argsort(2)[..., :4]
        pooled = net(points)[rows[..., None], near].mean(2)
        squares = (pooled[:, :, None] - points[:, None]).square().sum(3)
        loss = squares.amin(2).mean() + squares.amin(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("device", thorough_but([""], ["tpu", "cpu", ""]))
def test_a_program_of_points(device: str, tmp_path: Path) -> None:
    """Migrated, or portable on either device, it computes what is written out by hand."""
    (tmp_path / "gpu.py").write_text(PROGRAM)
    report = migrate_paths(
        [tmp_path / "gpu.py"],
        TARGET,
        config=Config(portable=bool(device), runtime="copy"),
        output=tmp_path / "out",
    )
    assert report.exit_code == 0
    variables = {"TPU_RUNTIME_DEVICE": device} if device else {}
    printed = execute(tmp_path / "out" / "gpu.py", **variables).splitlines()
    assert [float(line) for line in printed[-3:]] == pytest.approx(written_out(), rel=1e-4)
