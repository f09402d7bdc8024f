"""Code migrated for another target before, turned back into the GPU code it was made from."""

import ast

from migrator.rule_api import (
    MIRRORED,
    RUNTIME,
    Construct,
    Context,
    Decision,
    Delete,
    EditCall,
    Example,
    Family,
    Keep,
    Replace,
    Report,
    Rewrite,
    Rule,
    argument,
)
from migrator.rule_api.devices import asked_for
from migrator.rule_api.python import of_torch
from migrator.rule_api.training import following

FAMILY = Family("MIG", "Code that was migrated before", 150)

MIGRATED = Rule(
    code="MIG001",
    name="from-other-target",
    foreign=True,
    summary="code that was migrated for another target, read as the GPU code that it came from",
    why="""Names of its runtime are read as the GPU names that they stand for, and its device as
"cuda". That program is migrated like any other, and the runtime in its folder is replaced. What has
no counterpart is reported, and then the project stays as it is.""",
    examples=(
        Example(
            """
            import torch
            import tpu_runtime

            tpu_runtime.setup()

            device = torch.device("jax")
            tpu_runtime.reset_peak_memory_stats()
            """,
            except_on={
                "torch_tpu": """
                import torch

                device = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
                if torch.accelerator.is_available():
                    torch.accelerator.reset_peak_memory_stats()
                """,  # noqa: E501
                "torch_xla": """
                import torch
                import torch_xla
                import tpu_runtime

                device = torch_xla.device()
                tpu_runtime.reset_peak_memory_stats()
                """,
            },
        ),
        Example(
            """
            import torch
            import tpu_runtime
            device = torch.device("jax")
            tokens = tpu_runtime.TokenBuffer(text)
            """,
            except_on={"torch_tpu": None, "torch_xla": None},
        ),
        Example(
            """
            import torch
            import tpu_runtime
            tpu_runtime.set_matmul_precision(args.tf32)
            """,
            except_on={"torch_tpu": None},
        ),
    ),
)

_GROUP = "torch.distributed.init_process_group"
# Functions and classes of runtimes with the same arguments as their originals.
_SAME = {
    "save": "torch.save",
    "load": "torch.load",
    "compile": "torch.compile",
    "load_file": "safetensors.torch.load_file",
    "decode_image": "torchvision.io.decode_image",
    "read_image": "torchvision.io.read_image",
    "profile": "torch.profiler.profile",
    "GradScaler": "torch.cuda.amp.GradScaler",
    "DataParallel": "torch.nn.DataParallel",
    "DistributedDataParallel": "torch.nn.parallel.DistributedDataParallel",
    "UnshardedDataParallel": "torch.distributed.fsdp.FullyShardedDataParallel",
    "replicate": "torch.distributed.fsdp.fully_shard",
    "set_default_tensor_type": "torch.set_default_tensor_type",
    **{name: f"torch.cuda.{name}" for name in MIRRORED - {"autocast"}},
}


@MIGRATED.on("migrated", f"{RUNTIME}.*", node=ast.expr)
def of_runtime(ctx: Context, found: Construct, node: ast.expr) -> Decision:
    name = found.key.removeprefix(f"{RUNTIME}.")
    call = ctx.names.call_of(node)
    if name == "is_available" and call is not None and (rung := _rung(ctx, call)) is not None:
        return rung
    if name in _SAME:
        word, requires = of_torch(ctx.names, _SAME[name])
        return Rewrite([Replace(node, word)], requires)
    match name, ctx.names.parent(call or node):
        case "DeviceLoader", _ if ctx.api.device_loader is not None:
            return Keep("moves batches to the device on this target, too")
        case "setup", ast.Expr() as statement if call is not None:
            return Rewrite([Delete(statement)])
        case "train_step", ast.FunctionDef() as step if node in step.decorator_list:
            return Rewrite([Delete(node)])
        case "autocast", _ if call is not None:
            return _autocast(ctx, call)
        case "set_matmul_precision", ast.Expr() if call is not None:
            return _precision(ctx, call)
    return Report(f"{found.key} has no counterpart in GPU code; migrate the GPU original")


def _rung(ctx: Context, call: ast.Call) -> Decision | None:
    """A test that was inserted before the one for CUDA: the latter stays."""
    block = ctx.names.parent(call)
    if not isinstance(block, ast.If) or block.test is not call:
        return None
    if any(_asks_for_cuda(ctx, other) for other in block.orelse):
        return Report("a branch for CUDA follows; take this one out first")
    if block.orelse or not any(_asks_for_cuda(ctx, s) for s in following(ctx.names, block)[:1]):
        return None
    return Rewrite([Delete(block)])


def _asks_for_cuda(ctx: Context, statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and "cuda" in asked_for(ctx.names, statement.test)


def _autocast(ctx: Context, call: ast.Call) -> Decision:
    """`tpu_runtime.autocast()`: torch's, with the device, and without an unneeded type."""
    word, requires = of_torch(ctx.names, "torch.autocast")
    has_device = argument(call, 0, "device_type") is not None
    first = None if has_device else ctx.code.quoted("cuda", call)
    torch, needed = ctx.code.torch()
    put = {} if argument(call, 1, "dtype") is not None else {"dtype": f"{torch}.bfloat16"}
    return Rewrite([EditCall(call, function=word, first=first, put=put)], (*requires, *needed))


def _precision(ctx: Context, call: ast.Call) -> Decision:
    word, requires = of_torch(ctx.names, "torch.set_float32_matmul_precision")
    match argument(call, 0, "precision"):
        case ast.Constant(value=bool(tf32)):
            precision = ctx.code.quoted("high" if tf32 else "highest", call)
            return Rewrite([Replace(call, f"{word}({precision})")], requires)
        case ast.Constant(value=str()):
            return Rewrite([EditCall(call, function=word)], requires)
    return Report("the source doesn't show the precision")


@MIGRATED.on("migrated", _GROUP)
def group(ctx: Context, found: Construct) -> Decision | None:
    call = ctx.names.call_of(found.node)
    assert call is not None
    back_end, address = argument(call, 0, "backend"), argument(call, 1, "init_method")
    assert back_end is not None
    drop = [k for k in call.keywords if k.value is address and _is_own(address)]
    return Rewrite([Replace(back_end, ctx.code.quoted("nccl", call)), EditCall(call, drop=drop)])


def _is_own(address: ast.expr | None) -> bool:
    """Whether a process group uses a runtime's rendezvous."""
    return isinstance(address, ast.Constant) and str(address.value).endswith("://")
