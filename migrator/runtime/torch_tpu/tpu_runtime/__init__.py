"""What a script migrated from CUDA to TPU by torch_tpu needs at run time.

Written beside migrated code by tpu-migrate, and independent of it. ``tpu_runtime.setup()``, once in
the entry script after its imports, fixes what torch_tpu 0.2 computes differently from torch. On
a GPU or the CPU it changes nothing. The other names are those of ``torch.cuda``.
"""

import torch

from .device import (
    ask_no_metadata_without_tpu,
    get_device_name,
    get_device_properties,
    is_bf16_supported,
    is_loaded,
)
from .dispatch import cpu_fallback, imported_names
from .distributed import data_parallel, sums_at_root
from .distributed.launching import launch, optimizer_step
from .frameworks import device_module, training_libraries
from .frameworks.device_loader import DeviceLoader
from .fused_attention import (
    LowerTriangularMask,
    flash_attn_func,
    flash_attn_kvpacked_func,
    flash_attn_qkvpacked_func,
    flash_attn_varlen_func,
    flash_attn_varlen_kvpacked_func,
    flash_attn_varlen_qkvpacked_func,
    memory_efficient_attention,
)
from .operators import (
    average_pool1d,
    distances,
    ending_operators,
    half_precision_draws,
    indexed_writes,
    quotients,
    running_statistics,
    separated_index_lists,
    transformer_fast_path,
    weight_norm,
    zero_dimensional,
)
from .tensors import parameter_identity, sparse_tensors
from .tensors.cuda_tensor_types import (
    BFloat16Tensor,
    BoolTensor,
    ByteTensor,
    CharTensor,
    DoubleTensor,
    FloatTensor,
    HalfTensor,
    IntTensor,
    LongTensor,
    ShortTensor,
    cast,
)

__all__ = [
    "BFloat16Tensor",
    "BoolTensor",
    "ByteTensor",
    "CharTensor",
    "DeviceLoader",
    "DoubleTensor",
    "FloatTensor",
    "HalfTensor",
    "IntTensor",
    "LongTensor",
    "LowerTriangularMask",
    "ShortTensor",
    "cast",
    "flash_attn_func",
    "flash_attn_kvpacked_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_varlen_kvpacked_func",
    "flash_attn_varlen_qkvpacked_func",
    "get_device_name",
    "get_device_properties",
    "is_bf16_supported",
    "launch",
    "memory_efficient_attention",
    "optimizer_step",
    "setup",
]

# torch's word for what others call the default: one bfloat16 pass.
_WORDS = {"default": "medium"}
_CONCERNS = (
    running_statistics, average_pool1d, distances, quotients, indexed_writes, separated_index_lists,
    zero_dimensional, transformer_fast_path, training_libraries, half_precision_draws, weight_norm,
    ending_operators, cpu_fallback, data_parallel, sums_at_root, device_module,
)  # fmt: skip
_is_set_up = False


def setup(precision: str = "highest") -> None:
    """Prepare torch. Call it once, after the script's imports; it does not start the runtime.

    ``precision`` is the precision of float32 products: "highest" is float32, six bfloat16 passes
    on a TPU, "high" three, about TF32, and "medium" or "default" one.
    """
    global _is_set_up
    torch.set_float32_matmul_precision(_WORDS.get(precision, precision))
    if _is_set_up:
        return
    _is_set_up = True
    ask_no_metadata_without_tpu()
    before = imported_names.of_torch()
    for concern in _CONCERNS:
        concern.install()
    if is_loaded():
        parameter_identity.install()
        sparse_tensors.install()
    imported_names.renew(before)
