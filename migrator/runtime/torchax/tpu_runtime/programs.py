"""A function as one compiled program: finding out by tracing what goes in and out, and running it.

Nothing is baked in. Every device tensor that the function reads becomes an input: parameters,
buffers, an optimizer's state where they are found by their owners, arguments and other tensors by
their place. What is written comes out and is put where it belongs; gradients, random numbers and
learning rates too. What it depends on in Python is guarded (guards.py). What can not be followed
is not compiled.
"""

import contextlib
import copy
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import FunctionType, MethodType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim import Optimizer
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils import _pytree as pytree
from torchax.tensor import Environment, Tensor

from . import rates, views
from .calls import is_device_tensor
from .device import DEVICE_TYPE
from .guards import Guards, Scope, Snapshot, Watch, leaked, put
from .numbers import Comparison, Number
from .silence import silent
from .structures import MISSING, SIMPLE, Held, Structure, is_plain, is_value
from .tensors import check_range

Array = Any
Function = Callable[..., Any]
_natively = torch._C.DisableTorchFunction  # an attribute of a tensor takes 0.06 µs instead of 20
_TRACES = 6
_VARIABLE = ("params", "lr", "initial_lr")  # of a group of parameters


class NotCompilable(Exception):
    """Why a function has to run operator by operator."""


class FirstTime(Exception):
    """A module or an optimizer takes part for the first time, or makes state: run it as it is."""


@dataclass
class Trainers:
    """The modules and optimizers that a function has used, in the order of their first use."""

    modules: dict[int, torch.nn.Module] = field(default_factory=dict)
    optimizers: dict[int, Optimizer] = field(default_factory=dict)

    @contextlib.contextmanager
    def observed(self, *, known: bool = False) -> Iterator[None]:
        """Note who takes part; with ``known``, raise FirstTime for anybody new."""

        def module_used(module: torch.nn.Module, _: Any) -> None:
            if id(module) not in self.modules:
                if known:
                    raise FirstTime
                self.modules.update((id(m), m) for m in module.modules())

        def optimizer_used(optimizer: Optimizer, *_: Any) -> None:
            if known and id(optimizer) not in self.optimizers:
                raise FirstTime
            self.optimizers.setdefault(id(optimizer), optimizer)

        handles = (
            register_module_forward_pre_hook(module_used),
            register_optimizer_step_pre_hook(optimizer_used),
        )
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def groups(self) -> list[dict[str, Any]]:
        return [group for o in self.optimizers.values() for group in o.param_groups]

    def parameters(self) -> list[torch.Tensor]:
        found = {id(p): p for group in self.groups() for p in group["params"]}
        for module in self.modules.values():
            found.update((id(p), p) for p in module._parameters.values() if p is not None)
        return list(found.values())

    def owned(self, replaced: set[tuple[int, Any]]) -> set[int]:
        """The ids of the tensors that belong to somebody, and stay there."""
        buffers = {
            id(buffer)
            for module in self.modules.values()
            for name, buffer in module._buffers.items()
            if (id(module._buffers), name) not in replaced
        }
        return buffers | {id(p) for p in self.parameters()}


@dataclass(eq=False)
class Memory:
    """What is known of a function; it outlives it, as `def train(...)` makes its step anew."""

    function: Function
    trainers: Trainers = field(default_factory=Trainers)
    watch: Watch = field(default_factory=Watch)
    scopes: list[Scope] = field(default_factory=list)
    replaced: set[tuple[int, Any]] = field(default_factory=set)  # places where tensors come and go
    names: frozenset[str] = frozenset()  # that the code uses
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
        self._mode = (
            env.param.autocast_dtype, torch.is_grad_enabled(), torch.get_default_dtype(),
            jax.config.jax_default_matmul_precision,
        )  # fmt: skip
        self.look(memory, (args, kwargs))

    def look(self, memory: Memory, arguments: Any) -> None:
        """Take the arguments apart; what counts in them changes as more of the code is known."""
        self.structure = Structure(arguments, memory.names, memory.owned)
        self.key = self.structure.key, self._mode


def _unique(structures: list[Structure]) -> list[torch.Tensor]:
    tensors = {id(t): t for structure in structures for t in structure.tensors}
    return list(tensors.values())


def _root(tensor: torch.Tensor) -> Any:
    """What a tensor shares its memory with."""
    if not is_device_tensor(tensor):
        return "cpu", tensor.untyped_storage().data_ptr()
    while (link := tensor.__dict__.get("_link")) is not None:
        tensor = link.parent
    return id(tensor)


def _sharing(structures: list[Structure]) -> Any:
    """Which of the tensors are one, or views of one."""
    tensors = [t for structure in structures for t in structure.tensors]
    roots = [_root(t) for t in tensors]
    if len(set(roots)) == len(roots):
        return ()
    ids = list(map(id, tensors))
    return [ids.index(i) for i in ids], [roots.index(r) for r in roots]


class Template:
    """A result of a trace, to be built from the arrays of a run."""

    def __init__(self, value: Any, trace: "Trace") -> None:
        self.leaves, self.spec = pytree.tree_flatten(value)
        self.kinds = [self._kind(leaf, trace) for leaf in self.leaves]
        self.leaves = []  # tracers

    def _kind(self, leaf: Any, trace: "Trace") -> Any:
        if isinstance(leaf, torch.Tensor):
            return trace.outgoing(leaf)
        if type(leaf) is Number:
            raise NotCompilable("it returns a number that it is given")
        if isinstance(leaf, (*SIMPLE, type, torch.nn.Module)):
            return "constant", leaf
        if is_plain(leaf):
            shell = copy.copy(leaf)
            inside = Template(dict(vars(leaf)), trace)
            vars(shell).clear()
            return "object", (shell, inside)
        raise NotCompilable(f"it returns a {type(leaf).__name__}")

    @property
    def tensors(self) -> list[bool]:
        """Which parts are tensors."""
        return [kind in ("array", "old") for kind, _ in self.kinds]

    def build(self, env: Environment, new: Iterator[Array], old: list[torch.Tensor]) -> Any:
        leaves = []
        for kind, value in self.kinds:
            if kind == "array":
                leaves.append(Tensor(next(new), env))
            elif kind == "old":
                leaves.append(old[value])
            elif kind == "object":
                made = copy.copy(value[0])
                vars(made).update(value[1].build(env, new, old))
                leaves.append(made)
            else:
                leaves.append(value)
        return pytree.tree_unflatten(leaves, self.spec)


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
    slots: list[tuple[Optimizer, Any, str, int]]  # parameter, name: where it is in `state`
    on_cpu: list[torch.Tensor]  # tensors that it moves to the device
    versions: list[tuple[torch.Tensor, int]]  # CPU tensors that are part of it
    flags: list[tuple[torch.Tensor, bool, bool]]  # requires_grad, no gradient
    settings: list[Any]  # of the optimizers
    leaves: list[Any]  # that can have a gradient: tensors, or numbers of inputs
    with_gradient: list[int]  # which of them bring one
    learning: list[int]  # which of them have one afterwards
    read: list[int]  # inputs whose values count
    written: list[int]  # inputs
    stores: list[tuple[Any, Any, Template]]  # what it puts where
    result: Template
    comparisons: list[list[Comparison]]  # of the integers that change
    detached: set[int]  # inputs that may have a graph: no gradient goes through them
    calls: int = 0

    def __post_init__(self) -> None:
        arrays = [t.__dict__["_elem"] for t in self.state]
        self._forms = [(a.shape, a.dtype) for a in arrays]
        self._ids = {id(t) for t in self.state}
        self._look_up_states()

    def misfit(self, call: Call) -> "list[Structure] | str":
        """What stands at the program's places, or the name of what is not as it was."""
        for number, comparisons in zip(call.numbers, self.comparisons, strict=True):
            if not number.fits(comparisons):
                return "how a number compares"
        for scope in self.memory.scopes:
            scope.refresh()
        changed = self.guards.changed()
        if changed:
            return changed
        for tensor, required, none in self.flags:
            if tensor.requires_grad is not required or (tensor.grad is None) is not none:
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
        if _sharing(structures) != self.sharing:
            return "which of the tensors are views of each other"
        inputs = _unique(structures)
        if any(_root(tensor) in self._ids for tensor in inputs):
            return "which of the tensors belong to the model"
        if self.flags and any(_has_graph(inputs[i]) for i in self.read if i not in self.detached):
            return "a tensor with a graph"
        return structures

    def _find_states(self) -> bool:
        """Whether the optimizers have the state that the program goes on with."""
        for optimizer, known in self._states:
            if len(optimizer.state) != len(known) or not all(
                a is b for a, b in zip(optimizer.state.values(), known, strict=True)
            ):  # it was loaded
                _step_counts_on_device(optimizer)
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

    def run(self, env: Environment, structures: list[Structure]) -> Any:
        self.calls += 1
        inputs = _unique(structures)
        state, n = self.state, self.n_written
        held = [tensor.__dict__["_elem"] for tensor in state[:n]]
        # An array that someone else holds, an EMA or a copy, must outlive the step.
        written = [jnp.copy(a) if sys.getrefcount(a) > 4 else a for a in held]
        del held
        leaves = [inputs[x] if isinstance(x, int) else x for x in self.leaves]
        new, new_inputs, new_gradients, key, results = self.compiled(
            written,
            [tensor.__dict__["_elem"] for tensor in state[n:]],
            [leaves[i].grad.jax() for i in self.with_gradient],
            env.prng_key,
            rates.of_groups(self.memory.trainers.groups()),
            [arrays_of(env, tensor) for tensor in self.on_cpu],
            [arrays_of(env, tensor) for tensor in inputs],
        )
        for tensor, array in zip(state, new, strict=False):
            tensor.__dict__["_elem"] = array
        torch._C._increment_version(state[:n])
        for number, array in zip(self.written, new_inputs, strict=True):
            write(env, inputs[number], array)
        learning = set(self.learning)
        for number, leaf in enumerate(leaves):
            if number not in learning:
                leaf.grad = None
        for number, array in zip(self.learning, new_gradients, strict=True):
            set_gradient(env, leaves[number], array)
        env.param.prng = key
        source = iter(results)
        old = [*inputs, *state]
        result = self.result.build(env, source, old)
        for holder, name, template in self.stores:
            put(holder, name, template.build(env, source, old))
        return result


def _has_graph(tensor: torch.Tensor) -> bool:
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


# ---- tracing -------------------------------------------------------------------------------------


def compile_program(memory: Memory, env: Environment, call: Call) -> Program:
    """Trace until everything that goes in is known, and compile."""
    for optimizer in memory.trainers.optimizers.values():
        _step_counts_on_device(optimizer)
    before = Trace(memory, env, call, None)
    before.run()
    for _ in range(_TRACES):
        trace = Trace(memory, env, call, before)
        traced = trace.run()
        if trace.follows(before):
            trace.check_owners()
            return trace.program(traced)
        before = trace
    raise NotCompilable("it makes new tensors of its own state at every call")


class Trace:
    """One tracing of a function; afterwards all is as it was before."""

    def __init__(
        self, memory: Memory, env: Environment, call: Call, before: "Trace | None"
    ) -> None:
        self.memory, self.env, self.call = memory, env, call
        self.trainers = memory.trainers
        self.is_first = before is None
        self.training = torch.is_grad_enabled()
        with _natively():
            self.guards = memory.guards(call.structure)
            structures = self.guards.structures()
            assert not isinstance(structures, str)
            call.look(memory, call.structure.value)
            self.structures = [*structures, call.structure]
            self.inputs = _unique(self.structures)
            self._learn(before)
            self.with_gradient = [
                i for i, leaf in enumerate(self.leaves) if self._of(leaf).grad is not None
            ]
        self.unknown: dict[int, Tensor] = {}
        self.found: dict[int, torch.Tensor] = {}  # leaves whose values were asked for
        self.moved: dict[Any, torch.Tensor] = {}  # CPU tensors that became part of the program
        self.values: list[tuple[Any, torch.Tensor]] = []  # their places and values, in order
        self.used: set[Any] = set()  # places of the CPU tensors that were inputs
        self.changed: set[int] = set()  # state that was written
        self.written: list[int] = []
        self.read: set[int] = set()
        self.learning: list[int] = []
        self.stores: list[tuple[Any, Any, Template]] = []
        self.result: Any = None
        self._results: list[Array] = []
        self._first_values: list[tuple[Tensor, Array]] = []  # of those that were not known
        self._undo: list[tuple[Any, Any, Any]] = []

    def _learn(self, before: "Trace | None") -> None:
        """Take what the trace before has found."""
        inputs = {id(t): i for i, t in enumerate(self.inputs)}
        requiring: list[Any] = [
            i for i, t in enumerate(self.inputs) if t.requires_grad and t.is_leaf
        ]
        if before is None:
            self.state: list[Any] = []
            self.n_written = 0
            self.on_cpu: list[torch.Tensor] = []
            self.moved_before: dict[Any, torch.Tensor] = {}
            self.leaves: list[Any] = requiring if self.training else []
            return
        kept = {id(leaf): leaf for leaf in before.leaves if not isinstance(leaf, int)}
        leaves = [leaf for i, leaf in (kept | before.found).items() if i not in inputs]
        if not self.training:
            leaves, requiring = [], []
        owned = [leaf.grad for leaf in leaves if leaf.grad is not None]
        gradients = {id(g) for g in owned} | {_root(g) for g in owned}  # come with their leaves
        self.leaves = [*leaves, *requiring]
        known = {id(t): t for t in before.state} | before.unknown
        state = [t for i, t in known.items() if i not in gradients and i not in inputs]
        self.state = sorted(state, key=lambda t: id(t) not in before.changed)
        self.n_written = sum(id(t) in before.changed for t in state)
        # A CPU tensor that comes again is older than the step, and may change: an input, too.
        # (Those of the trace before are kept, so that no new one can lie at the same place.)
        self.moved_before = before.moved
        self.on_cpu = [t for t in before.on_cpu if _place(t) in before.used]
        self.on_cpu += [t for place, t in before.moved.items() if place in before.moved_before]

    def _of(self, leaf: Any) -> Any:
        return self.inputs[leaf] if isinstance(leaf, int) else leaf

    def follows(self, before: "Trace") -> bool:
        """Whether it found nothing that the trace before did not know of."""
        guards = self.guards
        known = (guards.names, len(guards.values), [place[3] for place in guards.places])
        now = self.memory.guards(self.call.structure)
        if known != (now.names, len(now.values), [place[3] for place in now.places]):
            return False
        if self.unknown or self.changed != {id(t) for t in self.state[: self.n_written]}:
            return False
        if self.moved.keys() & self.moved_before.keys():
            return False
        if any(_place(tensor) not in self.used for tensor in self.on_cpu):
            return False
        if self.training and not set(self.found) <= {id(self._of(x)) for x in self.leaves}:
            return False
        if not _same(before.constants(self.used), self.constants(self.used)):
            raise NotCompilable("it draws random numbers on the CPU; draw them outside")
        return True

    def constants(self, inputs: set[Any]) -> list[torch.Tensor]:
        """The values that were moved and are none of the inputs."""
        return [value for place, value in self.values if place not in inputs]

    def check_owners(self) -> None:
        """Every tensor must be found again where another one may stand at the next call."""
        states = {
            id(value)
            for optimizer in self.trainers.optimizers.values()
            for state in optimizer.state.values()
            for value in state.values()
        }
        for tensor in self.state:
            if id(tensor) not in self.guards.fixed and id(tensor) not in states:
                shape = tuple(tensor.shape)
                raise NotCompilable(f"it reads a tensor from a place unknown (of shape {shape})")
        with _natively():
            shared = {_root(t) for t in self.inputs} & {id(t) for t in self.state}
            sharing = _sharing(self.structures)
            if shared or (sharing and self.written and sharing[0] != sharing[1]):
                raise NotCompilable("it is given a tensor and a view of it")

    def program(self, traced: Any) -> Program:
        compiled = traced.lower().compile()
        numbers = {id(t): i for i, t in enumerate(self.state)}
        slots = [
            (optimizer, parameter, name, numbers[id(value)])
            for optimizer in self.trainers.optimizers.values()
            for parameter, inner in optimizer.state.items()
            for name, value in inner.items()
            if id(value) in numbers
        ]
        with _natively():
            return Program(
                self.memory, compiled, self.call.key, self.guards, _sharing(self.structures),
                self.state, self.n_written, slots, self.on_cpu,
                [(t, t._version) for t in self.guards.on_cpu if _place(t) not in self.used],
                [(p, p.requires_grad, p.grad is None) for p in self.trainers.parameters()]
                if self.training else [],
                settings(self.trainers), self.leaves, self.with_gradient, self.learning,
                sorted(self.read), self.written, self.stores, self.result,
                [number.taken() for number in self.call.numbers],
                {i for i, t in enumerate(self.inputs) if _has_graph(t)},
            )  # fmt: skip

    # ---- one run --------------------------------------------------------------------------------

    def run(self) -> Any:
        env, state, n = self.env, self.state, self.n_written
        with _natively():
            arrays = [arrays_of(env, tensor) for tensor in self.inputs]
            gradients = [self._of(self.leaves[i]).grad.jax() for i in self.with_gradient]
        for number in self.call.numbers:
            number.taken()
        jitted = jax.jit(self._pure, donate_argnums=0)
        try:
            with self.trainers.observed(known=True), _random_state_kept():
                traced = jitted.trace(
                    [tensor.__dict__["_elem"] for tensor in state[:n]],
                    [tensor.__dict__["_elem"] for tensor in state[n:]],
                    gradients,
                    env.prng_key,
                    rates.of_groups(self.trainers.groups()),
                    [arrays_of(env, tensor) for tensor in self.on_cpu],
                    arrays,
                )
        except (FirstTime, NotCompilable):
            raise
        except jax.errors.JAXTypeError as error:
            first = str(error).partition("\n")[0]
            raise NotCompilable(f"it reads a value of the device ({first})") from error
        except Exception as error:  # if it is the program's own, running it will raise it again
            first = str(error).partition("\n")[0]
            raise NotCompilable(
                f"it can not be traced ({type(error).__name__}: {first})"
            ) from error
        finally:
            # The others were made in the trace, and hold tracers.
            self.found = {i: leaf for i, leaf in self.found.items() if i in self.guards.fixed}
        if self.makes_state:
            raise FirstTime
        if self.trains and not self.training:
            raise NotCompilable("it computes gradients")
        if self.flips:
            raise NotCompilable("it changes requires_grad of a parameter")
        kept = leaked(self._tracer) if self.is_first else []
        if kept:
            shapes = ", ".join(sorted({str(tuple(t.shape)) for t in kept})[:3])
            raise NotCompilable(f"it keeps a tensor that it computed (of shape {shapes})")
        return traced

    def _pure(
        self,
        written: list[Array],
        read: list[Array],
        gradients: list[Array],
        key: Array,
        numbers: list[Any],
        moved: list[Array],
        arrays: list[Array],
    ) -> Any:
        env = self.env
        with self._restored():
            for tensor, array in zip(self.state, [*written, *read], strict=True):
                tensor.__dict__["_elem"] = array
            wrappers = self._wrap(arrays)
            for number, array in zip(self.with_gradient, gradients, strict=True):
                self._leaf(number, wrappers).grad = Tensor(array, env)
            own_rates = self._set_rates(numbers)
            env.param.prng = self._tracer = key
            args, kwargs = self._substitute(wrappers)
            snapshot = self._snapshot()
            try:
                with self._watched(moved, wrappers), self._listening(), _compiling():
                    result = self.memory.function(*args, **kwargs)
                with self._watched(moved, wrappers), _natively():
                    self._wrappers = wrappers
                    self.result = Template(result, self)
                    self.stores = self._stores(snapshot)
            finally:
                snapshot.restore()
            if any(a is not b for a, b in zip(own_rates, self._rates(), strict=True)):
                raise NotCompilable("it changes the learning rate; do that outside")
            with _natively():
                return self._outputs([*written, *read], arrays, wrappers)

    @contextlib.contextmanager
    def _listening(self) -> Iterator[None]:
        """Whose code runs is known after the first trace; printing is refused in every one."""
        with self.memory.watch.running(self.is_first), silent() as printed:
            yield
        if self.memory.watch.is_blind:
            raise NotCompilable("a profiler is at work, and what it depends on can not be watched")
        if printed:
            raise NotCompilable(printed[0])

    def _wrap(self, arrays: list[Array]) -> list[Tensor]:
        """Tensors of their own for what is given: nothing of the trace is left in the caller's."""
        return [
            Tensor(array, self.env, tensor.requires_grad and (self.training or tensor.is_leaf))
            for array, tensor in zip(arrays, self.inputs, strict=True)
        ]

    def _leaf(self, number: int, wrappers: list[Tensor]) -> Any:
        leaf = self.leaves[number]
        return wrappers[leaf] if isinstance(leaf, int) else leaf

    def _set_rates(self, numbers: list[Any]) -> list[Any]:
        groups = self.trainers.groups()
        for group, number in zip(groups, numbers, strict=True):
            if number is not None:
                group["lr"] = Tensor(number, self.env)
            if group.get("foreach"):  # takes no tensor for a rate; here it is no faster
                group["foreach"] = False
        return self._rates()

    def _rates(self) -> list[Any]:
        return [group["lr"] for group in self.trainers.groups()]

    def _substitute(self, wrappers: list[Tensor]) -> Any:
        """Put the wrappers where the tensors are; returns the arguments."""
        others = {id(t): w for t, w in zip(self.inputs, wrappers, strict=True)}

        def exchange(holder: Any, name: Any, value: Any) -> None:
            self._undo.append((holder, name, holder[name]))
            put(holder, name, value)

        for (holder, name, *_), structure in zip(self.guards.places, self.structures, strict=False):
            value = structure.with_tensors(others, exchange)
            if value is not structure.value:
                exchange(holder, name, value)
        return self.call.structure.with_tensors(others, exchange)

    def _snapshot(self) -> Snapshot:
        inside = [(h, None, "its argument ") for h in self.call.structure.holders()]
        return Snapshot([*self.guards.holders.values(), *inside])

    def _stores(self, snapshot: Snapshot) -> list[tuple[Any, Any, Template]]:
        """What was put into variables and attributes."""
        stores = []
        for holder, name, old, new, label in snapshot.changes():
            if isinstance(old, torch.Tensor) and id(old) in self.guards.fixed:
                self.memory.replaced.add((id(holder), name))
            if new is MISSING or isinstance(holder, list) or label.startswith("its argument"):
                raise NotCompilable(f"it changes {label.strip()}")
            counts = isinstance(new, (int, float, complex)) and not isinstance(new, bool)
            if counts or isinstance(new, (list, dict)):
                raise NotCompilable(f"it counts or remembers in Python ({label})")
            if not self.guards.keep_holder(holder):
                raise NotCompilable(f"it puts something into {label}")
            stores.append((holder, name, Template(new, self)))
        return stores

    def outgoing(self, tensor: Any) -> Any:
        """How a tensor leaves: as one that came in, or as a new array."""
        old = {id(t): i for i, t in enumerate([*self._wrappers, *self.state])}
        if id(tensor) in old:
            return "old", old[id(tensor)]
        if not is_device_tensor(tensor):
            if id(tensor) in {id(t) for t in self.guards.on_cpu}:
                return "constant", tensor
            raise NotCompilable("it makes a tensor of the CPU")
        if _root(tensor) in old:
            raise NotCompilable("it returns a view of a tensor that is there before")
        self._results.append(tensor.jax())
        return "array", None

    def _outputs(self, state: list[Array], arrays: list[Array], wrappers: list[Tensor]) -> Any:
        now = [tensor.__dict__["_elem"] for tensor in self.state]
        pairs = zip(self.state, state, now, strict=True)
        self.changed = {id(tensor) for tensor, before, after in pairs if before is not after}
        self.changed |= {id(t) for t, a in self._first_values if t.__dict__["_elem"] is not a}
        given = [wrapper.__dict__["_elem"] for wrapper in wrappers]
        self.written = [i for i, array in enumerate(arrays) if given[i] is not array]
        among_leaves = {x for x in self.leaves if isinstance(x, int)}
        for i, wrapper in enumerate(wrappers):
            if i not in among_leaves and wrapper.grad is not None:
                raise NotCompilable("it is given a tensor with a graph, and asks for its gradient")
        leaves = [self._leaf(i, wrappers) for i in range(len(self.leaves))]
        self.learning = [i for i, leaf in enumerate(leaves) if leaf.grad is not None]
        new_gradients = [leaves[i].grad.jax() for i in self.learning]
        new, inputs = now[: self.n_written], [given[i] for i in self.written]
        return new, inputs, new_gradients, self.env.prng_key, self._results

    @contextlib.contextmanager
    def _watched(self, inputs: list[Array], wrappers: list[Tensor]) -> Iterator[None]:
        known = {id(tensor) for tensor in self.state}
        given = {id(wrapper): number for number, wrapper in enumerate(wrappers)}
        moved = {_place(t): array for t, array in zip(self.on_cpu, inputs, strict=True)}

        def watch(tensor: Tensor) -> None:
            number = given.get(id(tensor))
            if number is not None:
                self.read.add(number)
                return
            with _natively():
                if tensor.requires_grad and tensor.is_leaf:
                    self.found.setdefault(id(tensor), tensor)
            if tensor.__dict__.get("_link") is not None:
                return
            array = tensor.__dict__["_elem"]
            if id(tensor) not in known and not isinstance(array, jax.core.Tracer):
                if id(tensor) not in self.unknown:
                    self.unknown[id(tensor)] = tensor
                    self._first_values.append((tensor, array))

        move = self.env.t2j_copy

        def moving(tensor: torch.Tensor) -> Any:
            place = _place(tensor)
            if place in moved:
                self.used.add(place)
                return moved[place]
            self.moved[place] = tensor
            self.values.append((place, tensor.detach().clone()))
            return move(tensor)

        self.env.t2j_copy = moving  # type: ignore[method-assign]
        views.watchers.append(watch)
        try:
            yield
        finally:
            views.watchers.remove(watch)
            del self.env.t2j_copy

    @contextlib.contextmanager
    def _restored(self) -> Iterator[None]:
        values = [(t, t.__dict__["_elem"]) for t in self.state]
        optimizers = list(self.trainers.optimizers.values())
        states = [{p: dict(s) for p, s in o.state.items()} for o in optimizers]
        groups = [dict(group) for group in self.trainers.groups()]
        key = self.env.prng_key
        parameters = [*(x for x in self.leaves if not isinstance(x, int))]
        parameters += self.trainers.parameters()
        with _natively():
            gradients = [(p, p.grad, p.requires_grad) for p in parameters]
        try:
            yield
        finally:
            with _natively():
                self.flips = any(p.requires_grad != required for p, _, required in gradients)
                self.trains = any(p.grad is not gradient for p, gradient, _ in gradients)
                for parameter, gradient, required in gradients:
                    parameter.grad = gradient
                    if parameter.requires_grad != required:
                        parameter.requires_grad_(required)
            for tensor, array in [*self._first_values, *values]:
                tensor.__dict__["_elem"] = array
            self.makes_state = False
            for optimizer, before in zip(optimizers, states, strict=True):
                made = {p: set(s) for p, s in optimizer.state.items() if s}
                self.makes_state |= made != {p: set(s) for p, s in before.items() if s}
                for parameter in [p for p in optimizer.state if p not in before]:
                    del optimizer.state[parameter]
                for parameter, inner in before.items():
                    optimizer.state[parameter].clear()
                    optimizer.state[parameter].update(inner)
            for group, old in zip(self.trainers.groups(), groups, strict=True):
                group.update(old)
            self.env.param.prng = key
            for holder, name, value in reversed(self._undo):
                put(holder, name, value)
            self._undo.clear()
            self._wrappers: list[Tensor] = []
            self._results = []


@contextlib.contextmanager
def _random_state_kept() -> Iterator[None]:
    """Undo, and refuse, numbers that Python, numpy or torch on the CPU draw in a trace."""
    generator = torch.default_generator
    before = random.getstate(), np.random.get_state(legacy=False), generator.get_state()
    try:
        yield
        after = random.getstate(), np.random.get_state(legacy=False), generator.get_state()
        if before[0] != after[0] or repr(before[1]) != repr(after[1]):
            raise NotCompilable("it draws random numbers in Python; draw them outside")
        if not torch.equal(before[2], after[2]):
            raise NotCompilable("it draws random numbers on the CPU; draw them outside")
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])
        generator.set_state(before[2])


def _step_counts_on_device(optimizer: Optimizer) -> None:
    """A count on the CPU is a Python number in the program: it would be the same for ever."""
    for state in optimizer.state.values():
        for name, value in state.items():
            if isinstance(value, torch.Tensor) and not is_device_tensor(value):
                state[name] = value.to(DEVICE_TYPE)


@contextlib.contextmanager
def _compiling() -> Iterator[None]:
    """Optimizers keep their counts and rates as tensors when they think that they are compiled."""

    def begin(*_: Any) -> None:
        torch.compiler._is_compiling_flag = True

    def end(*_: Any) -> None:
        torch.compiler._is_compiling_flag = False

    handles = register_optimizer_step_pre_hook(begin), register_optimizer_step_post_hook(end)
    try:
        yield
    finally:
        end()
        for handle in handles:
            handle.remove()


def _place(tensor: torch.Tensor) -> Any:
    """Where a CPU tensor lies: the same for all aliases of it."""
    return tensor.data_ptr(), tuple(tensor.shape), tensor.stride()


def _same(some: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    return len(some) == len(others) and all(
        a.shape == b.shape and a.dtype == b.dtype and torch.equal(a, b)
        for a, b in zip(some, others, strict=True)
    )
