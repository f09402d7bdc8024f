"""CUDA's lists of operators for `torch.autocast` on the CPU, which stands in for a GPU.

The CPU's own autocast computes a softmax, a layer norm, exponentials, powers, sums and resized
images in float16, and a product of a matrix and a vector in float32. On CUDA it is the other way
round, and the results have that dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

# Those that have a kernel in AutocastCUDA, and none in AutocastCPU.
FLOAT32 = """
    acos asin cosh cosine_similarity cumprod cumsum dist erfinv exp expm1 frobenius_norm.dim
    group_norm layer_norm linalg_matrix_norm linalg_matrix_norm.str_ord linalg_vector_norm log log10
    log1p log2 log_softmax.int logsumexp native_layer_norm norm.Scalar norm.ScalarOpt_dim
    nuclear_norm nuclear_norm.dim pdist pow.Scalar pow.Tensor_Scalar pow.Tensor_Tensor reciprocal
    renorm rsqrt sinh softmax.int softplus sum sum.dim_IntList tan upsample_bicubic2d
    upsample_bilinear2d upsample_linear1d upsample_nearest1d upsample_nearest2d upsample_nearest3d
    upsample_trilinear3d _upsample_bicubic2d_aa _upsample_bilinear2d_aa _upsample_nearest_exact1d
    _upsample_nearest_exact2d _upsample_nearest_exact3d
"""
LOWER = "addmv addr linalg_multi_dot mv"
_FLOATS = (torch.float16, torch.bfloat16, torch.float32)

# The registrations live as long as this object.
_library = torch.library.Library("aten", "IMPL")


def _cast(name: str, dtype: Callable[[], torch.dtype]) -> Callable[..., Any]:
    """The operator with the arguments that are floats in this dtype."""
    packet, _, overload = name.partition(".")
    operator = getattr(getattr(torch.ops.aten, packet), overload or "default")

    def kernel(*args: Any, **kwargs: Any) -> Any:
        wanted = dtype()

        def cast(tensor: Tensor) -> Tensor:
            return tensor.to(wanted) if tensor.dtype in _FLOATS else tensor

        args, kwargs = pytree.tree_map_only(Tensor, cast, (args, kwargs))
        torch.set_autocast_enabled("cpu", False)
        try:
            return operator(*args, **kwargs)
        finally:
            torch.set_autocast_enabled("cpu", True)

    return kernel


def install() -> None:
    """Add the operators that the CPU's lists lack."""
    for names, dtype in (
        (FLOAT32, lambda: torch.float32),
        (LOWER, lambda: torch.get_autocast_dtype("cpu")),
    ):
        for name in names.split():
            if not torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "AutocastCPU"):
                _library.impl(name, _cast(name, dtype), "AutocastCPU")
