"""Sources for the words: torchax's documentation, and our own runs."""

from migrator.distribution import RUNTIME
from migrator.targets.api_map import Devices, Snippet, TargetApi

# Seen to raise errors.
_ABSENT = (
    "nested.nested_tensor", "nested.as_nested_tensor", "_make_wrapper_subclass", "_grouped_mm",
    "_scaled_grouped_mm", "_cslt_compress", "_cslt_sparse_mm",
)  # fmt: skip

API = TargetApi(
    device="jax",
    absent=frozenset(_ABSENT),
    autocast=Snippet(f"{RUNTIME}.autocast", (RUNTIME,)),
    holds_steps=True,
    device_loader=Snippet(f"{RUNTIME}.DeviceLoader", (RUNTIME,)),
    devices=Devices(
        group="jax",
        copies=Snippet(f"{RUNTIME}.DataParallel", (RUNTIME,)),
        ranks=Snippet(f"{RUNTIME}.DistributedDataParallel", (RUNTIME,)),
        unsharded=Snippet(f"{RUNTIME}.UnshardedDataParallel", (RUNTIME,)),
        replicated=Snippet(f"{RUNTIME}.replicate", (RUNTIME,)),
        launch=Snippet("torch.multiprocessing.spawn"),
        one_process=Devices(
            group="jax",
            address="jax://",
            copies=Snippet(f"{RUNTIME}.DataParallel", (RUNTIME,)),
            ranks=Snippet(f"{RUNTIME}.FullyShardedDataParallel", (RUNTIME,)),
            sharded=Snippet(f"{RUNTIME}.FullyShardedDataParallel", (RUNTIME,)),
            sampler=Snippet(f"{RUNTIME}.DistributedSampler", (RUNTIME,)),
        ),
    ),
    calls={
        "current_device": Snippet("0"),
        "is_current_stream_capturing": Snippet("False"),
    },
    renames={
        # the CUDA/CPU decoders are custom operators that torchax cannot run
        "torchvision.io.decode_image": Snippet(f"{RUNTIME}.decode_image", (RUNTIME,)),
        "torchvision.io.read_image": Snippet(f"{RUNTIME}.read_image", (RUNTIME,)),
        "torchvision.io.image.decode_image": Snippet(f"{RUNTIME}.decode_image", (RUNTIME,)),
        "torchvision.io.image.read_image": Snippet(f"{RUNTIME}.read_image", (RUNTIME,)),
    },
    compiles_constants=True,
    scripts_normalization=True,
    scripts_devices=False,
    thread_setup=f"{RUNTIME}.setup()",
    profiler="jax.profiler.trace",
    float64="float64 becomes float32 on the device",
)
