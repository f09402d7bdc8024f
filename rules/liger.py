"""Liger's kernels for models of transformers: torch computes the same, and XLA fuses it."""

import ast

from migrator.rule_api import (
    Construct,
    Context,
    Decision,
    Delete,
    Example,
    Replace,
    Report,
    Rewrite,
    Rule,
)
from migrator.rule_api.torch_classes import ANY, Counterpart, made_by_torch

LIGER = Rule(
    code="LIB021",
    name="liger",
    summary="Liger's kernels in Triton become torch's own layers and losses",
    why="""Liger patches models of transformers with kernels in Triton that compute the same.
`apply_liger_kernel_to_llama()` goes, `AutoLigerKernelForCausalLM` becomes `AutoModelForCausalLM`,
and norms and the loss become torch's, with Liger's defaults written out. Arguments without a
counterpart are reported, and so are its other functions.""",
    for_cuda=True,
    references=("https://github.com/linkedin/Liger-Kernel",),
    examples=(
        Example(
            """
            from liger_kernel.transformers import apply_liger_kernel_to_llama
            from transformers import AutoModelForCausalLM
            apply_liger_kernel_to_llama(rope=True)
            model = AutoModelForCausalLM.from_pretrained(name)
            """,
            after="""
            from transformers import AutoModelForCausalLM
            model = AutoModelForCausalLM.from_pretrained(name)
            """,
        ),
        Example(
            """
            from liger_kernel.transformers import AutoLigerKernelForCausalLM
            model = AutoLigerKernelForCausalLM.from_pretrained(name)
            """,
            after="""
            import transformers
            model = transformers.AutoModelForCausalLM.from_pretrained(name)
            """,
        ),
        Example(
            """
            from liger_kernel.transformers import LigerCrossEntropyLoss, LigerLayerNorm
            from liger_kernel.transformers import LigerRMSNorm
            from torch import nn
            norms = nn.ModuleList([LigerRMSNorm(8), LigerLayerNorm(8, eps=1e-5)])
            loss = LigerCrossEntropyLoss(ignore_index=0)
            """,
            after="""
            from torch import nn
            norms = nn.ModuleList([nn.RMSNorm(8, eps=1e-6), nn.LayerNorm(8, eps=1e-5)])
            loss = nn.CrossEntropyLoss(ignore_index=0)
            """,
        ),
        Example(
            """
            from liger_kernel.transformers import LigerCrossEntropyLoss
            loss = LigerCrossEntropyLoss(softcap=30.0)
            """,
            says={2: "no counterpart for softcap=30.0"},
        ),
        Example(
            """
            from liger_kernel.transformers import AutoLigerKernelForCausalLM
            model = AutoLigerKernelForCausalLM.from_pretrained(name, **options)
            """,
            says={2: "may choose kernels"},
        ),
        Example(
            """
            from liger_kernel.transformers import LigerSwiGLUMLP
            mlp = LigerSwiGLUMLP(config)
            """,
            says={2: "use torch's functions"},
        ),
    ),
)

_HOME = "liger_kernel.transformers."
_SIZE = {"hidden_size": "normalized_shape"}
_NOT_ASKED = (False,)
_CLASSES = {
    "LigerRMSNorm": Counterpart(
        "torch.nn", "RMSNorm", 2,
        {"offset": (0.0,), "casting_mode": ("llama",), "init_fn": ("ones",), "in_place": ANY,
         "row_mode": (None,)},
        {"eps": "1e-6"}, _SIZE,
    ),
    "LigerLayerNorm": Counterpart(
        "torch.nn", "LayerNorm", 2,
        {"bias": (False,), "init_fn": ("ones",), "impl": (None,), "mode": (None,),
         "backend": (None,)},
        {"eps": "1e-6"}, _SIZE,
    ),
    "LigerCrossEntropyLoss": Counterpart(
        "torch.nn", "CrossEntropyLoss", 1,
        {"lse_square_scale": (0.0,), "softcap": (None,), "return_z_loss": _NOT_ASKED,
         "return_token_accuracy": _NOT_ASKED, "return_predicted_tokens": _NOT_ASKED},
    ),
}  # fmt: skip
_KERNELS = {"rope", "cross_entropy", "fused_linear_cross_entropy", "rms_norm", "swiglu", "geglu",
            "layer_norm", None}  # fmt: skip


@LIGER.on("name", *(f"{_HOME}{name}" for name in _CLASSES), node=ast.expr)
def same_class(ctx: Context, found: Construct, node: ast.expr) -> Decision:
    if ctx.names.by_attribute.get("variance_epsilon"):
        return Report("the program reads the norm's variance_epsilon, which is eps in torch's")
    return made_by_torch(ctx, node, _CLASSES[found.key.removeprefix(_HOME)])


@LIGER.on("name", f"{_HOME}apply_liger_kernel_to_*", f"{_HOME}_apply_liger_kernel*")
def patch(ctx: Context, found: Construct) -> Decision:
    call, statement = ctx.names.call_of(found.node), ctx.names.statement(found.node)
    if isinstance(statement, ast.Expr) and statement.value is call:
        return Rewrite([Delete(statement)], note="the model computes the same without")
    return Report("patches models with kernels in Triton: remove it")


@LIGER.on("name", f"{_HOME}AutoLigerKernelForCausalLM*")
def model(ctx: Context, found: Construct) -> Decision:
    """`AutoLigerKernelForCausalLM.from_pretrained(…)`"""
    call = ctx.names.call_of(found.node)
    if call is None or not isinstance(found.node, ast.Attribute):
        return Report("use AutoModelForCausalLM of transformers")
    if _KERNELS & {keyword.arg for keyword in call.keywords}:
        return Report("its arguments may choose kernels: call AutoModelForCausalLM without those")
    transformers, requires = ctx.code.module("transformers")
    made = Replace(found.node, f"{transformers}.AutoModelForCausalLM.{found.node.attr}")
    return Rewrite([made], requires)


@LIGER.on("name", f"{_HOME}*")
def other(ctx: Context, found: Construct) -> Decision:
    return Report(f"{found.key} is a kernel in Triton: use torch's functions, which XLA fuses")
