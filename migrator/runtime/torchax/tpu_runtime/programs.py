"""A function as one compiled program: finding out by tracing what goes in and out, and running it.

Nothing is baked in. Every device tensor that the function reads becomes an input: parameters,
buffers, an optimizer's state where they are found by their owners, arguments and other tensors by
their place. What is written comes out and is put where it belongs; gradients, random numbers and
learning rates too. What it depends on in Python is guarded (guards.py). What can not be followed
is not compiled.
"""

import contextlib
import copy
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from types import FunctionType, MethodType
from typing import Any

import jax
import jax.numpy as jnp
import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim import Optimizer
from torch.optim.optimizer import (
    register_optimizer_step_pre_hook,
)
from torch.utils import _pytree as pytree
from torchax.tensor import Environment, Tensor

from . import mesh, rates
from .calls import is_device_tensor
from .device import DEVICE_TYPE
from .differentiation import Backward, Pass
from .guards import Guards, Scope, Watch, put
from .names import NONE, Names
from .numbers import Comparison, Number
from .structures import SIMPLE, Held, Structure, is_plain, is_value
from .tensors import check_range

Array = Any
Function = Callable[..., Any]
natively = torch._C.DisableTorchFunction  # an attribute of a tensor takes 0.06 µs instead of 20
_COUNTING = (torch.nn.modules.batchnorm._NormBase,)  # write to their buffers while they train
_VARIABLE = ("params", "lr", "initial_lr")  # of a group of parameters


_inside = threading.local()  # .running: in a function that is compiled, or its trace


def is_inside() -> bool:
    """Whether a function runs that is compiled, or is being traced: all in it is part of it."""
    return getattr(_inside, "running", False)


@contextlib.contextmanager
def inside() -> Iterator[None]:
    """Run a function that is compiled."""
    before, _inside.running = is_inside(), True
    try:
        yield
    finally:
        _inside.running = before


class NotCompilable(Exception):
    """Why a function has to run as it is."""


class FirstTime(Exception):
    """A module or an optimizer takes part for the first time, or makes state: run it as it is."""


@dataclass
class Trainers:
    """The modules and optimizers that a function has used, in the order of their first use."""

    modules: dict[int, torch.nn.Module] = field(default_factory=dict)
    optimizers: dict[int, Optimizer] = field(default_factory=dict)
    ran: dict[int, Any] = field(default_factory=dict)  # when they were observed last

    @contextlib.contextmanager
    def observed(self, *, known: bool = False) -> Iterator[None]:
        """Note who takes part; with ``known``, raise FirstTime for anybody new."""

        def module_used(module: torch.nn.Module, _: Any) -> None:
            note(module, self.modules)

        def optimizer_used(optimizer: Optimizer, *_: Any) -> None:
            note(optimizer, self.optimizers)

        def note(member: Any, members: dict[int, Any]) -> None:
            self.ran[id(member)] = member
            if id(member) not in members:
                if known:
                    raise FirstTime
                self.take([member])

        self.ran = {}
        handles = (
            register_module_forward_pre_hook(module_used),
            register_optimizer_step_pre_hook(optimizer_used),
        )
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
            self.take(self.ran.values())

    def take(self, members: Iterable[Any]) -> set[int]:
        """Those that will take part, as it seems; returns the ids of the new ones."""
        known = {*self.modules, *self.optimizers}
        for member in members:
            if isinstance(member, Optimizer):
                self.optimizers.setdefault(id(member), member)
            else:
                for module in member.modules():
                    self.modules.setdefault(id(module), module)
        return {*self.modules, *self.optimizers} - known

    @property
    def size(self) -> tuple[int, int]:
        return len(self.modules), len(self.optimizers)

    def took_part(self) -> set[int]:
        """The ids of those that ran, and of what belongs to them."""
        ran = [m for m in self.ran.values() if isinstance(m, torch.nn.Module)]
        return {*self.ran, *(id(inner) for module in ran for inner in module.modules())}

    def leave_out(self, members: set[int]) -> None:
        for member in members:
            self.modules.pop(member, None)
            self.optimizers.pop(member, None)

    def groups(self) -> list[dict[str, Any]]:
        return [group for o in self.optimizers.values() for group in o.param_groups]

    def parameters(self) -> list[torch.Tensor]:
        found = {id(p): p for group in self.groups() for p in group["params"]}
        for module in self.modules.values():
            found.update((id(p), p) for p in module._parameters.values() if p is not None)
        return list(found.values())

    def state(self, training: bool) -> tuple[list[Any], list[Any]]:
        """The tensors that a program writes, as it seems, and those that it only reads."""
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
        """The ids of the tensors that belong to somebody, and stay there."""
        buffers = {
            id(buffer)
            for module in self.modules.values()
            for name, buffer in module._buffers.items()
            if (id(module._buffers), name) not in replaced
        }
        return buffers | {id(p) for p in self.parameters()}


def _unlinked(values: Iterable[Any]) -> dict[int, Any]:
    """Device tensors that have their values themselves."""
    return {id(t): t for t in values if is_device_tensor(t) and t.__dict__.get("_link") is None}


@dataclass(eq=False)
class Memory:
    """What is known of a function; it outlives it, as `def train(...)` makes its step anew."""

    function: Function
    name: str
    differentiable: bool = False  # its results go on with a graph
    refused: str = ""  # why it is not compiled any more
    used: set[int] = field(default_factory=set)  # results that gradients have come for
    trainers: Trainers = field(default_factory=Trainers)
    watch: Watch = field(default_factory=Watch)
    scopes: list[Scope] = field(default_factory=list)
    replaced: set[tuple[int, Any]] = field(default_factory=set)  # places where tensors come and go
    names: Names = NONE  # that the code uses
    owned: set[int] = field(default_factory=set)  # ids of the tensors that belong to somebody

    def guards(self, arguments: Structure | None = None) -> Guards:
        """Those of the present."""
        known = {id(scope.function) for scope in self.scopes}
        self.scopes += [Scope(f) for f in self.watch.functions if id(f) not in known]
        self.watch.functions.clear()
        for scope in self.scopes:
            scope.refresh()
        self.owned = self.trainers.owned(self.replaced)
        guards = Guards(
            self.scopes, self.watch, self.trainers.modules.values(),
            self.trainers.optimizers.values(), self.replaced, self.owned, arguments,
        )  # fmt: skip
        self.names = guards.names
        return guards

    def use(self, function: Function) -> None:
        """Go on with the same function, perhaps made anew: other variables around its code."""
        self.function = function
        if isinstance(function, MethodType):
            self.watch.owner, function = function.__self__, function.__func__
        if isinstance(function, FunctionType):
            if self.scopes:
                self.scopes[0].function = function
            else:
                self.scopes.append(Scope(function))


class Call:
    """The arguments of one call."""

    def __init__(
        self,
        memory: Memory,
        env: Environment,
        args: Any,
        kwargs: Any,
        numbers: Sequence[Number] = (),
    ) -> None:
        self.numbers = numbers  # that stand for integers which change
        self.given = (args, kwargs)
        self._mode = (
            env.param.autocast_dtype, torch.is_grad_enabled(), torch.get_default_dtype(),
            jax.config.jax_default_matmul_precision,
        )  # fmt: skip
        self.look(memory, (args, kwargs))

    def look(self, memory: Memory, arguments: Any) -> None:
        """Take the arguments apart; what counts in them changes as more of the code is known."""
        self.structure = Structure(arguments, memory.names, memory.owned)
        self.key = self.structure.key, self._mode


def unique(structures: list[Structure]) -> list[torch.Tensor]:
    tensors = {id(t): t for structure in structures for t in structure.tensors}
    return list(tensors.values())


def root(tensor: torch.Tensor) -> Any:
    """What a tensor shares its memory with."""
    if not is_device_tensor(tensor):
        return "cpu", tensor.untyped_storage().data_ptr()
    while (link := tensor.__dict__.get("_link")) is not None:
        tensor = link.parent
    return id(tensor)


def sharing(structures: list[Structure]) -> Any:
    """Which of the tensors are one, or views of one."""
    tensors = [t for structure in structures for t in structure.tensors]
    roots = [root(t) for t in tensors]
    if len(set(roots)) == len(roots):
        return ()
    ids = list(map(id, tensors))
    return [ids.index(i) for i in ids], [roots.index(r) for r in roots]


class Template:
    """A result of a trace, to be built from the arrays of a run."""

    def __init__(self, value: Any, outgoing: Callable[[Any], tuple[str, Any]]) -> None:
        leaves, self.spec = pytree.tree_flatten(value)
        self.kinds = [self._kind(leaf, outgoing) for leaf in leaves]

    def _kind(self, leaf: Any, outgoing: Callable[[Any], tuple[str, Any]]) -> Any:
        if isinstance(leaf, torch.Tensor):
            return outgoing(leaf)
        if type(leaf) is Number:
            raise NotCompilable("it returns a number that it is given")
        if isinstance(leaf, (*SIMPLE, type, torch.nn.Module)):
            return "constant", leaf
        if is_plain(leaf):
            shell = copy.copy(leaf)
            inside = Template(dict(vars(leaf)), outgoing)
            vars(shell).clear()
            return "object", (shell, inside)
        raise NotCompilable(f"it returns a {type(leaf).__name__}")

    @property
    def tensors(self) -> list[bool]:
        """Which parts are tensors."""
        return [kind in ("new", "alias", "old") for kind, _ in self.kinds]

    def build(self, new: list[Any], old: list[torch.Tensor]) -> Any:
        leaves = []
        for kind, value in self.kinds:
            if kind == "new":
                leaves.append(new[value])
            elif kind == "alias":
                leaves.append(new[value].detach())
            elif kind == "old":
                leaves.append(old[value])
            elif kind == "object":
                made = copy.copy(value[0])
                vars(made).update(value[1].build(new, old))
                leaves.append(made)
            else:
                leaves.append(value)
        return pytree.tree_unflatten(leaves, self.spec)

    def find(self, value: Any, new: dict[int, Any]) -> None:
        """Note what stands in another value of this form where the new tensors are."""
        for (kind, inside), leaf in zip(self.kinds, pytree.tree_leaves(value), strict=True):
            if kind == "new":
                new[inside] = leaf
            elif kind == "object":
                inside[1].find(dict(vars(leaf)), new)


@dataclass(eq=False)
class Program:
    """A compiled function, and the tensors that go through it."""

    memory: Memory
    compiled: Any
    key: Any  # of the call
    guards: Guards
    sharing: Any
    state: list[Any]  # tensors that stay the same objects, the written ones first
    n_written: int
    counted: list[int]  # which of those are written in a way that autograd counts
    slots: list[tuple[Optimizer, Any, str, int]]  # parameter, name: where it is in `state`
    on_cpu: list[torch.Tensor]  # tensors that it moves to the device
    versions: list[tuple[torch.Tensor, int]]  # CPU tensors that are part of it
    flags: list[tuple[torch.Tensor, bool, bool | None]]  # requires_grad, no gradient
    settings: list[Any]  # of the optimizers
    leaves: list[Any]  # that can have a gradient: tensors, or numbers of inputs
    with_gradient: list[int]  # which of them bring one
    learning: list[int]  # which of them have another one afterwards
    dropped: list[int]  # which of those that bring one have none afterwards
    read: list[int]  # inputs whose values count
    written: list[int]  # inputs
    stores: list[tuple[Any, Any, Template]]  # what it puts where
    result: Template
    comparisons: list[list[Comparison]]  # of the integers that change
    detached: set[int]  # inputs that may have a graph: no gradient goes through them
    backward: Backward | None  # of a module
    shardings: list[Any]  # where what goes in lies
    calls: int = 0

    def __post_init__(self) -> None:
        self.mesh = mesh.in_use()
        arrays = [t.__dict__["_elem"] for t in self.state]
        self._forms = [(a.shape, a.dtype) for a in arrays]
        self._ids = {id(t) for t in self.state}
        self._look_up_states()

    def misfit(self, call: Call) -> "list[Structure] | str":
        """What stands at the program's places, or the name of what is not as it was."""
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
        if self.settings != settings(self.memory.trainers) or not self._find_states():
            return "a setting or the state of an optimizer"
        for tensor, (shape, dtype) in zip(self.state, self._forms, strict=True):
            array = tensor.__dict__["_elem"]
            if array.shape != shape or array.dtype != dtype:
                return "the form of a parameter"
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
        """Whether the optimizers have the state that the program goes on with."""
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

    def run(self, env: Environment, call: Call, structures: list[Structure]) -> Any:
        self.calls += 1
        inputs = unique(structures)
        state, n = self.state, self.n_written
        held = [tensor.__dict__["_elem"] for tensor in state[:n]]
        # An array that someone else holds, an EMA or a copy, must outlive the step.
        written = [jnp.copy(a) if sys.getrefcount(a) > 4 else a for a in held]
        del held
        leaves = [inputs[x] if isinstance(x, int) else x for x in self.leaves]
        learning = [leaves[i] for i in self.with_gradient]
        given = given_arrays(env, self.memory, written, state[n:], learning, self.on_cpu, inputs)
        if self.mesh is not None:
            given = mesh.as_before(given, self.shardings)
        new, new_inputs, new_gradients, key, results, kept = self.compiled(*given)
        for tensor, array in zip(state, new, strict=False):
            tensor.__dict__["_elem"] = array
        torch._C._increment_version([state[i] for i in self.counted])
        for number, array in zip(self.written, new_inputs, strict=True):
            write(env, inputs[number], array)
        for number in self.dropped:
            leaves[number].grad = None
        for number, array in zip(self.learning, new_gradients, strict=True):
            set_gradient(env, leaves[number], array)
        env.param.prng = key
        made: list[Any] = [Tensor(array, env) for array in results]
        if self.backward is not None:
            flat = jax.tree.leaves(given)
            values = kept, [flat[i] for i in self.backward.reads]
            targets = [inputs[x] if isinstance(x, int) else x for x in self.backward.targets]

            def run_again() -> dict[int, Any]:
                return self._run_again(env, call, given, inputs)

            made = Pass(env, self.backward, targets, values, run_again).attach(made)
        old = [*inputs, *state]
        result = self.result.build(made, old)
        for holder, name, template in self.stores:
            put(holder, name, template.build(made, old))
        return result

    def _run_again(
        self, env: Environment, call: Call, given: Any, inputs: list[torch.Tensor]
    ) -> dict[int, Any]:
        """The new tensors of a call, made again operator by operator: by number, with graphs."""
        (written, read, _, key, *_, arrays), n = given, self.n_written
        now = [t.__dict__["_elem"] for t in self.state[n:]], [arrays_of(env, t) for t in inputs]
        if any(a is not b for a, b in zip(chain(*now), chain(read, arrays), strict=True)):
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an "
                "inplace operation"
            )
        state = [(t, t.__dict__["_elem"]) for t in self.state[:n]]
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
    written: list[Array],
    read: list[Any],
    with_gradient: list[Any],
    on_cpu: list[torch.Tensor],
    inputs: list[torch.Tensor],
) -> tuple[Any, ...]:
    """What a program takes: state, gradients, random key, learning rates, CPU tensors, inputs."""
    own = (
        written,
        [tensor.__dict__["_elem"] for tensor in read],
        [leaf.grad.jax() for leaf in with_gradient],
        env.prng_key,
    )
    given = (
        [arrays_of(env, tensor) for tensor in on_cpu],
        [arrays_of(env, tensor) for tensor in inputs],
    )
    if mesh.in_use() is not None:
        own, given = jax.tree.map(mesh.everywhere, own), jax.tree.map(mesh.split, given)
    return *own, rates.of_groups(memory.trainers.groups()), *given


def has_graph(tensor: torch.Tensor) -> bool:
    return tensor.requires_grad and not tensor.is_leaf


def set_gradient(env: Environment, leaf: torch.Tensor, array: Array) -> None:
    """Into the gradient's tensor where nobody else has it: a new one takes 3 µs."""
    gradient = leaf.grad
    if (
        type(gradient) is Tensor
        and gradient.__dict__.get("_link") is None
        and sys.getrefcount(gradient) == 2
        and gradient.__dict__["_elem"].shape == array.shape
        and gradient.__dict__["_elem"].dtype == array.dtype
    ):
        gradient.__dict__["_elem"] = array
    else:
        leaf.grad = Tensor(array, env)


def arrays_of(env: Environment, tensor: Any) -> Array:
    if is_device_tensor(tensor):
        return tensor.jax()
    check_range(tensor)
    return env.t2j_copy(tensor.detach())


def write(env: Environment, tensor: Any, array: Array) -> None:
    """What the program wrote to an input."""
    with torch.no_grad():
        if is_device_tensor(tensor):
            tensor._elem = array
            torch._C._increment_version((tensor,))
        else:
            tensor.copy_(env.j2t_copy(array))


def _alike(tensor: Any, other: Any) -> bool:
    return (
        is_device_tensor(tensor)
        and tensor.__dict__.get("_link") is None
        and tensor.jax().shape == other.jax().shape
        and tensor.jax().dtype == other.jax().dtype
    )


def step_counts_on_device(optimizer: Optimizer) -> None:
    """A count on the CPU is a Python number in the program: it would be the same for ever."""
    for state in optimizer.state.values():
        for name, value in state.items():
            if isinstance(value, torch.Tensor) and not is_device_tensor(value):
                state[name] = value.to(DEVICE_TYPE)


def settings(trainers: Trainers) -> list[Any]:
    """The settings of the optimizers that are part of the program: all but the learning rates."""
    return [
        (
            list(map(id, group["params"])),
            [(k, _setting(v)) for k, v in group.items() if k not in _VARIABLE],
        )
        for group in trainers.groups()
    ] + [Held(g["lr"]) for g in trainers.groups() if isinstance(g["lr"], torch.Tensor)]


def _setting(value: Any) -> Any:
    if is_value(value):
        return value
    return repr(value) if isinstance(value, list) else Held(value)
