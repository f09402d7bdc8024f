"""Lightning: `accelerator="tpu"`, which set-up maps to one device of the target."""

import ast

from migrator.rule_api import (
    Construct,
    Context,
    Decision,
    Edit,
    EditCall,
    Effort,
    Example,
    Family,
    Keep,
    Replace,
    Report,
    Rewrite,
    Rule,
    SetString,
)
from migrator.rule_api.libraries import GPUS, HALF
from migrator.rule_api.python import leaves, values

FAMILY = Family("LTN", "Lightning", 96)

DEVICE = Rule(
    code="LTN001",
    name="lightning-device",
    summary="Lightning's Trainer and Fabric are told to use a TPU",
    why="""Lightning only knows TPUs by torch_xla. `setup()` makes `accelerator="tpu"` and `"auto"`
mean one device of torchax or torch_xla, with the hooks, checkpoints and precisions of one GPU.

For GPUs, Lightning starts the processes; for TPUs torchrun does, as many as `devices` says, and
they train as with `strategy="ddp"`. In a single process, DistributedDataParallel is that process
alone. Sharded strategies are reported.""",
    effort=Effort.HOURS,
    references=("https://lightning.ai/docs/pytorch/stable/common/trainer.html",),
    examples=(
        Example(
            """
            import lightning as L
            import torch

            trainer = L.Trainer(accelerator="gpu", devices=1, max_epochs=3)
            """,
            after="""
            import lightning as L
            import torch
            import tpu_runtime

            tpu_runtime.setup()

            trainer = L.Trainer(accelerator="tpu", devices=1, max_epochs=3)
            """,
            script=True,
        ),
        Example(
            """
            import pytorch_lightning as pl
            trainer = pl.Trainer(gpus=1)
            """,
            after="""
            import pytorch_lightning as pl
            trainer = pl.Trainer(accelerator="tpu", devices=1)
            """,
        ),
        Example(
            """
            import lightning as L
            trainer = L.Trainer(accelerator="gpu", devices=8, strategy="fsdp")
            """,
            after="""
            import lightning as L
            trainer = L.Trainer(accelerator="tpu", devices=8, strategy="fsdp")
            """,
            says={2: "shards over GPUs"},
        ),
        Example(
            """
            import lightning as L
            trainer = L.Trainer(accelerator=args.accelerator)
            """,
            says={2: "is decided at run time"},
        ),
        Example(
            """
            import lightning as L
            trainer = L.Trainer(accelerator="auto", devices=8)
            """,
            says={2: "Lightning starts no processes for TPUs"},
        ),
    ),
)

PRECISION = Rule(
    code="LTN002",
    name="lightning-precision",
    summary="Lightning's float16 becomes bfloat16",
    why="""TPUs compute in bfloat16, not in float16. Its range is that of float32, so no loss
scaling is needed; it has 8 bits of significand instead of 11.""",
    examples=(
        Example(
            """
            import lightning as L
            trainer = L.Trainer(precision="16-mixed")
            """,
            after="""
            import lightning as L
            trainer = L.Trainer(precision="bf16-mixed")
            """,
        ),
        Example(
            """
            import lightning as L
            trainer = L.Trainer(precision="bf16-mixed")
            """,
            says={2: "bfloat16 is what TPUs compute in"},
        ),
        Example(
            """
            import lightning as L
            trainer = L.Trainer(precision=args.precision)
            """,
            says={2: "is decided at run time"},
        ),
    ),
)


@DEVICE.on("trainer", "lightning")
def made(ctx: Context, found: Construct) -> Decision:
    return Keep("uses the TPU that set-up shows it")


@DEVICE.on("lightning", "accelerator")
def accelerator(ctx: Context, found: Construct) -> Decision:
    return _named(ctx, found.value)


@DEVICE.on("lightning", "told elsewhere")
def elsewhere(ctx: Context, found: Construct) -> Decision:
    return Report('is for a GPU: for Lightning a TPU is "tpu" or "auto", with "bf16-mixed"')


@DEVICE.on("lightning", "gpus")
def gpus(ctx: Context, found: Construct) -> Decision:
    call = ctx.names.parents.get(found.node)
    if not isinstance(call, ast.Call) or not isinstance(found.node, ast.keyword):
        return Report('was removed from Lightning; write "accelerator": "tpu", "devices": 1')
    others = {keyword.arg for keyword in call.keywords}
    if values(found.node.value) not in ([1], [[0]]) or others & {"accelerator", "devices", None}:
        return Report('was removed from Lightning; write accelerator="tpu", devices=1')
    word = ctx.code.quoted(_word(ctx), found.node.value)
    put = {"accelerator": word, "devices": "1"}
    return Rewrite([EditCall(call, drop=[found.node], put=put)])


@DEVICE.on("lightning", "devices", "num_nodes")
def several(ctx: Context, found: Construct) -> Decision:
    number = values(found.value)
    if ctx.api.device_names:
        return Report("set-up shows Lightning one TPU: on a TPU it has to be devices=1")
    if ... in number:
        return Report(
            "is decided at run time: it has to be the number of processes that torchrun "
            "starts, or 1 without it"
        )
    if found.key == "devices" and number in ([-1], ["-1"]):
        return Report(
            "all GPUs of a machine: start one process for each chip by torchrun, otherwise it is 1"
        )
    return Report(
        "Lightning starts no processes for TPUs: start them by torchrun, or write devices=1"
    )


@DEVICE.on("lightning", "strategy")
def strategy(ctx: Context, found: Construct) -> Decision:
    for leaf in leaves(found.value):
        made = isinstance(leaf, ast.Call) and (ctx.names.qualified(leaf.func) or "")
        name = made or (leaf.value if isinstance(leaf, ast.Constant) else None)
        if not isinstance(name, str):
            return Report('is decided at run time: "auto" is what a TPU takes')
        if not name.rpartition(".")[2].lower().startswith(("ddp", "dp", "auto", "single_device")):
            return Report("shards over GPUs; remove it, and the whole model is on the device")
    return Keep("torchrun's ranks; without torchrun, this process only")


_SHARDING = [
    f"{package}.{module}"
    for package in ("lightning.pytorch", "pytorch_lightning", "lightning.fabric")
    for module in ("strategies.DeepSpeedStrategy", "strategies.deepspeed.DeepSpeedStrategy")
]


@DEVICE.on("name", *_SHARDING, "pytorch_lightning.plugins.DeepSpeedPlugin")
def sharding(ctx: Context, found: Construct) -> Decision:
    call = ctx.names.call_of(found.node)
    if isinstance(ctx.names.parents.get(call or found.node), ast.keyword):
        return Keep("the argument that takes it is reported")
    return Report("DeepSpeed shards over GPUs: leave it out, and the whole model is on the device")


@PRECISION.on("lightning", "precision")
def precision(ctx: Context, found: Construct) -> Decision:
    edits: list[Edit] = []
    for leaf in leaves(found.value):
        value = leaf.value if isinstance(leaf, ast.Constant) else None
        if not isinstance(value, str | int):
            return Report('is decided at run time: on a TPU it has to be "bf16-mixed" or "32-true"')
        if value in (64, "64", "64-true"):
            return Report(f"{ctx.api.float64}, and no TPU has it in hardware")
        if str(value).startswith("transformer-engine"):
            return Report("Transformer Engine is for CUDA only")
        if value in HALF and isinstance(leaf, ast.Constant):
            half = HALF[value]
            edits.append(
                SetString(leaf, half) if isinstance(value, str)
                else Replace(leaf, ctx.code.quoted(half, leaf))
            )  # fmt: skip
    if not edits:
        return Keep("bfloat16 is what TPUs compute in")
    return Rewrite(edits, note="float16 becomes bfloat16")


def _named(ctx: Context, value: ast.expr) -> Decision:
    constants = [leaf for leaf in leaves(value) if isinstance(leaf, ast.Constant)]
    names_gpu = [leaf for leaf in constants if leaf.value in GPUS]
    known = all(v in (*GPUS, "cpu", "auto", "tpu", None) for v in values(value))
    if not known or not names_gpu:
        return Report('is decided at run time: a TPU is "tpu" or "auto"')
    return Rewrite([SetString(leaf, _word(ctx)) for leaf in names_gpu])


def _word(ctx: Context) -> str:
    return "auto" if ctx.target.portable else "tpu"
