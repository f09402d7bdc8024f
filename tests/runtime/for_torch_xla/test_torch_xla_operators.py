"""Operators that torch_xla 2.9 gets wrong; benchmarks/operator_audit.py compares all of OpInfo."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
import tpu_runtime as tpu
from torch import Tensor
from torch_xla.debug import metrics

from tests.runtime.support import DEVICE

tpu.setup()
torch.zeros(1).to(DEVICE)


def places(x: Tensor, count: int) -> Tensor:
    """Numbers of columns in each of three rows."""
    return torch.tensor([[0, 2, 1, 0], [1, 1, 0, 2], [2, 0, 1, 1]])[:, :count].to(x.device)


# Of x, three rows of four float32 numbers.
CASES: dict[str, Callable[[Tensor], Tensor]] = {
    "amax of all": lambda x: x.amax(),
    "amin of no dimensions": lambda x: x.amin(()),
    "sum of no dimensions": lambda x: x.sum(()),
    "mean with a dtype": lambda x: (x > 0).mean(dtype=torch.float32),
    "std of no dimensions": lambda x: x.std(()),
    "count_nonzero": lambda x: (x > 0).count_nonzero(),
    "norm of infinity": lambda x: x.norm(float("inf")),
    "norm of a dimension": lambda x: x.norm(1, 0),
    "nuclear norms": lambda x: torch.stack([x, x * 2]).norm("nuc", [1, 2]),
    "svd of a batch": lambda x: torch.linalg.svdvals(torch.stack([x, x * 2])),
    "logdet": lambda x: (x @ x.t() + torch.eye(3, device=x.device)).logdet(),
    "elu": lambda x: F.elu(x),
    "selu": lambda x: F.selu(x * 5),
    "average with a divisor": lambda x: F.avg_pool2d(x[None], 2, divisor_override=3),
    "pixel_shuffle": lambda x: F.pixel_shuffle(x.reshape(1, 4, 1, 3), 2),
    "where promotes": lambda x: torch.where(x > 0, x.half(), x),
    "clamp promotes": lambda x: (x * 3).int().clamp(0.5, 1.5),
    "clamp by a row": lambda x: x[:, :1].clamp_max(x[0]),
    "right shift of negative numbers": lambda x: (x * 9).int() >> 1,
    "left shift of bools": lambda x: (x > 0) << 1,
    "remainder of bools": lambda x: (x > 0) % 2,
    "trace of integers": lambda x: (x * 9).abs().to(torch.uint8).trace(),
    "argmax with NaN": lambda x: torch.where(x > 1, torch.nan, x).argmax(1),
    "places of max with NaN": lambda x: torch.where(x > 1, torch.nan, x).max(1)[1],
    "places of min with NaN": lambda x: torch.where(x < 1, torch.nan, x).min(0, keepdim=True)[1],
    "logsumexp of infinity": lambda x: torch.where(x > 2, torch.inf, x).logsumexp(1),
    "logsumexp of -infinity": lambda x: torch.where(x > -2, -torch.inf, x).logsumexp((0, 1)),
    "logsumexp of a number": lambda x: x[0, 0].logsumexp(0),
    "clamp of infinity": lambda x: torch.where(x > 1, torch.inf, x).clamp(min=0.5),
    "clip of -infinity": lambda x: torch.where(x < 1, -torch.inf, x).clip(None, 2),
    "clamp_min_ of infinity": lambda x: torch.where(x > 1, torch.inf, x).half().clamp_min_(1),
    "clamp_max of -infinity": lambda x: torch.where(x < 1, -torch.inf, x).double().clamp_max(0),
    "clamp of integers by one bound": lambda x: x.int().clamp(max=1),
    "normalize of infinity": lambda x: F.normalize(torch.where(x > 2, torch.inf, x)).detach(),
    "logsigmoid of -infinity": lambda x: F.logsigmoid(torch.where(x < -1, -torch.inf, x)),
    "argmax of a number": lambda x: x[0, 0].argmax(0),
    "max of a number": lambda x: x[0, 0].max(0)[0],
    "cumsum of a number": lambda x: x[0, 0].cumsum(0),
    "abs of complex numbers": lambda x: torch.complex(x, x * 2).abs(),
    "complex quotient": lambda x: torch.view_as_real(torch.complex(x, x * 2) / 2),
    "norm of complex numbers": lambda x: torch.linalg.vector_norm(torch.complex(x, x * 2), dim=1),
    "scatter by an index that is longer": lambda x: x[:, :3].scatter(1, places(x, 4), x),
    "scatter of a number by such an index": lambda x: x[:, :2].scatter(-1, places(x, 4) // 2, 7.0),
    "sums by such an index": lambda x: x[:, :1].scatter_add(1, places(x, 4) * 0, x),
    "products of numbers": lambda x: x.detach()[:, :2].scatter(
        1, places(x, 4) % 2, 3.0, reduce="multiply"
    ),
    "means by such an index": lambda x: x[:, :2].scatter_reduce(1, places(x, 4) % 2, x, "mean"),
    "masked_scatter of more values": lambda x: x.masked_scatter(x > 1, torch.cat([x, -x])),
    "masked_scatter of fewer": lambda x: x.masked_scatter(x > 1, x[1:].flatten()[:6]),
    "masked_scatter by rows": lambda x: x.masked_scatter(x[:, :1] > 1, x.t() * 2),
    "roll of nothing": lambda x: x[:0].roll(2, 0),
    "repeat no times": lambda x: x.repeat(0, 1),
    "loss of one sample": lambda x: F.cross_entropy(x[0], torch.tensor(1).to(x.device)),
    "as_strided": lambda x: x.clone().as_strided((2, 2), (4, 1), 1),
    "as_strided_copy of a view": lambda x: torch.as_strided_copy(x.t()[1:], (2, 2), (1, 4)),
    "as_strided_scatter": lambda x: x.as_strided_scatter(x[:2, :2] * 7, (2, 2), (4, 1), 1),
    # Torch's own gradients of these raise an error.
    "as_strided_scatter of a view": lambda x: torch.as_strided_scatter(
        x.detach().t()[1:], x.detach()[:2, :2] * 7, (2, 2), (1, 4)
    ),
    "as_strided_scatter of rows": lambda x: x.detach()[1:].as_strided_scatter(
        x.detach()[0] * 7, (4,), (3,), 0
    ),
    "padding below zero": lambda x: F.pad(x[None], (-1, 2), "replicate"),
    "quotient of large integers": lambda x: (x * 4e6).long() // 7,
    "quotient of negative integers": lambda x: torch.div((x * 9).int(), -4, rounding_mode="floor"),
    "quotient toward zero": lambda x: (x * 9).long().div(4, rounding_mode="trunc"),
    "quotient of a number": lambda x: 10**12 // (x * 80).long()[2],
    "quotient of uint8 by a negative number": lambda x: (x * 9).abs().byte() // -3,
    "quotient in place": lambda x: (x * 4e6).long().floor_divide_(7),
    "quotient of floats": lambda x: x.detach() // 0.75,
    "cummax of equals": lambda x: torch.stack([*x.sign().cummax(1)]),
    "cummax with NaN": lambda x: torch.where(x > 2, torch.nan, x).cummax(0)[0],
    "places of cummax with NaN": lambda x: torch.where(x > 2, torch.nan, x).cummax(0)[1],
    "arange by tenths": lambda x: torch.arange(0, 1, 0.1, device=x.device),
    "arange by negative tenths": lambda x: torch.arange(1, 0, -0.1, device=x.device),
    "arange of integers": lambda x: torch.arange(9, 0, -2, device=x.device),
    "arange of nothing": lambda x: torch.arange(1.0, 1.0, 0.5, device=x.device),
    "linspace of float64": lambda x: torch.linspace(0, 1, 7, dtype=torch.float64, device=x.device),
    "isnan of bools": lambda x: (x > 0).isnan(),
    "logsumexp of integers": lambda x: (x * 3).int().logsumexp(0),
    "logsumexp of nothing": lambda x: x[:0].logsumexp(0),
    "cumsum of nothing": lambda x: x[:0].cumsum(0),
    "squeeze of a number": lambda x: x[0, 0].squeeze(-1),
    "sort of a number": lambda x: x[0, 0].sort()[0],
    "all of a number": lambda x: (x[0, 0] > 0).all(-1),
    "any of a number": lambda x: (x[0, 0] > 0).any(0, keepdim=True),
    "deviation and mean of a number": lambda x: torch.stack(
        torch.std_mean(x[0, 0].detach(), dim=-1, correction=0)
    ),
    "safe softmax of a number": lambda x: torch.ops.aten._safe_softmax(x[0, 0], -1),
    "flip of a number": lambda x: x[0, 0].flip(0),
    "prod of a number": lambda x: x[0, 0].prod(0),
    "masked_select of a number": lambda x: x[0, 0].masked_select(x[0, 0] > 0),
    "a diagonal without elements": lambda x: x.diagonal(-5),
    "as_strided to a number": lambda x: x.as_strided((), (), 5),
    "abs of a complex number": lambda x: torch.complex(x, x * 2)[1, 1].abs(),
    "group_norm of nothing": lambda x: F.group_norm(x[:0], 2),
    "int8 with uint8": lambda x: x.to(torch.int8) + x.abs().to(torch.uint8),
    "int8 less than uint8": lambda x: torch.lt(x.to(torch.int8), x.abs().to(torch.uint8)),
    "greatest of int8 and uint8": lambda x: x.to(torch.int8).maximum(x.abs().to(torch.uint8)),
    "power of int8 and uint8": lambda x: x.to(torch.int8) ** x.abs().to(torch.uint8),
    "bfloat16 with float16": lambda x: (x / 3).bfloat16() - x.half() * 300,
    "bfloat16 by float16": lambda x: (x / 3).bfloat16() / (x.half() + 5),
    "atan2 of halves and integers": lambda x: x.half().atan2(x.int()),
    "complex numbers by halves": lambda x: torch.complex(x, x * 2).div(x.half() + 5).real,
    "linspace of one": lambda x: torch.linspace(2, 5, 1, dtype=torch.float64, device=x.device),
    "svd of float64": lambda x: torch.linalg.svdvals(x.double()),
    "softmax of a number": lambda x: x[0, 0].softmax(0),
    "mean of a number": lambda x: x[0, 0].mean(0),
    "index_fill of a number": lambda x: x[0, 0].index_fill(0, torch.tensor(0).to(x.device), 3),
    "index_fill of a number by a tensor": lambda x: x[0, 0].index_fill(
        0, torch.tensor(0).to(x.device), torch.tensor(3.0)
    ),
    "polynomials of a number": lambda x: torch.special.chebyshev_polynomial_t(x, 2),
    "strides of nothing": lambda x: torch.tensor(x.new_empty(4, 0).stride()),
    "transform of conjugates": lambda x: torch.fft.hfft(torch.complex(x, x * 2)),
    "imaginary parts of conjugates": lambda x: torch.complex(x, x * 2).conj().imag.detach(),
    "logit with eps": lambda x: x.logit(0.3),
    "logit with eps in place": lambda x: x.logit_(0.3),
    "xlogy by a number in place": lambda x: x.xlogy_(2),
    "copysign of a number": lambda x: x.copysign(-1.0),
    "copysign of integers": lambda x: x.long().copysign(-2),
    "zeta of a number": lambda x: torch.special.zeta(2.5, x.abs() + 1),
    "shift of a number": lambda x: 2 << x.long().abs(),
    "polygamma in place": lambda x: (x.abs() + 0.5).polygamma_(1),
    "threshold of NaN": lambda x: F.threshold((x / 0).where(x > 2, x) * 0, 0.0, 2.0).detach(),
    "softshrink of NaN": lambda x: F.softshrink((x * 0).log().where(x > 2, x) * 0 + x).detach(),
    "copy_ of a number": lambda x: x.detach().clone().copy_(2),
    "batch_norm of nothing": lambda x: F.batch_norm(x[0, :0], x[0, :0], x[0, :0]),
    "native_layer_norm of nothing": lambda x: torch.native_layer_norm(
        x[:0], (4,), x[0], x[1], 1e-5
    )[0],
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_operator(name: str) -> None:
    """Values, dtypes and gradients are those of the CPU."""
    results = []
    for device in (DEVICE, "cpu"):
        values = torch.tensor([[1.5, -2, 3, 0.25], [0, -0.5, 1, -4], [2, 2, -7, 0.1]])
        x = values.to(device).requires_grad_()
        result = CASES[name](x * 1)
        found = [result.detach()]
        if result.requires_grad:
            weights = torch.arange(1.0, result.numel() + 1).reshape(result.shape).to(device)
            found += torch.autograd.grad((result * weights).sum(), x)
        results.append([tensor.cpu() for tensor in found])
    unit = 1e-3 if "halves" in name else 1e-4  # whose gradients are rounded to 11 bits
    for found, expected in zip(*results, strict=True):
        assert found.dtype == expected.dtype
        torch.testing.assert_close(found, expected, atol=unit, rtol=unit, equal_nan=True)


BESIDE_A_NUMBER: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "remainder": lambda x, number: x % number,
    "number's remainder": lambda x, number: number % x,
    "atan2": torch.atan2,
    "xlogy": torch.xlogy,
    "right shift": lambda x, number: (number * 100).long() >> x.abs().long(),
    "lerp's weight": lambda x, number: x.lerp(x * 2, number),
    "lerp's weight in place": lambda x, number: x.clone().lerp_(x * 2, number),
    "lerp's end": lambda x, number: x.lerp(number, 0.5),
    "where": lambda x, number: torch.where(x > 0, number, x),
    "where's condition": lambda x, number: torch.where(number > 0, x, x * 2),
    "clamp": lambda x, number: x.clamp(-number, number),
    "clamp by a tensor, too": lambda x, number: x.clamp(number, x.square()),
    "index_fill": lambda x, number: x.index_fill(0, torch.tensor([1], device=x.device), number),
    "hypot": lambda x, number: number.hypot(x),
    "logaddexp": lambda x, number: number.logaddexp(x),
    "fmin": lambda x, number: number.fmin(x),
    "integers": lambda x, number: (number * 100).long().gcd(x.long()),
}  # fmt: skip


@pytest.mark.parametrize("name", BESIDE_A_NUMBER)
def test_a_tensor_of_the_cpu_without_dimensions_is_a_number(name: str) -> None:
    """As on a GPU: an optimizer keeps its rates on the CPU."""
    x, number = torch.tensor([1.5, -2, 3, 0.25]), torch.tensor(0.7)
    found = BESIDE_A_NUMBER[name](x.to(DEVICE), number)
    assert found.device.type == DEVICE.type
    torch.testing.assert_close(found.cpu(), BESIDE_A_NUMBER[name](x, number), equal_nan=True)


THROUGH_A_MASK: dict[str, Callable[[Tensor, Tensor], object]] = {
    "a number": lambda x, mask: x.__setitem__(mask, -float("inf")),
    "of a view": lambda x, mask: x.transpose(0, 1).__setitem__(mask.transpose(0, 1), 2.0),
    "a row": lambda x, mask: x.__setitem__(mask, x[0, 0] * 2),
    "rows behind a slice": lambda x, mask: x.__setitem__((slice(None), mask[0]), 3.0),
    "a sum": lambda x, mask: x.index_put_((mask,), x[0, 0, 0] + 1, accumulate=True),
}


@pytest.mark.parametrize("name", THROUGH_A_MASK)
def test_what_is_written_through_a_mask_is_not_looked_for(name: str) -> None:
    """Stock has the CPU find the places; each number of them is compiled anew."""
    x = torch.arange(24.0).reshape(2, 3, 4)
    mask = x[:, :, 0] > 7
    there, chosen = x.to(DEVICE), mask.to(DEVICE)
    metrics.clear_counters()
    THROUGH_A_MASK[name](there, chosen)
    THROUGH_A_MASK[name](x, mask)
    assert torch.equal(there.cpu(), x)
    assert not metrics.counter_value("aten::nonzero")


def test_what_is_refused() -> None:
    with pytest.raises(RuntimeError, match="complex128 is not available"):
        torch.zeros(2, dtype=torch.complex128).to(DEVICE)
    z = torch.zeros(2, dtype=torch.complex64).to(DEVICE)
    for function in (torch.argmax, lambda x: x % 2):  # which ended the process
        with pytest.raises(NotImplementedError, match="complex numbers"):
            function(z)
    wide = torch.ones(2, dtype=torch.float64).to(DEVICE) * 1j
    with pytest.raises(RuntimeError, match="complex128 is not available"):
        torch.fft.hfft2(torch.ones(2, 2, dtype=torch.float64).to(DEVICE))  # which was wrong
    for read in (lambda: wide.cpu(), lambda: wide[0].item(), lambda: wide.tolist()):
        with pytest.raises(RuntimeError, match="complex128 is not available"):
            read()
    with pytest.raises(NotImplementedError, match="floating point"):
        torch.ones(2).to(DEVICE) << 1


def test_gradient_of_a_transposed_convolution_with_a_wide_output_padding() -> None:
    results = []
    layer = torch.nn.ConvTranspose2d(2, 2, 3, stride=2, dilation=4, padding=1, output_padding=3)
    values = torch.randn(1, 2, 4, 4)
    for device in ("cpu", DEVICE):
        x = values.to(device).requires_grad_()
        results.append(torch.autograd.grad(layer.to(device)(x).square().sum(), x)[0].cpu())
    torch.testing.assert_close(*results, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_in_float64(approximate: str) -> None:
    """Stock has constants of float32: off by 7e-9."""
    results = []
    for device in ("cpu", DEVICE):
        x = torch.linspace(-5, 5, 41, dtype=torch.float64).to(device).requires_grad_()
        y = F.gelu(x, approximate=approximate)
        results.append((y.detach().cpu(), torch.autograd.grad((y * y).sum(), x)[0].cpu()))
    for found, expected in zip(*results, strict=True):
        assert (found - expected).abs().max() < 1e-11
