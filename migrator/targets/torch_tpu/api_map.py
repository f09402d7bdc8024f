"""PyTorch's own words: they mean a TPU if there is one, and a GPU if there are GPUs."""

from migrator.distribution import RUNTIME
from migrator.targets.api_map import Devices, Snippet, TargetApi

_ABSENT = (
    "to_sparse_csc", "to_sparse_bsr", "to_sparse_bsc",
    "quantize_per_tensor", "quantize_per_channel", "_int_mm", "_cslt_compress", "_cslt_sparse_mm",
)  # fmt: skip
_IN_PARTS = (
    "context parallelism has no rule for the TPU's attention, and raises an error: divide the "
    "batch, or the heads by tensor parallelism"
)
# Names of torch.distributed that raise an error on a TPU, or are for NVIDIA's GPUs.
_LACKS = {
    "monitored_barrier": "is gloo's: give it a group of the CPU, or use barrier",
    "rpc": "RPC sends tensors of the CPU and of GPUs: move a TPU's to the CPU first",
    "ProcessGroupNCCL": "is NCCL's, for GPUs alone; `init_process_group()` chooses the TPU's",
    "Backend.NCCL": "NCCL is for GPUs alone; on a TPU the back end is `tpu_dist`",
    "tensor.experimental.context_parallel": _IN_PARTS,
    "tensor.experimental._context_parallel": _IN_PARTS,
    "tensor.experimental._attention": _IN_PARTS,
    "_symmetric_memory": "symmetric memory is for NVIDIA's GPUs: exchange by collectives",
}
# Functions of torch.cuda, and those for any accelerator that take the same arguments.
_SAME = {
    "is_available": "is_available",
    "synchronize": "synchronize",
    "device_count": "device_count",
    "current_device": "current_device_index",
    "device": "device_index",
    "current_stream": "current_stream",
    "empty_cache": "empty_cache",
    "memory_allocated": "memory_allocated",
    "max_memory_allocated": "max_memory_allocated",
    "memory_reserved": "memory_reserved",
    "max_memory_reserved": "max_memory_reserved",
    "memory_stats": "memory_stats",
    "mem_get_info": "get_memory_info",
    "reset_peak_memory_stats": "reset_peak_memory_stats",
    "reset_max_memory_allocated": "reset_peak_memory_stats",
    "reset_accumulated_memory_stats": "reset_accumulated_memory_stats",
}

API = TargetApi(
    device="tpu",
    device_object=Snippet(
        "{torch}.accelerator.current_accelerator(check_available=True) or {torch}.device({cpu})"
    ),
    device_names=("device", "accelerator", "chosen_device"),
    on_gpu=Snippet("{torch}.cuda.is_available()"),
    autocast=Snippet("{torch}.autocast"),
    autocast_arguments=("{device}", "dtype={torch}.bfloat16"),
    device_loader=Snippet(f"{RUNTIME}.DeviceLoader", (RUNTIME,)),
    renames={
        **{
            f"torch.cuda.{old}": Snippet(f"{{torch}}.accelerator.{new}")
            for old, new in _SAME.items()
        },
        "torch.cuda.manual_seed": Snippet("{torch}.manual_seed"),
        "torch.cuda.manual_seed_all": Snippet("{torch}.manual_seed"),
        "torch.cuda.Event": Snippet("{torch}.Event"),
        "torch.cuda.Stream": Snippet("{torch}.Stream"),
    },
    devices=Devices(
        group="tpu_dist",
        native=True,
        lacks=_LACKS,
        launch=Snippet("torch.multiprocessing.spawn"),
        back_end=Snippet(
            "{torch.distributed}.get_default_backend_for_device({device})", ("torch.distributed",)
        ),
        launch_environment=Snippet("{torch}.tpu.distributed.set_tpu_launch_env"),
        launch_command="export $(python -m torch.tpu.distributed | xargs)",
    ),
    generators=True,
    absent=frozenset(_ABSENT),
    compiles=True,
    flex_attention=True,
    profiler="torch.profiler with TorchTPU's configuration",
    float64="float64 is emulated, which is slow",
)
