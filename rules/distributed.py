"""Several devices: models that are copied, processes for each device, and what these exchange."""

import ast

from migrator.analysis.exchanged import CHECKPOINTING, is_served
from migrator.analysis.names import argument, dotted
from migrator.analysis.rank_uses import SPAWN
from migrator.analysis.ranks import COPIES as COPYING
from migrator.analysis.ranks import ENVIRONMENT, SHARDED, WRAPPER, Ranks, environment
from migrator.codes import Family
from migrator.construct import Construct
from migrator.diagnostics import Effort
from migrator.edits import Delete, EditCall, Replace
from migrator.rule import Context, Decision, Example, Keep, Report, Rewrite, Rule
from migrator.targets import Devices, Word, Words

FAMILY = Family("DST", "Several devices", 110)

DISTRIBUTED = Rule(
    code="DST001",
    name="distributed",
    summary="code for several GPUs that is not rewritten",
    why="""A program that starts a process for each GPU is one design with the loop around it:
half of it would be broken. So it is rewritten with all its files, or stays with all of them, and
the message names the line that is in the way (docs/several-devices.md). Where only a launcher makes
processes of it (`if int(os.environ.get("RANK", -1)) != -1:`), the program that nobody launched is
rewritten, and what a launcher reaches stays.""",
    effort=Effort.HOURS,
    examples=(
        Example(
            """
            import torch
            from torch.distributed import rpc
            rpc.init_rpc('worker')
            """,
        ),
    ),
    for_launched_code=True,
)

COPIES = Rule(
    code="DST002",
    name="data-parallel",
    summary="nn.DataParallel splits each batch over the TPU's devices",
    why="""One process drives all devices (on torch_xla by SPMD, its way to run one program on
all devices, which set-up has to know): parameters are on all of them, each batch is split along
its first dimension, and the sums over devices are XLA's. The batch is the whole one in the
source too, so batch size and learning rate stay. Which GPUs take part is no question on a TPU:
all devices do. BatchNorm uses the statistics of the whole batch, where nn.DataParallel uses
those of each part.""",
    effort=Effort.HOURS,
    examples=(
        Example(
            """
            import torch.nn as nn
            model = nn.DataParallel(model, device_ids=[0, 1])
            """,
            after="""
            import torch.nn as nn
            import tpu_runtime
            model = tpu_runtime.DataParallel(model)
            """,
        ),
    ),
)

RANKS = Rule(
    code="DST003",
    name="ranks",
    imports=("os", "torch.multiprocessing", "torch.utils.data.distributed.DistributedSampler"),
    summary="ranks stay ranks: a process for each device",
    why="""A program keeps its ranks, each a process with a device: samplers, batch sizes,
collectives, rank guards, checkpoints and BatchNorm of one rank mean what they mean on GPUs, and the
runtime averages gradients after each backward pass. torchrun starts it as before. On torchax
torch.multiprocessing.spawn does, too; on torch_xla it becomes torch_xla.launch, which uses all
devices.

With --shard, one process drives all devices of torchax instead: rank 0 of a world of one, so that
prints, files and checkpoints are those of rank 0. Data are those of all ranks together: the k-th
batch holds the k-th batch of every rank, in the sampler's order, and is split over the devices.
Numbers in the program's configuration keep their meaning: the batch size is that of one rank (or
what the program divides by the number of ranks, which is the number of devices), the learning rate
stays. Sums and means over the whole batch are those over all ranks, so a collective leaves a tensor
as it is, and a division by the number of ranks that undoes a sum divides by 1. BatchNorm uses the
statistics of the whole batch, as SyncBatchNorm does. A program that does not train has one rank,
and the devices share the model's weights (rule SHD001).""",
    effort=Effort.HOURS,
    examples=(
        Example(
            """
            import torch
            import torch.distributed as dist
            import torch.multiprocessing as mp
            from torch.nn.parallel import DistributedDataParallel as DDP
            from torch.utils.data import DataLoader, DistributedSampler


            def main(rank, world_size):
                dist.init_process_group("nccl", rank=rank, world_size=world_size)
                sampler = DistributedSampler(data, world_size, rank)
                loader = DataLoader(data, batch_size=32, sampler=sampler)
                model = DDP(net.to(rank), device_ids=[rank])
                dist.all_reduce(loss)
                loss = loss / world_size


            n = torch.cuda.device_count()
            mp.spawn(main, args=(n,), nprocs=n)
            """,
            after="""
            import torch
            import torch.distributed as dist
            import torch.multiprocessing as mp
            import tpu_runtime
            from torch.utils.data import DataLoader, DistributedSampler


            def main(rank, world_size):
                dist.init_process_group("{device}", rank=rank, world_size=world_size)
                sampler = DistributedSampler(data, world_size, rank)
                loader = DataLoader(data, batch_size=32, sampler=sampler)
                model = tpu_runtime.DistributedDataParallel(net.to("{device}"))
                dist.all_reduce(loss)
                loss = loss / world_size


            n = tpu_runtime.device_count()
            mp.spawn(main, args=(n,), nprocs=n)
            """,
            except_on={
                "torch_xla": """
                import torch
                import torch.distributed as dist
                import torch_xla
                import tpu_runtime
                from torch.utils.data import DataLoader, DistributedSampler


                def main(rank, world_size):
                    dist.init_process_group("{device}", rank=rank, world_size=world_size, init_method="{device}://")
                    sampler = DistributedSampler(data, world_size, rank)
                    loader = DataLoader(data, batch_size=32, sampler=sampler)
                    model = tpu_runtime.DistributedDataParallel(net.to("{device}"))
                    dist.all_reduce(loss)
                    loss = loss / world_size


                n = tpu_runtime.device_count()
                torch_xla.launch(main, args=(n,))
                """
            },
        ),
    ),
)

_STATISTICS = (
    "batch size (of one rank) and learning rate stay; BatchNorm uses the statistics of the whole "
    "batch, where each rank uses those of its own part"
)


@DISTRIBUTED.on("file", "gate")
def whole_program(ctx: Context, found: Construct) -> Decision | None:
    """A program for several devices is rewritten with all its files, or not at all."""
    starts = {name: ranks.start for name, ranks in ctx.ranks.items() if ranks.start is not None}
    if not starts:
        return None
    if any(_joins(ctx.ranks[name], ctx.words) for name in starts):
        return None  # was migrated before
    if "" in starts:
        line = starts[""].lineno
        part = f"this program starts processes for several devices (line {line})"
    else:
        name = next(iter(starts))
        part = f"this file belongs to a program for several devices, which {name} starts"
    if ctx.words.devices is None:
        how = " with --portable" if ctx.target.portable else ""
        return Report(f"{part}, which is not rewritten yet{how}, so the whole file stays")
    if ctx.rank_obstacle is not None:
        name, line, reason = ctx.rank_obstacle
        where = f"line {line}" if not name else f"{name}, line {line}"
        return Report(f"{part}; it stays as it is, because {reason} ({where})")
    if ctx.words.launches or ctx.only_infers:
        return None
    if not any(ranks.samples for ranks in ctx.ranks.values()):
        return Report(
            f"{part}; it stays as it is, because without a DistributedSampler each rank chooses "
            "its data in a way that can not be followed"
        )
    right = "is right where a batch size is that of one rank and nothing else"
    return Report(
        f"{part}; with --shard it stays as it is. --unsafe makes one process of it, which {right}; "
        "`tpu-migrate explain DST001` says more",
        unsafe=f"one process takes the place of all, which {right}",
    )


def _joins(ranks: Ranks, words: Words) -> bool:
    """Whether a program is one process already, in the target's own group."""
    call = ranks.names.call_of(ranks.start) if ranks.start is not None else None
    backend = argument(call, 0, "backend") if call is not None else None
    group = words.devices.group if words.devices is not None and not words.launches else None
    return isinstance(backend, ast.Constant) and backend.value == group


@DISTRIBUTED.on("name", "torch.distributed*", "torch.nn.parallel.*", "torch.nn.DataParallel*",
                "torch.nn.SyncBatchNorm*", "torch.multiprocessing.spawn*",
                "torch.utils.data.DistributedSampler*")  # fmt: skip
def distributed(ctx: Context, found: Construct) -> Decision:
    if found.key == "torch.distributed":
        return Keep("the module itself; its uses are constructs of their own")
    call = ctx.names.call_of(found.node)
    if found.key.startswith(CHECKPOINTING):
        return Keep("computes activations anew, as torch.utils.checkpoint does")
    if found.key == "torch.distributed.is_nccl_available" and call is not None and _words(ctx):
        name = ctx.source.code(call.func).replace("is_nccl_available", "is_available")
        if "." in name:
            return Rewrite([Replace(call.func, name)], note="nccl belongs to CUDA")
        return Report("nccl belongs to CUDA")
    if found.key.startswith("torch.distributed.is_"):
        return Keep("means the same here")
    if found.key == "torch.utils.data.DistributedSampler":
        return Keep("a program in one process has one rank")
    if _in_one_process(ctx):
        return Keep("means the same in a world of one")
    if _words(ctx) or is_served(found.key, ctx.words):
        return Keep("the target's process group does the same")
    return Report("code for several devices is not rewritten yet")


def _words(ctx: Context) -> Devices | None:
    """The target's words for a program with ranks."""
    return ctx.words.devices if ctx.ranks else None


def _in_one_process(ctx: Context) -> Devices | None:
    """The same where one process takes the place of all ranks."""
    words = _words(ctx)
    return words if not ctx.words.launches else None


def _is_alone(ctx: Context) -> bool:
    """Whether the only rank does what all do together, as if a launcher had started one."""
    return _in_one_process(ctx) is not None and ctx.only_infers


@COPIES.on("name", *COPYING)
def copies(ctx: Context, found: Construct) -> Decision | None:
    words = ctx.words.devices
    if words is None:
        return None
    if isinstance(ctx.parent(found.node), ast.ClassDef):
        return Report("a class of its own splits batches and joins results in its own way")
    line = ctx.own_ranks.counts_copies
    if line is not None:
        return Report(
            f"line {line} computes with the number of GPUs, or sums what they give: here a model "
            "gives the whole batch's result"
        )
    sharded = words.sharded if ctx.options.shard == "fsdp" else None
    note = "BatchNorm uses the statistics of the whole batch"
    return _wrapped(ctx, found, sharded or words.copies, note)


@RANKS.on("name", WRAPPER, *SHARDED)
def wrapper(ctx: Context, found: Construct) -> Decision | None:
    words = _words(ctx)
    if words is None:
        return None
    if words.launch is not None and found.key == WRAPPER:
        return _wrapped(ctx, found, words.ranks, gone=("device_ids", "output_device"))
    if words.launch is not None:
        return Keep("asked of what is none here")
    whole = found.key == WRAPPER and ctx.options.shard != "fsdp"
    sharded = words.ranks if whole else words.sharded
    return _wrapped(ctx, found, sharded or words.ranks, _STATISTICS)


def _wrapped(
    ctx: Context, found: Construct, word: Word, note: str = "", gone: tuple[str, ...] = ()
) -> Decision:
    """The target's wrapper of a model, without these keywords, or with nothing but the model."""
    assert isinstance(found.node, ast.expr)
    call = ctx.names.call_of(found.node)
    if call is None:
        return Rewrite([Replace(found.node, word.code)], word.requires)
    others: list[ast.expr | ast.keyword] = [
        k for k in call.keywords if (k.arg in gone if gone else k.arg != "module")
    ]
    others += call.args[1:]
    return Rewrite([EditCall(call, function=word.code, drop=others)], word.requires, note)


@RANKS.on("name", "torch.utils.data.DistributedSampler")
def sampler(ctx: Context, found: Construct) -> Decision | None:
    words = _in_one_process(ctx)
    if words is None:
        return None
    assert isinstance(found.node, ast.expr)
    call, word = ctx.names.call_of(found.node), words.sampler
    if word is None:
        return ctx.lacks(found.key)
    if call is None:
        return Rewrite([Replace(found.node, word.code)], word.requires)
    return Rewrite([EditCall(call, function=word.code)], word.requires)


@RANKS.on("name", "torch.nn.SyncBatchNorm.convert_sync_batchnorm")
def synchronised(ctx: Context, found: Construct) -> Decision | None:
    call = ctx.names.call_of(found.node)
    module = argument(call, 0, "module") if call is not None else None
    if not _in_one_process(ctx) or call is None or module is None:
        return None
    note = "BatchNorm uses the statistics of the whole batch in any case"
    match ctx.parent(call):
        case ast.Assign(targets=[target]) as statement if dotted(target) == (dotted(module) or ""):
            return Rewrite([Delete(statement)], note=note)
    return Rewrite([Replace(call, "{module}", {"module": module})], note=note)


_GROUP_ARGUMENTS = ("backend", "init_method", "timeout", "world_size", "rank")


@RANKS.on("name", "torch.distributed.init_process_group")
def group(ctx: Context, found: Construct) -> Decision | None:
    words, call = _words(ctx), ctx.names.call_of(found.node)
    if words is None or call is None:
        return None
    if words.launch is not None and not words.address:
        return _other_backend(ctx, call, words.group)
    kept = ("world_size",) if words.launch is None else ("timeout", "world_size", "rank")
    gone = [k for k in call.keywords if k.arg not in (*kept, "init_method")]
    drop: list[ast.expr | ast.keyword] = [*call.args, *gone]
    put = {"init_method": ctx.quoted(words.address + "alone" * _is_alone(ctx), call)}
    for name, value in zip(_GROUP_ARGUMENTS, call.args, strict=False):
        if name in kept:
            put[name] = ctx.source.code(value)
    return Rewrite([EditCall(call, drop=drop, first=ctx.quoted(words.group, call), put=put)])


def _other_backend(ctx: Context, call: ast.Call, group: str) -> Decision:
    """The same group, by another back end; which device a rank has is not for it to say."""
    backend, word = argument(call, 0, "backend"), ctx.quoted(group, call)
    gone = [k for k in call.keywords if k.arg in ("device_id", "pg_options")]
    if isinstance(backend, ast.Constant) and backend.value == group and not gone:
        return Keep("the target's back end")
    if call.args:
        return Rewrite([EditCall(call, drop=[*gone, call.args[0]], first=word)])
    if backend is None:
        for options in (k.value for k in call.keywords if k.arg is None):  # with one, perhaps
            if ast.unparse(options).endswith("device_id=None)"):
                return Keep("the target's back end")
            text = f"dict({{options}}, backend={word}, device_id=None)"
            return Rewrite([Replace(options, text, {"options": options})])
        return Rewrite([EditCall(call, drop=gone, first=word)])
    return Rewrite([EditCall(call, drop=gone, put={"backend": word})])


@RANKS.on("name", SPAWN)
def spawned(ctx: Context, found: Construct) -> Decision | None:
    words, call = _words(ctx), ctx.names.call_of(found.node)
    if words is None or call is None:
        return None
    function, given = argument(call, 0, "fn"), argument(call, 1, "args")
    if function is None:
        return Report("what it starts can not be seen")
    if words.launch is not None and not words.launch.requires:
        return Keep("starts a process for each device")
    if words.launch is not None:
        drop: list[ast.expr | ast.keyword] = [
            *call.args[2:], *(k for k in call.keywords if k.arg in ("nprocs", "join", "daemon"))
        ]  # fmt: skip
        edit = EditCall(call, function=words.launch.code, drop=drop)
        return Rewrite([edit], words.launch.requires, "a process for each device, all of them")
    holes = {"function": function}
    if isinstance(given, ast.Tuple) and not any(isinstance(x, ast.Starred) for x in given.elts):
        holes |= {f"a{i}": x for i, x in enumerate(given.elts)}
        arguments = "".join(f", {{a{i}}}" for i in range(len(given.elts)))
    elif given is not None:
        holes["given"] = given
        arguments = ", *{given}"
    else:
        arguments = ""
    return Rewrite([Replace(call, f"{{function}}(0{arguments})", holes)])


@RANKS.on("name", "torch.distributed.get_world_size")
def world(ctx: Context, found: Construct) -> Decision | None:
    call = ctx.names.call_of(found.node)
    if not _in_one_process(ctx) or call is None:
        return None
    if _is_alone(ctx):
        return Keep("1: one rank does what all do together")
    if call in ctx.ranks[""].undone:
        return Keep("undoes a sum over the ranks: 1, in a world of one")
    count = ctx.runtime("device_count")
    return Rewrite([Replace(call, f"{count.code}()")]) if count else ctx.lacks(found.key)


@RANKS.on("ranks", "undone")
def undone(ctx: Context, found: Construct) -> Decision:
    if not _in_one_process(ctx) or _is_alone(ctx):
        return Keep("a number")
    assert isinstance(found.node, ast.expr)
    spelled, requires = ctx.module("torch.distributed")
    return Rewrite([Replace(found.node, f"{spelled}.get_world_size()")], requires)


@RANKS.on("ranks", "option")
def option(ctx: Context, found: Construct) -> Decision:
    """The option that a launcher gives to each process; nobody gives it to the only one."""
    call = found.node
    default = argument(call, None, "default") if isinstance(call, ast.Call) else None
    if not _in_one_process(ctx) or (isinstance(default, ast.Constant) and default.value == 0):
        return Keep("a launcher may give it")
    assert isinstance(call, ast.Call)
    needed: list[ast.expr | ast.keyword] = [k for k in call.keywords if k.arg == "required"]
    return Rewrite([EditCall(call, drop=needed, put={"default": "0"})])


@DISTRIBUTED.on("ranks", "other launcher")
def other_launcher(ctx: Context, found: Construct) -> Decision | None:
    """What Slurm or MPI say to each process."""
    if not ctx.ranks:
        return Keep("without ranks, nothing hangs on it")
    name = ctx.text(found)
    return Report(f"{name} is what another launcher sets: start the program by torchrun")


@RANKS.on("ranks", "environment")
def launcher(ctx: Context, found: Construct) -> Decision:
    """What torchrun says to each process."""
    if not _in_one_process(ctx):
        return Keep("set by a launcher")
    node = found.node
    assert isinstance(node, ast.expr)
    value = ENVIRONMENT[environment(ctx.names, node) or ""]
    if value is None:
        count = ctx.runtime("device_count")
        if count is None and not _is_alone(ctx):
            return ctx.lacks("a number of ranks")
        value = "1" if count is None or _is_alone(ctx) else f"{count.code}()"
    if isinstance(node, ast.Compare):
        return Rewrite([Replace(node, str(isinstance(node.ops[0], ast.In)))])
    outer = ctx.parent(node)
    if isinstance(outer, ast.Call) and dotted(outer.func) == "int" and outer.args == [node]:
        return Rewrite([Replace(outer, value)])
    text = ctx.quoted(value, node) if value.isdigit() else f"str({value})"
    return Rewrite([Replace(node, text)])
