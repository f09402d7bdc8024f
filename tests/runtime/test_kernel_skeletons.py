"""The skeletons of `tpu-migrate remaining`: once written, their checks pass; a mistake fails."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from helpers import write_tree
from support import RUNTIME, run
from target import TARGET

from migrator import find_remaining
from migrator.remaining.kernels.kernel import KernelPart
from migrator.remaining.kernels.skeletons import pallas_skeleton, pytorch_skeleton
from migrator.targets import find_target

# Both parts of a row are multiplied, as in SwiGLU; the kernels hold a row.
SOURCE = """import torch
import triton
import triton.language as tl


@triton.jit
def glu_kernel(x_ptr, out_ptr, n, scale, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0), tl.arange(0, BLOCK)
    left = tl.load(x_ptr + row * 2 * n + columns, mask=columns < n)
    right = tl.load(x_ptr + row * 2 * n + n + columns, mask=columns < n)
    tl.store(out_ptr + row * n + columns, left * right * scale, mask=columns < n)


@triton.jit
def glu_backward_kernel(grad_ptr, x_ptr, dx_ptr, n, scale, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0), tl.arange(0, BLOCK)
    grad = tl.load(grad_ptr + row * n + columns, mask=columns < n) * scale
    left = tl.load(x_ptr + row * 2 * n + columns, mask=columns < n)
    right = tl.load(x_ptr + row * 2 * n + n + columns, mask=columns < n)
    tl.store(dx_ptr + row * 2 * n + columns, grad * right, mask=columns < n)
    tl.store(dx_ptr + row * 2 * n + n + columns, grad * left, mask=columns < n)


class Glu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale=0.5):
        ctx.save_for_backward(x)
        ctx.scale, n = scale, x.shape[1] // 2
        out = x.new_empty(x.shape[0], n)
        glu_kernel[(x.shape[0],)](x, out, n, scale, BLOCK=triton.next_power_of_2(n))
        return out

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        dx, n = torch.empty_like(x), x.shape[1] // 2
        grad = grad.contiguous()
        glu_backward_kernel[(x.shape[0],)](grad, x, dx, n, ctx.scale, BLOCK=8)
        return dx, None


def add_in_place(x, y):
    one_kernel[(1,)](x, y, x.numel(), BLOCK=32)


@triton.jit
def one_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    total = tl.load(x_ptr + at, mask=at < n) + tl.load(y_ptr + at, mask=at < n)
    tl.store(x_ptr + at, total, mask=at < n)
"""


def part_of(tmp_path: Path, name: str) -> KernelPart:
    root = write_tree(tmp_path, {"kernels.py": SOURCE})
    left = find_remaining([root / "kernels.py"], TARGET)
    return next(p for each in left.remaining for p in each.parts if p.name == name)


def write(skeleton: str, *raised: str) -> str:
    """A skeleton with the code that is written in the place of what it raises, in its order."""
    for code in raised:
        begin, _, rest = skeleton.partition("    raise NotImplementedError(")
        assert rest
        skeleton = f"{begin}    {code}\n{rest.partition(chr(10))[2]}"
    assert "NotImplementedError" not in skeleton
    return skeleton


def outcome(program: str, folder: Path) -> str:
    done = run(program, PYTHONPATH=f"{RUNTIME}{os.pathsep}{folder}", TRITON_INTERPRET="1")
    return done.stdout + done.stderr


GLU = "return x.chunk(2, 1)[0] * x.chunk(2, 1)[1] * scale"
INPUTS = "return torch.randn(3, 10), 0.7"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (GLU, "glu: the same"),
        (GLU.replace(" * scale", ""), "Tensor-likes are not close"),
        (GLU.replace("[1]", "[1].detach()"), "Tensor-likes are not close"),
    ],
)
def test_values_and_gradients_are_compared(tmp_path: Path, body: str, said: str) -> None:
    skeleton = pytorch_skeleton(part_of(tmp_path, "glu"), find_target(TARGET))
    assert said in outcome(write(skeleton, body, INPUTS), tmp_path)


@pytest.mark.parametrize(
    ("body", "said"), [("x += y", "in_place: the same"), ("x + y", "are not close")]
)
def test_what_is_written_into_inputs_is_compared(tmp_path: Path, body: str, said: str) -> None:
    skeleton = pytorch_skeleton(part_of(tmp_path, "add_in_place"), find_target(TARGET))
    program = write(skeleton, body, "return torch.randn(17), torch.randn(17)")
    assert said in outcome(program, tmp_path)


@pytest.mark.parametrize("language", ["pytorch", "pallas"])
def test_a_skeleton_as_it_is_says_what_is_to_be_written(tmp_path: Path, language: str) -> None:
    part, target = part_of(tmp_path, "add_in_place"), find_target(TARGET)
    skeleton = (pytorch_skeleton if language == "pytorch" else pallas_skeleton)(part, target)
    assert bool(skeleton) == (language == "pytorch" or TARGET == "torchax")
    if skeleton:
        ran = outcome(skeleton, tmp_path)
        assert "NotImplementedError: add_in_place: its inputs x, y" in ran


@pytest.mark.skipif(TARGET != "torchax", reason="Pallas is JAX's")
def test_a_kernel_in_pallas(tmp_path: Path) -> None:
    skeleton = pallas_skeleton(part_of(tmp_path, "add_in_place"), find_target(TARGET))
    program = write(
        skeleton,
        "x_out_ref[...] = x_ref[...] + y_ref[...]",
        "x.copy_(call_jax(launch, x, y))",
        "return torch.randn(17), torch.randn(17)",
    ).replace("written = None", "written = jax.ShapeDtypeStruct(x.shape, x.dtype)")
    assert "add_in_place: the same" in outcome(program, tmp_path)
    wrong = program.replace("+ y_ref", "- y_ref")
    assert "are not close" in outcome(wrong, tmp_path)
