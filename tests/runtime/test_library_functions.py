"""What the runtime has of libraries for CUDA, against their formulas in loops and float64."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import tpu_runtime as tpu
from library_references import agrees, made
from target import WORD
from torch import Tensor
from tpu_runtime import ms_deform_attn, stylegan_ops, torch_scatter

tpu.setup()


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
