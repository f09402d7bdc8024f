"""A training step as one compiled program.

torchax runs every operator as a program of its own, so that a step costs milliseconds where the
device works for microseconds. ``train_step`` runs the step as it is written (forward,
``loss.backward()``, clipping, ``optimizer.step()``) inside one ``jax.jit``:

    @tpu_runtime.train_step
    def step(x, y):
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

Nothing is baked in. Every device tensor that the step reads is found while it is traced, and
becomes an input: parameters, buffers, optimizer state, an EMA, a mask. What the step writes comes
out and is put in place; gradients, random numbers and learning rates too. The other Python values
that it depends on (arguments, train or eval, requires_grad, the optimizers' settings) choose the
program.

The first call runs operator by operator, as does one in which an optimizer makes new state; the
second one compiles. What can not be compiled (a value is read, numbers are drawn on the CPU, Python
numbers change) is said once, and goes on operator by operator.
"""

import contextlib
import functools
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, Generic, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import torch
import torchax
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim import Optimizer
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils import _pytree as pytree
from torchax.tensor import Environment, Tensor

from . import views
from .calls import Function, is_device_tensor, replaces
from .device import DEVICE_TYPE

P = ParamSpec("P")
R = TypeVar("R")
Array = Any

VARIABLE = "TPU_RUNTIME_EAGER"  # set: no step is compiled, for debugging
MANY = 8  # programs of one step, at which a value that changes every time is suspected
_SIMPLE = (bool, int, float, str, type(None))
_CODE = (ModuleType, FunctionType, BuiltinFunctionType, type)


class NotCompilable(Exception):
    """Why a step has to run operator by operator."""


class _FirstTime(Exception):
    """A module or an optimizer takes part for the first time, or makes state: run it as it is."""


@dataclass
class _Trainers:
    """The modules and optimizers that a step has used, in the order of their first use."""

    modules: dict[int, torch.nn.Module] = field(default_factory=dict)
    optimizers: dict[int, Optimizer] = field(default_factory=dict)

    @contextlib.contextmanager
    def observed(self, *, known: bool = False) -> Iterator[None]:
        """Note who takes part; with ``known``, raise _FirstTime for anybody new."""

        def module_used(module: torch.nn.Module, _: Any) -> None:
            if known and id(module) not in self.modules:
                raise _FirstTime
            self.modules.setdefault(id(module), module)

        def optimizer_used(optimizer: Optimizer, *_: Any) -> None:
            if known and id(optimizer) not in self.optimizers:
                raise _FirstTime
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

    def settings(self) -> tuple[Any, ...]:
        """What chooses the program, beside the arguments of the call."""
        modules = tuple(
            (
                id(m),
                *((id(p), p.requires_grad, p.grad is None) for p in _own(m)),
                *map(id, m._buffers.values()),
                *(_kept(name, value) for name, value in vars(m).items()),
            )
            for m in self.modules.values()
        )
        optimizers = tuple(
            (
                id(optimizer),
                tuple(_fixed(group) for group in optimizer.param_groups),
                tuple(tuple(sorted(map(str, s))) for s in optimizer.state.values()),
            )
            for optimizer in self.optimizers.values()
        )
        return modules, optimizers

    def groups(self) -> list[dict[str, Any]]:
        return [group for o in self.optimizers.values() for group in o.param_groups]

    def simple_attributes(self) -> dict[tuple[int, str], Any]:
        """Python numbers that a module keeps, and may count with."""
        return {
            (key, name): value
            for key, module in self.modules.items()
            for name, value in vars(module).items()
            if isinstance(value, _SIMPLE)
        }


def _guard(value: Any, names: tuple[str, ...] = (), depth: int = 2) -> Any:
    """What has to be the same for a program to fit: numbers by value, tensors by identity.

    Of other objects those attributes count that are in ``names``, those of the function's code.
    """
    if isinstance(value, _SIMPLE):
        return type(value), value
    if depth and isinstance(value, (list, tuple)) and len(value) <= 64:
        return tuple(_guard(item, names, depth - 1) for item in value)
    if depth and isinstance(value, dict) and len(value) <= 64:
        return tuple((repr(k), _guard(v, names, depth - 1)) for k, v in value.items())
    if isinstance(value, (torch.Tensor, torch.nn.Module, Optimizer)) or not depth:
        return id(value)
    held = getattr(value, "__dict__", {})
    return id(value), tuple(_guard(held[n], names, depth - 1) for n in names if n in held)


def _kept(name: str, value: Any) -> Any:
    """What a module keeps beside its parameters, and computes with: numbers, tensors, settings."""
    if isinstance(value, (*_SIMPLE, torch.Tensor)):
        return _guard(value)
    if name.startswith("_") or isinstance(value, (torch.nn.Module, *_CODE)):
        return None
    held = getattr(value, "__dict__", None)
    if held is None:
        return _guard(value)
    return tuple((k, v) for k, v in list(held.items())[:64] if isinstance(v, _SIMPLE))


def _own(module: torch.nn.Module) -> list[torch.nn.Parameter]:
    return [p for p in module._parameters.values() if p is not None]


def _fixed(group: dict[str, Any]) -> tuple[Any, ...]:
    """The settings of a group of parameters that are part of the program: all but its lr."""
    values = [(k, v) for k, v in group.items() if k not in ("params", "lr", "initial_lr")]
    return (len(group["params"]), *((k, v if _hashable(v) else repr(v)) for k, v in values))


def _hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


class _Call:
    """The arguments of one call: arrays, and the Python values between them."""

    def __init__(self, env: Environment, args: Any, kwargs: Any) -> None:
        self.leaves, self.spec = pytree.tree_flatten((args, kwargs))
        self.arrays = [_array(env, leaf) for leaf in self.leaves if isinstance(leaf, torch.Tensor)]
        values = [None if isinstance(leaf, torch.Tensor) else leaf for leaf in self.leaves]
        self.key = (
            str(self.spec),
            tuple((type(v), v) if isinstance(v, _SIMPLE) else id(v) for v in values),
            tuple((a.shape, str(a.dtype)) for a in self.arrays),
        )

    def arguments(self, env: Environment, arrays: list[Array]) -> tuple[Any, Any]:
        source = iter(arrays)
        leaves = [
            Tensor(next(source), env, leaf.requires_grad)
            if isinstance(leaf, torch.Tensor)
            else leaf
            for leaf in self.leaves
        ]
        return pytree.tree_unflatten(leaves, self.spec)  # type: ignore[no-any-return]


def _array(env: Environment, tensor: torch.Tensor) -> Array:
    return tensor.jax() if is_device_tensor(tensor) else env.t2j_copy(tensor.detach())


@dataclass
class _Program:
    """A compiled step, and the tensors that go through it."""

    compiled: Any
    state: list[Tensor]
    on_cpu: list[torch.Tensor]  # tensors that the step moves to the device
    leaves: list[torch.Tensor]  # that can have a gradient
    with_gradient: list[int]  # which of them bring one
    learning: list[int]  # which of them have one afterwards
    result: Any  # (spec, leaves): None where an array comes out


@dataclass
class _Memory:
    """What is known of a step; it outlives the function, which `def train(...)` makes anew."""

    owners: tuple[int, ...]
    trainers: _Trainers = field(default_factory=_Trainers)
    programs: dict[Any, _Program | None] = field(default_factory=dict)  # None: seen once
    why_eager: str = ""
    compilations: int = 0


_memories: dict[Any, _Memory] = {}  # by the code of the function


class TrainStep(Generic[P, R]):
    """A function of a training step; see the module."""

    def __init__(self, function: Callable[P, R]) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self._eager = bool(os.environ.get(VARIABLE))

    @property
    def compilations(self) -> int:
        """How many programs were compiled."""
        return self._memory.compilations

    @property
    def why_eager(self) -> str:
        """Why it runs operator by operator, "" where it does not."""
        return self._memory.why_eager

    @property
    def _memory(self) -> _Memory:
        """Of the same code around the same models and optimizers; one for others starts empty."""
        code = self.function.__code__  # type: ignore[attr-defined]
        owners = tuple(id(v) for v in self._around() if not isinstance(v, (*_SIMPLE, torch.Tensor)))
        memory = _memories.get(code)
        if memory is None or memory.owners != owners:
            memory = _memories[code] = _Memory(owners)
        return memory

    @property
    def _trainers(self) -> _Trainers:
        return self._memory.trainers

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if self._eager or self._memory.why_eager:
            return self.function(*args, **kwargs)
        env, memory = torchax.default_env(), self._memory
        call = _Call(env, args, kwargs)
        key = self._key(env, call)
        if key not in memory.programs and not memory.compilations:
            return self._first(env, call, args, kwargs)
        program = memory.programs.get(key)
        if program is None:
            try:
                program = memory.programs[key] = self._compile(env, call)
            except _FirstTime:
                return self._first(env, call, args, kwargs)
            except NotCompilable as why:
                self._give_up(str(why))
                return self.function(*args, **kwargs)
            memory.compilations += 1
        return self._run(env, program, call)

    def _key(self, env: Environment, call: _Call) -> Any:
        return (
            call.key, self._surroundings(), self._trainers.settings(), env.param.autocast_dtype,
            torch.is_grad_enabled(),
        )  # fmt: skip

    def _surroundings(self) -> Any:
        names = self.function.__code__.co_names  # type: ignore[attr-defined]
        return tuple(_guard(value, names) for value in self._around())

    def _around(self) -> list[Any]:
        """Variables that the function takes from around it; no modules, functions or classes."""
        code = self.function.__code__  # type: ignore[attr-defined]
        around = self.function.__globals__  # type: ignore[attr-defined]
        values = []
        for cell in self.function.__closure__ or ():  # type: ignore[attr-defined]
            with contextlib.suppress(ValueError):  # a variable that has no value yet
                values.append(cell.cell_contents)
        values += [around[name] for name in code.co_names if name in around]
        values += [*(self.function.__defaults__ or ())]  # type: ignore[attr-defined]
        return [value for value in values if not isinstance(value, _CODE)]

    def _first(self, env: Environment, call: _Call, args: Any, kwargs: Any) -> R:
        """Operator by operator, watching who takes part."""
        on_device: set[bool] = set()

        def watcher(_: Tensor) -> None:
            on_device.add(True)

        views.watchers.append(watcher)
        try:
            with self._trainers.observed():
                result = self.function(*args, **kwargs)
        finally:
            views.watchers.remove(watcher)
        if not on_device:  # a program that was told to run on the CPU
            return result
        programs = self._memory.programs
        programs.setdefault(self._key(env, call), None)
        if len(programs) == MANY:
            warnings.warn(
                f"{self._name}() has run with {MANY} sets of shapes or Python values: what changes "
                "at every call compiles anew each time; pass it as a tensor",
                stacklevel=3,
            )
        return result

    @property
    def _name(self) -> str:
        return getattr(self.function, "__name__", "step")

    def _give_up(self, why: str) -> None:
        self._memory.why_eager = why
        warnings.warn(
            f"{self._name}() runs operator by operator, which is slow: {why}", stacklevel=3
        )

    # ---- tracing --------------------------------------------------------------------------------

    def _compile(self, env: Environment, call: _Call) -> _Program:
        for optimizer in self._trainers.optimizers.values():
            _step_counts_on_device(optimizer)
        trace = _Trace(self, env, call, [], [], [])
        trace.run()
        # A CPU tensor that comes again is older than the step, and may change: an input, too.
        on_cpu = list(trace.moved.values())
        for _ in range(4):
            before = trace
            # Leaves that the step made itself hold tracers now.
            leaves = [leaf for leaf in before.found.values() if not _is_traced(leaf)]
            gradients = {id(leaf.grad) for leaf in leaves}  # go in and out by their leaves
            unknown = [t for t in before.unknown.values() if id(t) not in gradients]
            state = [*before.state, *unknown]
            trace = _Trace(self, env, call, state, on_cpu, leaves)
            traced = trace.run()
            if trace.makes_state:
                raise _FirstTime
            on_cpu = [tensor for tensor in on_cpu if _place(tensor) in trace.used]
            if trace.unknown or len(on_cpu) < len(trace.on_cpu):
                continue
            if not _same(before.constants(trace.used), trace.constants(trace.used)):
                raise NotCompilable("it draws random numbers on the CPU; draw them outside")
            return _Program(
                traced.lower().compile(), trace.state, trace.on_cpu, trace.leaves,
                trace.with_gradient, trace.learning, trace.result,
            )  # fmt: skip
        raise NotCompilable("it makes new tensors of its own state at every call")

    def _run(self, env: Environment, program: _Program, call: _Call) -> R:
        held = [tensor.__dict__["_elem"] for tensor in program.state]
        # An array that someone else holds, an EMA or a copy, must outlive the step.
        arrays = [jnp.copy(a) if sys.getrefcount(a) > 4 else a for a in held]
        del held
        gradients = [program.leaves[i].grad for i in program.with_gradient]
        if any(gradient is None for gradient in gradients):
            raise RuntimeError("a gradient that the step was compiled with is gone")
        numbers = _learning_rates(self._trainers.groups())
        new, new_gradients, key, results = program.compiled(
            arrays,
            [g.jax() for g in gradients],  # type: ignore[union-attr]
            env.prng_key,
            numbers,
            [env.t2j_copy(tensor.detach()) for tensor in program.on_cpu],
            call.arrays,
        )
        for tensor, array in zip(program.state, new, strict=True):
            tensor.__dict__["_elem"] = array
            torch._C._increment_version((tensor,))
        for leaf in program.leaves:
            leaf.grad = None
        for place, array in zip(program.learning, new_gradients, strict=True):
            program.leaves[place].grad = Tensor(array, env)
        env.param.prng = key
        spec, leaves = program.result
        source = iter(results)
        return pytree.tree_unflatten(  # type: ignore[no-any-return]
            [Tensor(next(source), env) if leaf is None else leaf[0] for leaf in leaves], spec
        )


class _Trace:
    """One tracing of a step; afterwards all is as it was before."""

    def __init__(
        self,
        step: TrainStep[Any, Any],
        env: Environment,
        call: _Call,
        state: list[Tensor],
        on_cpu: list[torch.Tensor],
        leaves: list[torch.Tensor],
    ) -> None:
        self.step, self.env, self.call, self.state, self.on_cpu = step, env, call, state, on_cpu
        self.leaves = leaves
        self.found: dict[int, torch.Tensor] = {}  # leaves whose values were asked for
        self.trainers = step._trainers
        self.unknown: dict[int, Tensor] = {}
        self.moved: dict[Any, torch.Tensor] = {}  # CPU tensors that became part of the program
        self.values: list[tuple[Any, torch.Tensor]] = []  # their places and values, in order
        self.used: set[Any] = set()  # places of the CPU tensors that were inputs
        self.with_gradient = [i for i, leaf in enumerate(leaves) if leaf.grad is not None]
        self.learning: list[int] = []
        self.result: Any = None
        self.makes_state = False
        self._first_values: list[tuple[Tensor, Array]] = []  # of those that were not known

    def run(self) -> Any:
        arrays = [tensor.__dict__["_elem"] for tensor in self.state]
        gradients = [self.leaves[i].grad.jax() for i in self.with_gradient]  # type: ignore[union-attr]
        numbers = _learning_rates(self.trainers.groups())
        jitted = jax.jit(self._pure, donate_argnums=0)
        attributes = self.trainers.simple_attributes()
        try:
            with self.trainers.observed(known=True):
                traced = jitted.trace(
                    arrays,
                    gradients,
                    self.env.prng_key,
                    numbers,
                    [self.env.t2j_copy(tensor.detach()) for tensor in self.on_cpu],
                    self.call.arrays,
                )
        except _FirstTime:
            raise
        except jax.errors.JAXTypeError as error:
            first = str(error).partition("\n")[0]
            raise NotCompilable(f"it reads a value of the device ({first})") from error
        except Exception as error:  # if it is the program's own, running it will raise it again
            first = str(error).partition("\n")[0]
            raise NotCompilable(
                f"it can not be traced ({type(error).__name__}: {first})"
            ) from error
        changed = {
            k for k, v in self.trainers.simple_attributes().items() if attributes.get(k) != v
        }
        if changed:
            names = sorted(name for _, name in changed)
            raise NotCompilable(f"a module counts or remembers in Python ({', '.join(names)})")
        return traced

    def _pure(
        self,
        arrays: list[Array],
        gradients: list[Array],
        key: Array,
        numbers: list[Array],
        moved: list[Array],
        batch: list[Array],
    ) -> Any:
        env, state = self.env, self.state
        with self._restored():
            for tensor, array in zip(state, arrays, strict=True):
                tensor.__dict__["_elem"] = array
            for place, array in zip(self.with_gradient, gradients, strict=True):
                self.leaves[place].grad = Tensor(array, env)
            for group, number in zip(self.trainers.groups(), numbers, strict=True):
                if number is not None:
                    group["lr"] = Tensor(number, env)
            env.param.prng = key
            args, kwargs = self.call.arguments(env, batch)
            with self._watched(moved), _compiling():
                result = self.step.function(*args, **kwargs)
            leaves, spec = pytree.tree_flatten(result)
            self.result = spec, [None if is_device_tensor(x) else (x,) for x in leaves]
            results = [x.jax() for x in leaves if is_device_tensor(x)]
            self.learning = [i for i, leaf in enumerate(self.leaves) if leaf.grad is not None]
            new_gradients = [self.leaves[i].grad.jax() for i in self.learning]  # type: ignore[union-attr]
            new = [tensor.__dict__["_elem"] for tensor in state]
            return new, new_gradients, env.prng_key, results

    @contextlib.contextmanager
    def _watched(self, inputs: list[Array]) -> Iterator[None]:
        known = {id(tensor) for tensor in self.state}
        moved = {_place(t): array for t, array in zip(self.on_cpu, inputs, strict=True)}

        def watch(tensor: Tensor) -> None:
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

    def constants(self, inputs: set[Any]) -> list[torch.Tensor]:
        """The values that were moved and are none of the inputs."""
        return [value for place, value in self.values if place not in inputs]

    @contextlib.contextmanager
    def _restored(self) -> Iterator[None]:
        values = [(t, t.__dict__["_elem"]) for t in self.state]
        optimizers = list(self.trainers.optimizers.values())
        states = [{p: dict(s) for p, s in o.state.items()} for o in optimizers]
        groups = [dict(group) for group in self.trainers.groups()]
        key = self.env.prng_key
        modules = self.trainers.modules.values()
        parameters = [*self.leaves, *(p for group in groups for p in group["params"])]
        parameters += [p for module in modules for p in _own(module)]
        gradients = [p.grad for p in parameters]
        try:
            yield
        finally:
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient
            for tensor, array in [*self._first_values, *values]:
                tensor.__dict__["_elem"] = array
            for optimizer, before in zip(optimizers, states, strict=True):
                made = {p: set(s) for p, s in optimizer.state.items() if s}
                self.makes_state |= made != {p: set(s) for p, s in before.items() if s}
                optimizer.state.clear()
                optimizer.state.update(before)
            for group, old in zip(self.trainers.groups(), groups, strict=True):
                group.update(old)
            self.env.param.prng = key


def _learning_rates(groups: list[dict[str, Any]]) -> list[Array | None]:
    """The groups' learning rates as arrays; None for one that is a tensor already."""
    return [
        None if isinstance(group["lr"], torch.Tensor) else jnp.asarray(group["lr"], jnp.float32)
        for group in groups
    ]


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


def _is_traced(tensor: Any) -> bool:
    return isinstance(tensor._elem, jax.core.Tracer)


def _place(tensor: torch.Tensor) -> Any:
    """Where a CPU tensor lies: the same for all aliases of it."""
    return tensor.data_ptr(), tuple(tensor.shape), tensor.stride()


def _same(some: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    return len(some) == len(others) and all(
        a.shape == b.shape and a.dtype == b.dtype and torch.equal(a, b)
        for a, b in zip(some, others, strict=True)
    )


def train_step(function: Callable[P, R]) -> TrainStep[P, R]:
    """Compile the training step ``function``; see the module."""
    return TrainStep(function)


# ---- learning rates and counts that are tensors --------------------------------------------------


def _is_rate(value: object) -> bool:
    return is_device_tensor(value) and value.dim() == 0  # type: ignore[attr-defined]


@replaces(torch.Tensor.add_, torch.Tensor.add, torch.add, torch.Tensor.sub_, torch.Tensor.sub)
def _with_alpha(env: Environment, function: Function, args: Any, kwargs: Any) -> Any:
    """`p.add_(d, alpha=-lr)`: torch wants `alpha` as a number, and asks the tensor for it."""
    alpha = kwargs.get("alpha")
    if not _is_rate(alpha):
        return NotImplemented
    return function(args[0], args[1] * alpha)


@replaces(torch.Tensor.addcdiv_, torch.Tensor.addcdiv, torch.Tensor.addcmul_, torch.Tensor.addcmul)
def _with_value(env: Environment, function: Function, args: Any, kwargs: Any) -> Any:
    """The same for `value`; the order of the operations is torch's."""
    value = kwargs.get("value")
    if not _is_rate(value):
        return NotImplemented
    one, other = args[1] * value, args[2]
    added = one / other if function.__name__.startswith("addcdiv") else one * other
    in_place = function.__name__.endswith("_")
    return args[0].add_(added) if in_place else args[0] + added


@replaces(torch.Tensor.__rpow__)
def _power(env: Environment, function: Function, args: Any, kwargs: Any) -> Any:
    """`beta ** step`, whose complement is wanted: 1 - 0.999 ** 1 has 4 right digits in float32."""
    exponent, base = args
    if not _is_rate(exponent) or not isinstance(base, float) or not 0 < base < 1:
        return NotImplemented
    logarithm = exponent.jax().astype(jnp.float32) * jnp.float32(math.log(base))
    result = Tensor(jnp.exp(logarithm), env)
    result.__dict__["_log"] = logarithm
    return result


@replaces(torch.Tensor.__rsub__)
def _complement(env: Environment, function: Function, args: Any, kwargs: Any) -> Any:
    tensor, number = args
    logarithm = tensor.__dict__.get("_log") if is_device_tensor(tensor) else None
    if logarithm is None or number != 1:
        return NotImplemented
    return Tensor(-jnp.expm1(logarithm), env)
