"""A training step as one compiled program.

torchax runs every operator as a separate program, so that a step takes milliseconds where the
device works for microseconds. ``train_step`` runs the step as it is written (forward,
``loss.backward()``, clipping, ``optimizer.step()``) inside one ``jax.jit``:

    @tpu_runtime.train_step
    def step(x, y):
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

Nothing is baked in: compiled_program.py describes inputs and outputs, state_guards.py what chooses
the program. The first call is compiled if its code only computes (first_call.py); otherwise it runs
operator by operator, as does a call in which an optimizer creates new state, and the second one
compiles. If it can't be compiled (a value is read, a tensor is kept, numbers are drawn on the CPU,
something is printed), there is one warning, and it runs as it is written; its models and optimizers
are then compiled separately (partial_compilation.py). If each call has another shape or number, it
runs operator by operator until one occurs again.

A method is a step of its object; the optimizer may be elsewhere, as with LBFGS.
"""

import functools
from collections import OrderedDict
from collections.abc import Callable
from types import CodeType, FunctionType, MethodType
from typing import Any, Generic, ParamSpec, TypeVar

import torch
from torch.optim import Optimizer
from torchax.tensor import Environment

from .closure_variables import ClosureVariables
from .compile_state import FirstTime, is_eager
from .compiled_function import Compiled
from .compiled_program import Program
from .first_call import compile_new
from .function_state import CallArguments
from .purity import Inspection

P = ParamSpec("P")
R = TypeVar("R")


class CompiledStep(Compiled):
    """A step of training, whose code alone may allow compiling its first call."""

    patient = False

    def _compile_new(self, env: Environment, call: CallArguments) -> Program:
        """Compile a new form if a trace is certain to find everything; otherwise FirstTime."""
        numbers = {type(x) for x in (*call.given[0], *call.given[1].values())} & {int, float}
        had_to_run = self.sets > self.compilations
        if had_to_run or numbers or not Inspection.is_possible():
            raise FirstTime
        return compile_new(self.memory, env, call)


class TrainStep(Generic[P, R]):
    """A function of a training step; see the module."""

    def __init__(self, function: Callable[P, R]) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self._eager = is_eager()
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
            method._compiled = CompiledStep(method.function, self.__name__)  # type: ignore[attr-defined]
            if len(self._methods) > _OBJECTS:
                self._methods.popitem(last=False)
        return method

    @property
    def compilations(self) -> int:
        """How many programs were compiled."""
        return self._program.compilations

    @property
    def why_eager(self) -> str:
        """Why it isn't compiled as a whole, "" if it is."""
        return self._program.why_eager

    @property
    def _program(self) -> Compiled:
        if self._compiled is None:
            self._compiled = _find(self.function)
        return self._compiled


_OBJECTS = 4  # whose methods keep their programs
_found: dict[CodeType, tuple[list[Any], Compiled]] = {}


def _find(function: Callable[..., Any]) -> Compiled:
    """What is known of the same code with the same models; `def train(...)` creates it anew."""
    name, code = getattr(function, "__name__", "step"), getattr(function, "__code__", None)
    if not isinstance(function, FunctionType) or code is None:
        return CompiledStep(function, name)
    around = [*ClosureVariables(function).values(), *map(function.__globals__.get, code.co_names)]
    owners = [value for value in around if isinstance(value, (torch.nn.Module, Optimizer))]
    known, compiled = _found.get(code, ([], None))
    if compiled is None or list(map(id, known)) != list(map(id, owners)):
        compiled = CompiledStep(function, name)
        _found[code] = owners, compiled
    return compiled


def train_step(function: Callable[P, R]) -> TrainStep[P, R]:
    """Compile a step (forward pass, backward pass, update) as one program.

    A decorator. The first or the second call compiles. A step that can't be compiled as a
    whole is named once in a warning, and then runs as it is written.
    """
    return TrainStep(function)
