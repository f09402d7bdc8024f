"""Code that needs manual changes: CUDA-only libraries and extensions."""

import ast

from migrator.rule_api import (
    Construct,
    Context,
    Decision,
    Effort,
    Example,
    Family,
    Keep,
    Report,
    Rule,
    Safety,
)
from migrator.rule_api.libraries import MODULES, Verdict, is_optional, verdict_of
from migrator.rule_api.packages import GPU_PROVIDERS

FAMILY = Family("LIB", "Libraries", 100)

LIBRARY = Rule(
    code="LIB001",
    name="cuda-only-library",
    summary="a library that only exists for CUDA",
    why="""Its kernels don't run on a TPU. An import under `try`/`except`, or behind a question
whether the library is installed, keeps its fallback, so the file works without it. Replace any
other use by hand; the message says how.""",
    effort=Effort.HOURS,
    for_cuda=True,
    examples=(
        Example("import cupy\n", says={1: "cupy is for CUDA only"}),
        Example(
            """
            import importlib
            kernels = importlib.import_module("flash_attn")
            """,
            says={2: "flash_attn is for CUDA only"},
        ),
        Example(
            """
            from importlib.util import find_spec
            if find_spec("deepspeed") is not None:
                import deepspeed
            """,
            says={3: "the fallback is used"},
        ),
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
    why="""Write CUDA kernels again in PyTorch, which XLA compiles, or in Pallas, JAX's language for
kernels.

That an imported module is compiled is known by what `setup.py` files build, by git submodules that
are not checked out, and by native sources beside a package without such a file. If none of this
says what it is compiled for, it is reported, too. An extension for the CPU is not.""",
    safety=Safety.DISPLAY_ONLY,
    effort=Effort.REWRITE,
    for_cuda=True,
    examples=(
        Example(
            """
            from torch.utils.cpp_extension import load
            ops = load(name='ops', sources=src)
            """,
            says={2: "a CUDA extension"},
        ),
        Example(
            """
            from numba import cuda


            @cuda.jit
            def add(x):
                i = cuda.grid(1)
            """,
            says={4: "numba compiles it for CUDA"},
        ),
        Example(
            """
            from torch.utils.cpp_extension import load
            ops = load(name="ops", sources=["ops.cpp"])
            """,
            says={2: "an extension for the CPU"},
        ),
    ),
)

KERNELS = Rule(
    code="LIB007",
    name="cuda-kernels-by-name",
    summary="kernels and quantized weights that are loaded by name, and only exist for CUDA",
    why="""`kernels.get_kernel` downloads kernels built for CUDA. bitsandbytes, which
`BitsAndBytesConfig` and `load_in_4bit` use, has no kernels for a TPU.

With `device_map`, accelerate places the parts of a model; it sees a machine's GPUs, but not a TPU.
The same goes for diffusers' offloads, which move parts to a GPU when needed. A `pipeline` of
transformers uses a GPU, by its number or by itself, otherwise the CPU.""",
    safety=Safety.DISPLAY_ONLY,
    effort=Effort.HOURS,
    for_cuda=True,
    examples=(
        Example(
            """
            from kernels import get_kernel
            attention = get_kernel("kernels-community/flash-attn3")
            """,
            says={2: "downloads kernels that were built for CUDA"},
        ),
        Example(
            """
            from transformers import AutoModel
            model = AutoModel.from_pretrained(name, load_in_4bit=True)
            """,
            says={2: "load the weights in bfloat16"},
        ),
        Example(
            """
            from transformers import AutoModel
            model = AutoModel.from_pretrained(name, device_map="auto")
            """,
            says={2: "accelerate places the model and finds no TPU"},
        ),
        Example(
            """
            from transformers import pipeline
            classify = pipeline("image-classification", device=0)
            """,
        ),
        Example(
            """
            import torch
            from transformers import AutoModel
            model = AutoModel.from_pretrained(name, device_map="cpu")
            """,
            says={3: "loads to the CPU"},
        ),
    ),
)


PROVIDERS = Rule(
    code="LIB009",
    name="onnx-provider",
    summary="ONNX Runtime with a provider for GPUs",
    why="""ONNX Runtime has no execution provider for TPUs. Where one for GPUs is missing, it warns
and computes on the CPU, which is right but slow.""",
    safety=Safety.DISPLAY_ONLY,
    effort=Effort.HOURS,
    for_cuda=True,
    examples=(
        Example(
            """
            import onnxruntime
            run = onnxruntime.InferenceSession("m.onnx", providers=["CUDAExecutionProvider"])
            """,
            says={2: "onnxruntime has no provider for a TPU"},
        ),
        Example(
            """
            import onnxruntime
            run = onnxruntime.InferenceSession("m.onnx", providers=["CPUExecutionProvider"])
            """,
            says={2: "onnxruntime computes on the CPU"},
        ),
    ),
)


_MISSING = "the import fails, and the fallback is used"


@LIBRARY.on("library", *sorted(MODULES))
@LIBRARY.on("library by name", *sorted(MODULES))
def library(ctx: Context, found: Construct) -> Decision:
    if is_optional(ctx.names, found.node, found.key):
        return Keep(_MISSING)
    each = MODULES[found.key]
    if ctx.file.is_own(found.key):
        return Keep("the project's own module")
    return Report(each.reason(found.key), effort=Effort.REWRITE if each.kernels else None)


_ROTATED = [
    f"detectron2.layers.{module}{name}"
    for module, names in {
        "": ("ROIAlignRotated", "batched_nms_rotated", "nms_rotated", "roi_align_rotated"),
        "nms.": ("batched_nms_rotated", "nms_rotated"),
        "roi_align_rotated.": ("ROIAlignRotated", "roi_align_rotated"),
        "rotated_boxes.": ("pairwise_iou_rotated",),
    }.items()
    for name in names
]


@LIBRARY.on("name", *_ROTATED)
def rotated(ctx: Context, found: Construct) -> Decision | None:
    if ctx.file.is_own("detectron2"):
        return None
    return Report(
        "detectron2 has kernels for rotated boxes on CUDA and the CPU, none for a TPU: write it "
        "in PyTorch",
        effort=Effort.REWRITE,
    )


@PROVIDERS.on("name", "onnxruntime.InferenceSession")
def session(ctx: Context, found: Construct) -> Decision:
    call = ctx.names.call_of(found.node)
    texts = [n for n in ast.walk(ctx.names.tree) if isinstance(n, ast.Constant)]
    if call is None or not any(n.value in GPU_PROVIDERS for n in texts):
        return Keep("onnxruntime computes on the CPU")
    return Report(
        "onnxruntime has no provider for a TPU, and computes on the CPU instead: run the model "
        "that it was exported from"
    )


@PROVIDERS.on("name", "optimum.onnxruntime.ORT*")
def exported(ctx: Context, found: Construct) -> Decision:
    call = ctx.names.call_of(found.node)
    given = call.keywords if call is not None else ()
    texts = [n.value for each in given for n in ast.walk(each) if isinstance(n, ast.Constant)]
    if GPU_PROVIDERS.isdisjoint(texts):
        return Keep("onnxruntime computes on the CPU")
    return Report("onnxruntime has no provider for a TPU: load the model by transformers instead")


@KERNELS.on("name", "kernels.get_kernel", "kernels.get_local_kernel")
def kernel(ctx: Context, found: Construct) -> Decision:
    if ctx.file.is_own("kernels"):
        return Keep("the project's own function")
    return Report(
        "downloads kernels that were built for CUDA; for attention, use "
        "torch.nn.functional.scaled_dot_product_attention"
    )


@KERNELS.on("name", "transformers.BitsAndBytesConfig", "diffusers.BitsAndBytesConfig")
@KERNELS.on("keyword", "load_in_4bit", "load_in_8bit")
def quantized(ctx: Context, found: Construct) -> Decision:
    return Report("bitsandbytes is for CUDA only; load the weights in bfloat16")


@KERNELS.on("keyword", "device_map")
def placed(ctx: Context, found: Construct) -> Decision:
    place = found.node.value if isinstance(found.node, ast.keyword) else None
    places = place.values if isinstance(place, ast.Dict) else [place]
    if all(isinstance(each, ast.Constant) and each.value in ("cpu", "disk") for each in places):
        return Keep("loads to the CPU")
    return Report(
        "accelerate places the model and finds no TPU: remove it, and move the model with "
        f".to({ctx.api.device!r})",
        whole=found.node,
        effort=Effort.MINUTES,
    )


@KERNELS.on("method", "enable_model_cpu_offload", "enable_sequential_cpu_offload")
def offloaded(ctx: Context, found: Construct) -> Decision:
    return Report(
        "accelerate moves parts to a GPU in turn, and finds no TPU: remove it, "
        f"and move the whole model by .to({ctx.api.device!r})",
        effort=Effort.MINUTES,
    )


@KERNELS.on("trainer", "pipeline")
def pipeline(ctx: Context, found: Construct) -> Decision:
    return Report(
        f"takes a GPU, otherwise the CPU: write device={ctx.api.device!r}", effort=Effort.MINUTES
    )


@EXTENSION.on("name", "torch.utils.cpp_extension*")
def extension(ctx: Context, found: Construct) -> Decision:
    call = ctx.names.call_of(found.node)
    name = found.key.rpartition(".")[2]
    if name in _WITHOUT_CUDA or (call is not None and _is_for_cpu(name, call)):
        return Keep("needs no CUDA: an extension for the CPU, in PyTorch's own operators")
    return Report("a CUDA extension; write the kernel in PyTorch, or in Pallas")


# What builds extensions of all kinds, and names that are None where there is no CUDA.
_WITHOUT_CUDA = ("CppExtension", "BuildExtension", "CUDA_HOME", "ROCM_HOME", "IS_WINDOWS")


def _is_for_cpu(name: str, call: ast.Call) -> bool:
    """Whether `load` or `load_inline` shows that nothing is for CUDA."""
    given = {each.arg: each.value for each in call.keywords}
    for_cuda = {"cuda_sources", "with_cuda", "extra_cuda_cflags"}.intersection(given)
    if None in given or any(not _is_empty(given[each]) for each in for_cuda):
        return False
    if name == "load_inline":
        return len(call.args) <= 2
    sources = given.get("sources", call.args[1] if len(call.args) > 1 else None)
    listed = sources.elts if isinstance(sources, ast.List | ast.Tuple) else [sources]
    texts = [each.value for each in listed if isinstance(each, ast.Constant)]
    are_known = name == "load" and len(texts) == len(listed) > 0
    return are_known and all(str(text).endswith((".cpp", ".cc", ".cxx", ".c")) for text in texts)


def _is_empty(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and not node.value


@EXTENSION.on("extension", "*")
def compiled(ctx: Context, found: Construct) -> Decision:
    if is_optional(ctx.names, found.node, found.key):
        return Keep(_MISSING)
    each = verdict_of(found.key, ctx.project)
    if each.verdict is Verdict.EXTENSION:
        return Report(
            f"{each.module} is {each.about}, for CUDA; write the kernel in PyTorch, or in Pallas"
        )
    return Report(
        f"{each.module} is {each.about}; nobody knows whether it runs without a GPU: try it there",
        effort=Effort.HOURS,
    )


@EXTENSION.on("name", "numba.cuda.*")
def numba(ctx: Context, found: Construct) -> Decision:
    return Report("numba compiles it for CUDA; write the kernel in PyTorch, or in Pallas")
