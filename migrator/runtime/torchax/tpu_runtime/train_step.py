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

Nothing is baked in: programs.py says what goes in and out, guards.py what chooses the program. The
first call is compiled where its code does nothing but compute (compiling.py); else it runs operator
by operator, as does one in which an optimizer makes new state, and the second one compiles. What
can not be compiled (a value is read, a tensor is kept, numbers are drawn on the CPU, something is
printed) is said once, and runs as it is written; its models and optimizers are then compiled each
by itself (parts.py). What has been another shape or number at every call runs operator by operator
until it comes again.

A method is a step of its object; the optimizer may be outside, as with LBFGS.
"""

import functools
import os
import sys
import warnings
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FunctionType, MethodType
from typing import Any, Generic, ParamSpec, TypeVar

import torch
import torchax
from torch.optim import Optimizer
from torch.utils import _pytree as pytree
from torchax.tensor import Environment, Tensor

from . import report, views
from .compiling import compile_new, compile_program
from .guards import Scope, without_callbacks
from .innocent import Inspection
from .numbers import Varying
from .programs import Call, FirstTime, Memory, NotCompilable, Program, inside, is_inside

P = ParamSpec("P")
R = TypeVar("R")

VARIABLE = "TPU_RUNTIME_EAGER"  # set: no step is compiled, for debugging
MANY = 8  # sets of values of one step, at which a value that changes every time is suspected
MOST = 32  # programs of one step that are kept
UNUSED = 3  # programs that ran once only, after which values have to come twice to be compiled

_natively = torch._C.DisableTorchFunction


class Compiled:
    """A function that runs as one program where it can, as it is where it can not."""

    def __init__(
        self, function: Callable[..., Any], name: str, *, patient: bool = False,
        differentiable: bool = False,
    ) -> None:  # fmt: skip
        self.name, self.patient = name, patient
        self.memory = Memory(function, name, differentiable)
        self.why_eager = ""
        self.compilations = 0
        self.record = report.record(self._place())
        self.sets = 0  # of shapes and Python values that have come
        self.programs: OrderedDict[Program, None] = OrderedDict()  # the last used one is the last
        self._by_key: dict[Any, list[Program]] = {}
        self._varying = Varying()
        # Keys of calls that ran as they are, and which parts of their results are tensors.
        self._seen: OrderedDict[Any, list[bool]] = OrderedDict()

    def __call__(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call ``function``, which is the one of the beginning or that one made anew."""
        if is_inside():
            return function(*args, **kwargs)
        self.record.calls += 1
        if self.memory.refused and not self.why_eager:
            self._give_up(self.memory.refused)
        if self.why_eager:
            return function(*args, **kwargs)
        with inside():
            return self._call(function, args, kwargs)

    def _call(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        self.memory.use(function)
        env = torchax.default_env()
        misfit = ""
        self._varying.note(args, kwargs)
        with _natively():
            call = Call(self.memory, env, *self._varying.stand_ins(env, args, kwargs))
            for program in self._by_key.get(call.key, ()):
                found = program.misfit(call)
                if not isinstance(found, str):
                    self.programs.move_to_end(program)
                    return program.run(env, call, found)
                misfit = misfit or found
        return self._without_program(env, call, args, kwargs, misfit)

    def _without_program(
        self, env: Environment, call: Call, args: Any, kwargs: Any, misfit: str
    ) -> Any:
        sight = self._sight(call)
        is_new = sight not in self._seen
        if is_new and self._has_to_wait():
            return self._first(env, call, args, kwargs, misfit)
        try:
            if is_new and not self.compilations:
                program = self._compile_new(env, call)
            else:
                program = self._compile(env, call)
        except FirstTime:
            return self._first(env, call, args, kwargs, misfit)
        except NotCompilable as why:
            if self._varying.give_up():
                return self._call(self.memory.function, args, kwargs)
            self._give_up(str(why))
            return self.memory.function(*args, **kwargs)
        if program.result.tensors != self._seen.get(sight) and self._varying.give_up():
            return self._call(self.memory.function, args, kwargs)
        if is_new:
            self._count(call, misfit)
        with _natively():
            found = program.misfit(call)
            if not isinstance(found, str):
                self._keep(program)
                return program.run(env, call, found)
        self._give_up(f"it changes {found} in a way that is not followed")
        return self.memory.function(*args, **kwargs)

    # ---- which calls are compiled ---------------------------------------------------------------

    def _has_to_wait(self) -> bool:
        """Whether what is new runs as it is, and is compiled when it comes again."""
        unused = sum(program.calls < 2 for program in self.programs)
        if self.patient or self._varying.are_there:  # their results are compared
            return True
        return unused >= UNUSED

    def _compile(self, env: Environment, call: Call) -> Program:
        try:
            return compile_program(self.memory, env, call)
        except FirstTime:
            return self._compile_new(env, call)

    def _compile_new(self, env: Environment, call: Call) -> Program:
        """What has not run yet, where a trace is sure to find out all; else FirstTime."""
        numbers = {type(x) for x in (*call.given[0], *call.given[1].values())} & {int, float}
        had_to_run = self.sets > self.compilations
        if self.patient or had_to_run or numbers or not Inspection.is_possible():
            raise FirstTime
        return compile_new(self.memory, env, call)

    def _sight(self, call: Call) -> Any:
        newest = next(reversed(self.programs), None)
        with _natively():
            return call.key, newest and newest.guards.signature()

    def _first(self, env: Environment, call: Call, args: Any, kwargs: Any, misfit: str) -> Any:
        """Operator by operator, watching who takes part."""
        on_device: set[bool] = set()

        def watcher(_: Tensor) -> None:
            on_device.add(True)

        memory, sight = self.memory, self._sight(call)
        is_new = self.sets < UNUSED  # later ones hardly bring other code
        views.watchers.append(watcher)
        try:
            with memory.trainers.observed(), without_callbacks(), memory.watch.running(is_new):
                result = memory.function(*args, **kwargs)
        finally:
            views.watchers.remove(watcher)
        tensors = [isinstance(x, torch.Tensor) for x in pytree.tree_leaves(result)]
        if on_device:  # else a program was told to run on the CPU
            self._count(call, misfit)
            with _natively():
                if is_new:
                    memory.guards()  # now that more of its code is known
                after = Call(memory, env, args, kwargs)
            self._seen |= {sight: tensors, self._sight(after): tensors}
            while len(self._seen) > 8 * MOST:
                self._seen.popitem(last=False)
        return result

    def _keep(self, program: Program) -> None:
        self.compilations += 1
        self.record.programs += 1
        self.record.again += program.key in self._by_key
        self.programs[program] = None
        self._by_key.setdefault(program.key, []).insert(0, program)
        if len(self.programs) > MOST:
            oldest, _ = self.programs.popitem(last=False)
            self._by_key[oldest.key].remove(oldest)
            if not self._by_key[oldest.key]:
                del self._by_key[oldest.key]

    # ---- what is said ---------------------------------------------------------------------------

    def _count(self, call: Call, misfit: str) -> None:
        """Warn, once, where what comes is new again and again; called before it is noted."""
        self.sets += 1
        if self.patient or self.sets != MANY:
            return
        changing = misfit or self._differing_argument(call)
        named = f" ({changing})" if changing else ""
        warn(
            f"{self.name}() has run with {MANY} sets of shapes or Python values: what changes at "
            f"every call{named} compiles anew each time; pass it as a tensor"
        )

    def _differing_argument(self, call: Call) -> str:
        """The name of an argument that is another than at the last call that was new."""
        keys = [sight[0] for sight in self._seen] or [program.key for program in self.programs]
        code = getattr(self.memory.function, "__code__", None)
        if not keys or code is None:
            return ""
        before, now = keys[-1][0][1], call.key[0][1]  # of the arguments and the named arguments
        names = code.co_varnames[isinstance(self.memory.function, MethodType) :]
        for name, old, new in zip(names, before[0][1], now[0][1], strict=False):
            if old != new:
                return str(name)
        named = zip(now[1][2], before[1][3], now[1][3], strict=False)
        return next((name for name, old, new in named if old != new), "")

    def _place(self) -> str:
        """The name in the report."""
        code = getattr(self.memory.function, "__code__", None)
        where = f" ({Path(code.co_filename).name}:{code.co_firstlineno})" if code else ""
        return f"{self.name}(){where}"

    def _give_up(self, why: str) -> None:
        self.why_eager = self.record.why_eager = why
        warn(f"{self.name}() is not compiled as a whole, which is slower: {why}")


def warn(message: str) -> None:
    """A warning at the line of the program that called the function."""
    level = 1
    while sys._getframe(level).f_code.co_filename.startswith(_HERE):
        level += 1
    warnings.warn(message, stacklevel=level + 1)


class TrainStep(Generic[P, R]):
    """A function of a training step; see the module."""

    def __init__(self, function: Callable[P, R]) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self._eager = bool(os.environ.get(VARIABLE))
        self._compiled: Compiled | None = None
        self._methods: OrderedDict[int, TrainStep[Any, Any]] = OrderedDict()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if self._eager:
            return self.function(*args, **kwargs)
        return self._program(self.function, args, kwargs)  # type: ignore[no-any-return]

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        """The step as a method: one for each object, since each has its own models."""
        if owner is None:
            return self
        method = self._methods.get(id(owner))
        if method is None:
            method = self._methods[id(owner)] = TrainStep(MethodType(self.function, owner))
            method._compiled = Compiled(method.function, self.__name__)  # type: ignore[attr-defined]
            if len(self._methods) > _OBJECTS:
                self._methods.popitem(last=False)
        return method

    @property
    def compilations(self) -> int:
        """How many programs were compiled."""
        return self._program.compilations

    @property
    def why_eager(self) -> str:
        """Why it is not compiled as a whole, "" where it is."""
        return self._program.why_eager

    @property
    def _program(self) -> Compiled:
        if self._compiled is None:
            self._compiled = _find(self.function)
        return self._compiled


_OBJECTS = 4  # whose methods keep their programs
_HERE = str(Path(__file__).parent) + os.sep
_found: dict[CodeType, tuple[list[Any], Compiled]] = {}


def _find(function: Callable[..., Any]) -> Compiled:
    """What is known of the same code around the same models; `def train(...)` makes it anew."""
    name, code = getattr(function, "__name__", "step"), getattr(function, "__code__", None)
    if not isinstance(function, FunctionType) or code is None:
        return Compiled(function, name)
    around = [*Scope(function).values(), *map(function.__globals__.get, code.co_names)]
    owners = [value for value in around if isinstance(value, (torch.nn.Module, Optimizer))]
    known, compiled = _found.get(code, ([], None))
    if compiled is None or list(map(id, known)) != list(map(id, owners)):
        compiled = Compiled(function, name)
        _found[code] = owners, compiled
    return compiled


def train_step(function: Callable[P, R]) -> TrainStep[P, R]:
    """Compile the training step ``function``; see the module."""
    return TrainStep(function)
