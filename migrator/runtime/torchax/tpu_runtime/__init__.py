"""What a script migrated from CUDA to TPU by torchax needs at run time.

Written beside migrated code by tpu-migrate, but independent of it. ``import tpu_runtime`` makes
``torch.device("jax")`` valid; ``tpu_runtime.setup()``, called once in the entry script after its
imports, makes torch compute there. The other names are those of ``torch.cuda``.
"""

import threading

from . import _versions

_versions.check()

from . import device  # noqa: E402
from .compilation import (  # noqa: E402
    jit_trace,
    partial_compilation,
    persistent_cache,
    recomputation,
)
from .compilation.compiled_module import compile  # noqa: E402
from .compilation.training_steps import train_step  # noqa: E402
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
from .dispatch import (  # noqa: E402
    cpu_fallback,
    imported_names,
    inference_mode,
    lost_gradients,
    modes,
    out_arguments,
)
from .distributed import (  # noqa: E402
    data_parallel,
    ddp,
    functional_collectives,
    launching,
    process_group,
    rank_checkpoints,
    sync_batch_norm,
)
from .distributed.data_parallel import DataParallel, DistributedSampler, FullyShardedDataParallel  # noqa: E402
from .distributed.ddp import DistributedDataParallel  # noqa: E402
from .distributed.fsdp import UnshardedDataParallel  # noqa: E402
from .distributed.fully_shard import replicate  # noqa: E402
from .distributed.tensor_parallel import shard  # noqa: E402
from .files.images import decode_image, read_image  # noqa: E402
from .files.loading import load, load_file  # noqa: E402
from .files.saving import save  # noqa: E402
from .frameworks import training_libraries  # noqa: E402
from .frameworks.parallel_loader import DeviceLoader  # noqa: E402
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
from .lazy import lazy_operators  # noqa: E402
from .operators import (  # noqa: E402
    adaptive_pooling,
    antialiased_resize,
    arithmetic,
    backward_operators,
    batch_norm,
    decompositions,
    empty_and_scalar_tensors,
    flash_attention,
    grouped_transposed_convolutions,
    half_products,
    indexing,
    linalg,
    padded_attention,
    pooling,
    recurrent_loops,
    single_operators,
    transformer_masks,
    unmerged_attention_products,
)
from .operators.matmul_precision import set_matmul_precision  # noqa: E402
from .profiling import report, source_lines  # noqa: E402
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
from .random_numbers import draws, generators, seeds  # noqa: E402
from .random_numbers.seeds import (  # noqa: E402
    get_rng_state,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
)
from .tensors import (  # noqa: E402
    cuda_tensor_types,
    moving,
    sparse_tensors,
    tensor_functions,
    tensor_identity,
    views,
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
from .training import amp, backward_hooks, optimizers  # noqa: E402
from .training.amp import autocast  # noqa: E402
from .training.grad_scaler import GradScaler  # noqa: E402

__all__ = [
    "BFloat16Tensor",
    "BoolTensor",
    "ByteTensor",
    "CharTensor",
    "DataParallel",
    "DeviceLoader",
    "DeviceProperties",
    "DistributedDataParallel",
    "DistributedSampler",
    "DoubleTensor",
    "Event",
    "FloatTensor",
    "FullyShardedDataParallel",
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
    "decode_image",
    "device_count",
    "flash_attn_func",
    "flash_attn_kvpacked_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_varlen_kvpacked_func",
    "flash_attn_varlen_qkvpacked_func",
    "get_device_name",
    "get_device_properties",
    "get_rng_state",
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
    "read_image",
    "replicate",
    "reset_max_memory_allocated",
    "reset_peak_memory_stats",
    "save",
    "seed",
    "seed_all",
    "set_default_tensor_type",
    "set_matmul_precision",
    "set_rng_state",
    "setup",
    "shard",
    "synchronize",
    "train_step",
]

# The order of installation.
_CONCERNS = (
    report,
    source_lines,
    persistent_cache,
    launching,
    views,
    indexing,
    decompositions,
    moving,
    tensor_functions,
    cuda_tensor_types,
    sparse_tensors,
    inference_mode,
    tensor_identity,
    generators,
    draws,
    antialiased_resize,
    amp,
    seeds,
    lost_gradients,
    backward_hooks,
    backward_operators,
    pooling,
    adaptive_pooling,
    batch_norm,
    padded_attention,
    transformer_masks,
    flash_attention,
    training_libraries,
    lazy_operators,
    single_operators,
    grouped_transposed_convolutions,
    half_products,
    empty_and_scalar_tensors,
    arithmetic,
    linalg,
    cpu_fallback,
    optimizers,
    recurrent_loops,
    partial_compilation,
    recomputation,
    data_parallel,
    process_group,
    functional_collectives,
    ddp,
    sync_batch_norm,
    rank_checkpoints,
    unmerged_attention_products,
    jit_trace,
)
_HOOKS = modes.Hooks(
    cast_arguments=amp.cast_arguments,
    write_result=out_arguments.write_result,
    of_base=indexing.of_base,
    link=views.link,
    hold=lazy_operators.hold,
    hold_function=lazy_operators.hold_function,
)
_is_set_up = False
_this_thread = threading.local()


def setup(precision: str | bool = "highest", num_cores: int | None = None) -> None:
    """Make torch compute through torchax from here on. Call it once, after the script's imports.

    The device is not used yet: it may belong to ranks that the program starts later.
    ``precision`` is that of float32 products, see ``set_matmul_precision``. ``num_cores``: 1
    for a single device, unless TPU_RUNTIME_NUM_CORES is set. Further calls change the precision,
    and let the thread that makes them use the device.
    """
    global _is_set_up
    import torchax

    set_matmul_precision(precision)
    if _is_set_up:
        if not hasattr(_this_thread, "is_set_up"):
            _this_thread.is_set_up = True
            torchax.enable_globally()
        return
    _is_set_up = _this_thread.is_set_up = True
    device.limit(num_cores)
    seeds.wait_for_the_device()
    env, before = torchax.default_env(), imported_names.of_torch()
    modes.install(env, _HOOKS)
    for concern in _CONCERNS:
        concern.install(env)
    imported_names.renew(before)
    if not env.enabled:
        torchax.enable_globally()
