"""What is known of a compiled function, and one call of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import FunctionType, MethodType
from typing import Any

import jax
import torch
from torchax.tensor import Environment

from ..tensors.structures import Structure
from ..tensors.tensor_storages import root
from .bytecode_names import NONE, BytecodeNames
from .changing_numbers import Number
from .closure_variables import ClosureVariables
from .models_and_optimizers import Trainers
from .program_code import CodeWatch
from .state_guards import StateGuards

Function = Callable[..., Any]


@dataclass(eq=False)
class Memory:
    """What is known of a function; it outlives it, as `def train(...)` creates its step anew."""

    function: Function
    name: str
    differentiable: bool = False  # its results have a graph
    refused: str = ""  # why it is no longer compiled
    used: set[int] = field(default_factory=set)  # results that got gradients
    trainers: Trainers = field(default_factory=Trainers)
    watch: CodeWatch = field(default_factory=CodeWatch)
    scopes: list[ClosureVariables] = field(default_factory=list)
    replaced: set[tuple[int, Any]] = field(default_factory=set)  # places whose tensors are replaced
    names: BytecodeNames = NONE  # that the code uses
    owned: set[int] = field(default_factory=set)  # ids of the tensors that have an owner

    def guards(self, arguments: Structure | None = None) -> StateGuards:
        """The current guards."""
        known = {id(scope.function) for scope in self.scopes}
        self.scopes += [ClosureVariables(f) for f in self.watch.functions if id(f) not in known]
        self.watch.functions.clear()
        for scope in self.scopes:
            scope.refresh()
        self.owned = self.trainers.owned(self.replaced)
        guards = StateGuards(
            self.scopes, self.watch, self.trainers.modules.values(),
            self.trainers.optimizers.values(), self.replaced, self.owned, arguments,
        )  # fmt: skip
        self.names = guards.names
        return guards

    def use(self, function: Function) -> None:
        """Continue with the same function, maybe created anew: other variables around its code."""
        self.function = function
        if isinstance(function, MethodType):
            self.watch.owner, function = function.__self__, function.__func__
        if isinstance(function, FunctionType):
            if self.scopes:
                self.scopes[0].function = function
            else:
                self.scopes.append(ClosureVariables(function))


class CallArguments:
    """The arguments of one call."""

    def __init__(
        self,
        memory: Memory,
        env: Environment,
        args: Any,
        kwargs: Any,
        numbers: Sequence[Number] = (),
    ) -> None:
        self.numbers = numbers  # that stand for changing integers
        self.given = (args, kwargs)
        self.mode = mode_of(env)
        self.look(memory, (args, kwargs))

    def look(self, memory: Memory, arguments: Any) -> None:
        """Take the arguments apart; the relevant parts change as more of the code is known."""
        self.structure = Structure(arguments, memory.names, memory.owned)
        self.key = self.structure.key, self.mode


def mode_of(env: Environment) -> tuple[Any, ...]:
    """What a program depends on besides its inputs and its surroundings."""
    config: Any = jax.config  # its options are no attributes to mypy
    return (
        env.param.autocast_dtype, torch.is_grad_enabled(), torch.get_default_dtype(),
        config.jax_default_matmul_precision,
    )  # fmt: skip


def unique(structures: list[Structure]) -> list[torch.Tensor]:
    tensors = {id(t): t for structure in structures for t in structure.tensors}
    return list(tensors.values())


def sharing(structures: list[Structure]) -> Any:
    """Which of the tensors are the same, or views of the same."""
    tensors = [t for structure in structures for t in structure.tensors]
    roots = [root(t) for t in tensors]
    if len(set(roots)) == len(roots):
        return ()
    ids = list(map(id, tensors))
    return [ids.index(i) for i in ids], [roots.index(r) for r in roots]
