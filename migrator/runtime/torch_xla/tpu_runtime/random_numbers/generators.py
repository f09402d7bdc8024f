"""`torch.Generator(device="xla")`: torch_xla 2.9 has none and raises.

A generator is on the CPU here; `torch.randn(..., generator=g, device="xla")` draws its numbers
there and moves them. They are those of the CPU, not those of a CUDA generator.
"""

from typing import Any

import torch

from ..device import DEVICE_TYPE

_CpuGenerator = torch._C.Generator


class _AnyGenerator(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _CpuGenerator)


class Generator(_CpuGenerator, metaclass=_AnyGenerator):
    """`torch.Generator`, on the CPU if XLA's is requested."""

    def __new__(cls, device: Any = "cpu") -> Any:
        return _CpuGenerator("cpu" if torch.device(device).type == DEVICE_TYPE else device)


def install() -> None:
    """Replace torch's class with the one above, unless torch has such a generator."""
    try:
        _CpuGenerator(DEVICE_TYPE)
    except RuntimeError:
        torch.Generator = Generator  # type: ignore[misc]
