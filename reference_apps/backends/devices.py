"""Which device to compute on, and what it is: CUDA or ROCm, then XPU, MPS, Vulkan, the CPU."""

import platform
from pathlib import Path

import torch


def is_vulkan_available() -> bool:
    """Whether this build of PyTorch has Vulkan, and there is a device for it."""
    return hasattr(torch, "is_vulkan_available") and torch.is_vulkan_available()


def is_rocm_platform() -> bool:
    """Whether "cuda" is an AMD GPU."""
    return torch.cuda.is_available() and torch.version.hip is not None


def get_rocm_version() -> str | None:
    """The version of ROCm that PyTorch was built for."""
    return torch.version.hip


def get_best_device() -> torch.device:
    """CUDA or ROCm > XPU > MPS > Vulkan > CPU."""
    # NVIDIA's GPUs and AMD's
    if torch.cuda.is_available():
        return torch.device("cuda")
    if hasattr(torch, "xpu") and torch.xpu.is_available():
        return torch.device("xpu")
    if hasattr(torch.backends, "mps") and torch.backends.mps.is_available():
        return torch.device("mps")
    if is_vulkan_available():
        return torch.device("vulkan")
    return torch.device("cpu")


def get_cpu_features() -> list[str]:
    """The CPU's vector and matrix extensions that matter here, as Linux names them."""
    info = Path("/proc/cpuinfo")
    flags = set(info.read_text(encoding="utf-8").split()) if info.exists() else set()
    return sorted(flags & {"avx2", "avx512f", "avx512_bf16", "amx_bf16", "amx_int8", "amx_tile"})


def print_device_info(device: torch.device) -> None:
    """What is known of `device`, and of the CPU."""
    print(f"PyTorch {torch.__version__} on {platform.system()} {platform.machine()}")
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(0)
        toolkit = "ROCm" if is_rocm_platform() else "CUDA"
        version = get_rocm_version() or torch.version.cuda
        print(f"{toolkit} {version}: {torch.cuda.device_count()} × {torch.cuda.get_device_name(0)}")
        print(f"memory: {properties.total_memory / 2**30:.1f} GiB")
    elif device.type == "xpu":
        print(f"XPU: {torch.xpu.get_device_name(0)}")
    elif device.type == "mps":
        print(f"MPS: {torch.mps.recommended_max_memory() / 2**30:.1f} GiB to use")
    elif device.type == "vulkan":
        print("Vulkan")
    print(f"CPU features: {', '.join(get_cpu_features()) or 'none'}")


def get_optimal_batch_size(device: torch.device, bytes_per_text: int) -> int:
    """How many texts fill an eighth of the device's memory: a power of two, at most 1,024."""
    if device.type == "cuda":
        memory = torch.cuda.get_device_properties(0).total_memory
    elif device.type == "xpu":
        memory = torch.xpu.get_device_properties(0).total_memory
    elif device.type == "mps":
        memory = torch.mps.recommended_max_memory()
    else:
        memory = 2**30
    fit = max(memory // 8 // bytes_per_text, 1)
    return min(1 << (fit.bit_length() - 1), 1024)


def finish(device: torch.device) -> None:
    """Wait for the device, and give back what its allocator holds."""
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
    elif device.type == "xpu":
        torch.xpu.synchronize()
        torch.xpu.empty_cache()
    elif device.type == "mps":
        torch.mps.synchronize()
        torch.mps.empty_cache()
