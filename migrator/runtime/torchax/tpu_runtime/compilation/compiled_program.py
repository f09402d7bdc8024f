"""A function as one compiled program: tracing finds its inputs and outputs, and it runs here.

Nothing is baked in. Every device tensor that the function reads becomes an input: parameters,
buffers, and optimizer state are found through their owners, arguments and other tensors by their
place. Written tensors are outputs and are put back where they belong; so are gradients, random
numbers and learning rates. The Python state that it depends on is guarded (state_guards.py). What
can't be traced is not compiled.
"""

from dataclasses import dataclass
from itertools import chain
from typing import Any

import jax
import torch
from torch.optim import Optimizer
from torchax.tensor import Environment, Tensor

from ..dispatch.calls import is_device_tensor, is_leaf
from ..distributed import mesh
from ..lazy import assertions, lazy_graph
from ..lazy.lazy_arrays import computed, settled, stored
from ..tensors.moving import check_range
from ..tensors.structures import Structure
from ..tensors.tensor_storages import root
from ..tensors.views import peek
from . import learning_rates
from .changing_numbers import Comparison
from .closure_variables import set_item
from .compile_state import inside
from .differentiation import Backward, attach
from .function_state import CallArguments, Memory, sharing, unique
from .models_and_optimizers import note_varying, settings, step_counts_on_device
from .result_templates import Template
from .state_guards import StateGuards

Array = Any


@dataclass(eq=False)
class Program:
    """A compiled function, and the tensors that go through it."""

    memory: Memory
    compiled: Any
    key: Any  # of the call
    guards: StateGuards
    sharing: Any
    state: list[Any]  # tensors that stay the same objects, written ones first
    n_written: int
    counted: list[int]  # which of those are written such that autograd counts it
    slots: list[tuple[Optimizer, Any, str, int]]  # parameter, name: position in `state`
    on_cpu: list[torch.Tensor]  # tensors that it moves to the device
    versions: list[tuple[torch.Tensor, int]]  # CPU tensors that are part of it
    flags: list[tuple[torch.Tensor, bool, bool | None]]  # requires_grad, no gradient
    settings: list[Any]  # of the optimizers
    varying: learning_rates.Settings  # those of them that are inputs
    leaves: list[Any]  # that can have a gradient: tensors, or numbers of inputs
    with_gradient: list[int]  # which of them have a gradient before
    learning: list[int]  # whose gradient it changes in place
    read: list[int]  # inputs whose values are used
    written: list[int]  # inputs
    changing: list[int]  # those of them whose arrays are donated to it
    stores: list[tuple[Any, Any, Template]]  # what it stores where
    result: Template
    asserted: tuple[Template, list[assertions.Assumption]]  # conditions
    comparisons: list[list[Comparison]]  # with integers that change
    detached: set[int]  # inputs that may have a graph: no gradient flows through them
    backward: Backward | None  # of a module
    shardings: list[Any]  # placement of the inputs
    calls: int = 0

    def __post_init__(self) -> None:
        self.mesh = mesh.in_use()
        arrays = list(map(stored, self.state))
        self._forms = [a.aval for a in arrays]
        self._ids = {id(t) for t in self.state}
        self._look_up_states()

    def misfit(self, call: CallArguments) -> "list[Structure] | str":
        """The values at the program's places, or the name of what has changed."""
        for number, comparisons in zip(call.numbers, self.comparisons, strict=True):
            if not number.fits(comparisons):
                return "how a number compares"
        if self.mesh is not mesh.in_use():
            return "the devices"
        for scope in self.memory.scopes:
            scope.refresh()
        changed = self.guards.changed()
        if changed:
            return changed
        for tensor, required, none in self.flags:
            if tensor.requires_grad is not required or none not in (None, tensor.grad is None):
                return "a parameter's requires_grad or gradient"
        if any(tensor._version != version for tensor, version in self.versions):
            return "a tensor of the CPU"
        if self.settings != settings(self.memory.trainers, self.varying):
            note_varying(self.memory.trainers, self.settings)
            return "a setting of an optimizer"
        if not self._find_states():
            return "the state of an optimizer"
        for place, (tensor, form) in enumerate(zip(self.state, self._forms, strict=True)):
            aval = tensor.__dict__["_elem"].aval
            if aval is not form:
                if aval.shape != form.shape or aval.dtype != form.dtype:
                    return "the form of a parameter"
                self._forms[place] = aval  # the same object in each step
        structures = self.guards.structures()
        if isinstance(structures, str):
            return structures
        structures.append(call.structure)
        if sharing(structures) != self.sharing:
            return "which of the tensors are views of each other"
        inputs = unique(structures)
        if any(root(tensor) in self._ids for tensor in inputs):
            return "which of the tensors belong to the model"
        if self.backward is not None:
            if [t.requires_grad for t in inputs] != self.backward.requiring:
                return "which of the tensors require a gradient"
            if not self.memory.used <= set(self.backward.used):
                return "which of its results have a gradient"
        elif self.flags and any(has_graph(inputs[i]) for i in self.read if i not in self.detached):
            return "a tensor with a graph"
        return structures

    def _find_states(self) -> bool:
        """Whether the optimizers have the state that the program continues with."""
        for optimizer, known in self._states:
            if len(optimizer.state) != len(known) or not all(
                a is b for a, b in zip(optimizer.state.values(), known, strict=True)
            ):  # it was loaded
                step_counts_on_device(optimizer)
                self._look_up_states()
                break
        try:
            for inner, name, number in self._places:
                tensor = inner[name]
                if tensor is not self.state[number]:
                    if not _alike(tensor, self.state[number]):
                        return False
                    self._ids ^= {id(tensor), id(self.state[number])}
                    self.state[number] = tensor
        except KeyError:
            return False
        return True

    def _look_up_states(self) -> None:
        optimizers = self.memory.trainers.optimizers.values()
        self._states = [(o, list(o.state.values())) for o in optimizers]
        self._places = [
            (optimizer.state.get(parameter, {}), name, number)
            for optimizer, parameter, name, number in self.slots
        ]

    def run(self, env: Environment, call: CallArguments, inputs: list[torch.Tensor]) -> Any:
        self.calls += 1
        state, n = self.state, self.n_written
        if self.backward is not None:
            lazy_graph.forward()
        leaves = [inputs[x] if isinstance(x, int) else x for x in self.leaves]
        learning = [leaves[i] for i in self.with_gradient]
        given = given_arrays(
            env, self.memory, self.varying, list(map(stored, state[:n])), state[n:], learning,
            self.on_cpu, inputs, self.changing,
        )  # fmt: skip
        if self.mesh is not None:
            given = mesh.as_before(given, self.shardings)
        new, new_inputs, new_gradients, key, results, kept = self.compiled(*given)
        for tensor, array in zip(state, new, strict=False):
            tensor.__dict__["_elem"] = array
        torch._C._increment_version([state[i] for i in self.counted])
        write(env, [inputs[number] for number in self.written], new_inputs)
        write(env, [leaves[number].grad for number in self.learning], new_gradients)
        env.param.prng = key
        made: list[Any] = [Tensor(array, env) for array in results]
        if self.backward is not None:
            flat = jax.tree.leaves(given)
            values = kept, [flat[i] for i in self.backward.reads]
            targets = [inputs[x] if isinstance(x, int) else x for x in self.backward.targets]

            def run_again() -> dict[int, Any]:
                return self._run_again(env, call, given, inputs)

            attach(env, self.backward, targets, values, run_again, made)
        old = [*inputs, *state]
        result = self.result.build(made, old, call.structure)
        for holder, name, template in self.stores:
            set_item(holder, name, template.build(made, old, call.structure))
        if self.asserted[1]:
            conditions = self.asserted[0].build(made, old, call.structure)
            assertions.later([peek(condition) for condition in conditions], self.asserted[1])
        return result

    def _run_again(
        self, env: Environment, call: CallArguments, given: Any, inputs: list[torch.Tensor]
    ) -> dict[int, Any]:
        """The new tensors of a call, recomputed operator by operator: by number, with graphs."""
        (written, read, _, key, *_, arrays), n = given, self.n_written
        now = map(stored, self.state[n:]), [arrays_of(env, t) for t in inputs]
        pairs = zip(chain(*now), chain(read, arrays), strict=True)
        if any(settled(a) is not settled(b) for a, b in pairs):
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an "
                "inplace operation"
            )
        state = [(t, stored(t)) for t in self.state[:n]]
        key_now, snapshot = env.prng_key, self.guards.snapshot()
        made: dict[int, Any] = {}
        try:
            for (tensor, _), array in zip(state, written, strict=True):
                tensor.__dict__["_elem"] = array
            env.param.prng = key
            with inside(), torch.enable_grad():
                self.result.find(self.memory.function(*call.given[0], **call.given[1]), made)
            for holder, name, template in self.stores:
                template.find(holder[name], made)
        finally:
            snapshot.restore()
            env.param.prng = key_now
            for tensor, array in state:
                tensor.__dict__["_elem"] = array
        return made


def given_arrays(
    env: Environment,
    memory: Memory,
    varying: learning_rates.Settings,
    written: list[Array],
    read: list[Any],
    with_gradient: list[Any],
    on_cpu: list[torch.Tensor],
    inputs: list[torch.Tensor],
    changing: list[int],
) -> tuple[Any, ...]:
    """A program's inputs: state, gradients, random key, learning rates, CPU tensors, arguments.

    Arguments that it changes come right after the state that it changes.
    """
    arrays = [arrays_of(env, tensor) for tensor in inputs]
    own = (
        [*written, *(arrays[i] for i in changing)],
        list(map(stored, read)),
        [peek(leaf.grad) for leaf in with_gradient],
        settled(env.param.__dict__["prng"]),
    )
    given = (
        [arrays_of(env, tensor) for tensor in on_cpu],
        [array for i, array in enumerate(arrays) if i not in changing],
    )
    if mesh.in_use() is not None:
        own = jax.tree.map(mesh.once_each(mesh.replicate_on_mesh), own)
        given = jax.tree.map(mesh.split, given)
    return *own, learning_rates.of_groups(memory.trainers.groups(), varying), *given


def has_graph(tensor: torch.Tensor) -> bool:
    return tensor.requires_grad and not is_leaf(tensor)


def arrays_of(env: Environment, tensor: Any) -> Array:
    if is_device_tensor(tensor):
        return peek(tensor) if isinstance(tensor, Tensor) else tensor.jax()
    check_range(tensor)
    return env.t2j_copy(tensor.detach())


def write(env: Environment, tensors: list[Any], arrays: list[Array]) -> None:
    """What the program wrote to its arguments."""
    counted = []
    for tensor, array in zip(tensors, arrays, strict=True):
        if not is_device_tensor(tensor):
            with torch.no_grad():
                tensor.copy_(env.j2t_copy(computed(array)))
        elif tensor.__dict__.get("_link") is None and type(tensor) is Tensor:
            tensor.__dict__["_elem"] = array
            counted.append(tensor)
        else:
            with torch.no_grad():
                tensor._elem = array
            counted.append(tensor)
    torch._C._increment_version(counted)


def _alike(tensor: Any, other: Any) -> bool:
    return (
        is_device_tensor(tensor)
        and tensor.__dict__.get("_link") is None
        and stored(tensor).shape == stored(other).shape
        and stored(tensor).dtype == stored(other).dtype
    )
