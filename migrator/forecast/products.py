"""Dots and convolutions: FLOPs, passes of the matrix units, and what padding wastes there."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cache

from .hlo import Computation, Instruction, Shape

_LABELS = re.compile(r"dim_labels=(\w+)_(\w+)->(\w+)")
_WINDOW = re.compile(r"\bwindow=\{([^}]*)\}")
_PRECISION = re.compile(r"operand_precision=\{(\w+),(\w+)\}")
_COUNT = re.compile(r"\b(feature|batch)_group_count=(\d+)")
_CONTRACTED = re.compile(r"lhs_contracting_dims=\{([\d,]*)\}")
_BATCHED = re.compile(r"lhs_batch_dims=\{([\d,]*)\}")
# Products in JAX's attention kernels, each of all queries by all keys, by a part of the kernel's
# name. Without a mask: a causal one lets a kernel leave out half of them.
_ATTENTION = {"_fwd": 2, "_dkv": 4, "_dq": 3}
_FUSED_BACKWARD = 5  # a dkv kernel that also makes the gradient of the queries
# Passes in bfloat16 for a float32 product, by its precision (jax.lax.Precision).
_PASSES = {"highest": 6, "high": 3}
SUBLANES = 8


@dataclass(frozen=True)
class Product:
    """``rows`` by ``contracted`` times ``contracted`` by ``columns``, as often as ``flops`` says.

    ``passes``: how often a matrix unit takes bfloat16 numbers through it.
    """

    flops: float
    passes: int
    rows: int
    contracted: int
    columns: int
    is_float32: bool

    @property
    def label(self) -> str:
        return f"{self.rows:,}×{self.contracted:,}×{self.columns:,}"

    def filled(self, mxu: int) -> float:
        """The share of a matrix unit's multiplications that aren't of padding, at best."""
        ways = ((self.rows, self.columns), (self.columns, self.rows))
        fills = (_fill(a, SUBLANES) * _fill(b, mxu) for a, b in ways)
        return _fill(self.contracted, mxu) * max(fills)


def _fill(size: int, whole: int) -> float:
    return size / (-(-size // whole) * whole)


def product_of(made: Instruction, body: Computation) -> Product | None:
    """The product that an instruction is, or None."""
    if made.opcode == "custom-call":
        return _attention(made, body)
    if made.opcode not in ("dot", "convolution") or len(made.operands) != 2:
        return None
    left, right = (body[name].shapes[0] for name in made.operands)
    result = made.shapes[0]
    passes = _passes(made, left, right)
    exact = "f32" in (left.dtype, right.dtype)
    if made.opcode == "dot":
        return _dot(made, left, right, result, passes, exact)
    return _convolution(made, left, result, passes, exact)


def is_attention(kernel: str) -> bool:
    """Whether a kernel of that name is one of JAX's for attention."""
    return kernel.startswith("splash_m") and any(part in kernel for part in _ATTENTION)


def _attention(made: Instruction, body: Computation) -> Product | None:
    """The products of an attention kernel: of its shapes, since its text has none."""
    if not is_attention(made.name):
        return None
    arrays = [s for name in made.operands for s in body[name].shapes if s.dtype in ("bf16", "f32")]
    query, key, value = arrays[:3]
    count = next(n for part, n in _ATTENTION.items() if part in made.name)
    gradients = [s for s in made.shapes if s.dims[-1:] == key.dims[-1:] and s.size >= key.size // 2]
    if "_dkv" in made.name and len(gradients) > 2:
        count = _FUSED_BACKWARD
    scores, depth = math.prod(query.dims[:-1]) * key.dims[-2], (query.dims[-1] + value.dims[-1]) / 2
    exact = query.dtype == "f32"
    passes = _PASSES["highest"] if exact else 1
    return Product(
        2.0 * count * scores * depth, passes, query.dims[-2], query.dims[-1], key.dims[-2], exact
    )


def _passes(made: Instruction, left: Shape, right: Shape) -> int:
    wide = (left.dtype, right.dtype).count("f32")
    found = _PRECISION.search(made.rest)
    most = max((_PASSES.get(name, 1) for name in found.groups()), default=1) if found else 1
    return most if wide == 2 else max(1, most // 2) if wide else 1


def _dot(
    made: Instruction, left: Shape, right: Shape, result: Shape, passes: int, exact: bool
) -> Product:
    found, batched = _CONTRACTED.search(made.rest), _BATCHED.search(made.rest)
    contracted = _sizes(left, found[1] if found else "")
    count = _sizes(left, batched[1] if batched else "")
    rows = math.prod(left.dims) // max(1, contracted * count)
    columns = math.prod(right.dims) // max(1, contracted * count)
    return Product(
        2.0 * math.prod(result.dims) * contracted, passes, rows, contracted, columns, exact
    )


def _sizes(shape: Shape, dims: str) -> int:
    return math.prod(shape.dims[int(dim)] for dim in dims.split(",") if dim)


def _convolution(
    made: Instruction, left: Shape, result: Shape, passes: int, exact: bool
) -> Product | None:
    labels = _LABELS.search(made.rest)
    if labels is None:
        return None
    lhs = dict(zip(labels[1], left.dims, strict=False))
    out = dict(zip(labels[3], result.dims, strict=False))
    groups = dict(_COUNT.findall(made.rest))
    inputs, outputs = lhs["f"] // int(groups.get("feature", 1)), out["f"]
    batch = lhs["b"] // int(groups.get("batch", 1))
    window = _window(made, len(left.dims) - 2)
    pairs = [_pairs(lhs[str(i)], out[str(i)], size, *how) for i, (size, *how) in enumerate(window)]
    # A window as long as what it slides over contracts that dimension, as in a gradient of weights.
    slid = [(out[str(i)], found / max(1, out[str(i)])) for i, found in enumerate(pairs)]
    rows = batch * math.prod(moved for moved, _ in slid)
    contracted = max(1, round(inputs * math.prod(taps for _, taps in slid)))
    flops = 2.0 * batch * inputs * outputs * math.prod(pairs)
    return Product(flops, passes, rows, contracted, outputs, exact)


def _window(made: Instruction, dims: int) -> list[tuple[int, int, int, int, int]]:
    """Size, stride, padding before, dilation of the input and of the window, by dimension."""
    found = _WINDOW.search(made.rest)
    parts = dict(part.split("=") for part in found[1].split() if "=" in part) if found else {}

    def of(name: str, otherwise: str) -> list[str]:
        return parts[name].split("x") if name in parts else [otherwise] * dims

    names = (("size", "1"), ("stride", "1"), ("pad", "0_0"), ("lhs_dilate", "1"),
             ("rhs_dilate", "1"))  # fmt: skip
    rows = zip(*(of(*name) for name in names), strict=True)
    return [(int(s), int(t), int(p.split("_")[0]), int(ld), int(rd)) for s, t, p, ld, rd in rows]


@cache
def _pairs(
    length: int, out: int, size: int, stride: int, pad: int, dilated: int, apart: int
) -> int:
    """How many pairs of a window's element and an output meet an element of the input.

    Others meet padding, or the gaps of a dilated input: nothing is computed for them.
    """
    last = (length - 1) * dilated
    if dilated == 1:  # outputs o with 0 <= o * stride + at <= last
        found = 0
        for tap in range(size):
            at = tap * apart - pad
            first = max(0, -(at // stride))
            found += max(0, min(out - 1, (last - at) // stride) - first + 1)
        return found
    return sum(
        1
        for tap in range(size)
        for o in range(out)
        if 0 <= (at := o * stride + tap * apart - pad) <= last and at % dilated == 0
    )
