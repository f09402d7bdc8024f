"""FullyShardedDataParallel for ranks: the same numbers, without dividing memory."""

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms._comm_hooks.default_hooks import DefaultState
from torch.distributed.fsdp import FullStateDictConfig, MixedPrecision, ShardingStrategy
from torch.distributed.fsdp import FullyShardedDataParallel as Stock
from torch.distributed.fsdp._common_utils import FSDP_PREFIX, TrainingState
from torch.distributed.fsdp._init_utils import _init_ignored_module_states
from torch.distributed.fsdp._wrap_utils import _auto_wrap
from torch.distributed.fsdp.api import FullOptimStateDictConfig, StateDictType
from torch.distributed.utils import _replace_by_prefix
from torch.utils._pytree import tree_map_only

from ..device import DEVICE_TYPE
from . import fsdp_optimizer_states
from .ddp import Averaging

fsdp_optimizer_states.install()


class UnshardedDataParallel(Stock):
    """`torch.distributed.fsdp.FullyShardedDataParallel` with ``ShardingStrategy.NO_SHARD``.

    **Each rank has all parameters**, gradients and optimizer states, for every strategy. Modules
    are wrapped according to the policy and moved to the device. After each `backward()` outside
    `no_sync()`, gradients are averaged over the ranks, in one program. ``mixed_precision`` casts
    parameters, inputs, buffers and exchanged gradients as in torch, but float16 becomes bfloat16.
    State dicts of all types are whole. Options for gathering and prefetching are ignored.

    Raises ValueError if ranks start with different parameters and ``sync_module_states`` is
    False; and NotImplementedError for another process group, a mesh,
    ``param_init_fn``, parameters on the CPU or without memory, and gradients in low precision.
    """

    process_group: Any

    def __init__(
        self, module: nn.Module, process_group: Any = None, sharding_strategy: Any = None,
        cpu_offload: Any = None, auto_wrap_policy: Any = None, backward_prefetch: Any = None,
        mixed_precision: MixedPrecision | None = None, ignored_modules: Any = None,
        param_init_fn: Any = None, device_id: object = None, sync_module_states: bool = False,
        forward_prefetch: bool = False, limit_all_gathers: bool = True,
        use_orig_params: bool = False, ignored_states: Any = None, device_mesh: Any = None,
    ) -> None:  # fmt: skip
        nn.Module.__init__(self)
        _check(module, process_group, cpu_offload, mixed_precision, param_init_fn, device_mesh)
        _init_ignored_module_states(self, module, ignored_modules, ignored_states)
        if auto_wrap_policy is not None:
            options = {
                "mixed_precision": mixed_precision, "sync_module_states": sync_module_states,
                "ignored_states": self._ignored_params, "use_orig_params": use_orig_params,
            }  # fmt: skip
            _auto_wrap(
                module, auto_wrap_policy, self._ignored_modules, self._ignored_params, options,
                UnshardedDataParallel,
            )  # fmt: skip
        self._fsdp_wrapped_module = module.to(DEVICE_TYPE)
        self.process_group = dist.group.WORLD
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        self.sharding_strategy, self.compute_device = ShardingStrategy.NO_SHARD, _device(module)
        self.mixed_precision = _all_of_tpus(mixed_precision or MixedPrecision())
        self._init_as_stock()
        self._owners = list(self._own_modules(module))
        self.params = list(dict.fromkeys(p for owner, _, p in self._own_parameters()))
        if self.world_size > 1:
            self._agree(sync_module_states)
        if self.mixed_precision.param_dtype is not None:
            lower(self._own_parameters(), self.mixed_precision.param_dtype, self._is_summoned)
        self._buffer_kinds: dict[str, torch.dtype] = {}
        self.register_load_state_dict_pre_hook(_with_prefix)

    def _init_as_stock(self) -> None:
        """Attributes that torch's methods use."""
        self._use_orig_params, self._handle, self._device_mesh = False, None, None
        self._all_handles: list[Any] = []
        self._is_root: bool | None = None
        self._sync_gradients, self.training_state = True, TrainingState.IDLE
        self._zero_scalar = None
        self._state_dict_type = StateDictType.FULL_STATE_DICT
        self._state_dict_config: Any = FullStateDictConfig()
        self._optim_state_dict_config: Any = FullOptimStateDictConfig()
        self._streams: dict[str, Any] = {}  # torch 2.0's; programs pass it on to other wrappers

    # ---- modules and their parameters -----------------------------------------------------------

    def _own_modules(self, module: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
        """The modules outside of inner wrappers, with their names."""
        if isinstance(module, Stock) or module in self._ignored_modules:
            return
        yield prefix, module
        for name, child in module.named_children():
            yield from self._own_modules(child, f"{prefix}{name}.")

    def _own_parameters(self) -> Iterator[tuple[nn.Module, str, nn.Parameter]]:
        for _, owner in self._owners:
            for name, parameter in owner._parameters.items():
                if parameter is not None and parameter not in self._ignored_params:
                    yield owner, name, parameter

    def _agree(self, sync: bool) -> None:
        """Start with rank 0's values, or make sure that all ranks have the same."""
        values = [p.detach() for p in self.params]
        if sync:
            _broadcast([*values, *(b for _, o in self._owners for b in o._buffers.values()
                                   if b is not None)])  # fmt: skip
            return
        insist_on_the_same(
            values, "FullyShardedDataParallel would take a part from each",
            ", or give sync_module_states=True",
        )  # fmt: skip

    def _is_summoned(self) -> bool:
        return self.training_state == TrainingState.SUMMON_FULL_PARAMS

    # ---- forward and backward -------------------------------------------------------------------

    def _begin(self) -> None:
        """The first use shows which wrapper is the outermost; it exchanges for all."""
        if self._is_root is not None:
            return
        units = Stock.fsdp_modules(self)
        if any(unit._is_root for unit in units):
            raise RuntimeError("a part of a model with FullyShardedDataParallel ran before it")
        for unit in units:
            unit._is_root = unit is self
            unit._cast_buffers()
        self._exchange = UnitsAveraging(self, units)
        if self.world_size > 1:
            say_that_memory_is_whole("FullyShardedDataParallel")

    def _cast_buffers(self) -> None:
        kind = self.mixed_precision.buffer_dtype
        for prefix, owner in self._owners if kind is not None else ():
            for name, buffer in owner._buffers.items():
                if buffer is not None and buffer.is_floating_point() and buffer.dtype != kind:
                    self._buffer_kinds[prefix + name] = buffer.dtype
                    owner._buffers[name] = buffer.to(kind)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's results for this rank's batch."""
        self._begin()
        mixed, kind = self.mixed_precision, None
        if self._is_root:
            args, kwargs = tree_map_only(Tensor, move_tensor, (args, kwargs))
            kind = mixed.param_dtype if mixed.cast_root_forward_inputs else None
        elif self.params and mixed.cast_forward_inputs:
            kind = mixed.param_dtype
        if kind is not None:
            args, kwargs = tree_map_only(Tensor, lambda x: cast(x, kind), (args, kwargs))
        return self._fsdp_wrapped_module(*args, **kwargs)

    def no_sync(self) -> Any:
        """Gradients of passes in this context stay local until the next pass outside."""
        self._begin()
        return super().no_sync()

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> Tensor:
        """Clip by the norm of all parameters; must not be called on a part of a model."""
        self._begin()
        return super().clip_grad_norm_(max_norm, norm_type)

    def check_is_root(self) -> bool:
        self._begin()
        return bool(self._is_root)

    def register_comm_hook(self, *args: object) -> None:
        """Raises NotImplementedError."""
        raise NotImplementedError("FullyShardedDataParallel.register_comm_hook")

    # ---- parameters and checkpoints -------------------------------------------------------------

    def apply(self, fn: Any) -> "UnshardedDataParallel":
        with self.summon_full_params(self):
            nn.Module.apply(self, fn)
        return self

    @staticmethod
    @contextlib.contextmanager
    def summon_full_params(
        module: nn.Module, recurse: bool = True, writeback: bool = True, rank0_only: bool = False,
        offload_to_cpu: bool = False, with_grads: bool = False,
    ) -> Iterator[None]:  # fmt: skip
        """In this context, parameters have their full precision; offloading isn't supported."""
        if offload_to_cpu:
            raise NotImplementedError("summon_full_params with offload_to_cpu=True")
        if rank0_only and writeback:
            raise NotImplementedError("writeback=True and rank0_only=True is not supported")
        units = Stock.fsdp_modules(module)
        kept = [] if writeback else [(p, p.detach().clone()) for u in units for p in u.params]
        for unit in units:
            unit.training_state = TrainingState.SUMMON_FULL_PARAMS
        try:
            yield
        finally:
            for unit in units:
                unit.training_state = TrainingState.IDLE
            with torch.no_grad():
                for parameter, value in kept:
                    parameter.copy_(value)

    def state_dict(
        self, *, destination: Any = None, prefix: str = "", keep_vars: bool = False
    ) -> dict[str, Any]:
        """The wrapped module's, with whole parameters."""
        found = self._fsdp_wrapped_module.state_dict(
            destination=destination, prefix=prefix, keep_vars=keep_vars
        )
        for name, kind in self._buffer_kinds.items():
            if (key := prefix + name) in found:
                found[key] = found[key].to(kind)
        config: Any = self._state_dict_config
        if self._state_dict_type != StateDictType.FULL_STATE_DICT:
            warnings.warn("without sharding, state dicts are whole on each rank", stacklevel=2)
        elif config.offload_to_cpu or config.rank0_only:
            for key in [key for key in found if key.startswith(prefix)]:
                if config.rank0_only and self.rank:
                    del found[key]
                elif config.offload_to_cpu:
                    found[key] = found[key].cpu()
        return found  # type: ignore[no-any-return]


def lower(
    parameters: Iterable[tuple[nn.Module, str, nn.Parameter]], kind: torch.dtype,
    is_whole: Callable[[], bool] = lambda: False,
) -> None:  # fmt: skip
    """Modules see parameters in lower precision; optimizers and checkpoints don't."""
    names: dict[nn.Module, list[str]] = {}
    for owner, name, parameter in parameters:
        if parameter.is_floating_point():
            names.setdefault(owner, []).append(name)
    for owner, own in names.items():
        if isinstance(owner, nn.RNNBase):
            raise NotImplementedError(f"mixed precision of {type(owner).__name__}")
        seen = {name: property(_lowered(name, kind, is_whole)) for name in own}
        stock = type(owner)
        owner.__class__ = type(stock.__name__, (stock,), {"__module__": stock.__module__, **seen})


def _lowered(name: str, kind: torch.dtype, is_whole: Callable[[], bool]) -> Any:
    def get(owner: nn.Module) -> Tensor | None:
        value = owner._parameters[name]
        return value if value is None or is_whole() else value.to(kind)

    return get


def insist_on_the_same(parameters: Iterable[Tensor], otherwise: str, or_else: str = "") -> None:
    """Raise ValueError if ranks start with different parameters."""
    for parameter in parameters:
        value = parameter.detach()
        first = value.clone()
        _broadcast([first])
        differs = (first != value).any().int().reshape(1)
        dist.all_reduce(differs)
        if differs.item():
            raise ValueError(
                f"ranks begin with different parameters, where {otherwise}: make them with the "
                f"same seed{or_else}"
            )


def say_that_memory_is_whole(name: str) -> None:
    if dist.get_rank() == 0:
        warnings.warn(f"{name}: each rank has all parameters; memory is not divided", stacklevel=4)


class UnitsAveraging(Averaging):
    """Averages the gradients of each wrapped unit together, as torch does.

    A parameter without a gradient gets zeros. In lower precision, gradients that were averaged
    before are kept apart, so that only the new ones are sent.
    """

    def __init__(self, root: UnshardedDataParallel, units: list[Any]) -> None:
        trained = [p for unit in units for p in unit.params if p.requires_grad]
        super().__init__(root, trained, root.process_group, finds_unused=True)
        self._root, self._of = root, {id(p): unit for unit in units for p in unit.params}
        factor = DefaultState._get_gradient_predivide_factor(root.world_size)
        self._factors = factor, root.world_size / factor
        self._averaged: set[int] = set()
        self._before: dict[int, Tensor] = {}
        self._nodes: list[Any] = []  # their hooks live as long as they do
        for parameter in trained:
            if self._kind(parameter) not in (None, parameter.dtype):
                node = torch.autograd.graph.get_gradient_edge(parameter).node
                node.register_prehook(functools.partial(self._put_aside, parameter))
                self._nodes.append(node)

    def _kind(self, parameter: Tensor) -> torch.dtype | None:
        """The precision in which its gradient is sent."""
        mixed: MixedPrecision = self._of[id(parameter)].mixed_precision
        return mixed.reduce_dtype or mixed.param_dtype

    def _put_aside(self, parameter: Tensor, gradients: object) -> None:
        """Put averaged gradients aside when new ones arrive."""
        key = id(parameter)
        if parameter.grad is None:  # set by an optimizer
            self._before.pop(key, None)
        elif key in self._averaged:
            before = self._before.get(key)
            self._before[key] = parameter.grad if before is None else before + parameter.grad
            parameter.grad = None
        self._averaged.discard(key)

    def average(self) -> None:
        """After a backward pass."""
        if not self._ready or not self._root._sync_gradients:
            return
        units = {id(self._of[id(self._trained[i])]) for i in self._ready}
        self._ready.clear()
        if self.alone:
            return
        parameters = [p for p in self._trained if id(self._of[id(p)]) in units and p.requires_grad]
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        lowered = [p for p in parameters if self._kind(p) not in (None, p.dtype)]
        if len(lowered) < len(parameters):
            self.mean([p for p in parameters if self._kind(p) in (None, p.dtype)])
        if lowered:
            self._mean_in_lower_precision(lowered)

    @torch.no_grad()
    def _mean_in_lower_precision(self, parameters: list[nn.Parameter]) -> None:
        first, then = self._factors
        sent = [p.grad.to(self._kind(p)).div_(first) for p in parameters]  # type: ignore[union-attr]
        self._root.process_group.allreduce_coalesced(sent, dist.AllreduceCoalescedOptions())
        for parameter, value in zip(parameters, sent, strict=True):
            found = value.div_(then).to(parameter.dtype)
            before = self._before.pop(id(parameter), None)
            parameter.grad = found if before is None else before + found
            self._averaged.add(id(parameter))


def _check(
    module: nn.Module, group: Any, cpu_offload: Any, mixed: MixedPrecision | None,
    param_init_fn: object, device_mesh: object,
) -> None:  # fmt: skip
    """Raise NotImplementedError for options that may give other results."""
    why = None
    if group not in (None, dist.group.WORLD) or device_mesh is not None:
        why = "a process group or mesh of its own"
    elif cpu_offload is not None and getattr(cpu_offload, "offload_params", cpu_offload):
        why = "parameters on the CPU (cpu_offload)"
    elif param_init_fn is not None or any(p.is_meta for p in module.parameters()):
        why = "parameters without memory (param_init_fn)"
    elif mixed is not None and mixed.keep_low_precision_grads:
        why = "gradients in low precision (keep_low_precision_grads)"
    if why is not None:
        raise NotImplementedError(f"FullyShardedDataParallel with {why}")


def _all_of_tpus(mixed: MixedPrecision) -> MixedPrecision:
    """float16 becomes bfloat16, as with autocast: nothing scales the loss."""
    kinds = (mixed.param_dtype, mixed.reduce_dtype, mixed.buffer_dtype)
    param, reduce, buffer = map(of_tpus, kinds)
    return MixedPrecision(
        param, reduce, buffer, cast_forward_inputs=mixed.cast_forward_inputs,
        cast_root_forward_inputs=mixed.cast_root_forward_inputs,
        _module_classes_to_ignore=mixed._module_classes_to_ignore,
    )  # fmt: skip


def of_tpus(kind: torch.dtype | None) -> torch.dtype | None:
    return torch.bfloat16 if kind == torch.float16 else kind


def _device(module: nn.Module) -> torch.device:
    first = next(iter(module.parameters()), None)
    return torch.device(DEVICE_TYPE) if first is None else first.device


def move_tensor(tensor: Tensor) -> Tensor:
    return tensor if tensor.device.type == DEVICE_TYPE else tensor.to(DEVICE_TYPE)


def cast(tensor: Tensor, kind: torch.dtype) -> Tensor:
    return tensor.to(kind) if tensor.is_floating_point() and tensor.dtype != kind else tensor


def _broadcast(tensors: Iterable[Tensor]) -> None:
    options = dist.BroadcastOptions()
    options.rootRank = 0
    dist.group.WORLD.broadcast(list(tensors), options)  # type: ignore[union-attr]


def _with_prefix(module: nn.Module, state_dict: dict[str, Any], prefix: str, *_: object) -> None:
    _replace_by_prefix(state_dict, prefix, prefix + FSDP_PREFIX)
