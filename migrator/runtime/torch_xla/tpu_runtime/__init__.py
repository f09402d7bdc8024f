"""What a script migrated from CUDA to TPU by torch_xla needs at run time.

Written beside migrated code by tpu-migrate, and independent of it. ``import tpu_runtime`` makes
``torch.device("xla")`` valid; ``tpu_runtime.setup()``, once in the entry script after its imports,
makes the results match the original's. The other names are those of ``torch.cuda``.
"""

from . import _versions

_versions.check()

from . import device  # noqa: E402
from .compilation import jit_trace, persistent_cache  # noqa: E402
from .compilation.compiled_module import compile  # noqa: E402
from .device import (  # noqa: E402
    DeviceProperties,
    current_device,
    device_count,
    get_device_name,
    get_device_properties,
    is_available,
    is_bf16_supported,
    synchronize,
)
from .dispatch import imported_names  # noqa: E402
from .distributed import (  # noqa: E402
    ddp,
    functional_collectives,
    launching,
    mesh,
    process_group,
    sync_batch_norm,
)
from .distributed.data_parallel import DataParallel  # noqa: E402
from .distributed.ddp import DistributedDataParallel  # noqa: E402
from .distributed.fsdp import UnshardedDataParallel  # noqa: E402
from .distributed.fully_shard import replicate  # noqa: E402
from .distributed.tensor_parallel import shard  # noqa: E402
from .files.loading import load, load_file  # noqa: E402
from .files.saving import save  # noqa: E402
from .frameworks import training_libraries  # noqa: E402
from .fused_attention import (  # noqa: E402
    LowerTriangularMask,
    flash_attn_func,
    flash_attn_kvpacked_func,
    flash_attn_qkvpacked_func,
    flash_attn_varlen_func,
    flash_attn_varlen_kvpacked_func,
    flash_attn_varlen_qkvpacked_func,
    memory_efficient_attention,
)
from .operators import (  # noqa: E402
    built_scans,
    compiled_rnns,
    convolution_precision,
    divided_attention_heads,
    dropout,
    empty_and_scalar_tensors,
    forms_of_updates,
    fourier,
    function_transforms,
    half_sums,
    integers,
    joined_lists,
    normalization,
    packed_sequences,
    resize_precision,
    single_operators,
    slices,
    transformer_masks,
)
from .operators.matmul_precision import set_matmul_precision  # noqa: E402
from .profiling import report, script_logging  # noqa: E402
from .profiling.events import Event  # noqa: E402
from .profiling.memory import (  # noqa: E402
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_stats,
    memory_summary,
    reset_max_memory_allocated,
    reset_peak_memory_stats,
)
from .profiling.profiler import profile  # noqa: E402
from .random_numbers import generators, random_kernels, seeds  # noqa: E402
from .random_numbers.seeds import initial_seed, manual_seed, manual_seed_all, seed, seed_all  # noqa: E402
from .tensors import (  # noqa: E402
    cuda_tensor_types,
    device_copies,
    overlapping_views,
    parameter_identity,
    sparse_tensors,
    strides,
    tensor_methods,
    value_reads,
)
from .tensors.cuda_tensor_types import (  # noqa: E402
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
    set_default_tensor_type,
)
from .text.token_buffer import TokenBuffer  # noqa: E402
from .training import (  # noqa: E402
    activation_checkpoints,
    autocast_attention,
    autocast_lists,
    first_backward,
    gpu_optimizers,
    gradient_clipping,
)
from .training.amp import autocast  # noqa: E402
from .training.grad_scaler import GradScaler  # noqa: E402

__all__ = [
    "BFloat16Tensor",
    "BoolTensor",
    "ByteTensor",
    "CharTensor",
    "DataParallel",
    "DeviceProperties",
    "DistributedDataParallel",
    "DoubleTensor",
    "Event",
    "FloatTensor",
    "GradScaler",
    "HalfTensor",
    "IntTensor",
    "LongTensor",
    "LowerTriangularMask",
    "ShortTensor",
    "TokenBuffer",
    "UnshardedDataParallel",
    "autocast",
    "cast",
    "compile",
    "current_device",
    "device_count",
    "flash_attn_func",
    "flash_attn_kvpacked_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_varlen_kvpacked_func",
    "flash_attn_varlen_qkvpacked_func",
    "get_device_name",
    "get_device_properties",
    "initial_seed",
    "is_available",
    "is_bf16_supported",
    "load",
    "load_file",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_efficient_attention",
    "memory_reserved",
    "memory_stats",
    "memory_summary",
    "profile",
    "replicate",
    "reset_max_memory_allocated",
    "reset_peak_memory_stats",
    "save",
    "seed",
    "seed_all",
    "set_default_tensor_type",
    "set_matmul_precision",
    "setup",
    "shard",
    "synchronize",
]

# The order of installation.
_CONCERNS = (
    tensor_methods,
    cuda_tensor_types,
    sparse_tensors,
    slices,
    device_copies,
    strides,
    single_operators,
    value_reads,
    integers,
    joined_lists,
    empty_and_scalar_tensors,
    forms_of_updates,
    fourier,
    function_transforms,
    half_sums,
    resize_precision,
    convolution_precision,
    generators,
    random_kernels,
    dropout,
    seeds,
    parameter_identity,
    first_backward,
    normalization,
    packed_sequences,
    compiled_rnns,
    built_scans,
    gradient_clipping,
    activation_checkpoints,
    gpu_optimizers,
    sync_batch_norm,
    process_group,
    functional_collectives,
    launching,
    ddp,
    divided_attention_heads,
    transformer_masks,
    autocast_attention,
    autocast_lists,
    jit_trace,
    training_libraries,
    overlapping_views,
)
_is_set_up = False
script_logging.keep_own()


def setup(
    precision: str | bool = "highest",
    spmd: bool = False,
    ranks: bool = False,
    num_cores: int | None = None,
) -> None:
    """Prepare torch_xla. Call it once, after the script's imports; it does not start the runtime.

    ``precision`` is that of float32 products, see ``set_matmul_precision``. ``spmd``: one process
    drives all devices, for DataParallel and `shard`. ``ranks``: the program starts a process for
    each device, so this process doesn't use them. ``num_cores``: 1 for a single device,
    unless TPU_RUNTIME_NUM_CORES is set. Another call, for example by an imported script,
    changes the precision, and may add ``spmd``.
    """
    global _is_set_up
    device.keep_nan()
    set_matmul_precision(precision)
    device.limit(num_cores)
    mesh.enable(spmd)
    if _is_set_up:
        return
    _is_set_up = True
    before = imported_names.of_torch()
    device.look_for_libtpu()
    report.install()
    if ranks:
        device.rest()
    else:
        persistent_cache.install()
    for concern in _CONCERNS:
        concern.install()
    imported_names.renew(before)
