"""Memory figures, in bytes, under the names of ``torch.cuda``.

They are the platform's figures for one device. A CPU has none: they are 0, and the dictionary is
empty.
"""

import warnings

from ..device import IN_USE, DeviceLike, memory_info


def memory_stats(device: DeviceLike = None) -> dict[str, int]:
    """The platform's own figures, such as ``bytes_limit``; empty if there are none."""
    return memory_info(device)


def memory_allocated(device: DeviceLike = None) -> int:
    """Bytes in use now."""
    return memory_stats(device).get(IN_USE, 0)


def max_memory_allocated(device: DeviceLike = None) -> int:
    """The most bytes in use since the program began."""
    return memory_stats(device).get(f"peak_{IN_USE}", 0)


def memory_reserved(device: DeviceLike = None) -> int:
    """Bytes that the allocator holds, or bytes in use if the platform doesn't report them."""
    stats = memory_stats(device)
    return stats.get("pool_bytes") or stats.get(IN_USE, 0)


def max_memory_reserved(device: DeviceLike = None) -> int:
    """The most bytes that the allocator held, or that were in use if it doesn't report them."""
    stats = memory_stats(device)
    return stats.get("peak_pool_bytes") or stats.get(f"peak_{IN_USE}", 0)


def mem_get_info(device: DeviceLike = None) -> tuple[int, int]:
    """Free and total bytes of the device; (0, 0) if the platform doesn't report them."""
    stats = memory_stats(device)
    total = stats.get("bytes_limit", 0)
    return max(total - stats.get(IN_USE, 0), 0), total


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    """If there is a peak, warn that it can't be reset."""
    if memory_stats(device):
        warnings.warn("peak memory counts from the start: it cannot be reset here", stacklevel=2)


def reset_max_memory_allocated(device: DeviceLike = None) -> None:
    """Same as ``reset_peak_memory_stats``."""
    reset_peak_memory_stats(device)


def memory_summary(device: DeviceLike = None, abbreviated: bool = False) -> str:
    """The figures as lines of text; empty if there are none."""
    return "\n".join(f"{name}: {value:,}" for name, value in memory_stats(device).items())
