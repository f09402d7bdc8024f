"""The devices of this host, and which of its TPU chips a process uses.

Nothing here starts JAX's back end: the process that starts ranks must not take their chips, and a
rank has to join the others (launching.py) before it uses its own.
"""

import functools
import os
import re
from typing import Any

import jax
from jax._src import hardware_utils
from jax._src.clusters import cloud_tpu_cluster
from jax._src.hardware_utils import TpuVersion

_PORT = 8476  # of a host's first process; the others use the following ones
# The hosts along each axis of a TPU v2 or v3 slice, which its metadata doesn't contain.
_HOSTS = {
    "v2-8": "1,1,1", "v2-32": "2,2,1", "v2-128": "4,4,1", "v2-256": "4,8,1", "v2-512": "8,8,1",
    "v3-8": "1,1,1", "v3-32": "2,2,1", "v3-64": "2,4,1", "v3-128": "4,4,1", "v3-256": "4,8,1",
    "v3-512": "8,8,1", "v3-1024": "8,16,1", "v3-2048": "16,16,1",
}  # fmt: skip
_config: Any = jax.config
_FORCED = re.compile(r"--xla_force_host_platform_device_count=(\d+)")


@functools.cache
def chips() -> int:
    """The number of this host's TPU chips that JAX would use."""
    platforms = _config.jax_platforms
    if platforms and "tpu" not in platforms.split(","):
        return 0
    return int(hardware_utils.num_available_tpu_chips_and_device_id()[0])


def device_count() -> int | None:
    """The number of devices of this host, None if only JAX's back end knows it."""
    if chips():
        version = hardware_utils.num_available_tpu_chips_and_device_id()[1]
        return chips() * (2 if version in (TpuVersion.v3, TpuVersion.tpu7x) else 1)
    if _config.jax_platforms != "cpu" and hardware_utils.has_visible_nvidia_gpu():
        return None
    asked = _config.jax_num_cpu_devices
    forced = _FORCED.search(os.environ.get("XLA_FLAGS", ""))
    return int(asked if asked > 0 else forced[1] if forced else 1)


def name() -> str:
    """The name of this host's devices: "TPU v6e", or "cpu"."""
    version = hardware_utils.num_available_tpu_chips_and_device_id()[1] if chips() else None
    return "cpu" if version is None else f"TPU {version.name}"


def take_chip(local_rank: int, local_count: int) -> None:
    """Give this process, the ``local_rank``-th of the host, a chip; variables already set stay.

    The values are those of torch_xla 2.9 (`torch_xla._internal.tpu.configure_topology`).
    """
    accelerator = _topology_value("ACCELERATOR_TYPE")
    match = re.match(r"(?:v|tpu)(\d+)", accelerator)
    if match is None:
        raise RuntimeError(f"the TPU's metadata names an unknown accelerator: {accelerator}")
    version = int(match[1])
    hosts = (
        _HOSTS[accelerator]
        if version < 4
        else _topology_value("TPU_PROCESS_BOUNDS", "TPU_HOST_BOUNDS")
    )
    there = "2,2,1"
    if version >= 4:
        there = _topology_value("TPU_CHIPS_PER_PROCESS_BOUNDS", "TPU_CHIPS_PER_HOST_BOUNDS")
    bounds = [int(a) * int(b) for a, b in zip(hosts.split(","), there.split(","), strict=True)]
    if version == 7:
        bounds.append(2)
    ports = range(_PORT, _PORT + local_count)
    worker = int(_topology_value("CLOUD_TPU_TASK_ID", "TPU_WORKER_ID", metadata="WORKER_ID"))
    values = {
        "TPU_CHIPS_PER_PROCESS_BOUNDS": "1,1,1",
        "TPU_PROCESS_BOUNDS": ",".join(map(str, bounds)),
        "CLOUD_TPU_TASK_ID": str(worker * local_count + local_rank),
        "TPU_PROCESS_ADDRESSES": ",".join(f"{ip}:{port}" for ip in _workers() for port in ports),
        "TPU_VISIBLE_CHIPS": str(local_rank),
        "TPU_PROCESS_PORT": str(ports[local_rank]),
    }
    for name, value in values.items():
        os.environ.setdefault(name, value)


def _topology_value(*variables: str, metadata: str = "") -> str:
    """The environment's values if they replace the metadata, otherwise the metadata's."""
    if os.environ.get("TPU_SKIP_MDS_QUERY"):
        found = [os.environ[name] for name in _spelled(variables) if name in os.environ]
    else:
        value = cloud_tpu_cluster.get_tpu_env_value_from_metadata(metadata or variables[0])
        found = [] if value is None else [value]
    if not found:
        raise RuntimeError(f"neither the environment nor the TPU's metadata has {variables[0]}")
    return found[0]


def _spelled(variables: tuple[str, ...]) -> tuple[str, ...]:
    return ("TPU_ACCELERATOR_TYPE",) if variables == ("ACCELERATOR_TYPE",) else variables


def _workers() -> list[str]:
    """The addresses of the slice's hosts."""
    if os.environ.get("TPU_SKIP_MDS_QUERY"):
        hosts = os.environ.get("TPU_WORKER_HOSTNAMES", "").split(",")
    else:
        found = cloud_tpu_cluster.get_metadata("worker-network-endpoints")[0]
        hosts = [worker.split(":")[2] for worker in found.split(",")]
    return hosts if len(hosts) > 1 else ["localhost"]
