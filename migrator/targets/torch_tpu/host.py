"""Variables that TorchTPU and libtpu read."""

from pathlib import Path

from migrator.targets.host import Host, StandIn

_QUIET = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "PYTHONWARNINGS": "ignore:<TorchTpu/Performance/TcMalloc/",
}

HOST = Host(
    cpu={"TPU_SKIP_MDS_QUERY": "1", **_QUIET},
    # set by its launcher for the only rank of a world
    virtual={"TORCH_TPU_SLICEBUILDER_ADDRESSES": "localhost:0", "TORCH_TPU_TOPOLOGY": "1x1x1"},
    originals={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
    stand_in=StandIn(
        Path(__file__).with_name("on_cpu"),
        "torch_tpu has one device, which is XLA's CPU client: torch_tpu runs as it is, with the "
        "CPU's arithmetic and with plain products instead of the TPU's attention kernel",
    ),
    hasty={"XLA_FLAGS": "{own} --xla_backend_optimization_level=0"},
    compiles_for_tpu=True,
    has_tpu_compiler=True,  # its CPU client brings JAX
    dump={"XLA_FLAGS": "{own} --xla_dump_to='{folder}' --xla_dump_hlo_as_text"},
    variables={
        "TORCH_TPU_DEFER_AND_FUSE": "operators are deferred, and compiled together",
        "TORCH_TPU_ALLOW_LEGACY_DEVICE_APIS": "torch.tpu.synchronize and the like only warn",
        "TORCH_TPU_TOPOLOGY": "the topology of the chips of several processes",
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0: `import torch` does not load torch_tpu",
    },
    families=("TORCH_TPU_",),
)
