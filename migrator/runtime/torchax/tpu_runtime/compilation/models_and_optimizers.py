"""The models and optimizers that take part in a function, and which of their tensors it uses."""

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from ..device import DEVICE_TYPE
from ..dispatch.calls import is_device_tensor
from ..lazy.lazy_arrays import stored
from ..tensors.structures import Identity, is_value
from .compile_state import FirstTime
from .learning_rates import Settings, may_vary

_COUNTING = (torch.nn.modules.batchnorm._NormBase,)  # update their buffers in training
_VARIABLE = ("params", "lr", "initial_lr")  # of a parameter group


@dataclass
class Trainers:
    """The modules and optimizers that a function has used, in the order of their first use."""

    modules: dict[int, torch.nn.Module] = field(default_factory=dict)
    optimizers: dict[int, Optimizer] = field(default_factory=dict)
    varying: Settings = frozenset()  # settings of the optimizers that have changed

    @contextlib.contextmanager
    def observed(self, *, known: bool = False) -> Iterator[None]:
        """Record who takes part; with ``known``, raise FirstTime for a new participant.

        A module without tensors that the function creates itself is neither: a loss in a forward.
        """
        made: set[int] = set()
        stock = torch.nn.Module.__init__

        def init(module: torch.nn.Module, *args: Any, **kwargs: Any) -> None:
            made.add(id(module))
            stock(module, *args, **kwargs)

        def module_used(module: torch.nn.Module, _: Any) -> None:
            if id(module) not in made or _has_tensors(module):
                note(module, self.modules)

        def optimizer_used(optimizer: Optimizer, *_: Any) -> None:
            note(optimizer, self.optimizers)

        def note(member: Any, members: dict[int, Any]) -> None:
            if id(member) not in members:
                self.take([member])
                if known:
                    raise FirstTime

        torch.nn.Module.__init__ = init  # type: ignore[method-assign,assignment]
        handles = (
            register_module_forward_pre_hook(module_used),
            register_optimizer_step_pre_hook(optimizer_used),
        )
        try:
            yield
        finally:
            torch.nn.Module.__init__ = stock  # type: ignore[method-assign]
            for handle in handles:
                handle.remove()

    def take(self, members: Iterable[Any]) -> None:
        """Use the expected participants."""
        for member in members:
            if isinstance(member, Optimizer):
                self.optimizers.setdefault(id(member), member)
            else:
                for module in member.modules():
                    self.modules.setdefault(id(module), module)

    def owned_groups(self) -> list[tuple[Optimizer, dict[str, Any]]]:
        """The parameter groups, each with its optimizer."""
        return [(o, group) for o in self.optimizers.values() for group in o.param_groups]

    def groups(self) -> list[dict[str, Any]]:
        return [group for _, group in self.owned_groups()]

    def varying_now(self) -> Settings:
        """The varying settings that a program can take as tensors now."""
        members = self.owned_groups()
        return frozenset(
            (i, name) for i, name in self.varying
            if i < len(members) and may_vary(*members[i], name)
        )  # fmt: skip

    def parameters(self) -> list[torch.Tensor]:
        found = {id(p): p for group in self.groups() for p in group["params"]}
        for module in self.modules.values():
            found.update((id(p), p) for p in module._parameters.values() if p is not None)
        return list(found.values())

    def state(self, training: bool) -> tuple[list[Any], list[Any]]:
        """The tensors that a program is expected to write, and those that it only reads."""
        written = [
            b for m in self.modules.values() if m.training and isinstance(m, _COUNTING)
            for b in m._buffers.values()
        ]  # fmt: skip
        if training:
            written += [p for group in self.groups() for p in group["params"] if p.requires_grad]
            written += [
                value for optimizer in self.optimizers.values()
                for state in optimizer.state.values() for value in state.values()
            ]  # fmt: skip
        buffers = (b for m in self.modules.values() for b in m._buffers.values())
        first, others = _unlinked(written), _unlinked([*self.parameters(), *buffers])
        return list(first.values()), [t for i, t in others.items() if i not in first]

    def owned(self, replaced: set[tuple[int, Any]]) -> set[int]:
        """The ids of the tensors that have an owner, and stay there."""
        buffers = {
            id(buffer)
            for module in self.modules.values()
            for name, buffer in module._buffers.items()
            if (id(module._buffers), name) not in replaced
        }
        return buffers | {id(p) for p in self.parameters()}


def _has_tensors(module: torch.nn.Module) -> bool:
    return any(True for _ in module.parameters()) or any(True for _ in module.buffers())


def _unlinked(values: Iterable[Any]) -> dict[int, Any]:
    """Device tensors that aren't aliases."""
    return {id(t): t for t in values if is_device_tensor(t) and t.__dict__.get("_link") is None}


def step_counts_on_device(optimizer: Optimizer) -> None:
    """Move step counts to the device: on the CPU they would be constants of the program.

    Equal ones share an array, so that a recorded step counts, and corrects its bias, once.
    """
    arrays: dict[Any, Any] = {}
    for state in optimizer.state.values():
        for name, value in state.items():
            if isinstance(value, torch.Tensor) and not is_device_tensor(value):
                state[name] = moved = value.to(DEVICE_TYPE)
                if not value.dim():
                    array = arrays.setdefault((value.dtype, value.item()), stored(moved))
                    moved.__dict__["_elem"] = array


def settings(trainers: Trainers, varying: Settings) -> list[Any]:
    """The optimizers' settings that are part of the program: all but the learning rates, and
    the varying ones."""
    groups = trainers.owned_groups()
    return [
        (
            list(map(id, group["params"])),
            {
                name: _setting(value) for name, value in group.items() if name not in _VARIABLE
                and not ((i, name) in varying and may_vary(optimizer, group, name))
            },
        )
        for i, (optimizer, group) in enumerate(groups)
    ] + [Identity(g["lr"]) for _, g in groups if isinstance(g["lr"], torch.Tensor)]  # fmt: skip


def note_varying(trainers: Trainers, before: list[Any]) -> None:
    """Settings that have changed since a program was compiled are inputs of the next one."""
    members = zip(trainers.owned_groups(), before, strict=False)
    for i, ((optimizer, group), old) in enumerate(members):
        known = old[1] if isinstance(old, tuple) else {}
        for name in group.keys() & known.keys():
            if known[name] != _setting(group[name]) and may_vary(optimizer, group, name):
                trainers.varying |= {(i, name)}


def _setting(value: Any) -> Any:
    if is_value(value):
        return value
    return repr(value) if isinstance(value, list) else Identity(value)
