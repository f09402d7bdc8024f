"""Ranks: how they start, their environment, and wrappers of their models and samplers."""

import ast

from migrator.rule_api import (
    Construct,
    Context,
    Decision,
    Delete,
    EditCall,
    Effort,
    Example,
    Keep,
    Replace,
    Report,
    Rewrite,
    Rule,
    argument,
    dotted,
)
from migrator.rule_api.chosen_back_ends import back_end, is_of_one, other_back_end
from migrator.rule_api.distributed import (
    ENVIRONMENT,
    OF_SHARDED,
    PER_PARAMETER,
    PER_PARAMETER_SHARDING,
    SHARDED,
    SPAWNS,
    WRAPPER,
    environment,
)
from migrator.rule_api.portable_ranks import own_wrapper, with_environment
from migrator.rule_api.rank_words import (
    CONVERT_BY_APEX,
    in_one_process,
    is_asked_for,
    rank_words,
    wrapped,
)

# Arguments of spawn: torch_xla.launch counts the processes itself, and waits for them.
_COUNTED = ("nprocs", "join", "daemon")

RANKS = Rule(
    code="DST003",
    name="ranks",
    imports=("os", "torch.multiprocessing", "torch.utils.data.distributed.DistributedSampler"),
    summary="a program with ranks keeps them, with one process for each device",
    why="""Each rank stays a process, with one device, and torchrun starts the program as before.
Samplers, batch sizes, collectives, rank guards, checkpoints and the BatchNorm of a rank mean the
same as on GPUs. The runtime averages gradients after each backward pass.
torch.multiprocessing.spawn and start_processes stay on torchax; on torch_xla they become
torch_xla.launch, which uses all devices.

FullyShardedDataParallel and fully_shard keep their numbers, wrapping, mixed precision and state
dicts, but divide no memory: each rank has all parameters.

With --shard, one process drives all devices of torchax. It is rank 0 of a world of one, so prints,
files and checkpoints are those of rank 0.

Eight ranks with batches of 32 become one process with batches of 256. The configuration still says
32, and the learning rate stays. The loader's k-th batch holds the k-th batches of all ranks, in the
sampler's order, and is split over the devices. A batch size that the program divides by the ranks
is divided by the devices. Sums and means over the batch are those over all ranks: a collective
leaves a tensor unchanged, and a division by the number of ranks that undoes a sum divides by 1.
BatchNorm uses the statistics of the whole batch, as SyncBatchNorm does. A program that does not
train has one rank, and the devices share the model's weights (SHD001).""",
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
        Example(
            """
            import torch
            import torch.distributed as dist
            from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
            from torch.distributed.fsdp import ShardingStrategy, StateDictType

            dist.init_process_group("nccl")
            model = FSDP(net, device_id=torch.cuda.current_device(), sync_module_states=True)
            with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
                state = model.state_dict()
            """,
            after="""
            import torch
            import torch.distributed as dist
            import tpu_runtime
            from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
            from torch.distributed.fsdp import ShardingStrategy, StateDictType

            dist.init_process_group("{device}")
            model = tpu_runtime.UnshardedDataParallel(net, sync_module_states=True)
            with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
                state = model.state_dict()
            """,
            except_on={
                "torch_xla": """
                import torch
                import torch.distributed as dist
                import tpu_runtime
                from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
                from torch.distributed.fsdp import ShardingStrategy, StateDictType

                dist.init_process_group("{device}", init_method="{device}://")
                model = tpu_runtime.UnshardedDataParallel(net, sync_module_states=True)
                with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
                    state = model.state_dict()
                """
            },
        ),
        Example(
            """
            import os
            import torch
            rank = int(os.environ["RANK"])
            """,
            says={3: "set by a launcher"},
        ),
        Example(
            """
            import torch
            import torch.multiprocessing as mp
            mp.spawn(**options)
            """,
            says={3: "the source doesn't show what it starts"},
        ),
    ),
)

_UNSHARDED = "each rank has all parameters: the same numbers, and memory is not divided"
_STATISTICS = (
    "batch size (of one rank) and learning rate stay; BatchNorm uses the statistics of the whole "
    "batch, where each rank uses those of its own part"
)


def is_alone(ctx: Context) -> bool:
    """Whether the only rank does the work of all, as if a launcher had started one."""
    return in_one_process(ctx) is not None and ctx.distributed.only_infers


@RANKS.on("name", WRAPPER, *SHARDED)
def wrapper(ctx: Context, found: Construct) -> Decision | None:
    words = rank_words(ctx)
    if words is None:
        return None
    if words.launch is not None and words.ranks is None:
        return own_wrapper(ctx, found)
    assert words.ranks is not None
    if words.launch is not None and found.key == WRAPPER:
        return wrapped(ctx, found, words.ranks, gone=("device_ids", "output_device"))
    if words.launch is not None:
        if is_asked_for(ctx, found):
            return Keep("what it becomes is one, too")
        word = words.unsharded or words.ranks
        return wrapped(ctx, found, word, _UNSHARDED, gone=("device_id",))
    whole = found.key == WRAPPER and ctx.options.shard != "fsdp"
    sharded = words.ranks if whole else words.sharded
    return wrapped(ctx, found, sharded or words.ranks, _STATISTICS)


@RANKS.on("name", PER_PARAMETER)
def per_parameter(ctx: Context, found: Construct) -> Decision | None:
    """`fully_shard(model)`"""
    words = rank_words(ctx)
    if words is None or words.launch is None or words.replicated is None:
        return None
    return wrapped(ctx, found, words.replicated, _UNSHARDED, gone=PER_PARAMETER_SHARDING)


@RANKS.on("name", f"{SHARDED[0]}.*")
def of_sharded(ctx: Context, found: Construct) -> Decision | None:
    """`FSDP.state_dict_type(model, …)`"""
    words, node = rank_words(ctx), found.node
    if words is None or words.launch is None or words.unsharded is None:
        return None
    name = found.key.rpartition(".")[2]
    if name in ("clip_grad_norm_", "summon_full_params") and isinstance(node, ast.Attribute):
        return Rewrite([Replace(node.value, words.unsharded.code)], words.unsharded.requires)
    return Keep("asks what the model is wrapped with") if name in OF_SHARDED else None


@RANKS.on("name", "torch.utils.data.DistributedSampler", node=ast.expr)
def sampler(ctx: Context, found: Construct, node: ast.expr) -> Decision | None:
    words = in_one_process(ctx)
    if words is None:
        return None
    call, word = ctx.names.call_of(node), words.sampler
    if word is None:
        return ctx.code.lacks(found.key)
    if call is None:
        return Rewrite([Replace(node, word.code)], word.requires)
    return Rewrite([EditCall(call, function=word.code)], word.requires)


@RANKS.on("name", "torch.nn.SyncBatchNorm.convert_sync_batchnorm", CONVERT_BY_APEX)
def synchronised(ctx: Context, found: Construct) -> Decision | None:
    call = ctx.names.call_of(found.node)
    module = argument(call, 0, "module") if call is not None else None
    if not in_one_process(ctx) or call is None or module is None:
        return None
    note = "BatchNorm uses the statistics of the whole batch in any case"
    match ctx.names.parent(call):
        case ast.Assign(targets=[target]) as statement if dotted(target) == (dotted(module) or ""):
            return Rewrite([Delete(statement)], note=note)
    return Rewrite([Replace(call, "{module}", {"module": module})], note=note)


_GROUP_ARGUMENTS = ("backend", "init_method", "timeout", "world_size", "rank")


@RANKS.on("name", "torch.distributed.init_process_group")
def group(ctx: Context, found: Construct) -> Decision | None:
    words, call = rank_words(ctx), ctx.names.call_of(found.node)
    if words is None or call is None:
        return None
    if words.launch is not None and (not words.address or is_of_one(call)):
        return other_back_end(ctx, call, words.group)
    kept = ("world_size",) if words.launch is None else ("timeout", "world_size", "rank")
    gone = [k for k in call.keywords if k.arg not in (*kept, "init_method")]
    drop: list[ast.expr | ast.keyword] = [*call.args, *gone]
    put = {"init_method": ctx.code.quoted(words.address + "alone" * is_alone(ctx), call)}
    for name, value in zip(_GROUP_ARGUMENTS, call.args, strict=False):
        if name in kept:
            put[name] = ctx.source.code(value)
    return Rewrite([EditCall(call, drop=drop, first=back_end(ctx, call, words.group), put=put)])


_NEW_GROUPS = ("new_group", "new_subgroups", "new_subgroups_by_enumeration")


@RANKS.on("name", *(f"torch.distributed.{name}" for name in _NEW_GROUPS))
def further_group(ctx: Context, found: Construct) -> Decision | None:
    """`new_group(ranks, backend="nccl")`"""
    words, call = ctx.api.devices, ctx.names.call_of(found.node)
    if words is None or call is None or not (ctx.distributed.ranks or words.native):
        return None
    for given in (*call.args, *(k.value for k in call.keywords if k.arg == "backend")):
        if isinstance(given, ast.Constant) and given.value == "nccl":
            return Rewrite([Replace(given, back_end(ctx, call, words.group))])
    return None


@RANKS.on("name", *SPAWNS)
def spawned(ctx: Context, found: Construct) -> Decision | None:
    words, call = rank_words(ctx), ctx.names.call_of(found.node)
    if words is None or call is None:
        return None
    function, given = argument(call, 0, "fn"), argument(call, 1, "args")
    if function is None:
        return Report("the source doesn't show what it starts")
    if words.launch is not None and words.launch_environment is not None:
        return with_environment(ctx, call, words.launch_environment)
    if words.launch is not None and not words.launch.requires:
        return Keep("starts a process for each device")
    if words.launch is not None:
        drop: list[ast.expr | ast.keyword] = [
            *call.args[2:], *(k for k in call.keywords if k.arg in _COUNTED)
        ]  # fmt: skip
        others = {k.arg for k in call.keywords} - {"fn", "args", "start_method", *_COUNTED}
        if others:
            return Report(f"{words.launch.code} has no {', '.join(sorted(map(str, others)))}")
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
    if not in_one_process(ctx) or call is None:
        return None
    if is_alone(ctx):
        return Keep("1: one rank does what all do together")
    if call in ctx.distributed.ranks[None].undone:
        return Keep("undoes a sum over the ranks: 1 in a world of one")
    count = ctx.code.runtime("device_count")
    return Rewrite([Replace(call, f"{count.code}()")]) if count else ctx.code.lacks(found.key)


@RANKS.on("ranks", "undone", node=ast.expr)
def undone(ctx: Context, found: Construct, node: ast.expr) -> Decision:
    if not in_one_process(ctx) or is_alone(ctx):
        return Keep("a number")
    spelled, requires = ctx.code.module("torch.distributed")
    return Rewrite([Replace(node, f"{spelled}.get_world_size()")], requires)


@RANKS.on("ranks", "option", node=ast.Call)
def option(ctx: Context, found: Construct, call: ast.Call) -> Decision:
    """The option that a launcher passes to each process; a single process gets none."""
    default = argument(call, None, "default") if isinstance(call, ast.Call) else None
    if not in_one_process(ctx) or (isinstance(default, ast.Constant) and default.value == 0):
        return Keep("a launcher may give it")
    needed: list[ast.expr | ast.keyword] = [k for k in call.keywords if k.arg == "required"]
    return Rewrite([EditCall(call, drop=needed, put={"default": "0"})])


@RANKS.on("ranks", "environment", node=ast.expr)
def launcher(ctx: Context, found: Construct, node: ast.expr) -> Decision:
    """Variables that torchrun sets for each process."""
    if not in_one_process(ctx):
        return Keep("set by a launcher")
    value = ENVIRONMENT[environment(ctx.names, node) or ""]
    if value is None:
        count = ctx.code.runtime("device_count")
        if count is None and not is_alone(ctx):
            return ctx.code.lacks("a number of ranks")
        value = "1" if count is None or is_alone(ctx) else f"{count.code}()"
    if isinstance(node, ast.Compare):
        return Rewrite([Replace(node, str(isinstance(node.ops[0], ast.In)))])
    outer = ctx.names.parent(node)
    if isinstance(outer, ast.Call) and dotted(outer.func) == "int" and outer.args == [node]:
        return Rewrite([Replace(outer, value)])
    text = ctx.code.quoted(value, node) if value.isdigit() else f"str({value})"
    return Rewrite([Replace(node, text)])
