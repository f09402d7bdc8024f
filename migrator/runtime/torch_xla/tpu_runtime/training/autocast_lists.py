"""Operators that autocast computes in float32 on CUDA, but in bfloat16 with torch_xla 2.9.

Sums, exponentials, powers, norms and resized images, whose results also have that dtype.
"""

from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ..device import DEVICE_TYPE
from ..dispatch.replaced_kernels import Kernel, operator_of

# Those with a kernel in AutocastCUDA, but none in AutocastXLA.
_FLOAT32 = """
    acos asin cosh cosine_similarity cumprod cumsum dist erfinv exp expm1 frobenius_norm.dim
    huber_loss linalg_matrix_norm linalg_matrix_norm.str_ord linalg_vector_norm log log10 log1p log2
    logsumexp norm.Scalar norm.ScalarOpt_dim nuclear_norm nuclear_norm.dim pdist poisson_nll_loss
    pow.Scalar pow.Tensor_Tensor reciprocal renorm rsqrt sinh softplus sum sum.dim_IntList tan
    upsample_bicubic2d upsample_bilinear2d upsample_linear1d upsample_nearest1d upsample_nearest2d
    upsample_nearest3d upsample_trilinear3d _upsample_bicubic2d_aa _upsample_bilinear2d_aa
    _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d
"""

# The registrations live as long as this object.
_library = torch.library.Library("aten", "IMPL")


def _widened(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def _in_float32(name: str) -> Kernel:
    operator = operator_of(name)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = pytree.tree_map_only(Tensor, _widened, (args, kwargs))
        torch.set_autocast_enabled(DEVICE_TYPE, False)
        try:
            return operator(*args, **kwargs)
        finally:
            torch.set_autocast_enabled(DEVICE_TYPE, True)

    return kernel


def install() -> None:
    """Add the operators missing from torch_xla's lists."""
    for name in _FLOAT32.split():
        _library.impl(name, _in_float32(name), "AutocastXLA")
