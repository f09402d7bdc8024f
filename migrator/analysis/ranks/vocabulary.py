"""The names of torch.distributed and of launchers, by what a target has to do for them."""

import ast
from collections.abc import Set

from migrator.analysis.syntax.names import Names
from migrator.targets.api_map import TargetApi

GROUP = "torch.distributed."
SAMPLER = "torch.utils.data.DistributedSampler"
LOADER = "torch.utils.data.DataLoader"
SPAWNS = ("torch.multiprocessing.spawn", "torch.multiprocessing.start_processes")
WRAPPER = "torch.nn.parallel.DistributedDataParallel"
SHARDED = ("torch.distributed.fsdp.FullyShardedDataParallel",)
SYNCHRONISED = "torch.nn.SyncBatchNorm"
COPIES = ("torch.nn.DataParallel", "torch.nn.parallel.DataParallel")
COPIES_FOR_A_CALL = "torch.nn.parallel.data_parallel"
RPC = "torch.distributed.rpc.init_rpc"
STARTS = (
    "torch.distributed.init_process_group", *SPAWNS, WRAPPER,
    *SHARDED, RPC, "torch.distributed.init_device_mesh",
    "torch.distributed.device_mesh.init_device_mesh",
)  # fmt: skip
# Functions of libraries that start processes or make their group, for the devices that they know.
BY_LIBRARIES = (
    "timm.utils.init_distributed_device", "timm.utils.init_distributed_device_so",
    "timm.utils.distributed.init_distributed_device", "detectron2.engine.launch",
    "detectron2.engine.launch.launch", "mmengine.dist.init_dist", "mmcv.runner.init_dist",
)  # fmt: skip
# Environment variables that a launcher sets, and their values with a single process.
ENVIRONMENT = {"RANK": "0", "LOCAL_RANK": "0", "GROUP_RANK": "0", "WORLD_SIZE": None,
               "LOCAL_WORLD_SIZE": None}  # fmt: skip

REDUCTIONS = ("all_reduce", "reduce")
GATHERS = ("all_gather", "gather", "all_gather_object", "gather_object")
UNDERSTOOD = frozenset({
    "init_process_group", "destroy_process_group", "barrier", "broadcast", "broadcast_object_list",
    "get_rank", "get_world_size", "get_backend", "is_initialized", "is_available",
    "get_default_backend_for_device", "is_nccl_available", "is_gloo_available", "is_mpi_available",
    "is_torchelastic_launched", "is_ucc_available", "is_xccl_available", "is_backend_available",
    "DistError", "DistBackendError", "DistNetworkError", "DistStoreError", "default_pg_timeout",
    "constants", "DebugLevel", "get_debug_level", "set_debug_level", "ReduceOp", "reduce_op",
    "group", "GroupMember", "WORLD", "logger",
    *REDUCTIONS, *GATHERS,
})  # fmt: skip
# Also fine for a single rank: it sends to itself, or to no one.
ALONE = UNDERSTOOD | {
    "scatter", "reduce_scatter", "reduce_scatter_tensor", "all_gather_into_tensor",
    "all_to_all_single",
}  # fmt: skip
# Removed from torch: exchanges between several GPUs of one process.
GONE = tuple(
    f"{name}_multigpu"
    for name in ("all_gather", "all_reduce", "broadcast", "reduce", "reduce_scatter")
)
# Removed modules, for which programs have a fallback.
GONE_MODULES = (f"{GROUP}pipeline.",)
# Also fine for ranks that each have a process of their own.
WITH_PROCESSES = ALONE | {
    "all_to_all", "monitored_barrier", "scatter_object_list", "nn", "elastic",
    "get_node_local_rank",
    "P2POp", "batch_isend_irecv", "irecv", "isend", "recv", "recv_object_list", "send",
    "send_object_list",
    "get_global_rank", "get_group_rank", "get_process_group_ranks", "new_group", "new_subgroups",
    "Store", "HashStore", "TCPStore", "FileStore", "PrefixStore",  # on the host
    "_backend", "dist_backend",  # of torch before 1.0; programs check for it first
    *GONE,
}  # fmt: skip
# Exchanges that return new tensors and have gradients.
FUNCTIONAL = frozenset({
    "all_gather_tensor", "all_gather_tensor_autograd", "reduce_scatter_tensor",
    "reduce_scatter_tensor_autograd", "all_to_all_single", "all_to_all_single_autograd",
    "all_reduce", "broadcast", "wait_tensor",
})  # fmt: skip
# Checkpoints of all ranks; without sharding, each rank has everything.
_CHECKPOINTS = frozenset({
    "save", "load", "save_state_dict", "load_state_dict", "state_dict",
    *(f"{module}{name}" for module, names in (
        ("", ("FileSystemReader", "FileSystemWriter", "DefaultSavePlanner", "DefaultLoadPlanner")),
        ("filesystem.", ("FileSystemReader", "FileSystemWriter")),
        ("default_planner.", ("DefaultSavePlanner", "DefaultLoadPlanner")),
    ) for name in names),
    *(f"state_dict.{name}" for name in (
        "StateDictOptions", "get_state_dict", "set_state_dict", "get_model_state_dict",
        "set_model_state_dict", "get_optimizer_state_dict", "set_optimizer_state_dict",
    )),
})  # fmt: skip
_PARTS = {"_functional_collectives": FUNCTIONAL, "checkpoint": _CHECKPOINTS}
# Hooks for exchanging gradients that the runtimes support: as they are, or in 16 bits.
_OF_HOOKS = f"{GROUP}algorithms.ddp_comm_hooks."
HOOKS = tuple(
    f"{_OF_HOOKS}default_hooks.{name}_hook"
    for name in ("allreduce", "fp16_compress", "bf16_compress")
)
_WITH_HOOKS = frozenset({
    "torch.distributed.algorithms.ddp_comm_hooks", *HOOKS,
    *(f"{_OF_HOOKS}{name}" for name in (
        "default_hooks", "register_ddp_comm_hook", "DDPCommHookType", "DDPCommHookType.ALLREDUCE",
        "DDPCommHookType.FP16_COMPRESS", "DDPCommHookType.BF16_COMPRESS",
    )),
})  # fmt: skip
# Activation checkpointing; the runtimes do it by `torch.utils.checkpoint`.
CHECKPOINTING = (f"{GROUP}_composable.checkpoint", f"{GROUP}algorithms._checkpoint")
# How FullyShardedDataParallel gathers and sends; XLA decides that itself.
SHARDING = frozenset({
    "module", "auto_wrap_policy", "device_id", "sharding_strategy", "sync_module_states",
    "forward_prefetch", "backward_prefetch", "limit_all_gathers", "use_orig_params",
})  # fmt: skip
HARMLESS = CHECKPOINTING + tuple(
    f"torch.distributed.fsdp.{name}" for name in ("wrap.", "ShardingStrategy", "BackwardPrefetch")
)
# Parts of FullyShardedDataParallel that stay as they are where ranks stay ranks.
BESIDE_SHARDED = (
    f"{GROUP}fsdp.wrap.",
    *(
        f"{GROUP}fsdp.{module}{name}"
        for module in ("", "api.")
        for name in (
            "BackwardPrefetch", "CPUOffload", "MixedPrecision", "ShardingStrategy",
            "StateDictConfig", "StateDictSettings", "StateDictType", "OptimStateDictConfig",
            "FullStateDictConfig", "LocalStateDictConfig", "ShardedStateDictConfig",
            "FullOptimStateDictConfig", "LocalOptimStateDictConfig", "ShardedOptimStateDictConfig",
            "FSDPModule", "OffloadPolicy", "CPUOffloadPolicy",
        )
    ),
    f"{GROUP}fsdp.sharded_grad_scaler.ShardedGradScaler",
    f"{GROUP}fsdp._runtime_utils._reshard",  # programs check for another strategy than ours first
)  # fmt: skip
# The other way to divide parameters, each by itself; how it does, XLA decides.
PER_PARAMETER = f"{GROUP}fsdp.fully_shard"
PER_PARAMETER_SHARDING = ("reshard_after_forward", "shard_placement_fn")
OF_SHARDED = frozenset({
    "clip_grad_norm_", "fsdp_modules", "get_state_dict_type", "set_state_dict_type",
    "state_dict_type", "summon_full_params", "optim_state_dict", "optim_state_dict_to_load",
    "full_optim_state_dict", "scatter_full_optim_state_dict", "shard_full_optim_state_dict",
})  # fmt: skip
# Options that the runtimes reject.
NOT_SHARDED_BY = frozenset({"device_mesh", "param_init_fn", "process_group"})


def is_beside_sharded(name: str) -> bool:
    """Whether a name belongs to FullyShardedDataParallel, and stays with its replacement."""
    return name.startswith(BESIDE_SHARDED) or name.removeprefix(f"{SHARDED[0]}.") in OF_SHARDED


def is_served(name: str, api: TargetApi) -> bool:
    """Whether the target supports a name with ranks in every program, so that it stays."""
    if api.devices is None or not api.launches:
        return False
    if name.startswith((*BESIDE_SHARDED, SYNCHRONISED)):
        return True
    return name.startswith(GROUP) and is_known(name, WITH_PROCESSES)


def is_known(name: str, understood: Set[str]) -> bool:
    """Whether a name of torch.distributed is understood."""
    if name in _WITH_HOOKS:
        return understood is WITH_PROCESSES
    first, _, rest = name.removeprefix(GROUP).partition(".")
    if understood is WITH_PROCESSES and (known := _PARTS.get(first)) is not None:
        return not rest or rest in known
    return first in understood


def environment(names: Names, node: ast.AST) -> str | None:
    """The launcher's variable that an expression reads: `os.environ["RANK"]`, `os.getenv(…)`."""
    if not isinstance(node, ast.Subscript | ast.Call | ast.Compare):
        return None  # most nodes
    match node:
        case ast.Subscript(value=owner, slice=ast.Constant(value=str(key)), ctx=ast.Load()):
            reads: tuple[str, ...] = ("os.environ",)
        case ast.Call(func=owner, args=[ast.Constant(value=str(key)), *_]):
            reads = ("os.environ.get", "os.getenv")
        case ast.Compare(
            left=ast.Constant(value=str(key)), ops=[ast.In() | ast.NotIn()], comparators=[owner]
        ):
            reads = ("os.environ",)
        case _:
            return None
    return key if key in ENVIRONMENT and names.qualified(owner) in reads else None


def is_behind_gone(names: Names, node: ast.AST) -> bool:
    """Whether a node follows an import that always fails now, inside the `try` that catches it."""
    below = node
    for above in names.ancestors(node):
        if isinstance(above, ast.Try) and below in above.body:
            before = above.body[: above.body.index(below) + 1]
            if any(map(_imports_gone, before)) and names.is_guarded_import(below):
                return any(map(_catches_imports, above.handlers))
        below = above
    return False


def _imports_gone(statement: ast.stmt) -> bool:
    module = f"{statement.module}." if isinstance(statement, ast.ImportFrom) else ""
    return module.startswith(GONE_MODULES)


def _catches_imports(handler: ast.ExceptHandler) -> bool:
    kind = handler.type
    kinds = kind.elts if isinstance(kind, ast.Tuple) else [kind]
    names = ("ImportError", "ModuleNotFoundError", "Exception")
    return any(k is None or (isinstance(k, ast.Name) and k.id in names) for k in kinds)
