"""Ranks: what a program that starts a process for each device does with their number and its own.

On a target where one process drives all devices, data are those of all ranks together, and what is
computed from them is what the ranks would agree on. So a number of ranks keeps its meaning in a
program's configuration (a batch size, a learning rate), and is 1 where it undoes a sum over ranks.
What can not be told apart, or what only a process of its own can do, is an obstacle.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cached_property

from migrator.flow import RANK_NAME, Flow, Kind
from migrator.names import Names, argument, dotted

GROUP = "torch.distributed."
WRAPPER = "torch.nn.parallel.DistributedDataParallel"
SHARDED = ("torch.distributed.fsdp.FullyShardedDataParallel",)
SAMPLER = "torch.utils.data.DistributedSampler"
STARTS = (
    "torch.distributed.init_process_group", "torch.multiprocessing.spawn", WRAPPER,
    *SHARDED, "torch.distributed.rpc.init_rpc", "torch.distributed.init_device_mesh",
    "torch.distributed.device_mesh.init_device_mesh", "torch.multiprocessing.Process",
)  # fmt: skip
# Environment variables that a launcher sets, and what they are where there is one process.
ENVIRONMENT = {"RANK": "0", "LOCAL_RANK": "0", "GROUP_RANK": "0", "WORLD_SIZE": None,
               "LOCAL_WORLD_SIZE": None}  # fmt: skip

_REDUCTIONS = ("all_reduce", "reduce")
_GATHERS = ("all_gather", "gather", "all_gather_object", "gather_object")
_UNDERSTOOD = frozenset({
    "init_process_group", "destroy_process_group", "barrier", "broadcast", "broadcast_object_list",
    "get_rank", "get_world_size", "get_backend", "is_initialized", "is_available",
    "get_default_backend_for_device", "is_nccl_available", "is_gloo_available", "is_mpi_available",
    "is_torchelastic_launched", "ReduceOp", "reduce_op", "group", "GroupMember", "WORLD",
    *_REDUCTIONS, *_GATHERS,
})  # fmt: skip
# How FullyShardedDataParallel gathers and sends, which XLA decides by itself.
_SHARDING = frozenset({
    "module", "auto_wrap_policy", "device_id", "sharding_strategy", "sync_module_states",
    "forward_prefetch", "backward_prefetch", "limit_all_gathers", "use_orig_params",
})  # fmt: skip
_HARMLESS = tuple(
    f"torch.distributed.fsdp.{name}" for name in ("wrap.", "ShardingStrategy", "BackwardPrefetch")
)
_WORLD_NAME = re.compile(
    r"^_*(?:ddp_|dist_)?(?:world_?size|n_?procs?|num_(?:gpus|procs|processes|replicas|tasks|ranks)"
    r"|(?:num_|n_?)?gpus?_per_(?:node|machine)|n_?gpus?)$"
)
_RANK_NAME = re.compile(rf"(?:^|_)rank$|{RANK_NAME.pattern}")
_CONFIGURED = frozenset({
    "batch", "batches", "batchsize", "bs", "workers", "worker", "size", "num", "n", "steps",
    "epochs", "iters", "samples", "accumulation", "freq", "images", "imgs", "tokens", "lr", "kimg",
})  # fmt: skip
_COMPUTED = frozenset({
    "loss", "losses", "acc", "accuracy", "metric", "metrics", "grad", "grads", "correct", "top1",
    "top5", "sum", "mean", "avg", "tensor", "output", "total", "running", "error", "score",
})  # fmt: skip


class Ranks:
    """The ranks of one file."""

    def __init__(self, names: Names, flow: Flow) -> None:
        self.names, self.flow = names, flow

    # ---- what is what ---------------------------------------------------------------------

    @cached_property
    def start(self) -> ast.expr | None:
        """Where the file starts processes or replicas."""
        for node in self.names.order:
            if isinstance(node, ast.Attribute | ast.Name) and self.names.call_of(node):
                if self.names.qualified(node) in STARTS:
                    return node
        return None

    def is_world(self, node: ast.expr, depth: int = 0) -> bool:
        """Whether an expression is the number of ranks or devices."""
        match node:
            case ast.Call(func=ast.Name(id="int" | "float"), args=[inner]):
                return self.is_world(inner, depth)
            case ast.Call():
                name = self.names.qualified(node.func) or ""
                return name.endswith((".get_world_size", ".device_count")) or (
                    environment(self.names, node) in ("WORLD_SIZE", "LOCAL_WORLD_SIZE")
                )
            case ast.Subscript():
                return environment(self.names, node) in ("WORLD_SIZE", "LOCAL_WORLD_SIZE")
            case ast.Name():
                if _WORLD_NAME.search(node.id):
                    return True
                values = [b.value for b in self.names.lookup(node) if b.kind == "assign"]
                return depth < 3 and any(v and self.is_world(v, depth + 1) for v in values)
            case ast.Attribute():
                return _WORLD_NAME.search(node.attr) is not None
        return False

    def _is_rank(self, node: ast.AST) -> bool:
        match node:
            case ast.Call():
                return self.names.qualified(node.func) == f"{GROUP}get_rank"
            case ast.Name(ctx=ast.Load()):
                return _RANK_NAME.search(node.id) is not None
            case ast.Attribute(ctx=ast.Load()):
                return _RANK_NAME.search(node.attr) is not None
        return False

    def _calls(self, *functions: str) -> Iterator[ast.Call]:
        for node in self.names.order:
            if isinstance(node, ast.Call):
                name = self.names.qualified(node.func) or ""
                if name.startswith(GROUP) and name.removeprefix(GROUP) in functions:
                    yield node

    @cached_property
    def _exchanged(self) -> dict[ast.AST | None, set[str]]:
        """Names of what a function reduces over the ranks, by function."""
        found: dict[ast.AST | None, set[str]] = {}
        for call in self._calls(*_REDUCTIONS):
            tensor = argument(call, 0, "tensor")
            if tensor is not None:
                names = found.setdefault(self.names.function(call), set())
                names.update(n.id for n in ast.walk(tensor) if isinstance(n, ast.Name))
        return found

    def _is_reduced(self, node: ast.expr) -> bool:
        """Whether an expression is something that was summed over the ranks."""
        names = self._exchanged.get(self.names.function(node), set())
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and part.id in names and part.id != "self":
                return True
            if isinstance(part, ast.Call) and self.flow.called_definition(part) in self._exchanged:
                return True
        return False

    @cached_property
    def samples(self) -> bool:
        """Whether samples are divided among the ranks by torch's sampler."""
        return any(self.names.qualified(n) == SAMPLER for n in self._references())

    @cached_property
    def take_part(self) -> bool:
        """Whether the file has to do with ranks."""
        known = (GROUP, WRAPPER, SAMPLER, "torch.multiprocessing.spawn")
        return any(
            (self.names.qualified(node) or "").startswith(known) for node in self._references()
        ) or any(environment(self.names, node) for node in self.names.order)

    def _references(self) -> Iterator[ast.expr]:
        return (n for n in self.names.order if isinstance(n, ast.Attribute | ast.Name))

    # ---- numbers that are 1 -----------------------------------------------------------------

    @cached_property
    def undone(self) -> set[ast.AST]:
        """Numbers of ranks that undo a sum over them, or count what each of them brings."""
        found: set[ast.AST] = set()
        for dividend, divisor in self._divisions():
            if self._is_reduced(dividend):
                found.add(divisor)
        gathering = {self.names.function(call) for call in self._calls(*_GATHERS)}
        for node in self.names.order:
            gathers = bool(gathering) and self.names.function(node) in gathering
            match node:
                case ast.Call(func=ast.Name(id="range"), args=[only]) if gathers:
                    if self.is_world(only):
                        found.add(only)
                case ast.BinOp(left=left, op=ast.Mult(), right=right):
                    for one, other in ((left, right), (right, left)):
                        counts = _is_length_of_sampler(one) or (
                            gathers and isinstance(one, ast.List)
                        )
                        if counts and self.is_world(other):
                            found.add(other)
        return found

    def _divisions(self) -> Iterator[tuple[ast.expr, ast.expr]]:
        """What is divided by a number of ranks, and that number."""
        for node in self.names.order:
            match node:
                case ast.BinOp(left=left, op=ast.Div() | ast.FloorDiv(), right=right):
                    pair = left, right
                case ast.AugAssign(target=left, op=ast.Div() | ast.FloorDiv(), value=right):
                    pair = left, right
                case ast.Call(func=ast.Attribute(attr="div_" | "div", value=left), args=[right]):
                    torch_div = self.names.qualified(node.func) == "torch.div"
                    pair = (node.args[0] if torch_div else left), right
                case _:
                    continue
            divisor = pair[1]
            while isinstance(divisor, ast.Call) and dotted(divisor.func) in ("int", "float"):
                divisor = divisor.args[0]
            if self.is_world(divisor):
                yield pair[0], divisor

    @cached_property
    def counts_copies(self) -> int | None:
        """Where results of copies on several GPUs are added up, or divided by their number."""
        for node in self.names.order:
            match node:
                case ast.BinOp(left=left, right=right):
                    if self.is_world(left) or self.is_world(right):
                        return node.lineno
                case ast.AugAssign(value=value) if self.is_world(value):
                    return node.lineno
                case ast.Call(func=ast.Attribute(attr="backward", value=ast.Call(func=summed))):
                    if isinstance(summed, ast.Attribute) and summed.attr == "sum":
                        return node.lineno
        return None

    # ---- what is in the way -----------------------------------------------------------------

    @cached_property
    def obstacle(self) -> tuple[int, str] | None:
        """The line and the reason why one process can not do what the ranks do."""
        return next(self._obstacles(), None)

    def _obstacles(self) -> Iterator[tuple[int, str]]:
        for node in self.names.order:
            if isinstance(node, ast.Attribute | ast.Name):
                yield from self._unknown_function(node)
            if self._is_rank(node):
                assert isinstance(node, ast.expr)
                reason = self._chooses_data(node)
                if reason:
                    yield node.lineno, reason
            if isinstance(node, ast.ClassDef) and any(
                (self.names.qualified(base) or "").endswith("DistributedSampler")
                for base in node.bases
            ):
                yield node.lineno, f"{node.name} divides the samples among ranks in its own way"
        for dividend, divisor in self._divisions():
            if divisor not in self.undone and not self._is_configured(dividend):
                text = ast.unparse(dividend)
                reason = f"whether {text} is a sum over the ranks that it divides by is not clear"
                yield divisor.lineno, reason

    def _unknown_function(self, node: ast.expr) -> Iterator[tuple[int, str]]:
        name = self.names.qualified(node) or ""
        if name in ("torch.multiprocessing.Process", "torch.distributed.rpc"):
            yield node.lineno, f"{name} starts processes with work of their own"
        if not name.startswith(GROUP) or isinstance(self.names.parents.get(node), ast.Attribute):
            return
        if name in SHARDED:
            call = self.names.call_of(node)
            given = {k.arg for k in call.keywords} if call is not None else {"isinstance"}
            for option in sorted(str(option) for option in given - _SHARDING):
                yield node.lineno, f"{option} of FullyShardedDataParallel is not understood"
        elif name.removeprefix(GROUP).split(".")[0] not in _UNDERSTOOD:
            if not name.startswith(_HARMLESS):
                yield node.lineno, f"{name} is not understood"

    def _chooses_data(self, node: ast.expr) -> str:
        """Why a rank's number is more than a device, a name or a question, if it is."""
        child: ast.AST = node
        for parent in self.names.ancestors(node):
            match parent:
                case ast.Slice() | ast.Subscript() if child is not getattr(parent, "value", None):
                    return "each rank chooses its own part of something by its number"
                case ast.Call(func=ast.Name(id="range" | "islice")):
                    return "each rank counts from its own number"
                case ast.BinOp(left=ast.Constant(value=str()), op=ast.Mod()):
                    return ""  # a part of a text
                case ast.BinOp(left=left, right=right):
                    other = right if left is child else left
                    text = ast.unparse(parent)
                    if not self._is_of_ranks(other) and not self._is_harmless(node):
                        if not isinstance(parent.op, ast.Mod) or left is child:
                            return f"{text} is another number in each rank"
                case ast.BoolOp() | ast.UnaryOp() | ast.IfExp() | ast.keyword():
                    pass
                case _:
                    return ""
            child = parent
        return ""

    def _is_harmless(self, node: ast.expr) -> bool:
        """Whether a statement is about seeds, which may differ, or makes another rank."""
        statement = self.names.statement(node)
        match statement:
            case ast.Assign(targets=[ast.Name(id=name) | ast.Attribute(attr=name)]) if (
                _RANK_NAME.search(name)
            ):
                return True
        if not isinstance(statement, ast.Assign | ast.Expr | ast.AugAssign | ast.Return):
            return False
        return "seed" in ast.unparse(statement)

    def _is_of_ranks(self, node: ast.expr) -> bool:
        """Whether ranks, their number and constants are all that there is in an expression."""
        if isinstance(node, ast.BinOp):
            return self._is_of_ranks(node.left) and self._is_of_ranks(node.right)
        constant = isinstance(node, ast.Constant | ast.JoinedStr)
        return constant or self.is_world(node) or self._is_rank(node)

    def _is_configured(self, node: ast.expr) -> bool:
        """Whether a number comes from the program's configuration, not from a computation."""
        if isinstance(node, ast.Constant):
            return True
        if self.flow.kind(node) & Kind.TENSOR:
            return False
        words: set[str] = set()
        for part in ast.walk(node):
            if isinstance(part, ast.Name | ast.Attribute):
                name = part.id if isinstance(part, ast.Name) else part.attr
                words.update(name.lower().split("_"))
        if words & _COMPUTED:
            return False
        counted = isinstance(node, ast.Call) and self.names.qualified(node.func) == "len"
        return counted or self.flow.kind(node) == Kind.INT or bool(words & _CONFIGURED)


def environment(names: Names, node: ast.AST) -> str | None:
    """The launcher's variable that an expression reads: `os.environ["RANK"]`, `os.getenv(…)`."""
    match node:
        case ast.Subscript(value=owner, slice=ast.Constant(value=str(key)), ctx=ast.Load()):
            read = names.qualified(owner) == "os.environ"
        case ast.Call(func=func, args=[ast.Constant(value=str(key)), *_]):
            read = names.qualified(func) in ("os.environ.get", "os.getenv")
        case ast.Compare(
            left=ast.Constant(value=str(key)), ops=[ast.In() | ast.NotIn()], comparators=[owner]
        ):
            read = names.qualified(owner) == "os.environ"
        case _:
            return None
    return key if read and key in ENVIRONMENT else None


def _is_length_of_sampler(node: ast.expr) -> bool:
    match node:
        case ast.Call(func=ast.Name(id="len"), args=[of]):
            return "sampler" in (dotted(of) or "").rpartition(".")[2]
    return False
