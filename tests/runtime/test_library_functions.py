"""What the runtime has of libraries for CUDA, against their formulas in loops and float64."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import tpu_runtime as tpu
from target import TARGET, WORD
from tiers import thorough_but
from torch import Tensor
from tpu_runtime import (
    chamfer,
    knn_cuda,
    ms_deform_attn,
    pointnet2_utils,
    stylegan_ops,
    torch_scatter,
)

from migrator import migrate_paths
from migrator.config import Config
from tests.runtime.several_devices import execute

tpu.setup()


def made(*shapes: tuple[int, ...], seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator) for shape in shapes]


def agrees(
    function: Callable[..., Tensor], expected: Callable[..., Tensor], *tensors: Tensor
) -> None:
    """Result and gradients of both are equal, of float32 on the device and float64 on the CPU."""
    exact = [x.double().requires_grad_() for x in tensors]
    ours = [x.to(WORD).requires_grad_() for x in tensors]
    right, found = expected(*exact), function(*ours)
    assert found.device.type == WORD and found.dtype == torch.float32
    assert found.shape == right.shape
    weights = torch.randn(right.shape, generator=torch.Generator().manual_seed(1))
    (right * weights).sum().backward()
    (found * weights.to(WORD)).sum().backward()
    assert (found.detach().cpu() - right).abs().max() < 5e-6
    for x, y in zip(exact, ours, strict=True):
        assert x.grad is not None and y.grad is not None
        assert (y.grad.cpu() - x.grad).abs().max() < 2e-5


# ---- torch_scatter -------------------------------------------------------------------------------

INDEX = [0, 3, 3, 0, 5, 3]  # rows 1, 2 and 4 get nothing


def by_group(src: Tensor, index: Sequence[int], size: int, reduce: str) -> Tensor:
    """The reduction of the rows with the same index, row by row."""
    rows = []
    for i in range(size):
        mine = [src[j] for j, at in enumerate(index) if at == i]
        if not mine:
            rows.append(torch.zeros_like(src[0]))
            continue
        stacked = torch.stack(mine)
        rows.append(
            {"sum": stacked.sum, "mean": stacked.mean}[reduce](0)
            if reduce in ("sum", "mean")
            else getattr(stacked, reduce)(0).values
        )
    return torch.stack(rows)


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min"])
@pytest.mark.parametrize("size", [None, 8])
def test_scatter(reduce: str, size: int | None) -> None:
    (x,) = made((6, 3))
    index = torch.tensor(INDEX).to(WORD)
    agrees(
        lambda x: torch_scatter.scatter(x, index, dim=0, dim_size=size, reduce=reduce),
        lambda x: by_group(x, INDEX, size or 6, reduce),
        x,
    )
    function = getattr(torch_scatter, f"scatter_{reduce}")
    found = function(x.T.contiguous().to(WORD), index, dim_size=size)  # along the last dimension
    found = found if isinstance(found, Tensor) else found[0]
    assert torch.allclose(found.cpu(), by_group(x, INDEX, size or 6, reduce).T)


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min"])
def test_scatter_by_an_index_of_all_dimensions(reduce: str) -> None:
    (x,) = made((2, 4, 3))
    index = torch.tensor([[0, 2, 2, 0], [1, 1, 0, 1]])

    def expected(x: Tensor) -> Tensor:
        return torch.stack([by_group(x[i], index[i].tolist(), 3, reduce) for i in range(2)])

    def found(x: Tensor) -> Tensor:
        whole = index[..., None].expand(-1, -1, 3).to(WORD)
        return torch_scatter.scatter(x, whole, 1, None, None, reduce)

    agrees(found, expected, x)
    by_rows = torch_scatter.scatter(x.to(WORD), index.to(WORD), dim=1, reduce=reduce)
    assert torch.allclose(by_rows.cpu(), expected(x))


def test_positions_of_the_largest_and_smallest() -> None:
    x = torch.tensor([[1.0, 5], [7, 5], [7, 2], [0, 9]])
    index = torch.tensor([1, 1, 1, 3]).to(WORD)
    values, places = torch_scatter.scatter_max(x.to(WORD), index, dim=0, dim_size=5)
    assert values.cpu().tolist() == [[0, 0], [7, 5], [0, 0], [0, 9], [0, 0]]
    assert places.cpu().tolist() == [[4, 4], [1, 0], [4, 4], [3, 3], [4, 4]]  # 4: of none
    values, places = torch_scatter.scatter_min(x.int().to(WORD), index, 0)
    assert values.cpu().tolist() == [[0, 0], [1, 2], [0, 0], [0, 9]]
    assert places.cpu().tolist() == [[4, 4], [0, 2], [4, 4], [3, 3]]


def test_one_of_equal_values_gets_the_gradient() -> None:
    x = torch.tensor([3.0, 3, 1]).to(WORD).requires_grad_()
    values, _ = torch_scatter.scatter_max(x, torch.tensor([0, 0, 0]).to(WORD))
    values.sum().backward()
    assert x.grad is not None and x.grad.cpu().tolist() == [1, 0, 0]


def test_scatter_into_what_is_there() -> None:
    x, out = torch.tensor([1.0, 2, 4]).to(WORD), torch.tensor([10.0, 20]).to(WORD)
    index = torch.tensor([1, 1, 0]).to(WORD)
    assert torch_scatter.scatter_add(x, index, out=out) is out
    assert out.cpu().tolist() == [14, 23]
    torch_scatter.scatter_mean(x, index, 0, out)
    assert out.cpu().tolist() == [18, 13]
    with pytest.raises(NotImplementedError, match="out has to be None"):
        torch_scatter.scatter_max(x, index, out=out)
    with pytest.raises(NotImplementedError, match="reduce is 'mul'"):
        torch_scatter.scatter(x, index, reduce="mul")


def test_means_of_integers_are_rounded_down() -> None:
    x, index = torch.tensor([1, 2, -1, -2]).to(WORD), torch.tensor([0, 0, 1, 1]).to(WORD)
    assert torch_scatter.scatter_mean(x, index).cpu().tolist() == [1, -2]


@pytest.mark.parametrize("name", ["scatter_softmax", "scatter_log_softmax"])
def test_softmax_of_groups(name: str) -> None:
    (x,) = made((6, 3))

    def expected(x: Tensor) -> Tensor:
        rows = [x[i].exp() / sum(x[j].exp() for j in range(6) if INDEX[j] == INDEX[i])
                for i in range(6)]  # fmt: skip
        return torch.stack(rows).log() if "log" in name else torch.stack(rows)

    index = torch.tensor(INDEX).to(WORD)
    agrees(lambda x: getattr(torch_scatter, name)(x, index, dim=0), expected, x)
    large = torch.tensor([1000.0, 1000, -1000]).to(WORD)
    found = torch_scatter.scatter_softmax(large, torch.tensor([0, 0, 1]).to(WORD))
    assert found.cpu().tolist() == [0.5, 0.5, 1]


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min"])
def test_segments(reduce: str) -> None:
    (x,) = made((6, 3))
    ends = [0, 2, 2, 5, 6]
    numbers = [0, 0, 2, 2, 2, 3]
    agrees(
        lambda x: torch_scatter.segment_csr(x, torch.tensor(ends).to(WORD), reduce=reduce),
        lambda x: by_group(x, numbers, 4, reduce),
        x,
    )
    agrees(
        lambda x: torch_scatter.segment_coo(x, torch.tensor(numbers).to(WORD), reduce=reduce),
        lambda x: by_group(x, numbers, 4, reduce),
        x,
    )
    some = torch_scatter.segment_csr(x.to(WORD), torch.tensor([1, 3, 5]).to(WORD), reduce=reduce)
    assert torch.allclose(some.cpu(), by_group(x[1:5], [0, 0, 1, 1], 2, reduce))


# ---- points --------------------------------------------------------------------------------------


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


# ---- attention to places, filters ----------------------------------------------------------------


class Deformable(torch.autograd.Function):
    """How projects use the extension."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, shapes: Tensor, starts: Tensor, places: Tensor,
                weights: Tensor, step: int) -> Tensor:  # fmt: skip
        ctx.step = step
        ctx.save_for_backward(value, shapes, starts, places, weights)
        return ms_deform_attn.ms_deform_attn_forward(value, shapes, starts, places, weights, step)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:
        of_value, of_places, of_weights = ms_deform_attn.ms_deform_attn_backward(
            *ctx.saved_tensors, gradient, ctx.step
        )
        return of_value, None, None, of_places, of_weights, None


def test_deformable_attention() -> None:
    sizes = [(4, 5), (2, 3)]
    shapes, starts = torch.tensor(sizes).to(WORD), torch.tensor([0, 20]).to(WORD)
    value, places, weights = made((2, 26, 3, 4), (2, 7, 3, 2, 2, 2), (2, 7, 3, 2, 2))
    places = places * 0.6 + 0.5  # some are outside
    places[0, 0, 0, 0, 0] = torch.tensor([0.3, 0.375])  # on a pixel's middle
    places[0, 1, 0, 0, 0] = -3

    def pixel(level: Tensor, row: int, column: int) -> Tensor:
        height, width = level.shape[:2]
        inside = 0 <= row < height and 0 <= column < width
        return level[row, column] if inside else torch.zeros_like(level[0, 0])

    def bilinear(level: Tensor, place: Tensor) -> Tensor:
        x, y = place[0] * level.shape[1] - 0.5, place[1] * level.shape[0] - 0.5
        left, top = math.floor(x), math.floor(y)
        above = pixel(level, top, left) * (left + 1 - x) + pixel(level, top, left + 1) * (x - left)
        below = pixel(level, top + 1, left) * (left + 1 - x)
        below = below + pixel(level, top + 1, left + 1) * (x - left)
        return above * (top + 1 - y) + below * (y - top)

    def expected(value: Tensor, places: Tensor, weights: Tensor) -> Tensor:
        rows = []
        for b, q, h in np.ndindex(2, 7, 3):
            levels = [v.unflatten(0, size) for v, size in
                      zip(value[b, :, h].split([20, 6]), sizes, strict=True)]  # fmt: skip
            rows.append(sum(weights[b, q, h, i, p] * bilinear(levels[i], places[b, q, h, i, p])
                            for i in range(2) for p in range(2)))  # fmt: skip
        return torch.stack(rows).reshape(2, 7, 12)

    def found(value: Tensor, places: Tensor, weights: Tensor) -> Tensor:
        return Deformable.apply(value, shapes, starts, places, weights, 64)

    agrees(found, expected, value, places, weights)


@pytest.mark.parametrize(
    ("up", "down", "pad"), [(1, 1, (0, 0)), (2, 1, (2, 1)), (1, 2, (1, 1)), (2, 3, (-1, 2))]
)
def test_upfirdn2d(up: int, down: int, pad: tuple[int, int]) -> None:
    x, kernel = made((2, 5, 6, 3), (3, 4))

    def expected(x: Tensor) -> Tensor:
        """The definition, pixel by pixel: zeros between, padding, convolution, every n-th."""
        high, wide = 5 * up + sum(pad), 6 * up + pad[0] + pad[1]
        rows = []
        for i in range(0, high - 3 + 1, down):
            row = []
            for j in range(0, wide - 4 + 1, down):
                total = torch.zeros_like(x[:, 0, 0])
                for a, b in np.ndindex(3, 4):
                    r, c = i + a - pad[0], j + b - pad[0]
                    inside = 0 <= r < 5 * up and 0 <= c < 6 * up and i + a < high and j + b < wide
                    if inside and r % up == 0 and c % up == 0:
                        total = total + x[:, r // up, c // up] * kernel[2 - a, 3 - b]
                row.append(total)
            rows.append(torch.stack(row, 1))
        return torch.stack(rows, 1)

    agrees(
        lambda x: stylegan_ops.upfirdn2d(x, kernel.to(WORD), up, up, down, down, *pad, *pad),
        expected,
        x,
    )


def test_fused_bias_act() -> None:
    x, bias, refer = made((2, 3, 4, 4), (3,), (2, 3, 4, 4))
    empty = torch.empty(0).to(WORD)
    agrees(
        lambda x, b: stylegan_ops.fused_bias_act(x, b, empty, 3, 0, 0.2, 1.5),
        lambda x, b: F.leaky_relu(x + b[:, None, None], 0.2) * 1.5,
        x, bias,
    )  # fmt: skip
    given = x.to(WORD)
    slopes = stylegan_ops.fused_bias_act(given, empty, refer.to(WORD), 3, 1, 0.2, 1.5).cpu()
    assert torch.allclose(slopes, torch.where(refer > 0, x, x * 0.2) * 1.5)
    assert not stylegan_ops.fused_bias_act(given, empty, empty, 3, 2, 0.2, 1.5).cpu().any()
    plain = stylegan_ops.fused_bias_act(given[:, :, 0, 0], bias.to(WORD), empty, 1, 0, 0.2, 2.0)
    assert torch.allclose(plain.cpu(), (x[:, :, 0, 0] + bias) * 2)


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


def by_hand() -> list[float]:
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
        [tmp_path / "gpu.py"], TARGET, config=Config(portable=bool(device)), output=tmp_path / "out"
    )
    assert report.exit_code == 0
    variables = {"TPU_RUNTIME_DEVICE": device} if device else {}
    printed = execute(tmp_path / "out" / "gpu.py", **variables).splitlines()
    assert [float(line) for line in printed[-3:]] == pytest.approx(by_hand(), rel=1e-4)
