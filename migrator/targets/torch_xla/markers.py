"""How code for torch_xla is recognised, migrated or written by hand."""

from migrator.targets.markers import Markers

MARKERS = Markers(
    modules=("torch_xla",),
    devices=("xla",),
    library="torch_xla",
    device_functions=("torch_xla.device",),
    rank_modules=("torch_xla.core.xla_model", "torch_xla.runtime", "torch_xla.distributed"),
    # settings from older guides, before PJRT or before bfloat16 models
    older_variables=(
        "XRT_TPU_CONFIG", "XRT_WORKERS", "XRT_DEVICE_MAP", "XLA_USE_BF16", "XLA_DOWNCAST_BF16",
    ),
    # before it was on PyPI
    older_packages=("cloud-tpu-client",),
    older_wheels=("/tpu-pytorch/wheels/",),
)  # fmt: skip
