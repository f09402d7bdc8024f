"""Checkpoints of all ranks: tensors are copied to the CPU one by one.

torch 2.9: `torch.distributed.checkpoint` copies with streams if a device has a module of its own.
"""

from typing import Any

from torchax.tensor import Environment


def install(env: Environment) -> None:
    """Let the file writer copy as it does on the CPU."""
    from torch.distributed.checkpoint import filesystem

    def one_by_one(resolve_fun: Any, **how: object) -> Any:
        return filesystem._SerialCpuLoader(resolve_fun)

    filesystem._OverlappingCpuLoader = one_by_one  # type: ignore[assignment, misc]
