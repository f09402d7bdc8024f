"""Only the current API of torch_xla; facts from our own runs."""

from migrator.distribution import RUNTIME
from migrator.targets.api_map import Devices, Snippet, TargetApi

# Seen to raise errors; `_grouped_mm` of torch_xla ends the process.
_ABSENT = (
    "nested.nested_tensor", "nested.as_nested_tensor", "_make_wrapper_subclass", "_grouped_mm",
    "_scaled_grouped_mm", "_cslt_compress", "_cslt_sparse_mm",
)  # fmt: skip

API = TargetApi(
    device="xla",
    absent=frozenset(_ABSENT),
    device_object=Snippet("torch_xla.device()", ("torch_xla",)),
    autocast=Snippet("{torch}.autocast"),
    autocast_arguments=("{device}", "dtype={torch}.bfloat16"),
    step_boundary=Snippet("torch_xla.sync()", ("torch_xla",)),
    devices=Devices(
        group="xla",
        copies=Snippet(f"{RUNTIME}.DataParallel", (RUNTIME,)),
        ranks=Snippet(f"{RUNTIME}.DistributedDataParallel", (RUNTIME,)),
        unsharded=Snippet(f"{RUNTIME}.UnshardedDataParallel", (RUNTIME,)),
        replicated=Snippet(f"{RUNTIME}.replicate", (RUNTIME,)),
        launch=Snippet("torch_xla.launch", ("torch_xla",)),
        address="xla://",
        copies_setup="spmd=True",
        launch_setup="ranks=True",
    ),
    calls={
        "device_count": Snippet("torch_xla.device_count()", ("torch_xla",)),
        "current_device": Snippet("0"),
        "synchronize": Snippet("torch_xla.sync(wait=True)", ("torch_xla",)),
        "manual_seed": Snippet("torch_xla.manual_seed({0})", ("torch_xla",)),
        "manual_seed_all": Snippet("torch_xla.manual_seed({0})", ("torch_xla",)),
        "is_current_stream_capturing": Snippet("False"),
    },
    renames={
        "torch.save": Snippet("xm.save", ("torch_xla.core.xla_model as xm",)),
    },
    device_has_index=True,
    transforms=True,
    safetensors=True,
    threads=True,
    profiler="torch_xla.debug.profiler",
    float64="float64 is emulated, which is slow",
    accelerate_off="USE_TORCH_XLA=0",
)
