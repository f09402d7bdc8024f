"""What a program does with its ranks: each use is one that is followed, or an obstacle.

Data are those of all ranks together, so a number of ranks, a rank and a batch size may only be
configuration: arguments of samplers, loaders and process groups, arithmetic that ends in a
configured name, questions about rank 0, seeds, devices, and text.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from migrator.analysis import hints
from migrator.analysis.apart import are_apart
from migrator.analysis.names import argument, dotted, number, parameters, said_name

if TYPE_CHECKING:
    from migrator.analysis.ranks import Ranks

_OPTIONS = frozenset({
    "args", "cfg", "config", "conf", "opt", "opts", "options", "hps", "h", "hparams", "hyp",
    "flags", "params", "parser",
})  # fmt: skip
_CONFIGURED = frozenset({
    "batch", "batches", "batchsize", "bs", "bsz", "workers", "worker", "lr", "rate", "epochs",
    "epoch", "accumulation", "accum", "accumulate", "nodes", "node", "world",
})  # fmt: skip
_OF_BATCHES = frozenset({
    "batch", "batches", "batchsize", "bs", "bsz", "samples", "per", "node", "nodes", "world",
})  # fmt: skip
_COUNTED = frozenset({"steps", "step", "iters", "iterations", "samples", "per"})
_ACCUMULATED = frozenset({"accumulation", "accum", "accumulate"})
_COMPUTED = frozenset({
    "loss", "losses", "acc", "accuracy", "metric", "metrics", "grad", "grads", "correct", "top1",
    "top5", "sum", "mean", "avg", "tensor", "output", "outputs", "running", "error", "score",
})  # fmt: skip
_WRAPPERS = frozenset({"int", "float", "round", "max", "min", "math.ceil", "math.floor", "str"})
_SAYS = re.compile(r"print|log|info|debug|warn|write|format|description|postfix|display", re.I)
_GROUP = "torch.distributed.init_process_group"
SAMPLER = "torch.utils.data.DistributedSampler"
_LOADER = "torch.utils.data.DataLoader"
SPAWN = "torch.multiprocessing.spawn"
_PROCESSES = (
    "multiprocessing.Process", "multiprocessing.get_context", "torch.multiprocessing.Process",
    "torch.multiprocessing.start_processes", "torch.multiprocessing.get_context",
)  # fmt: skip
_ENVIRONMENT = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
_LAUNCHERS = ("SLURM_", "OMPI_COMM_", "PMI_")
# What such a launcher tells a process of its place among the others.
_PLACES = re.compile(
    r"SLURM_(?:PROCID|LOCALID|NTASKS\w*|NPROCS|NODEID|(?:JOB_|STEP_)?(?:NODELIST|NUM_NODES))"
    r"|OMPI_COMM_WORLD_\w*(?:RANK|SIZE)|PMI_(?:RANK|SIZE)"
)


@dataclass(frozen=True)
class Passed:
    """A value that goes to a function of another file."""

    line: int
    function: str  # its qualified name
    place: int | str  # of the argument: position or keyword
    kind: str  # world, rank or batch size


class Uses:
    """The uses of one file."""

    def __init__(self, ranks: Ranks) -> None:
        self.ranks, self.names, self.flow = ranks, ranks.names, ranks.flow
        self.passed: list[Passed] = []

    @cached_property
    def obstacles(self) -> list[tuple[int, str]]:
        """Lines and reasons, in order."""
        return sorted(self._found())

    def _found(self) -> Iterator[tuple[int, str]]:
        for node in self.names.order:
            if isinstance(node, ast.expr):
                kind = self._kind(node)
                if kind:
                    reason = self._followed(node, kind)
                    if reason:
                        yield node.lineno, reason
            yield from self._data(node)
            yield from ((started.lineno, reason) for started, reason in self._starts(node))
            yield from self._other_launchers(node)
            yield from self._asked(node)
        yield from self._reductions()

    @cached_property
    def processes(self) -> list[tuple[int, str]]:
        """Lines and reasons why processes can not be started in another way, in order."""
        hooks = (
            (node.lineno, f"{node.attr} changes how ranks exchange gradients")
            for node in self.names.order
            if isinstance(node, ast.Attribute) and node.attr == "register_comm_hook"
        )
        launched = (found for n in self.names.order for found in self._other_launchers(n))
        return sorted([*hooks, *((n.lineno, why) for n, why in self.children), *launched])

    @cached_property
    def children(self) -> list[tuple[ast.expr, str]]:
        """Where the program starts processes in a way of its own, and what is in the way."""
        return [found for n in self.names.order for found in self._starts(n)]

    # ---- which values are looked at -----------------------------------------------------------

    def _kind(self, node: ast.expr) -> str:
        """What a value is, where it is read."""
        stored = not isinstance(getattr(node, "ctx", ast.Load()), ast.Load)
        if stored or number(node) in self.ranks.undone:
            return ""
        parent = self.names.parents.get(node)
        if isinstance(parent, ast.Call) and node in parent.args:
            if dotted(parent.func) in ("int", "float") and self._kind(parent):
                return ""  # the whole is looked at
        if isinstance(node, ast.Name | ast.Attribute):
            if self.names.call_of(node) is not None:
                return ""
        if hints.is_batch_size_name(said_name(node)):
            return "" if self._is_of_data(node) else "batch size"
        if self.ranks.is_world(node):
            return "number of ranks"
        return "rank" if self.ranks.is_rank(node) else ""

    def _is_of_data(self, node: ast.expr) -> bool:
        """Whether it is measured: `batch_size = images.shape[0]` is that of the whole batch."""
        if not isinstance(node, ast.Name):
            return False
        values = [b.value for b in self.names.lookup(node)]
        return bool(values) and all(
            value is not None
            and any(
                isinstance(part, ast.Attribute) and part.attr in ("shape", "size")
                for part in ast.walk(value)
            )
            for value in values
        )

    def _is_configured(self, node: ast.expr) -> bool:
        """Whether a number is part of the program's configuration."""
        match node:
            case ast.Constant():
                return True
            case ast.BinOp():
                return self._is_configured(node.left) and self._is_configured(node.right)
            case ast.UnaryOp():
                return self._is_configured(node.operand)
            case ast.IfExp():
                return self._is_configured(node.body) and self._is_configured(node.orelse)
            case ast.Call() if self.ranks.is_world(node) or self.ranks.is_rank(node):
                return True
            case ast.Call(func=ast.Name(id="len"), args=[ast.Name() | ast.Attribute() as of]):
                return not _words(of) & {"sampler", "batch", "x", "output", "outputs"}
            case ast.Call() if dotted(node.func) in _WRAPPERS:
                return all(map(self._is_configured, node.args))
            case ast.Subscript(value=ast.Attribute() | ast.Name() as of, slice=ast.Constant()):
                return (dotted(of) or "").partition(".")[0].lower() in _OPTIONS
            case ast.Name() | ast.Attribute():
                if self.ranks.is_world(node) or self.ranks.is_rank(node):
                    return True
                words = _words(node)
                if words & _COMPUTED:
                    return False
                root = (dotted(node) or "").partition(".")[0].lower()
                own = "self.config" in (dotted(node) or "") or "self.args" in (dotted(node) or "")
                options = isinstance(node, ast.Attribute) and (root in _OPTIONS or own)
                return options or bool(words & _CONFIGURED)
        return False

    # ---- where they go ------------------------------------------------------------------------

    def _followed(self, node: ast.expr, kind: str) -> str:
        """Why the use of a value is an obstacle; "" if it is not."""
        if self._is_about_seeds(node) or self.is_shown(node):
            return ""
        text = ast.unparse(node)
        top: ast.AST = node
        arithmetic = counted = False
        while True:
            parent = self.names.parents.get(top)
            match parent:
                case ast.BinOp(left=ast.Constant(value=str()), op=ast.Mod()):
                    return self._said(parent, f"{text} is a part of a text that is used")
                case ast.BinOp(left=left, right=right):
                    other = right if left is top else left
                    if not self._is_configured(other):
                        return f"{ast.unparse(parent)} computes with the {kind}"
                    arithmetic = True
                    counted = counted or "len(" in ast.unparse(other)
                case ast.UnaryOp(op=ast.USub()):
                    arithmetic = True
                case ast.Call() if dotted(parent.func) in _WRAPPERS and top in parent.args:
                    others = [x for x in parent.args if x is not top]
                    if not all(map(self._is_configured, others)):
                        return f"{ast.unparse(parent)} computes with the {kind}"
                case ast.IfExp() if top is not parent.test:
                    pass
                case _:
                    break
            top = parent
        return self._ends(node, top, parent, kind, arithmetic, counted)

    def _ends(
        self, node: ast.expr, top: ast.AST, parent: ast.AST | None, kind: str,
        arithmetic: bool, counted: bool,
    ) -> str:  # fmt: skip
        text = ast.unparse(top)
        match parent:
            case ast.Assign(targets=[target]) | ast.AnnAssign(target=target):
                return self._named(target, kind, arithmetic, counted, text)
            case ast.AugAssign(target=target):
                return self._named(target, kind, True, counted, text)
            case ast.Tuple() as items:
                return self._unpacked(items, top, kind, text)
            case ast.List():
                keyword = self.names.parents.get(parent)
                if isinstance(keyword, ast.IfExp):
                    keyword = self.names.parents.get(keyword)
                devices = isinstance(keyword, ast.keyword) and "device" in (keyword.arg or "")
                return "" if devices and kind == "rank" else f"{text} goes into a list"
            case ast.Compare():
                return self._compared(parent, top, kind)
            case ast.BoolOp() | ast.UnaryOp() | ast.If() | ast.While() | ast.IfExp() | ast.Assert():
                return ""
            case ast.Expr():
                return ""
            case ast.keyword() | ast.Call():
                return self._given(top, parent, kind, arithmetic)
            case ast.FormattedValue():
                return self._in_text(parent, kind, text)
            case ast.Return():
                function = self.names.function(node)
                name = function.name if function is not None else ""
                known = is_named(self.ranks, name, kind)
                return "" if known else f"{text} is returned by {name}()"
            case ast.Dict(keys=keys, values=values):
                pairs = zip(keys, values, strict=True)
                key = next((k for k, v in pairs if v is top), None)  # None: it is a key itself
                named = isinstance(key, ast.Constant) and is_named(self.ranks, str(key.value), kind)
                return "" if named and not arithmetic else f"{text} goes into a dict"
            case ast.Subscript() if "device" in ast.unparse(parent.value) or "gpu" in ast.unparse(
                parent.value
            ):
                return ""
            case ast.arguments():
                return ""
        return f"{text} is used in a way that is not followed"

    def _named(self, target: ast.AST, kind: str, arithmetic: bool, counted: bool, text: str) -> str:
        """A value that gets a name."""
        match target:
            case ast.Subscript(value=ast.Attribute(attr="environ"), slice=ast.Constant(value=key)):
                if is_named(self.ranks, str(key).lower(), kind) or key == "CUDA_VISIBLE_DEVICES":
                    return ""
        last = (dotted(target) or "").rpartition(".")[2]
        if not last:
            return f"{text} is put into {ast.unparse(target)}"
        words = _words(target)
        if arithmetic:
            if words & _COMPUTED and not words & _ACCUMULATED:
                return f"{last} is computed from the {kind}"
            kinds = ("rank", "number of ranks")
            known = last if any(self.ranks.names_kind(last, kind) for kind in kinds) else ""
            if kind == "rank":
                known = known or (last if "device" in last else "")
            elif kind == "batch size":  # else it would have to be followed under another name
                configured = words & (_CONFIGURED | _COUNTED) - _OF_BATCHES
                known = last if configured or is_named(self.ranks, last, kind) else ""
            elif words & (_CONFIGURED | (_COUNTED if counted else set())):
                known = last
            return "" if known else f"{last} is computed from the {kind}"
        if isinstance(target, ast.Name) and kind != "batch size":
            return ""  # is followed
        same = is_named(self.ranks, last, kind)
        return "" if same or (kind == "rank" and "device" in last) else f"{last} is the {kind}"

    def _unpacked(self, items: ast.Tuple, value: ast.AST, kind: str, text: str) -> str:
        """`rank, world = get_rank(), get_world_size()`; the arguments of spawn."""
        outer = self.names.parents.get(items)
        index = next(i for i, item in enumerate(items.elts) if item is value)
        if isinstance(outer, ast.Assign) and isinstance(outer.targets[0], ast.Tuple):
            targets = outer.targets[0].elts
            if len(targets) == len(items.elts):
                return self._named(targets[index], kind, False, False, text)
        call = self.names.parents.get(outer) if isinstance(outer, ast.keyword) else outer
        if isinstance(call, ast.Call) and self.names.qualified(call.func) == SPAWN:
            function = argument(call, 0, "fn")
            return self._parameter(call, function, index + 1, kind, text)
        if isinstance(outer, ast.BinOp) and isinstance(outer.op, ast.Mod):
            return self._said(outer, f"{text} is a part of a text that is used")
        return f"{text} goes into a tuple"

    def _compared(self, node: ast.Compare, value: ast.AST, kind: str) -> str:
        others = [x for x in (node.left, *node.comparators) if x is not value]
        for other in others:
            items = other.elts if isinstance(other, ast.List | ast.Tuple | ast.Set) else [other]
            constant = all(isinstance(_positive(x), ast.Constant) for x in items)
            world = kind == "number of ranks" and all(map(self.ranks.is_world, items))
            configured = kind == "batch size" and all(map(self._is_configured, items))
            configured |= kind == "number of ranks" and bool(_words(other) & {"gpu", "gpus"})
            if not constant and not world and not configured:
                return f"{ast.unparse(node)} compares with the {kind}"
        return ""

    def _given(
        self, value: ast.AST, parent: ast.keyword | ast.Call, kind: str, arithmetic: bool
    ) -> str:
        """A value that is an argument."""
        call = parent if isinstance(parent, ast.Call) else self.names.parents.get(parent)
        text = ast.unparse(value)
        if not isinstance(call, ast.Call):
            return f"{text} goes to what is not followed"
        place: int | str = (
            (parent.arg or "**") if isinstance(parent, ast.keyword)
            else next((i for i, x in enumerate(call.args) if x is value), -1)
        )  # fmt: skip
        if place == -1:
            return f"{text} is asked for something"
        name = self.names.qualified(call.func) or dotted(call.func) or ""
        last = call.func.attr if isinstance(call.func, ast.Attribute) else name.rpartition(".")[2]
        if name in (_GROUP, SAMPLER, SPAWN) or _SAYS.search(last):
            return self._said(call, "") if last == "format" else ""
        if kind == "batch size" or arithmetic:
            if place == "batch_size" or (name == _LOADER and place in (1, "num_workers")):
                return ""
            if place == "lr" or last == "add_argument":
                return ""
        if last == "add_argument":
            return ""
        if kind == "rank":
            device = last in ("to", "cuda", "device", "set_device", "set_device_index")
            device = device or name.startswith(("torch.cuda.", "torch.nn.parallel."))
            if device or "seed" in last or place in ("device", "device_id", "device_ids"):
                return ""
            if place == "output_device":
                return ""
        return self._parameter(call, call.func, place, kind, text)

    def _parameter(
        self, call: ast.Call, function: ast.expr | None, place: int | str, kind: str, text: str
    ) -> str:
        """A value that goes to a function of the project, under a name of its own there."""
        if function is None:
            return f"{text} goes to what is not followed"
        bindings = self.names.lookup(function) if isinstance(function, ast.Name) else []
        if isinstance(function, ast.Name) and len(bindings) == 1:
            if bindings[0].kind in ("def", "class"):
                return self._by_name(bindings[0].node, place, kind, text)
        found = self.flow.called_definition(call) if function is call.func else None
        if found is not None:
            return self._by_name(found, place, kind, text)
        name = self.names.qualified(function)
        if name and not name.startswith(("torch.", "builtins.")) and "." in name:
            self.passed.append(Passed(call.lineno, name, place, kind))
            return ""
        if isinstance(place, str) and is_named(self.ranks, place, kind):
            owner = function.value if isinstance(function, ast.Attribute) else None
            if owner is not None and dotted(owner) == "self":
                return ""
        return f"{text} goes to {ast.unparse(function)}(), which is not followed"

    def _by_name(self, definition: ast.AST, place: int | str, kind: str, text: str) -> str:
        found = parameter_name(definition, place)
        if found and is_named(self.ranks, found, kind):
            return ""
        return f"{text} goes to a parameter {found or place}, which is not followed"

    def _in_text(self, value: ast.FormattedValue, kind: str, text: str) -> str:
        """A part of an f-string: of what is said, or of a device's name."""
        whole = self.names.parents.get(value)
        if isinstance(whole, ast.JoinedStr):
            before = whole.values[: next(i for i, v in enumerate(whole.values) if v is value)]
            ending = before[-1].value if before and isinstance(before[-1], ast.Constant) else ""
            if str(ending).endswith(":") and kind == "rank" and " " not in str(ending):
                return ""
            return self._said(whole, f"{text} is a part of a text that is used")
        return f"{text} is a part of a text that is used"

    def _said(self, node: ast.AST, reason: str) -> str:
        """Nothing where a text is only shown; a device's name; else the reason."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            if isinstance(owner, ast.Constant) and str(owner.value).startswith("cuda"):
                return ""
            reason = reason or "a text with a number of ranks is used"
        for ancestor in self.names.ancestors(node):
            if isinstance(ancestor, ast.Call):
                name = str(dotted(ancestor.func) or getattr(ancestor.func, "attr", ""))
                if _SAYS.search(name.rpartition(".")[2]) and not name.endswith("format"):
                    return ""
            if isinstance(ancestor, ast.Raise | ast.Assert):
                return ""
            if isinstance(ancestor, ast.stmt):
                break
        return reason

    def is_shown(self, node: ast.expr) -> bool:
        """Whether a statement only says something."""
        match self.names.statement(node):
            case ast.Expr(value=ast.Call(func=func) as call) if node is not call:
                name = str(dotted(func) or getattr(func, "attr", ""))
                return _SAYS.search(name.rpartition(".")[2]) is not None
        return False

    def _is_about_seeds(self, node: ast.expr) -> bool:
        statement = self.names.statement(node)
        if not isinstance(statement, ast.Assign | ast.AugAssign | ast.Expr | ast.Return):
            return False
        match statement:
            case ast.Expr(value=ast.Call(func=func)):
                return "seed" in (dotted(func) or "").rpartition(".")[2]
            case (
                ast.Assign(targets=[target], value=value)
                | ast.AugAssign(target=target, value=value)
            ):
                simple = ast.Name | ast.Attribute | ast.Constant | ast.BinOp | ast.operator
                parts = (p for p in ast.walk(value) if not isinstance(p, ast.expr_context))
                numbers = all(isinstance(p, simple | ast.Call) for p in parts)
                return numbers and "seed" in (dotted(target) or "").rpartition(".")[2]
        return False

    # ---- data, losses and samplers --------------------------------------------------------------

    def _data(self, node: ast.AST) -> Iterator[tuple[int, str]]:
        match node:
            case ast.ClassDef(bases=bases) if any(
                (dotted(base) or "").endswith("Sampler") for base in bases
            ):
                yield node.lineno, f"{node.name} divides the samples among ranks in its own way"
            case ast.keyword(arg="reduction", value=ast.Constant(value="sum")):
                yield node.value.lineno, "a loss is a sum: the whole batch's is that of all ranks"
            case ast.keyword(arg="size_average", value=ast.Constant(value=False)):
                yield node.value.lineno, "a loss is a sum: the whole batch's is that of all ranks"
            case ast.keyword(arg="batch_sampler" | "sampler_cls"):
                yield node.value.lineno, "a sampler of batches divides the samples in its own way"
            case ast.Attribute(attr="register_comm_hook" | "_set_static_graph"):
                yield node.lineno, f"{node.attr} changes how ranks exchange gradients"
            case ast.Call(func=ast.Attribute(attr="backward", value=loss)):
                if self._is_sum(loss):
                    yield node.lineno, "a loss is a sum: the whole batch's is that of all ranks"
            case ast.Call():
                yield from self._loaders(node)

    def _is_sum(self, node: ast.expr | None, depth: int = 0) -> bool:
        """Whether a loss is a sum, or is made of one; a quotient is taken for a mean."""
        match node:
            case ast.Call(func=ast.Attribute(attr="scale"), args=[loss]):  # a GradScaler's
                return self._is_sum(loss, depth)
            case ast.Call(func=func):
                name = str(dotted(func) or getattr(func, "attr", ""))
                return name.rpartition(".")[2] == "sum"
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult(), right=right):
                return self._is_sum(left, depth) or self._is_sum(right, depth)
            case ast.UnaryOp(operand=operand):
                return self._is_sum(operand, depth)
            case ast.Name() if depth < 5:
                values = [b.value for b in self.names.lookup(node) if b.kind == "assign"]
                return any(self._is_sum(value, depth + 1) for value in values)
        return False

    def _loaders(self, call: ast.Call) -> Iterator[tuple[int, str]]:
        name = self.names.qualified(call.func)
        if name == _LOADER:
            shuffle = argument(call, 2, "shuffle")
            shuffled = isinstance(shuffle, ast.Constant) and shuffle.value is True
            if shuffled and argument(call, 3, "sampler") is None:
                yield call.lineno, "a loader without a sampler gives each rank an order of its own"
        if name == SAMPLER:
            parent = self.names.parents.get(call)
            while isinstance(parent, ast.IfExp | ast.BoolOp):
                parent = self.names.parents.get(parent)
            named = isinstance(parent, ast.Assign | ast.AnnAssign | ast.Return)
            if not named and not (isinstance(parent, ast.keyword) and parent.arg == "sampler"):
                yield call.lineno, "a DistributedSampler is used by something else than a loader"
        iterated = dotted(call.func) in ("iter", "list", "len", "tuple") and call.args
        if iterated and isinstance(call.args[0], ast.Name):
            values = [b.value for b in self.names.lookup(call.args[0]) if b.kind == "assign"]
            if dotted(call.func) != "len" and any(
                isinstance(v, ast.Call) and self.names.qualified(v.func) == SAMPLER for v in values
            ):
                yield call.lineno, "a DistributedSampler is used by something else than a loader"

    # ---- processes ------------------------------------------------------------------------------

    def _starts(self, node: ast.AST) -> Iterator[tuple[ast.expr, str]]:
        """Processes that are started in a way of their own, and may be ranks."""
        match node:
            case ast.Attribute() | ast.Name():
                name = self.names.qualified(node) or ""
                if name in _PROCESSES:
                    if not are_apart(self.names, node):
                        yield node, f"{name} starts processes with work of their own"
            case ast.Call() if self.names.qualified(node.func) == SPAWN:
                join = argument(node, 3, "join")
                if isinstance(join, ast.Constant) and join.value is False:
                    yield node, "the program goes on beside its processes"

    def _other_launchers(self, node: ast.AST) -> Iterator[tuple[int, str]]:
        """Horovod, Slurm and MPI."""
        match node:
            case ast.Import() | ast.ImportFrom():
                module = getattr(node, "module", None) or ""
                modules = [module, *(alias.name for alias in node.names)]
                if any(m.partition(".")[0] == "horovod" for m in modules):
                    yield node.lineno, "horovod starts processes with work of their own"
            case ast.Constant(value=str(text)):
                if text.startswith(_LAUNCHERS) and not self._asks_for_torchrun:
                    yield node.lineno, f"{text} is what another launcher sets"

    def _asked(self, node: ast.AST) -> Iterator[tuple[int, str]]:
        """Ranks and their number, asked for in a way that is not followed."""
        match node:
            case ast.Attribute() | ast.Name():
                name = self.names.qualified(node) or ""
                last = name.rpartition(".")[2]
                asked = last in ("get_rank", "get_world_size") and "." in name
                if asked and self.names.call_of(node) is None:
                    yield node.lineno, f"{last} is passed on, not called"
            case ast.Constant(value=str(text)) if text in _ENVIRONMENT:
                if not self._is_read_or_set(node):
                    yield node.lineno, f"{text} is asked for in a way that is not followed"

    @cached_property
    def _asks_for_torchrun(self) -> bool:
        """Whether torchrun is asked for first, as which the program is started."""
        return any(
            isinstance(node, ast.Compare) and self.ranks.is_asked_for(node)
            for node in self.names.order
        )

    def _is_read_or_set(self, node: ast.Constant) -> bool:
        parent = self.names.parents.get(node)
        if parent is not None and (self.ranks.is_rank(parent) or self.ranks.is_world(parent)):
            return True
        stored = isinstance(parent, ast.Subscript) and isinstance(parent.ctx, ast.Store | ast.Del)
        return stored or isinstance(parent, ast.Expr | ast.FormattedValue | ast.Compare)

    # ---- what is exchanged ----------------------------------------------------------------------

    def _reductions(self) -> Iterator[tuple[int, str]]:
        for call in self.ranks.reductions():
            owner = self.names.enclosing_class(call)
            module = owner is not None and self.flow.is_module_class(owner)
            if module and not self._without_gradients(call):
                yield call.lineno, "what a model computes is reduced, and goes on with gradients"
        for node in self.names.order:
            match node:
                case ast.BinOp(left=left, op=ast.Div() | ast.Mult() as op, right=right):
                    pairs = [(left, right)]
                    pairs += [(right, left)] if isinstance(op, ast.Mult) else []
                case ast.AugAssign(target=left, op=ast.Div() | ast.Mult(), value=right):
                    pairs = [(left, right)]
                case ast.Call(func=ast.Attribute(attr="div_" | "mul_" | "div" | "mul", value=left),
                              args=[right]):  # fmt: skip
                    pairs = [(left, right)]
                case ast.Call(func=ast.Attribute(attr="backward", value=left)):
                    if self.ranks.is_reduced(left):
                        yield node.lineno, "a loss is reduced, and goes on with gradients"
                    continue
                case _:
                    continue
            for value, factor in pairs:
                if self.ranks.is_reduced(value) and not self._is_known_factor(factor):
                    text = ast.unparse(factor)
                    yield node.lineno, f"whether {text} is a number of ranks is not clear"
        for call in self.ranks.gathers():
            if not self._has_room_for_one(call):
                yield call.lineno, "what is gathered is as long as there are ranks"

    def _is_known_factor(self, node: ast.expr) -> bool:
        node = number(node)
        if isinstance(node, ast.Constant) or node in self.ranks.undone:
            return True
        return self.ranks.is_reduced(node)

    def _has_room_for_one(self, call: ast.Call) -> bool:
        """Whether a list is gathered into that the analysis has seen made."""
        into = argument(call, 0, "tensor_list", "object_list", "gather_list", "object_gather_list")
        if not isinstance(into, ast.Name):
            return False
        function = self.names.function(call)
        values = [b.value for b in self.names.lookup(into) if b.kind == "assign"]
        return bool(values) and all(
            value is not None
            and self.names.function(value) is function
            and any(part in self.ranks.undone for part in ast.walk(value))
            for value in values
        )

    def _without_gradients(self, node: ast.AST) -> bool:
        for ancestor in self.names.ancestors(node):
            match ancestor:
                case ast.With(items=items):
                    if any("no_grad" in ast.unparse(item) for item in items):
                        return True
                case ast.FunctionDef(decorator_list=decorators):
                    return any("no_grad" in ast.unparse(d) for d in decorators)
        return False


def asks_other_launcher(node: ast.AST) -> bool:
    """Whether a string names what Slurm or MPI tell a process of its place among the others."""
    return (
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and _PLACES.fullmatch(node.value) is not None
    )


def parameter_name(definition: ast.AST, place: int | str) -> str:
    """The name of a parameter of a function, or of a class's `__init__`; "" for none."""
    bound = 0
    if isinstance(definition, ast.ClassDef):
        made = [n for n in definition.body if isinstance(n, ast.FunctionDef)]
        definition = next((n for n in made if n.name == "__init__"), definition)
        bound = 1
    if not isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef):
        return ""
    names = [parameter.arg for parameter, _ in parameters(definition.args)]
    if isinstance(place, str):
        return place if place in names else ""
    bound = 1 if names[:1] == ["self"] else bound
    return names[place + bound] if place + bound < len(names) else ""


def _words(node: ast.AST) -> set[str]:
    last = (dotted(node) or "").rpartition(".")[2]
    return set(last.lower().strip("_").split("_"))


def _positive(node: ast.expr) -> ast.expr:
    return node.operand if isinstance(node, ast.UnaryOp) else node


def is_named(ranks: Ranks, name: str, kind: str) -> bool:
    """Whether a name says that it holds a value of this kind."""
    if kind == "batch size":
        return hints.is_batch_size_name(name)
    return ranks.names_kind(name, kind)
