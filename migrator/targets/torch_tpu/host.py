"""Variables that TorchTPU and its libtpu read."""

from migrator.targets.host import Host, Slow

HOST = Host(
    cpu={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
    variables={
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0: `import torch` does not load TorchTPU",
        "TORCH_TPU_DEFER_AND_FUSE": "run operators together, not one by one",
        "TORCH_TPU_TOPOLOGY": "how a launcher's processes share the chips",
        "TPU_SKIP_MDS_QUERY": "ask no metadata server which TPU this is",
    },
    families=("TORCH_TPU_",),
    slow={"TORCH_DEVICE_BACKEND_AUTOLOAD": Slow("hides the TPU from PyTorch", frozenset({"0"}))},
)
