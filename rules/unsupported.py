"""What stays for a person: CUDA-only libraries and extensions."""

from migrator.analysis.libraries import MODULES
from migrator.codes import Family
from migrator.construct import Construct
from migrator.diagnostics import Effort
from migrator.rule import Context, Decision, Example, Keep, Report, Rule

FAMILY = Family("LIB", "Libraries", 100)

LIBRARY = Rule(
    code="LIB001",
    name="cuda-only-library",
    summary="a library that only exists for CUDA",
    why="""Its kernels do not run on a TPU. An import under `try`/`except` keeps its fallback,
so the file works without it; any other use has to be replaced by hand, as the message says.""",
    effort=Effort.HOURS,
    for_cuda=True,
    examples=(
        Example("import cupy\n"),
        Example(
            """
            try:
                import apex
            except ImportError:
                apex = None
            """,
        ),
    ),
)

EXTENSION = Rule(
    code="LIB002",
    name="cuda-extension",
    summary="a CUDA extension that is compiled at install or run time",
    why="""Kernels written in CUDA have to be written again: in PyTorch, which XLA compiles, or
in Pallas, JAX's language for kernels.""",
    effort=Effort.REWRITE,
    for_cuda=True,
    examples=(
        Example(
            """
            from torch.utils.cpp_extension import load
            ops = load(name='ops', sources=src)
            """,
        ),
        Example(
            """
            from numba import cuda


            @cuda.jit
            def add(x):
                i = cuda.grid(1)
            """,
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
            """
            import pytorch_lightning as pl
            trainer = pl.Trainer(accelerator="gpu", devices=1)
            """,
        ),
    ),
)


@LIBRARY.on("library", *sorted(MODULES))
def library(ctx: Context, found: Construct) -> Decision:
    if ctx.names.is_guarded_import(found.node):
        return Keep("a failing import is caught, and the fallback is used")
    each = MODULES[found.key]
    effort = Effort.REWRITE if each.kernels else None
    return Report(f"{found.key} is for CUDA only: {each.advice}", effort=effort)


@EXTENSION.on("name", "torch.utils.cpp_extension*")
def extension(ctx: Context, found: Construct) -> Decision:
    return Report("a CUDA extension; write the kernel in PyTorch, or in Pallas")


@EXTENSION.on("name", "numba.cuda.*")
def numba(ctx: Context, found: Construct) -> Decision:
    return Report("numba compiles it for CUDA; write the kernel in PyTorch, or in Pallas")


@LIGHTNING.on("keyword", "lightning accelerator", "lightning gpus")
def trainer(ctx: Context, found: Construct) -> Decision:
    reason = f"Lightning chooses the device by itself; {ctx.words.lightning}"
    return Report(reason, whole=found.node)
