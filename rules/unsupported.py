"""What stays for a person: CUDA-only libraries and extensions."""

from migrator.diagnostics import Effort
from migrator.inventory import CUDA_LIBRARIES, Construct
from migrator.rule import Context, Decision, Example, Keep, Report, Rule

LIBRARY = Rule(
    code="LIB001",
    name="cuda-only-library",
    summary="a library that only exists for CUDA",
    why="""Its kernels do not run on a TPU. An import under try/except keeps its fallback, so
the file works without it; any other use has to be replaced by hand, by what the message says.""",
    effort=Effort.HOURS,
    examples=(
        Example("from flash_attn import flash_attn_func\n"),
        Example("try:\n    import apex\nexcept ImportError:\n    apex = None\n"),
    ),
)

EXTENSION = Rule(
    code="LIB002",
    name="cuda-extension",
    summary="a CUDA extension that is compiled at install or run time",
    why="""Kernels written in CUDA have to be written again, in PyTorch or in Pallas.""",
    effort=Effort.REWRITE,
    examples=(
        Example(
            "from torch.utils.cpp_extension import load\nops = load(name='ops', sources=src)\n"
        ),
    ),
)

LIGHTNING = Rule(
    code="LIB003",
    name="lightning-trainer",
    summary="PyTorch Lightning chooses the device by itself",
    why="""Its Trainer moves models and batches to the accelerator that it is told. It knows TPUs by
torch_xla (`accelerator="tpu"`), and nothing of torchax.""",
    effort=Effort.HOURS,
    references=("https://lightning.ai/docs/pytorch/stable/accelerators/tpu.html",),
    examples=(
        Example(
            'import pytorch_lightning as pl\ntrainer = pl.Trainer(accelerator="gpu", devices=1)\n'
        ),
    ),
)

_ADVICE = {
    "apex": "apex.optimizers.FusedAdam is torch.optim.AdamW; apex.amp is autocast in bfloat16",
    "flash_attn": "use torch.nn.functional.scaled_dot_product_attention",
    "flash_attn_interface": "use torch.nn.functional.scaled_dot_product_attention",
    "xformers": "use torch.nn.functional.scaled_dot_product_attention",
    "bitsandbytes": "there is no 8-bit optimizer; use torch.optim, or bfloat16 weights",
    "triton": "write the kernel in PyTorch, or in Pallas",
    "deepspeed": "shard with a mesh (torchax) or SPMD (torch_xla)",
    "transformer_engine": "use torch.nn layers in bfloat16",
    "cupy": "use numpy on the host, or torch on the device",
    "pynvml": "reads NVIDIA's driver; use the TPU's monitoring",
    "mamba_ssm": "its scan is a CUDA kernel; use a reference implementation in PyTorch",
    "torchao": "its kernels are CUDA's; keep bfloat16",
}

# What is written in them, or what is in them alone, is written anew.
_KERNELS = frozenset({
    "triton", "cupy", "pycuda", "cuda", "mamba_ssm", "causal_conv1d", "selective_scan_cuda",
})  # fmt: skip


@LIBRARY.on("library", *sorted(CUDA_LIBRARIES))
def library(ctx: Context, found: Construct) -> Decision:
    advice = _ADVICE.get(found.key, "it has no counterpart on a TPU")
    if ctx.names.is_guarded_import(found.node):
        return Keep("a failing import is caught, and the fallback is used")
    effort = Effort.REWRITE if found.key in _KERNELS else None
    return Report(f"{found.key} is for CUDA only: {advice}", effort=effort)


@EXTENSION.on("name", "torch.utils.cpp_extension*")
def extension(ctx: Context, found: Construct) -> Decision:
    return Report("a CUDA extension; write the kernel in PyTorch, or in Pallas")


@LIGHTNING.on("keyword", "lightning accelerator", "lightning gpus")
def trainer(ctx: Context, found: Construct) -> Decision:
    reason = f"Lightning chooses the device by itself; {ctx.target.lightning}"
    return Report(reason, whole=found.node)
