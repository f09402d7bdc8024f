"""Libraries that only exist for CUDA: how they are imported, how they are installed, what instead.

The one table of them: imports, requirements and commands are all looked up here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Library:
    """Packages (patterns of their names in normal form), and the modules that they bring.

    `kernels`: what is written in it, or is in it alone, has to be written anew. `also_on_cpu`: it
    computes with tensors of the CPU, too, but not with those of a TPU.
    """

    packages: tuple[str, ...]
    modules: tuple[str, ...] = ()
    advice: str = "it has no counterpart on a TPU"
    kernels: bool = False
    also_on_cpu: bool = False

    def reason(self, name: str) -> str:
        """What is said of a package; the same of all that come with something else."""
        if self.also_on_cpu:
            both = "it has kernels for CUDA and for the CPU, and none for a TPU"
            return f"{name}: {both}; {self.advice}"
        return f"{name} is for CUDA only: {self.advice}" if self.modules else self.advice


_ATTENTION = "use torch.nn.functional.scaled_dot_product_attention"
_KERNEL = "write the kernel in PyTorch, or in Pallas"
_CUDA = "it is a part of CUDA; remove it"
_OTHER = "it brings {} into PyTorch, which a TPU machine does not have; remove it"
_CPU = "its kernels are CUDA's; the package without `-gpu` runs on the CPU"
_POINTS = "write it in PyTorch: distances by torch.cdist, neighbours by topk"

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
    Library(("pycuda",), ("pycuda", "numba.cuda"), _KERNEL, kernels=True),
    # Kernels that a package compiles, or brings compiled, for CUDA alone.
    Library(("diff-gaussian-rasterization", "diff-surfel-rasterization", "simple-knn", "gsplat",
             "fused-ssim"),
            ("diff_gaussian_rasterization", "diff_surfel_rasterization", "simple_knn", "gsplat",
             "fused_ssim"),
            "write the rasterizer in PyTorch, or in Pallas", kernels=True),
    Library(("tinycudann",), ("tinycudann",), "write the hash grid and the network in PyTorch",
            kernels=True),
    Library(("nvdiffrast",), ("nvdiffrast",), "it draws by CUDA or OpenGL; render on the host",
            kernels=True),
    Library(("lietorch", "cuequivariance.*"), ("lietorch", "cuequivariance_torch"), _KERNEL,
            kernels=True),
    Library(("sageattention", "flashinfer(?:-python)?", "flash-mla"),
            ("sageattention", "flashinfer", "flash_mla"), _ATTENTION),
    Library(("liger-kernel",), ("liger_kernel",),
            "its kernels are Triton's; use torch's losses and norms, which XLA fuses"),
    Library(("flash-linear-attention",), ("fla.ops", "fla.layers"), _KERNEL, kernels=True),
    Library(("deep-gemm", "deep-ep", "nvidia-cutlass.*"), ("deep_gemm", "deep_ep", "cutlass"),
            _KERNEL, kernels=True),
    Library(("autoawq.*", "auto-gptq", "gptqmodel", "exllamav2", "eetq", "aqlm"),
            ("awq", "auto_gptq", "gptqmodel", "exllamav2", "eetq", "aqlm"),
            "its quantized weights need CUDA kernels; load the weights in bfloat16"),
    Library(("tensorrt-llm", "sglang", "lmdeploy"), ("tensorrt_llm", "sglang", "lmdeploy"),
            "it serves models on GPUs; vLLM has a build for TPUs"),
    Library(("vllm",), ("vllm",), "install vllm-tpu, its package for TPUs"),
    Library(("torch2trt",), ("torch2trt",), "XLA compiles the model itself; run the PyTorch model"),
    Library(("knn-cuda", "pointnet2(?:-ops)?"), ("knn_cuda", "pointnet2_ops"), _POINTS,
            kernels=True),
    Library(("cvcuda.*", "pynvvideocodec", "pynvcodec"),
            ("cvcuda", "nvcv", "PyNvVideoCodec", "PyNvCodec"),
            "decode and resize on the host, by torchvision"),
    Library(("cudf.*", "dask-cudf.*", "cuml.*", "cugraph.*", "cuspatial.*", "cucim.*", "rmm.*",
             "pylibraft.*", "dask-cuda"),
            ("cudf", "dask_cudf", "cuml", "cugraph", "cuspatial", "cucim", "pylibraft",
             "dask_cuda"),
            "use pandas, scikit-learn, networkx or SciPy on the host"),
    Library(("py3nvml", "gpustat", "nvgpu"), ("py3nvml", "gpustat", "nvgpu"),
            "asks NVIDIA's driver; `tpu-info` shows what a TPU does"),
    Library(("horovod",), ("horovod",),
            "start the ranks by torchrun, and wrap the model in DistributedDataParallel"),
    # What also runs on the CPU, but not with tensors of a TPU.
    Library((), ("torch_scatter",), "use torch.Tensor.scatter_reduce", also_on_cpu=True),
    Library((), ("torch_sparse",), "use torch.sparse, or scatter_reduce", also_on_cpu=True),
    Library((), ("torch_cluster", "torch_points_kernels"), _POINTS, also_on_cpu=True),
    Library((), ("torch_spline_conv", "pyg_lib"), "write it in PyTorch", also_on_cpu=True),
    Library((), ("spconv", "torchsparse", "MinkowskiEngine"),
            "use dense convolutions, or gather and scatter_reduce", kernels=True, also_on_cpu=True),
    Library((), ("pytorch3d", "kaolin"), "write what is used of it in PyTorch", also_on_cpu=True),
    Library((), ("natten",), "use scaled_dot_product_attention with a mask", also_on_cpu=True),
    Library((), ("mmcv.ops",), "use torchvision.ops", also_on_cpu=True),
    Library((), ("fbgemm_gpu", "torchrec"), "use torch.nn.EmbeddingBag", also_on_cpu=True),
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
