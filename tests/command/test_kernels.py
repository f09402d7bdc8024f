"""`tpu-migrate remaining` of kernels: what is known of each, and a skeleton that is checked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from helpers import cli, write_tree

from migrator import find_remaining
from migrator.remaining.kernels.kernel import KernelPart

SOFTPLUS = """import torch
import triton
import triton.language as tl


@triton.jit
def scaled(x, scale):
    return x * scale


@triton.jit
def gate_kernel(x_ptr, gate_ptr, out_ptr, stride, n, scale, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    at = x_ptr + row * stride + columns
    x = tl.load(at, mask=columns < n)
    gate = tl.load(gate_ptr + columns, mask=columns < n)
    tl.store(out_ptr + row * stride + columns, scaled(x, scale) * gate, mask=columns < n)


def gated(x: torch.Tensor, gate, scale=0.5):
    rows, n = x.shape
    out = torch.empty_like(x)
    gate_kernel[(rows,)](x, gate, out, x.stride(0), n, scale, BLOCK=triton.next_power_of_2(n))
    return out
"""
TEST = """import pytest
import torch

from lib.gate import gated


def gated_ref(x, gate):
    return x * 0.5 * gate


@pytest.mark.parametrize("rows, n", [(3, 5), (128, 512)])
def test_gated(rows, n):
    x, gate = torch.randn(rows, n, device="cuda"), torch.randn(n, device="cuda")
    got = gated(x, gate)
    want = gated_ref(x, gate)
    torch.testing.assert_close(got, want)
"""
TRITON = {"lib/__init__.py": "", "lib/gate.py": SOFTPLUS, "tests/test_gate.py": TEST, ".git/x": ""}


def parts_in(root: Path, path: str = ".", target: str = "torchax") -> list[KernelPart]:
    left = find_remaining([root / path], target)
    return [part for each in left.remaining for part in each.parts]


def test_a_triton_kernel_with_its_calls_and_its_reference(tmp_path: Path) -> None:
    root = write_tree(tmp_path, TRITON)
    (part,) = parts_in(root, "lib/gate.py")
    assert (part.name, part.parameters, part.original) == ("gated", "x, gate, scale=0.5", "gated")
    (kernel,) = part.kernels  # `scaled` is for kernels alone
    assert kernel.signature == (
        "gate_kernel(x_ptr, gate_ptr, out_ptr, stride, n, scale, BLOCK: tl.constexpr)"
    )
    assert (kernel.reads, kernel.writes) == (["x_ptr", "gate_ptr"], ["out_ptr"])
    (launch,) = kernel.launches
    assert launch.line == 24 and "gate_kernel[rows,](x, gate, out" in launch.code
    assert {"rows, n = x.shape", "out = torch.empty_like(x)"} <= {*launch.values}
    (call,) = part.calls
    assert (call.path, call.line) == (root / "tests/test_gate.py", 14)
    assert "rows, n in [(3, 5), (128, 512)]" in call.values
    compared, named = part.references
    assert (compared.code, compared.said) == ("gated_ref(x, gate)", "compared with")
    assert (named.code, named.line) == ("gated_ref(x, gate)", 7)


def test_a_function_with_its_own_gradient_is_one_part(tmp_path: Path) -> None:
    """Its backward kernel is no part by itself: autograd has the gradient of what is written."""
    root = write_tree(tmp_path, {"norm.py": NORM, "use.py": USE})
    (part,) = parts_in(root)
    assert (part.name, part.parameters) == ("fast_norm", "x, eps=1e-06")
    assert (part.original, part.has_gradient) == ("FastNorm.apply", True)
    assert [kernel.name for kernel in part.kernels] == ["_forward", "_backward"]
    assert [place.code for place in part.calls] == ["FastNorm.apply(x, 1e-05)"]
    # The comparison is two layers up, through a module that is made before.
    (reference,) = part.references
    assert reference.code == "torch.nn.functional.normalize(x)"


NORM = """import torch
import triton
import triton.language as tl


def _forward(x, out, n, eps, BLOCK: tl.constexpr):
    tl.store(out, tl.load(x))


_forward = triton.jit(_forward)


@triton.autotune(configs=[], key=["n"])
@triton.jit
def _backward(grad, out, n, BLOCK: tl.constexpr):
    tl.store(out, tl.load(grad))


def norm_forward(x, eps):
    out = torch.empty_like(x)
    _forward[(1,)](x, out, x.numel(), eps, BLOCK=16)
    return out


class FastNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, eps=1e-6):
        return norm_forward(x, eps)

    @staticmethod
    def backward(ctx, grad):
        out = torch.empty_like(grad)
        run = _backward if grad.numel() else None
        run[(1,)](grad, out, grad.numel(), BLOCK=16)
        return out, None


class Norm(torch.nn.Module):
    def forward(self, x):
        return FastNorm.apply(x, 1e-5)
"""
USE = """import torch
from norm import Norm

norm = Norm()
x = torch.randn(3, 4).cuda()
print((norm(x) - x).abs())
got = norm(x)
assert torch.allclose(got, torch.nn.functional.normalize(x))
"""


def test_another_way_to_the_kernel_is_no_reference(tmp_path: Path) -> None:
    use = "from norm import FastNorm, Norm\nimport torch\n\nx = torch.randn(3).cuda()\n"
    use += "torch.testing.assert_close(Norm()(x), FastNorm.apply(x))\n"
    (part,) = parts_in(write_tree(tmp_path, {"norm.py": NORM, "use.py": use}))
    assert part.references == []


def test_a_function_of_the_same_name_is_not_called(tmp_path: Path) -> None:
    other = "import torch\n\n\ndef gated(x):\n    return x\n\n\ngated(torch.ones(2).cuda())\n"
    root = write_tree(tmp_path, {**TRITON, "tests/test_gate.py": other})
    (part,) = parts_in(root)
    assert part.calls == [] and part.references == []


def test_a_numba_kernel_that_a_script_launches(tmp_path: Path) -> None:
    (part,) = parts_in(write_tree(tmp_path, {"add.py": NUMBA}))
    (kernel,) = part.kernels
    assert (kernel.language, kernel.reads, kernel.writes) == ("numba", ["x", "y"], ["out"])
    assert (part.name, part.parameters, part.original) == ("add", "x, y, out", "")
    assert [launch.code for launch in kernel.launches] == ["add[4, 32](x, y, out)"]


NUMBA = """import numpy as np
from numba import cuda


@cuda.jit(device=True)
def plus(a, b):
    return a + b


@cuda.jit
def add(x, y, out):
    i = cuda.grid(1)
    out[i] = plus(x[i], y[i])


x, y, out = np.ones(8), np.ones(8), np.zeros(8)
add[4, 32](x, y, out)
"""

CPP = """#include <torch/extension.h>
// void chamfer(int never) {
torch::Tensor chamfer_forward(const at::Tensor &a,
                              torch::Tensor b, const int n) {
  return a;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &chamfer_forward, "Chamfer"); }
"""
SETUP = """from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension

setup(
    name="chamfer",
    ext_modules=[CUDAExtension("chamfer", ["src/chamfer.cpp", "src/chamfer.cu"])],
    cmdclass={"build_ext": BuildExtension},
)
"""
CHAMFER = """import torch
import chamfer


class Chamfer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        return chamfer.forward(a, b, a.shape[1])
"""
CHECK = """import torch
from distance import Chamfer


def chamfer_python(a, b):
    return torch.cdist(a, b).min(-1)[0]


a, b = torch.rand(2, 7, 3).cuda(), torch.rand(2, 5, 3).cuda()
ours = Chamfer.apply(a, b)
theirs = chamfer_python(a, b)
print((ours - theirs).abs().max())
"""


def test_an_extension_with_what_is_called_from_python(tmp_path: Path) -> None:
    files = {"setup.py": SETUP, "src/chamfer.cpp": CPP, "src/chamfer.cu": "__global__ void k() {}"}
    root = write_tree(tmp_path, {**files, "distance.py": CHAMFER, "check.py": CHECK})
    (part,) = parts_in(root)
    (kernel,) = part.kernels
    assert kernel.signature == "forward(const at::Tensor &a, torch::Tensor b, const int n)"
    assert (kernel.path.name, kernel.line, kernel.language) == ("chamfer.cpp", 3, "CUDA")
    assert [launch.code for launch in kernel.launches] == ["chamfer.forward(a, b, a.shape[1])"]
    assert (part.name, part.parameters, part.has_gradient) == ("chamfer", "a, b", True)
    (call,) = part.calls
    assert {"a, b = (torch.rand(2, 7, 3).cuda(), torch.rand(2, 5, 3).cuda())"} == {*call.values}
    assert part.references[0].code == "chamfer_python(a, b)"


def test_sources_that_a_setup_looks_for(tmp_path: Path) -> None:
    """As that of Deformable-DETR: the class and its sources are variables."""
    setup = SETUP.replace("setup(", "sources = glob.glob('src/*.cpp')\nextension = None\n", 1)
    setup = """import glob
from setuptools import setup
from torch.utils.cpp_extension import CppExtension, CUDAExtension

extension = CppExtension
sources = glob.glob("src/*.cpp")
if True:
    extension = CUDAExtension
setup(ext_modules=[extension("chamfer", sources)])
"""
    root = write_tree(tmp_path, {"setup.py": setup, "src/c.cpp": CPP, "distance.py": CHAMFER})
    (part,) = parts_in(root)
    assert part.kernels[0].name == "forward"


def test_kernels_in_strings(tmp_path: Path) -> None:
    inline, raw = parts_in(write_tree(tmp_path, {"inline.py": INLINE, "raw.py": RAW}))
    assert inline.kernels[0].signature == "square(torch::Tensor x)"
    assert (inline.name, inline.parameters, inline.original) == ("squared", "x", "squared")
    assert raw.kernels[0].signature == "twice(const float* x, float* y, int n)"
    assert (raw.kernels[0].line, raw.name) == (4, "doubled")
    assert [place.code for place in raw.kernels[0].launches] == [
        "twice((1,), (32,), (x, y, x.size))"
    ]


INLINE = '''from torch.utils.cpp_extension import load_inline

SOURCE = "torch::Tensor square(torch::Tensor x);"
CUDA = """
__global__ void square_kernel(float* x) {}
torch::Tensor square(torch::Tensor x) { return x; }
"""
module = load_inline(name="square", cpp_sources=SOURCE, cuda_sources=CUDA, functions=["square"])


def squared(x):
    return module.square(x.cuda())
'''
RAW = '''import cupy

twice = cupy.RawKernel(r"""
extern "C" __global__ void twice(const float* x, float* y, int n) {
  y[threadIdx.x] = 2 * x[threadIdx.x];
}
""", "twice")


def doubled(x):
    y = cupy.empty_like(x)
    twice((1,), (32,), (x, y, x.size))
    return y
'''


def test_the_terminal_and_json(tmp_path: Path) -> None:
    root = write_tree(tmp_path, TRITON)
    said = cli("remaining", "lib/gate.py", "--target", "torchax", cwd=root).stdout.decode()
    assert "  to write: gated(x, gate, scale=0.5), at lib/gate.py:21" in said
    assert "    compared with at tests/test_gate.py:15: gated_ref(x, gate)" in said
    assert said.count('raise NotImplementedError("gate_kernel: to be written in PyTorch")') == 1
    assert "PYTHONPATH=. TRITON_INTERPRET=1 python check_gated.py" in said
    done = cli("remaining", ".", "--target", "torchax", "--format", "json", cwd=root)
    places: list[dict[str, Any]] = json.loads(done.stdout)["remaining"]
    first, *others = [each for each in places if each["path"] == "lib/gate.py"]
    (part,) = first["write"]
    assert part["place"] == "lib/gate.py:21" and part["kernels"][0]["writes"] == ["out_ptr"]
    assert "pl.pallas_call(gate_kernel" in part["pallas"]
    assert all(not each["write"] for each in others)
    other = find_remaining([root / "lib/gate.py"], "torch_xla").remaining[0]
    assert other.parts


def test_of_many_only_those_in_named_files_are_printed(tmp_path: Path) -> None:
    names = [f"gate{i}" for i in range(4)]
    files = {f"{name}.py": SOFTPLUS.replace("gated", name) for name in names}
    root = write_tree(tmp_path, files)
    said = cli("remaining", ".", "--target", "torchax", cwd=root).stdout.decode()
    assert "NotImplementedError" not in said
    assert "skeleton: tpu-migrate remaining gate2.py --target torchax" in said
    said = cli("remaining", "gate2.py", "--target", "torchax", cwd=root).stdout.decode()
    assert "def gate2(x, gate, scale=0.5):" in said
