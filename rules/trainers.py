"""Accelerate, transformers' Trainer, TRL: set-up makes the device available to them."""

import ast

from migrator.rule_api import (
    Construct,
    Context,
    Decision,
    EditCall,
    Effort,
    Example,
    Family,
    Keep,
    Report,
    Rewrite,
    Rule,
    Safety,
    SetString,
    argument,
)
from migrator.rule_api.libraries import says_gpu
from migrator.rule_api.python import leaves, values

FAMILY = Family("FRW", "Training frameworks", 95)

TRAINER = Rule(
    code="FRW001",
    name="trainer",
    summary="Accelerate, transformers' Trainer and TRL choose the device by themselves",
    why="""They look for accelerators that they know: Accelerate finds torch_xla by itself, and
torchax's device by ACCELERATE_TORCH_DEVICE, which `setup()` sets. Trainer and TRL are built on
Accelerate. So the program only gets the set-up (SET001). If an argument keeps it on the CPU (`cpu`,
`use_cpu`, `no_cuda`), it stays there.

`notebook_launcher` forks a process for each GPU, which a TPU's runtime doesn't survive; with
`num_processes=1` it calls the function directly.""",
    safety=Safety.DISPLAY_ONLY,
    examples=(
        Example(
            """
            import torch
            from accelerate import Accelerator

            accelerator = Accelerator()
            model, optimizer = accelerator.prepare(model, optimizer)
            """,
            after="""
            import torch
            import tpu_runtime
            from accelerate import Accelerator

            tpu_runtime.setup()

            accelerator = Accelerator()
            model, optimizer = accelerator.prepare(model, optimizer)
            """,
            script=True,
        ),
        Example(
            """
            from accelerate import notebook_launcher
            notebook_launcher(train, num_processes=8)
            """,
        ),
        Example(
            """
            from accelerate import Accelerator
            accelerator = Accelerator(cpu=True)
            """,
        ),
    ),
)

HALF = Rule(
    code="FRW002",
    name="trainer-half-precision",
    summary="training in float16 becomes training in bfloat16",
    why="""TPUs compute in bfloat16, not in float16. Its range is that of float32, so no loss
scaling is needed; it has 8 bits of significand instead of 11, as with `autocast`.""",
    examples=(
        Example(
            """
            from accelerate import Accelerator
            accelerator = Accelerator(mixed_precision="fp16")
            """,
            after="""
            from accelerate import Accelerator
            accelerator = Accelerator(mixed_precision="bf16")
            """,
        ),
        Example(
            """
            from accelerate import Accelerator
            accelerator = Accelerator(mixed_precision="fp16" if half else "no")
            """,
            after="""
            from accelerate import Accelerator
            accelerator = Accelerator(mixed_precision="bf16" if half else "no")
            """,
        ),
        Example(
            """
            from transformers import TrainingArguments
            args = TrainingArguments("out", fp16=True, max_steps=100)
            """,
            after="""
            from transformers import TrainingArguments
            args = TrainingArguments("out", bf16=True, max_steps=100)
            """,
        ),
        Example(
            """
            from accelerate import Accelerator
            accelerator = Accelerator(mixed_precision="bf16")
            """,
            says={2: "bfloat16 is what TPUs compute in"},
        ),
        Example(
            """
            from transformers import TrainingArguments
            args = TrainingArguments("out", fp16=half)
            """,
            says={2: "a TPU has no float16, so it has to be bf16=True"},
        ),
    ),
)

SETTING = Rule(
    code="FRW003",
    name="trainer-setting",
    summary="a trainer's options for GPUs",
    why="""`tf32=True` raises an error without an Ampere GPU; set-up decides the precision of
float32 products. `torch_compile=True` compiles with Inductor, while XLA compiles by itself. Some
values of `optim` need bitsandbytes or apex, which are for CUDA only, and so are DeepSpeed and
Megatron-LM. FSDP shards parameters over GPUs. Liger's kernels are written in Triton.""",
    effort=Effort.MINUTES,
    for_cuda=True,
    examples=(
        Example(
            """
            from transformers import TrainingArguments
            args = TrainingArguments("out", tf32=True, max_steps=100)
            """,
            after="""
            from transformers import TrainingArguments
            args = TrainingArguments("out", max_steps=100)
            """,
        ),
        Example(
            """
            from transformers import TrainingArguments
            args = TrainingArguments("out", optim="paged_adamw_8bit")
            """,
            says={2: "an optimizer of a library for CUDA"},
        ),
        Example(
            """
            from transformers import TrainingArguments
            args = TrainingArguments("out", tf32=fast)
            """,
            says={2: "is decided at run time"},
        ),
    ),
)


@TRAINER.on("trainer", "accelerator", "trainer")
def trainer(ctx: Context, found: Construct) -> Decision:
    return Keep("uses the device that set-up shows it")


@TRAINER.on("trainer", "launcher")
def launcher(ctx: Context, found: Construct) -> Decision:
    if ctx.api.accelerate_off and not ctx.target.portable:
        return Report(
            "in Colab and on Kaggle it starts a process for each core of a TPU, elsewhere it forks "
            "one for each GPU: call the function itself, and one device trains"
        )
    call = found.node
    count = argument(call, 2, "num_processes") if isinstance(call, ast.Call) else None
    if count is not None and values(count) == [1]:
        return Keep("calls the function in this process")
    if ctx.api.launches:
        return Report(
            "forks a process for each GPU: with num_processes=1 one device trains, and torchrun "
            "starts a script for several"
        )
    return Report("forks a process for each GPU: with num_processes=1 one device trains")


@TRAINER.on("trainer", "cpu")
def stays(ctx: Context, found: Construct) -> Decision:
    off = ctx.api.accelerate_off
    if off and not ctx.file.uses_device:  # otherwise set-up handles it
        return Report(
            f"accelerate takes the device all the same: set {off} in the environment, and it stays "
            "on the CPU"
        )
    return Keep("stays on the CPU, as the program asks")


@TRAINER.on("lightning", "cpu")
def stays_by_itself(ctx: Context, found: Construct) -> Decision:
    return Keep("stays on the CPU, as the program asks")


@HALF.on("trainer", "mixed_precision")
def mixed_precision(ctx: Context, found: Construct) -> Decision:
    constants = [leaf for leaf in leaves(found.value) if isinstance(leaf, ast.Constant)]
    if any(value not in ("fp16", "bf16", "no", None) for value in values(found.value)):
        return Report('is decided at run time: on a TPU it has to be "bf16" or "no"')
    if halves := [leaf for leaf in constants if leaf.value == "fp16"]:
        edits = [SetString(leaf, "bf16") for leaf in halves]
        return Rewrite(edits, note="float16 becomes bfloat16")
    return Keep("bfloat16 is what TPUs compute in")


@HALF.on("trainer", "fp16", "fp16_full_eval")
def half(ctx: Context, found: Construct) -> Decision:
    call = ctx.names.parents.get(found.node)
    value, wanted = found.value, found.key.replace("fp", "bf")
    assert isinstance(call, ast.Call)
    given = {keyword.arg for keyword in call.keywords}
    if not isinstance(value, ast.Constant) or wanted in given or None in given:
        return Report(
            f"is decided at run time: a TPU has no float16, so it has to be {wanted}=True"
        )
    edit = EditCall(call, rename={found.key: wanted})
    return Rewrite([edit], note="float16 becomes bfloat16")


@SETTING.on("trainer", "tf32", "torch_compile", "torch_compile_backend", "torch_compile_mode",
            "use_liger_kernel")  # fmt: skip
def dropped(ctx: Context, found: Construct) -> Decision:
    call = ctx.names.parents.get(found.node)
    assert isinstance(call, ast.Call) and isinstance(found.node, ast.keyword)
    if not isinstance(found.node.value, ast.Constant):
        return Report("is decided at run time: remove it, a TPU has no use for it")
    return Rewrite([EditCall(call, drop=[found.node])])


@SETTING.on("trainer", "optim")
def optimizer(ctx: Context, found: Construct) -> Decision:
    if says_gpu("optim", found.value):
        return Report('an optimizer of a library for CUDA; "adamw_torch" is the plain one')
    return Keep("does not name an optimizer for CUDA here")


@SETTING.on(
    "trainer", "deepspeed", "fsdp", "deepspeed_plugin", "deepspeed_plugins", "fsdp_plugin",
    "megatron_lm_plugin",
)  # fmt: skip
def sharded(ctx: Context, found: Construct) -> Decision:
    return Report("shards over GPUs; remove it, and the whole model is on each device",
                  effort=Effort.HOURS)  # fmt: skip


@SETTING.on("trainer", "passed on", "told elsewhere")
def elsewhere(ctx: Context, found: Construct) -> Decision:
    return Report(
        "may set options for GPUs (fp16, tf32, optimizers of bitsandbytes): a TPU takes bf16=True"
    )


@SETTING.on("trainer", "dynamo_backend", "dynamo_plugin")
def dynamo(ctx: Context, found: Construct) -> Decision:
    return Report("compiles for GPUs; remove it, XLA compiles by itself")
