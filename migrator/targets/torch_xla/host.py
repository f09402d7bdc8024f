"""Variables that PJRT and torch_xla read."""

from pathlib import Path

from migrator.targets.host import Host

HOST = Host(
    device_variable="PJRT_DEVICE",
    devices=frozenset({"tpu", "cpu"}),
    tpu={"PJRT_DEVICE": "TPU"},
    cpu={"PJRT_DEVICE": "CPU"},
    virtual={"CPU_NUM_DEVICES": "{count}"},
    replicas=Path(__file__).with_name("replicas.py"),
    hasty={"XLA_FLAGS": "{own} --xla_backend_optimization_level=0"},
    compiles_for_tpu=True,
    dump={"XLA_FLAGS": "{own} --xla_dump_to='{folder}' --xla_dump_hlo_as_text"},
    variables={
        "PJRT_DEVICE": "what torch_xla runs on",
        "CPU_NUM_DEVICES": "virtual devices of torch_xla's CPU back end",
        "XLA_PERSISTENT_CACHE_PATH": "where compiled programs are kept",
    },
    families=("PJRT_", "CPU_NUM_DEVICES", "XLA_PERSISTENT_CACHE_PATH"),
)
