"""Programs for several devices: rewritten with all their files, or not at all."""

import ast
from dataclasses import replace

from migrator.rule_api import (
    Construct,
    Context,
    Decision,
    Effort,
    Example,
    Family,
    Keep,
    Obstacle,
    Replace,
    Report,
    Rewrite,
    Rule,
    TargetApi,
    argument,
)
from migrator.rule_api.distributed import (
    BY_LIBRARIES,
    CHECKPOINTING,
    GONE,
    GROUP,
    JOBS,
    WRAPPER,
    Ranks,
    after_torchrun,
    is_behind_gone,
    is_served,
)
from migrator.rule_api.libraries import MODULES
from migrator.rule_api.rank_words import in_one_process, is_asked_for, rank_words

FAMILY = Family("DST", "Several devices", 110)

DISTRIBUTED = Rule(
    code="DST001",
    name="distributed",
    summary="code for several GPUs that is not rewritten",
    why="""A program that starts a process for each GPU is one design with its training loop: half a
migration would break it. So all of its files are rewritten, or none, and the message names the line
that prevents it (docs/several-devices.md).

Only a line that the program reaches can prevent it: one that runs when its files are imported, or
that such code names, with options and parameters at their defaults. What it never calls, and a
branch for an option that is off (`if args.fsdp:`), stays whole, and is reported separately
(docs/how-it-decides.md). Tests that import a program are not part of it.

If only a launcher makes the processes (`if int(os.environ.get("RANK", -1)) != -1:`), the program
without a launcher is rewritten, and the code for the launcher stays.""",
    effort=Effort.HOURS,
    examples=(
        Example(
            """
            import torch
            from torch.distributed import rpc
            rpc.init_rpc('worker')
            """,
        ),
        Example(
            """
            import torch.distributed as dist
            if dist.is_available() and dist.is_initialized():
                dist.all_reduce(x)
            """,
            says={2: "means the same here", 3: "does the same"},
        ),
        Example(
            """
            import torch.distributed as dist
            dist.all_reduce_multigpu([loss])
            """,
            says={2: "torch no longer has it"},
        ),
        Example(
            """
            import deepspeed
            model, opt, *_ = deepspeed.initialize(model=model, config=config)
            model.cuda()
            """,
            says={3: "so it stays as it is"},
        ),
        Example(
            """
            from torch.utils.data import DistributedSampler
            sampler = DistributedSampler(data)
            """,
            says={2: "a program in one process has one rank"},
        ),
    ),
    for_launched_code=True,
)


@DISTRIBUTED.on("file", "gate")
def whole_program(ctx: Context, found: Construct) -> Decision | None:
    """A program for several devices is rewritten with all its files, or not at all."""
    starts = {
        path: ranks.start
        for path, ranks in ctx.distributed.ranks.items()
        if ranks.start is not None
    }
    if not starts:
        return None
    if any(_joins(ctx.distributed.ranks[path], ctx.api) for path in starts):
        return None  # was migrated before
    path = None if None in starts else next(iter(starts))
    if path is None:
        part = f"this program starts processes for several devices (line {starts[None].lineno})"
    else:
        name = ctx.distributed.label(path)
        part = f"this file belongs to a program for several devices, which {name} starts"
    files = [path] if path is not None else []
    gate = _gate(ctx, part)
    return replace(gate, files=files) if gate is not None else None


def _gate(ctx: Context, part: str) -> Report | None:
    """Why a program stays; `part` is one of its entry points."""
    if ctx.api.devices is None:
        how = " with --portable" if ctx.target.portable else ""
        return Report(f"{part}, which is not rewritten yet{how}, so the whole file stays")
    obstacle = ctx.distributed.rank_obstacle
    if obstacle is not None:
        name = ctx.distributed.label(obstacle.path) if obstacle.path is not None else ""
        where = f"{name}, line {obstacle.line}" if name else f"line {obstacle.line}"
        reason = f"{part}; it stays as it is, because {obstacle.reason} ({where})"
        return Report(reason, obstacle=obstacle)
    if ctx.api.launches or ctx.distributed.only_infers:
        return None
    if not any(ranks.samples for ranks in ctx.distributed.ranks.values()):
        return Report(
            f"{part}; it stays as it is, because without a DistributedSampler each rank chooses "
            "its data in a way that cannot be followed"
        )
    right = "is right if every batch size is that of one rank"
    return Report(
        f"{part}; with --shard it stays as it is. --unsafe makes one process of it, which {right}; "
        "`tpu-migrate explain DST001` says more",
        unsafe=f"one process replaces all, which {right}",
    )


def _joins(ranks: Ranks, api: TargetApi) -> bool:
    """Whether a program is already one process, in the target's own group."""
    call = ranks.names.call_of(ranks.start) if ranks.start is not None else None
    backend = argument(call, 0, "backend") if call is not None else None
    group = api.devices.group if api.devices is not None and not api.launches else None
    return isinstance(backend, ast.Constant) and backend.value == group


# They start a program's ranks, and exchange what those compute.
_LAUNCHES = {
    "horovod.torch.init": "horovod", "deepspeed.initialize": "deepspeed",
    "deepspeed.init_distributed": "deepspeed", "deepspeed.PipelineModule": "deepspeed",
    "deepspeed.pipe.PipelineModule": "deepspeed", "deepspeed.comm.init_distributed": "deepspeed",
    "deepspeed.DeepSpeedEngine": "deepspeed", "colossalai.launch": "colossalai",
    "colossalai.launch_from_torch": "colossalai",
}  # fmt: skip


@DISTRIBUTED.on("file", "gate")
def launched(ctx: Context, found: Construct) -> Decision | None:
    """A program whose ranks only exist on GPUs stays whole: half of it would run nowhere."""
    for node, name in ctx.names.meant:
        library = _LAUNCHES.get(name)
        if library is None or ctx.names.call_of(node) is None:
            continue
        if ctx.project is None or ctx.project.is_reached(node):
            advice = MODULES[library].advice
            obstacle = Obstacle(None, node.lineno, f"{name} makes the ranks: {advice}")
            where = f"{name} makes the ranks of this program (line {node.lineno})"
            return Report(f"{where}, so it stays as it is; {advice}", obstacle=obstacle)
    return None


# What DataParallel does, step by step. No process group is a part of it.
_BY_HAND = ("broadcast_coalesced", "gather", "parallel_apply", "reduce_add", "reduce_add_coalesced",
            "replicate", "scatter", "scatter_kwargs")  # fmt: skip


@DISTRIBUTED.on("name", "torch.distributed*", "torch.nn.parallel.*", "torch.nn.DataParallel*",
                "torch.nn.SyncBatchNorm", "torch.nn.SyncBatchNorm.*",
                "torch.multiprocessing.spawn*",
                "torch.multiprocessing.start_processes*",
                "torch.utils.data.DistributedSampler*")  # fmt: skip
def distributed(ctx: Context, found: Construct) -> Decision:
    if found.key == "torch.distributed":
        return Keep("the module itself; its uses are handled one by one")
    if is_behind_gone(ctx.names, found.node):
        return Keep("follows an import that fails and is caught: torch no longer has it")
    call = ctx.names.call_of(found.node)
    if found.key.startswith(CHECKPOINTING):
        return Keep("recomputes activations, as torch.utils.checkpoint does")
    asks_nccl = found.key == "torch.distributed.is_nccl_available"
    if asks_nccl and call is not None and rank_words(ctx):
        name = ctx.source.code(call.func).replace("is_nccl_available", "is_available")
        if "." in name:
            return Rewrite([Replace(call.func, name)], note="nccl belongs to CUDA")
        return Report("nccl belongs to CUDA")
    if found.key.startswith("torch.distributed.is_"):
        return Keep("means the same here")
    if found.key == "torch.utils.data.DistributedSampler":
        return Keep("a program in one process has one rank")
    if found.key.startswith("torch.nn.parallel.") and found.key.rpartition(".")[2] in _BY_HAND:
        return Report(
            "divides a batch among the GPUs of one process: call the model with all of it"
        )
    if ctx.api.devices is not None and ctx.api.devices.native:
        return _natively(ctx, found)
    if in_one_process(ctx):
        return Keep("means the same in a world of one")
    if found.key == WRAPPER and ctx.api.launches and is_asked_for(ctx, found):
        return Keep("what it becomes is one, too")
    if rank_words(ctx):
        return Keep("the target's process group does the same")
    if is_served(found.key, ctx.api):
        return Keep("does the same in the target's process group, where a program makes one")
    return Report("code for several devices is not rewritten yet")


def _natively(ctx: Context, found: Construct) -> Decision:
    """Where torch.distributed serves the target's device itself: it stays, but what it lacks."""
    devices = ctx.api.devices
    assert devices is not None
    if not is_asked_for(ctx, found):
        name = found.key.removeprefix(GROUP)
        for lacking, reason in devices.lacks.items():
            if name == lacking or name.startswith(f"{lacking}."):
                return Report(reason)
    return Keep("torch.distributed serves the device as it does GPUs")


@DISTRIBUTED.on("name", *(f"{GROUP}{name}" for name in GONE))
def of_older_torch(ctx: Context, found: Construct) -> Decision:
    """`all_reduce_multigpu([loss])`: a list over this process's GPUs, and a rank has one."""
    function, call = found.key.removesuffix("_multigpu"), ctx.names.call_of(found.node)
    match call:
        case ast.Call(args=[ast.List(elts=[tensor]), *_]) if function.endswith(".all_reduce"):
            told = isinstance(call.func, ast.Attribute) and not isinstance(tensor, ast.Starred)
            if rank_words(ctx) and told:
                name = ctx.source.code(call.func).removesuffix("_multigpu")
                alone = Replace(call.args[0], "{tensor}", {"tensor": tensor})
                return Rewrite([Replace(call.func, name), alone])
    name = function.rpartition(".")[2]
    return Report(f"torch no longer has it; {name}() exchanges the one tensor that a rank has")


@DISTRIBUTED.on("name", *BY_LIBRARIES)
def by_library(ctx: Context, found: Construct) -> Decision | None:
    """A library's own function for starting ranks: it has no back end for a TPU."""
    if ctx.file.is_own(found.key):
        return Keep("a function of this project; see its file")
    if ctx.names.call_of(found.node) is None:
        return None
    words = ctx.api.devices
    at = f", init_method={words.address!r}" if words is not None and words.address else ""
    start = f"torch.distributed.init_process_group({words.group!r}{at})" if words else "the group"
    return Report(
        "creates the process group itself, and not for a TPU: start the ranks by "
        f"torchrun, and call {start} instead"
    )


@DISTRIBUTED.on("ranks", "other launcher")
def other_launcher(ctx: Context, found: Construct) -> Decision | None:
    """Variables that Slurm or MPI set for each process."""
    named = not isinstance(found.node, ast.Constant)
    if not ctx.distributed.ranks and (ctx.file.is_entry or not named):
        return Keep("without ranks, it does not matter")
    if ctx.names.qualified(found.node) in JOBS:
        return Report(
            "starts a job of Slurm with a process for each GPU; start the program by torchrun, "
            "on the TPU's own host"
        )
    if named:
        return Report(
            f"{ctx.source.code(found.node)} is set by another launcher, so under torchrun each "
            "process is alone: ask torch.distributed for ranks"
        )
    if (line := after_torchrun(ctx.names, found.node)) is not None:
        return Keep(f"another launcher's; under torchrun line {line} decides")
    name = found.content
    return Report(f"{name} is set by another launcher: start the program by torchrun")
