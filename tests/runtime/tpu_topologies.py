"""Hosts of TPU slices as their environment tells them, and what a process of theirs is to be told.

The values are those of `torch_xla._internal.tpu.configure_topology` (torch_xla 2.9), by which a
test holds them; another one holds the torchax runtime to them.
"""

import os
from collections.abc import Callable
from unittest import mock


def host(accelerator: str, bounds: str, chips: str, worker: int, *hosts: str) -> dict[str, str]:
    """What the environment of a host tells."""
    return {
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_ACCELERATOR_TYPE": accelerator,
        "TPU_HOST_BOUNDS": bounds,
        "TPU_CHIPS_PER_HOST_BOUNDS": chips,
        "TPU_WORKER_ID": str(worker),
        "TPU_WORKER_HOSTNAMES": ",".join(hosts),
    }


# The host, the process's number on it, and how many it has.
ASKED = {
    "v3-8": (host("v3-8", "1,1,1", "2,2,1", 0, "a"), 1, 4),
    "v3-32": (host("v3-32", "2,2,1", "2,2,1", 3, "a", "b", "c", "d"), 2, 4),
    "v4-8": (host("v4-8", "1,1,1", "2,2,1", 0, "a"), 3, 4),
    "v4-16": (host("v4-16", "1,1,2", "2,2,1", 1, "a", "b"), 0, 4),
    "v5e": (host("v5litepod-8", "1,1,1", "2,4,1", 0, "a"), 7, 8),
    "v6e": (host("v6e-16", "2,2,1", "2,2,1", 2, "a", "b", "c", "d"), 1, 4),
    "v7x": (host("tpu7x-8", "1,1,1", "2,2,1", 0, "a"), 2, 4),
}


def told(bounds: str, task: int, chip: int, count: int, *hosts: str) -> dict[str, str]:
    """What the process is told."""
    return {
        "TPU_CHIPS_PER_PROCESS_BOUNDS": "1,1,1",
        "TPU_PROCESS_BOUNDS": bounds,
        "CLOUD_TPU_TASK_ID": str(task),
        "TPU_PROCESS_ADDRESSES": ",".join(f"{h}:{8476 + i}" for h in hosts for i in range(count)),
        "TPU_VISIBLE_CHIPS": str(chip),
        "TPU_PROCESS_PORT": str(8476 + chip),
    }


TOLD = {
    "v3-8": told("2,2,1", 1, 1, 4, "localhost"),
    "v3-32": told("4,4,1", 14, 2, 4, "a", "b", "c", "d"),
    "v4-8": told("2,2,1", 3, 3, 4, "localhost"),
    "v4-16": told("2,2,2", 4, 0, 4, "a", "b"),
    "v5e": told("2,4,1", 7, 7, 8, "localhost"),
    "v6e": told("4,4,1", 9, 1, 4, "a", "b", "c", "d"),
    "v7x": told("2,2,1,2", 2, 2, 4, "localhost"),
}


def found(configure: Callable[[int, int], None], name: str) -> dict[str, str | None]:
    """What ``configure(local_rank, local_count)`` puts into the environment."""
    there, rank, count = ASKED[name]
    kept = {k: v for k, v in os.environ.items() if "TPU" not in k}
    with mock.patch.dict(os.environ, {**kept, **there}, clear=True):
        configure(rank, count)
        return {variable: os.environ.get(variable) for variable in TOLD[name]}
