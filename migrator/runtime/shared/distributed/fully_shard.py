"""The replacement of `fully_shard` for ranks: the same numbers, without dividing memory."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, OffloadPolicy
from torch.utils._pytree import tree_map_only

from ..device import DEVICE_TYPE
from .ddp import Averaging
from .fsdp import cast, insist_on_the_same, lower, move_tensor, of_tpus, say_that_memory_is_whole


class ReplicatedModule(FSDPModule):
    """A module that `replicate` was called on; methods for gathering and freeing do nothing."""

    _part: "ParameterGroup"

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """A slice of a container, such as `layers[1:]`, has the container's original class."""
        return cls.__mro__[cls.__mro__.index(FSDPModule) + 1](*args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._part.begin()
        args, kwargs = self._part.given((args, kwargs))
        return self._part.returned(super().__call__(*args, **kwargs))  # type: ignore[misc]

    def set_requires_gradient_sync(
        self, requires_gradient_sync: bool, *, recurse: bool = True
    ) -> None:
        """Whether gradients are averaged, as in the last pass of an accumulation."""
        for part in self._part.parts() if recurse else [self._part]:
            part.sends = requires_gradient_sync

    def unshard(self, async_op: bool = False) -> Any:
        return self if async_op else None

    def wait(self) -> None:
        """There is nothing to wait for."""

    def _unneeded(self, *args: object, **kwargs: object) -> None:
        """Has no effect on numbers if parameters are whole."""

    reshard = set_is_last_backward = set_requires_all_reduce = _unneeded
    set_reshard_after_forward = set_reshard_after_backward = set_unshard_in_backward = _unneeded
    set_modules_to_forward_prefetch = set_modules_to_backward_prefetch = _unneeded

    def _get_fsdp_state(self) -> Any:
        """The other methods use it; they may change gradients."""
        raise NotImplementedError("this method of FSDPModule")

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        return super(FSDPModule, self)._apply(*args, **kwargs)  # type: ignore[misc]


class ParameterGroup:
    """A module's own parameters: those that no inner part has."""

    def __init__(self, module: nn.Module, mixed: MixedPrecisionPolicy) -> None:
        self._module, self._mixed = module, mixed
        self.sends = True
        self.has_begun = False
        self._exchange: PartsAveraging | None = None  # of the outermost module

    def parts(self) -> "list[ParameterGroup]":
        """This one, and those inside."""
        return [m._part for m in self._module.modules() if isinstance(m, ReplicatedModule)]

    def begin(self) -> None:
        """The first use shows which module is the outermost; it exchanges for all."""
        if self.has_begun:
            return
        parts, owners = self.parts(), dict[Tensor, ParameterGroup]()
        if any(part.has_begun for part in parts):
            raise RuntimeError("a part of a model with fully_shard ran before the model")
        for part in parts:  # inner modules come after the modules they are in
            owners |= dict.fromkeys(part._module.parameters(), part)
        if dist.get_world_size() > 1:  # a trace ends here
            insist_on_the_same(owners, "fully_shard would take a part from each")
            say_that_memory_is_whole("fully_shard")
        for part in parts:
            part.has_begun = True
            part._lower(owners)
        trained = [p for p in self._module.parameters() if p.requires_grad]
        self._exchange = PartsAveraging(self._module, trained, [owners[p] for p in trained])

    def _lower(self, owners: dict[Tensor, "ParameterGroup"]) -> None:
        kind = of_tpus(self._mixed.param_dtype)
        if kind is not None:
            found = ((m, *named) for m in self._module.modules() for named in m._parameters.items())
            own = ((m, name, p) for m, name, p in found if p is not None and owners.get(p) is self)
            lower(own, kind)

    def given(self, arguments: Any) -> Any:
        """Inputs of the outermost module are moved to the device and cast as the policy says."""
        if self._exchange is not None:
            arguments = tree_map_only(Tensor, move_tensor, arguments)
        kind = of_tpus(self._mixed.param_dtype) if self._mixed.cast_forward_inputs else None
        return arguments if kind is None else _cast(arguments, kind)

    def returned(self, results: Any) -> Any:
        kind = of_tpus(self._mixed.output_dtype)
        return results if kind is None else _cast(results, kind)


def _cast(values: Any, kind: torch.dtype) -> Any:
    return tree_map_only(Tensor, lambda x: cast(x, kind), values)


class PartsAveraging(Averaging):
    """Averages the gradients of a backward pass, except those of parts that postpone it.

    As in torch, a parameter must have one on all ranks or on none.
    """

    def __init__(
        self, module: nn.Module, trained: list[nn.Parameter], owners: list[ParameterGroup]
    ) -> None:
        group: Any = dist.group.WORLD
        super().__init__(module, trained, group, finds_unused=True)
        self._owners = owners

    def average(self) -> None:
        """After a backward pass."""
        ready = sorted(i for i in self._ready if self._owners[i].sends)
        self._ready.difference_update(ready)
        found = [self._trained[i] for i in ready if self._trained[i].grad is not None]
        if found and not self.alone:
            self.mean(found)


def replicate(
    module: Any, *, mesh: object = None, reshard_after_forward: object = None,
    shard_placement_fn: object = None, mp_policy: MixedPrecisionPolicy | None = None,
    offload_policy: Any = None, ignored_params: object = None,
) -> Any:  # fmt: skip
    """`torch.distributed.fsdp.fully_shard`, where **each rank has all parameters**.

    After each `backward()`, gradients are averaged over the ranks, in one program for the whole
    model. ``mp_policy`` casts parameters, inputs and results as in torch, but float16 becomes
    bfloat16; gradients are exchanged in the optimizer's precision. Options for dividing and
    gathering parameters are ignored.

    Raises ValueError, in the first forward pass, if ranks start with different parameters; and
    NotImplementedError for a mesh, and for parameters on the CPU or ignored ones.
    """
    modules, mixed = module if isinstance(module, list) else [module], mp_policy
    why = None
    if mesh is not None:
        why = "a mesh of its own"
    elif type(offload_policy) not in (type(None), OffloadPolicy):
        why = "parameters on the CPU (offload_policy)"
    elif ignored_params:
        why = "parameters that it ignores"
    elif mixed is not None and len(modules) > 1:
        why = "one policy of precision for several modules at once"
    if why is not None:
        raise NotImplementedError(f"fully_shard with {why}")
    for each in modules:
        if not any(p.is_meta for p in each.parameters()):
            each.to(DEVICE_TYPE)
        kind = type(each)
        each.__class__ = type(f"FSDP{kind.__name__}", (ReplicatedModule, kind), {})
        each._part = ParameterGroup(each, mixed or MixedPrecisionPolicy())
    return module
