"""Libraries that only exist for CUDA: how they are imported, how they are installed, what instead.

The one table of them: imports, requirements and commands are all looked up here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Library:
    """Packages (patterns of their names in normal form), and the modules that they bring.

    `kernels`: what is written in it, or is in it alone, has to be written anew.
    """

    packages: tuple[str, ...]
    modules: tuple[str, ...] = ()
    advice: str = "it has no counterpart on a TPU"
    kernels: bool = False

    def reason(self, name: str) -> str:
        """What is said of a package; the same of all that come with something else."""
        return f"{name} is for CUDA only: {self.advice}" if self.modules else self.advice


_ATTENTION = "use torch.nn.functional.scaled_dot_product_attention"
_KERNEL = "write the kernel in PyTorch, or in Pallas"
_CUDA = "it is a part of CUDA; remove it"
_OTHER = "it brings {} into PyTorch, which a TPU machine does not have; remove it"
_CPU = "its kernels are CUDA's; the package without `-gpu` runs on the CPU"

LIBRARIES = (
    Library(("(?:nvidia-)?apex",), ("apex",),
            "torch has most of it by now; each use says what takes its place"),
    Library(("flash-attn.*",), ("flash_attn", "flash_attn_2_cuda"), _ATTENTION),
    Library((), ("flash_attn_interface",),
            f"call flash_attn.flash_attn_func, which is rewritten, or {_ATTENTION[4:]}"),
    Library(("xformers",), ("xformers",), _ATTENTION),
    Library(("bitsandbytes.*",), ("bitsandbytes",),
            "there is no 8-bit optimizer; use torch.optim, or bfloat16 weights"),
    Library(("triton(?:-.*)?", "pytorch-triton.*"), ("triton",),
            _KERNEL, kernels=True),
    Library(("deepspeed.*",), ("deepspeed",), "shard over a mesh (`tpu-migrate explain SHD001`)"),
    Library(("colossalai.*",), ("colossalai",),
            "write the loop in PyTorch, and divide the model over the devices (--shard)"),
    Library(("transformer-engine.*",), ("transformer_engine",), "use torch.nn layers in bfloat16"),
    Library(("tensorrt.*", "torch-tensorrt"), ("tensorrt", "torch_tensorrt"),
            "XLA compiles the model itself; run the PyTorch model"),
    Library(("cupy(?:-cuda.*)?",), ("cupy",), "use numpy on the host, or torch on the device",
            kernels=True),
    Library(("pynvml", "nvidia-ml-py.*"), ("pynvml",),
            "reads NVIDIA's driver; use the TPU's monitoring"),
    Library(("mamba-ssm",), ("mamba_ssm", "selective_scan_cuda"),
            "its scan is a CUDA kernel; use a reference implementation in PyTorch", kernels=True),
    Library(("causal-conv1d",), ("causal_conv1d",),
            "use torch.nn.functional.conv1d, with padding on the left", kernels=True),
    Library(("torchao",), ("torchao",), "its kernels are CUDA's; keep bfloat16"),
    Library(("pycuda",), ("pycuda", "numba.cuda"), _KERNEL, kernels=True),
    Library(("cuda-python", "cuda-(?:core|bindings)"), ("cuda",),
            "calls NVIDIA's driver; remove it", kernels=True),
    Library(("nvidia-.*-cu\\d\\d", "nvidia-nccl.*", "nvidia-cudnn.*"), (),
            "it comes with torch's CUDA wheels; remove it"),
    Library(("nvidia-.*",), ("nvidia",),
            "load and decode on the host, by torch.utils.data and torchvision (for nvidia.dali)"),
    Library(("onnxruntime-gpu", "faiss-gpu.*", "tensorflow-gpu", "spacy-cuda.*"), (), _CPU),
    Library(("intel-extension-for-pytorch", "oneccl-bind-pt", "torch-ccl"), (),
            _OTHER.format("Intel's XPU")),
    Library(("torch-npu",), (), _OTHER.format("Ascend's NPU")),
    Library(("torch-directml",), (), _OTHER.format("DirectX's devices")),
    Library(("cudatoolkit.*", "cudnn", "nccl", "cuda-.*", "pytorch-cuda"), (), _CUDA),
)  # fmt: skip

MODULES = {module: each for each in LIBRARIES for module in each.modules}
_PACKAGES = [(re.compile("|".join(each.packages)), each) for each in LIBRARIES if each.packages]

# What a line that installs something says of CUDA's packages, or of torch and what goes with it.
MENTIONED = re.compile(
    r"torch|cu\d\d|-gpu|cuda|jax|libtpu|cloud-tpu-client|flash-attention|transformerengine|/mamba\b|"
    + "|".join(p.replace("-", "[-_.]") for each in LIBRARIES for p in each.packages),
    re.IGNORECASE,
)

# A version of what the target's packages need in certain ones.
_BOUNDED = re.compile(r"(?<![\w.-])(?:numpy|scipy)\b[\s\"'(]*[<>=~]")


def matters(text: str) -> bool:
    """A cheap test: False for a line that installs what has nothing to do with the device."""
    return MENTIONED.search(text) is not None or _BOUNDED.search(text) is not None


def of_package(name: str) -> Library | None:
    """What only exists for CUDA under a package's name in its normal form; None for others."""
    return next((each for pattern, each in _PACKAGES if pattern.fullmatch(name)), None)
