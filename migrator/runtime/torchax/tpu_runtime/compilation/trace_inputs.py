"""The inputs of a trace: those known beforehand, and whether that was all of them."""

from typing import TYPE_CHECKING, Any

import torch
from torchax.tensor import Environment, Tensor

from ..dispatch.calls import is_leaf, natively
from ..distributed import mesh
from ..tensors.tensor_storages import root
from .compile_state import NotCompilable
from .compiled_program import Array
from .differentiation import Backward
from .function_state import CallArguments, Memory, sharing, unique
from .result_templates import Template
from .state_guards import StateGuards

if TYPE_CHECKING:  # only a first call needs it
    from .purity import Inspection


class Inputs:
    """The inputs of a trace, and what the trace finds out about them."""

    def __init__(
        self,
        memory: Memory,
        env: Environment,
        call: CallArguments,
        before: "Inputs | None",
        inspection: "Inspection | None" = None,
    ) -> None:
        self.memory, self.env, self.call = memory, env, call
        self.trainers = memory.trainers
        self.varying = self.trainers.varying_now()
        self.is_first = before is None
        self.inspection = inspection  # for a function that hasn't run yet
        self.training = torch.is_grad_enabled()
        self.differentiable = self.training and memory.differentiable
        with natively():
            self._look(memory.guards(call.structure))
            self.inputs = unique(self.structures)
            self._learn(before)
            self.changing = self._changing(before)
            self.with_gradient = [
                i for i, leaf in enumerate(self.leaves)
                if self._of(leaf).grad is not None and not self.differentiable
            ]  # fmt: skip
        self.unknown: dict[int, Tensor] = {}
        self.touched: set[int] = set()  # ids of tensors that were read or written
        self.found: dict[int, torch.Tensor] = {}  # leaves whose values were read
        self.moved: dict[Any, torch.Tensor] = {}  # CPU tensors that became part of the program
        self.values: list[tuple[Any, torch.Tensor]] = []  # their places and values, in order
        self.used: set[Any] = set()  # places of CPU tensors that were inputs
        self.changed: set[int] = set()  # state that was written
        self.counted: list[int] = []
        self.written: list[int] = []
        self.read: set[int] = set()
        self.learning: list[int] = []
        self._gradients: dict[int, Tensor] = {}  # of leaves, while it is traced
        self.stores: list[tuple[Any, Any, Template]] = []
        self.result: Any = None
        # For a module: which of its results have a graph, and the forms of their gradients.
        self.attached: list[int] = []
        self.forms: list[tuple[Any, Any]] = []
        self.forms_before = before.forms if before is not None else []
        self.backward: Backward | None = None
        self.shardings: list[Any] = []
        # Its effects besides computing.
        self.flips = self.trains = self.makes_state = False
        self._results: list[Any] = []
        self._wrappers: list[Tensor] = []
        self._first_values: list[tuple[Tensor, Array]] = []  # of tensors that weren't known
        self._first_gradients: list[tuple[Tensor, torch.Tensor | None]] = []
        self._undo: list[tuple[Any, Any, Any]] = []

    def _look(self, guards: StateGuards) -> None:
        self.guards = guards
        structures = guards.structures()
        assert not isinstance(structures, str)
        self.call.look(self.memory, self.call.structure.value)
        self.structures = [*structures, self.call.structure]

    def _learn(self, before: "Inputs | None") -> None:
        """Use what the previous trace has found, or what can be known without one."""
        inputs = {id(t): i for i, t in enumerate(self.inputs)}
        requiring: list[Any] = [
            i for i, t in enumerate(self.inputs) if t.requires_grad and is_leaf(t)
        ]
        if before is None:
            written, read = self.trainers.state(self.training and not self.differentiable)
            self.state: list[Any] = [t for t in (*written, *read) if id(t) not in inputs]
            self.n_written = sum(id(t) not in inputs for t in written)
            self.on_cpu: list[torch.Tensor] = []
            self.moved_before: dict[Any, torch.Tensor] = {}
            own = [t for t in self.state if t.requires_grad and is_leaf(t)]
            self.leaves: list[Any] = [*own, *requiring] if self.training else []
            return
        kept = {id(leaf): leaf for leaf in before.leaves if not isinstance(leaf, int)}
        leaves = [leaf for i, leaf in (kept | before.found).items() if i not in inputs]
        if not self.training:
            leaves, requiring = [], []
        owned = [leaf.grad for leaf in leaves if leaf.grad is not None]
        gradients = {id(g) for g in owned} | {root(g) for g in owned}  # come with their leaves
        self.leaves = [*leaves, *requiring]
        # Anything not seen again was created in a trace, from values that weren't inputs yet.
        known = {id(t): t for t in before.state if id(t) in before.touched} | before.unknown
        state = [t for i, t in known.items() if i not in gradients and i not in inputs]
        self.state = sorted(state, key=lambda t: id(t) not in before.changed)
        self.n_written = sum(id(t) in before.changed for t in state)
        # A CPU tensor that is seen again is older than the step, and may change: an input as well.
        # (Those of the previous trace are kept, so that no new one can get the same address.)
        self.moved_before = before.moved
        self.on_cpu = [t for t in before.on_cpu if place_of(t) in before.used]
        self.on_cpu += [t for place, t in before.moved.items() if place in before.moved_before]

    def _changing(self, before: "Inputs | None") -> list[int]:
        """Changed inputs, like a cache: their arrays are donated to the program for writing."""
        if before is None or self.differentiable or mesh.in_use() is not None:
            return []
        changed = {id(before.inputs[i]) for i in before.written}
        return [i for i, tensor in enumerate(self.inputs) if id(tensor) in changed]

    def _of(self, leaf: Any) -> Any:
        return self.inputs[leaf] if isinstance(leaf, int) else leaf

    def follows(self, before: "Inputs | None") -> bool:
        """Whether it found nothing new."""
        if not self._knows_surroundings():
            return False
        if any(id(t) not in self.touched for t in self.state):
            return False
        if self.unknown or self.changed != {id(t) for t in self.state[: self.n_written]}:
            return False
        if self.moved.keys() & self.moved_before.keys() or self.forms != self.forms_before:
            return False
        if any(place_of(tensor) not in self.used for tensor in self.on_cpu):
            return False
        if not self.differentiable and mesh.in_use() is None and self.written != self.changing:
            return False
        if self.training and not set(self.found) <= {id(self._of(x)) for x in self.leaves}:
            return False
        if before is None:
            return not self.moved
        if not _same(before.constants(self.used), self.constants(self.used)):
            raise NotCompilable("it draws random numbers on the CPU; draw them outside")
        return True

    def _knows_surroundings(self) -> bool:
        """Whether the Python state that it depends on was known when it began."""
        before, now = self.guards, self.memory.guards(self.call.structure)
        known, places = len(before.values), [place[3] for place in before.places]
        if places != [place[3] for place in now.places]:
            return False
        if self.inspection is None or self.stores:
            return known == len(now.values) and before.names == now.names
        # Code that only computes has left everything unchanged.
        with natively():
            self._look(now)
            return list(map(id, unique(self.structures))) == list(map(id, self.inputs))

    def constants(self, inputs: set[Any]) -> list[torch.Tensor]:
        """Moved values that aren't inputs."""
        return [value for place, value in self.values if place not in inputs]

    def check_owners(self) -> None:
        """Every tensor needs a place where it can be found if it may be replaced by another."""
        states = {
            id(value)
            for optimizer in self.trainers.optimizers.values()
            for state in optimizer.state.values()
            for value in state.values()
        }
        for tensor in self.state:
            if id(tensor) not in self.guards.fixed and id(tensor) not in states:
                shape = tuple(tensor.shape)
                raise NotCompilable(f"it reads a tensor from an unknown place (of shape {shape})")
        with natively():
            shared = {root(t) for t in self.inputs} & {id(t) for t in self.state}
            pattern = sharing(self.structures)
            if shared or (pattern and self.written and pattern[0] != pattern[1]):
                raise NotCompilable("it is given a tensor and a view of it")


def place_of(tensor: torch.Tensor) -> Any:
    """The address of a CPU tensor: the same for all its aliases."""
    return tensor.data_ptr(), tuple(tensor.shape), tensor.stride()


def _same(some: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    return len(some) == len(others) and all(
        a.shape == b.shape and a.dtype == b.dtype and torch.equal(a, b)
        for a, b in zip(some, others, strict=True)
    )
