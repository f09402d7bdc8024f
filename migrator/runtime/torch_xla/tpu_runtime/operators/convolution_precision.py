"""Convolutions, their gradients and `einsum` in the requested precision.

torch_xla 2.9 only applies ``set_mat_mul_precision`` to products and to plain forward convolutions.
Gradients of convolutions, transposed convolutions and `einsum` carry no precision, and a TPU
computes them in one bfloat16 pass. (A CPU doesn't, so comparisons there don't show it.)
"""

import functools
from collections.abc import Sequence
from typing import Any

import torch
import torch_xla
import torch_xla.backends
import torch_xla.core.xla_builder as xb
from torch import Tensor

# The registrations live as long as this object.
_library = torch.library.Library("aten", "IMPL")
Ints = Sequence[int]
# Which dimension is the batch, which the features; the others are spatial, in order.
_PLAIN = (0, 1)
_SWAPPED = (1, 0)
_TYPES = {dtype: name for name, dtype in xb._XLA_PT_TYPE_MAP.items()}


def _convolve(
    left: Tensor,
    kernel: Tensor,
    strides: Ints,
    padding: Sequence[tuple[int, int]],
    spread: Ints,
    dilation: Ints,
    *,
    of_left: tuple[int, int] = _PLAIN,
    of_kernel: tuple[int, int] = _PLAIN,
    of_result: tuple[int, int] = _PLAIN,
    groups: int = 1,
    batch_groups: int = 1,
) -> Tensor:
    """XLA's general convolution; ``spread`` and ``dilation`` are those of `left` and `kernel`.

    ``of_kernel`` is (output features, input features).
    """
    computation = _computation(
        (left.dtype, tuple(left.shape)), (kernel.dtype, tuple(kernel.shape)),
        tuple(strides), tuple(padding), tuple(spread), tuple(dilation),
        of_left, of_kernel, of_result, groups, batch_groups,
        torch_xla.backends.get_mat_mul_precision(),
    )  # fmt: skip
    inputs = [left, kernel]
    return torch_xla._XLAC._xla_user_computation("xla::convolution", inputs, computation)[0]  # type: ignore[no-any-return]


@functools.lru_cache(maxsize=4096)
def _computation(
    left: tuple[torch.dtype, Ints],
    kernel: tuple[torch.dtype, Ints],
    strides: Ints,
    padding: Sequence[tuple[int, int]],
    spread: Ints,
    dilation: Ints,
    of_left: tuple[int, int],
    of_kernel: tuple[int, int],
    of_result: tuple[int, int],
    groups: int,
    batch_groups: int,
    precision: str,
) -> Any:
    spatial = tuple(range(2, len(left[1])))

    def build(left: Any, kernel: Any) -> Any:
        return left.conv_general_dilated(
            kernel, strides, padding, spread, dilation,
            of_left[0], of_left[1], of_kernel[1], of_kernel[0], of_result[0], of_result[1],
            spatial, spatial, spatial,
            feature_group_count=groups, batch_group_count=batch_groups, precision_config=precision,
        )  # fmt: skip

    shapes = [xb.Shape.create(_TYPES[dtype], shape) for dtype, shape in (left, kernel)]
    return xb.create_computation("convolution", build, shapes)


def _forward(
    x: Tensor, weight: Tensor, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Tensor:
    pads = [(p, p) for p in padding]
    return _convolve(x, weight, stride, pads, [1] * len(stride), dilation, groups=groups)


def _of_input(
    gradient: Tensor, weight: Tensor, size: Ints, stride: Ints, padding: Ints, dilation: Ints,
    groups: int,
) -> Tensor:  # fmt: skip
    """The gradient of an input with the spatial ``size``; also a transposed convolution."""
    spatial = range(2, weight.dim())
    pads = []
    for i, s, p, d in zip(range(len(size)), stride, padding, dilation, strict=True):
        reach, out = (weight.shape[2 + i] - 1) * d + 1, (gradient.shape[2 + i] - 1) * s + 1
        before = reach - p - 1
        pads.append((before, size[i] + reach - 1 - out - before))
    outs, ins = weight.shape[0] // groups, weight.shape[1]
    kernel = weight.reshape(groups, outs, ins, *weight.shape[2:]).transpose(1, 2)
    kernel = kernel.reshape(groups * ins, outs, *weight.shape[2:]).flip(*spatial)
    return _convolve(gradient, kernel, [1] * len(size), pads, stride, dilation, groups=groups)


def _of_weight(
    gradient: Tensor, x: Tensor, size: Ints, stride: Ints, padding: Ints, dilation: Ints,
    groups: int,
) -> Tensor:  # fmt: skip
    """The gradient of a weight with the spatial ``size``."""
    pads = []
    for i, s, p, d in zip(range(len(size)), stride, padding, dilation, strict=True):
        kernel, out = (size[i] - 1) * d + 1, (gradient.shape[2 + i] - 1) * s + 1
        pads.append((p, out + kernel - 1 - x.shape[2 + i] - p))
    return _convolve(
        x, gradient, dilation, pads, [1] * len(size), stride,
        of_left=_SWAPPED, of_kernel=_SWAPPED, of_result=_SWAPPED, batch_groups=groups,
    )  # fmt: skip


def convolution(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: Ints, padding: Ints, dilation: Ints,
    transposed: bool, output_padding: Ints, groups: int,
) -> Tensor:  # fmt: skip
    """``aten::convolution_overrideable``, over (batch, channels, *spatial)."""
    if transposed:
        each = zip(
            x.shape[2:], stride, padding, dilation, weight.shape[2:], output_padding, strict=True
        )
        size = [(n - 1) * s - 2 * p + d * (k - 1) + more + 1 for n, s, p, d, k, more in each]
        result = _of_input(x, weight, size, stride, padding, dilation, groups)
    else:
        result = _forward(x, weight, stride, padding, dilation, groups)
    return result if bias is None else result + bias.view(-1, *[1] * (x.dim() - 2))


def convolution_backward(
    gradient: Tensor, x: Tensor, weight: Tensor, stride: Ints, padding: Ints, dilation: Ints,
    transposed: bool, output_padding: Ints, groups: int, wanted: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:  # fmt: skip
    """``aten::convolution_backward_overrideable``: gradients of input, weight and bias."""
    how = (stride, padding, dilation, groups)
    of_input = of_weight = of_bias = None
    if wanted[0] and transposed:
        of_input = _forward(gradient, weight, *how)
        for dim in range(2, x.dim()):
            if of_input.shape[dim] > x.shape[dim]:  # the output padding is as large as a step
                of_input = of_input.narrow(dim, 0, x.shape[dim])
    elif wanted[0]:
        of_input = _of_input(gradient, weight, x.shape[2:], *how)
    if wanted[1]:
        of_output, of_entered = (x, gradient) if transposed else (gradient, x)
        of_weight = _of_weight(of_output, of_entered, weight.shape[2:], *how)
    if wanted[2]:
        of_bias = gradient.sum([0, *range(2, gradient.dim())])
    return of_input, of_weight, of_bias


def einsum(equation: str, operands: Sequence[Tensor], *, path: Ints | None = None) -> Tensor:
    """torch's own, which is made of products."""
    return torch.ops.aten.einsum.default.decompose(equation, operands, path=path)  # type: ignore[no-any-return]


def install() -> None:
    """Register them for XLA tensors."""
    for name, function, keys in (
        ("convolution_overrideable", convolution, ("XLA",)),
        ("convolution_backward_overrideable", convolution_backward, ("XLA",)),
        ("einsum", einsum, ("XLA", "AutogradXLA")),
    ):
        for key in keys:
            _library.impl(name, function, key, allow_override=True)
