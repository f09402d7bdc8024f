"""torch_xla 2.9: lazy tensors, PJRT. Only the current API; facts from runs of our own."""

from migrator.targets import RUNTIME, Devices, Target, Word

TARGET = Target(
    name="torch_xla",
    summary="PyTorch/XLA lazy tensors (torch_xla 2.9.0)",
    home="https://github.com/pytorch/xla",
    library="torch_xla",
    device="xla",
    device_object=Word("torch_xla.device()", ("torch_xla",)),
    autocast=Word("{torch}.autocast"),
    autocast_arguments=("{device}", "dtype={torch}.bfloat16"),
    step_boundary=Word("torch_xla.sync()", ("torch_xla",)),
    devices=Devices(
        group="xla",
        copies=Word(f"{RUNTIME}.DataParallel", (RUNTIME,)),
        ranks=Word(f"{RUNTIME}.DistributedDataParallel", (RUNTIME,)),
        launch=Word("torch_xla.launch", ("torch_xla",)),
        copies_setup="spmd=True",
        launch_setup="ranks=True",
    ),
    calls={
        "device_count": Word("torch_xla.device_count()", ("torch_xla",)),
        "current_device": Word("0"),
        "synchronize": Word("torch_xla.sync(wait=True)", ("torch_xla",)),
        "manual_seed": Word("torch_xla.manual_seed({0})", ("torch_xla",)),
        "manual_seed_all": Word("torch_xla.manual_seed({0})", ("torch_xla",)),
        "is_current_stream_capturing": Word("False"),
    },
    profiler="torch_xla.debug.profiler",
    float64="float64 is emulated, which is slow",
    lightning='accelerator="tpu"',
    safetensors=True,
    today={
        "torch_xla.core.xla_model.xla_device": "torch_xla.device",
        "torch_xla.core.xla_model.mark_step": "torch_xla.sync",
        "torch_xla.core.xla_model.xrt_world_size": "torch_xla.runtime.world_size",
        "torch_xla.core.xla_model.get_ordinal": "torch_xla.runtime.global_ordinal",
        "torch_xla.experimental.pjrt.broadcast_master_param": (
            "torch_xla.core.xla_model.broadcast_master_param"
        ),
        "torch_xla.experimental.pjrt.*": "torch_xla.runtime",
        "torch_xla.experimental.xla_sharding.*": "torch_xla.distributed.spmd",
    },
    renames={
        "torch.save": Word("xm.save", ("torch_xla.core.xla_model as xm",)),
    },
)
