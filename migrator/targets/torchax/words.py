"""Sources for the words: torchax's documentation, and our own runs."""

from migrator.distribution import RUNTIME
from migrator.targets.words import Devices, Word, Words

# Seen to raise errors.
_ABSENT = (
    "nested.nested_tensor", "nested.as_nested_tensor", "_make_wrapper_subclass", "_grouped_mm",
    "_scaled_grouped_mm", "_cslt_compress", "_cslt_sparse_mm",
)  # fmt: skip

WORDS = Words(
    device="jax",
    absent=frozenset(_ABSENT),
    autocast=Word(f"{RUNTIME}.autocast", (RUNTIME,)),
    holds_steps=True,
    device_loader=Word(f"{RUNTIME}.DeviceLoader", (RUNTIME,)),
    devices=Devices(
        group="jax",
        copies=Word(f"{RUNTIME}.DataParallel", (RUNTIME,)),
        ranks=Word(f"{RUNTIME}.DistributedDataParallel", (RUNTIME,)),
        unsharded=Word(f"{RUNTIME}.UnshardedDataParallel", (RUNTIME,)),
        replicated=Word(f"{RUNTIME}.replicate", (RUNTIME,)),
        launch=Word("torch.multiprocessing.spawn"),
        one_process=Devices(
            group="jax",
            address="jax://",
            copies=Word(f"{RUNTIME}.DataParallel", (RUNTIME,)),
            ranks=Word(f"{RUNTIME}.FullyShardedDataParallel", (RUNTIME,)),
            sharded=Word(f"{RUNTIME}.FullyShardedDataParallel", (RUNTIME,)),
            sampler=Word(f"{RUNTIME}.DistributedSampler", (RUNTIME,)),
        ),
    ),
    calls={
        "current_device": Word("0"),
        "is_current_stream_capturing": Word("False"),
    },
    renames={
        # the CUDA/CPU decoders are custom operators that torchax cannot run
        "torchvision.io.decode_image": Word(f"{RUNTIME}.decode_image", (RUNTIME,)),
        "torchvision.io.read_image": Word(f"{RUNTIME}.read_image", (RUNTIME,)),
        "torchvision.io.image.decode_image": Word(f"{RUNTIME}.decode_image", (RUNTIME,)),
        "torchvision.io.image.read_image": Word(f"{RUNTIME}.read_image", (RUNTIME,)),
    },
    compiles_constants=True,
    scripts_normalization=True,
    scripts_devices=False,
    thread_setup=f"{RUNTIME}.setup()",
    profiler="jax.profiler.trace",
    float64="float64 becomes float32 on the device",
)
