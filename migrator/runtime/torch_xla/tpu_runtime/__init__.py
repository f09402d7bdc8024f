"""What a script migrated from CUDA to TPU by torch_xla needs at run time.

Written beside migrated code by tpu-migrate, and independent of it. ``import tpu_runtime`` makes
``torch.device("xla")`` valid; ``tpu_runtime.setup()``, once in the entry script after its imports,
makes the results match the original's. The other names are those of ``torch.cuda``.
"""

from . import _versions

_versions.check()

from . import (  # noqa: E402
    autocast_lists,
    backwards,
    cache,
    checkpointing,
    clipping,
    convolutions,
    copies,
    device,
    distributed,
    dropping,
    edges,
    fourier,
    frameworks,
    functional,
    generators,
    imported_names,
    integers,
    jit,
    joined_lists,
    kept_parameters,
    launching,
    logs,
    mesh,
    mixed_attention,
    normalization,
    operators,
    optimizers,
    process_group,
    products,
    random_kernels,
    readings,
    recurrence,
    recurrent,
    report,
    resize,
    seeds,
    shared_elements,
    slices,
    sparse_tensors,
    strides,
    sync_batch_norm,
    tensor_types,
    tensors,
    transformer_masks,
)
from .amp import autocast  # noqa: E402
from .checkpoints import save  # noqa: E402
from .compiled_modules import compile  # noqa: E402
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
from .distributed import DistributedDataParallel  # noqa: E402
from .events import Event  # noqa: E402
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
from .loading import load, load_file  # noqa: E402
from .memory import (  # noqa: E402
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
from .parallel import DataParallel  # noqa: E402
from .per_parameter import replicate  # noqa: E402
from .precision import set_matmul_precision  # noqa: E402
from .profiling import profile  # noqa: E402
from .scalers import GradScaler  # noqa: E402
from .seeds import initial_seed, manual_seed, manual_seed_all, seed, seed_all  # noqa: E402
from .sharding import shard  # noqa: E402
from .tensor_types import (  # noqa: E402
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
from .token_buffer import TokenBuffer  # noqa: E402
from .unsharded import UnshardedDataParallel  # noqa: E402

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
    tensors,
    tensor_types,
    sparse_tensors,
    slices,
    copies,
    strides,
    operators,
    readings,
    integers,
    joined_lists,
    edges,
    fourier,
    resize,
    convolutions,
    generators,
    random_kernels,
    dropping,
    seeds,
    kept_parameters,
    backwards,
    normalization,
    recurrent,
    recurrence,
    clipping,
    checkpointing,
    optimizers,
    sync_batch_norm,
    process_group,
    functional,
    launching,
    distributed,
    products,
    transformer_masks,
    mixed_attention,
    autocast_lists,
    jit,
    frameworks,
    shared_elements,
)
_is_set_up = False
logs.keep_own()


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
        cache.install()
    for concern in _CONCERNS:
        concern.install()
    imported_names.renew(before)
