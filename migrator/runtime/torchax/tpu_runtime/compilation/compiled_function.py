"""A function that runs as one program if possible: which program fits a call, and when to compile
one."""

import os
import sys
import warnings
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torchax
from torch.utils import _pytree as pytree
from torchax.tensor import Environment, Tensor

from ..dispatch.calls import natively
from ..profiling import report
from ..tensors import views
from ..tensors.structures import Structure
from . import guard_skipping
from .build_program import compile_program
from .changing_numbers import ChangingArguments
from .compile_state import FirstTime, NotCompilable, inside, is_inside
from .compiled_program import Program
from .function_state import CallArguments, Memory, unique

MOST = 32  # programs kept for one step
MANY = 8  # the same, for forms of which none has run yet
UNUSED = 3  # programs that only ran once, after which forms must occur twice to be compiled


class Compiled:
    """A function that runs as one program if it can, and as it is otherwise."""

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        *,
        differentiable: bool = False,
        is_known: bool = False,
    ) -> None:
        self.name = name
        self._is_known = is_known  # its code only computes, so that its first call is compiled
        self.memory = Memory(function, name, differentiable)
        self.why_eager = ""
        self.compilations = 0
        self.record = report.record(self._place())
        self.sets = 0  # of shapes and Python values seen so far
        self.programs: OrderedDict[Program, None] = OrderedDict()  # the last used one is last
        self._by_key: dict[Any, list[Program]] = {}
        self._varying = ChangingArguments()
        # Keys of calls that ran as they are, and which parts of their results are tensors.
        self._seen: OrderedDict[Any, list[bool]] = OrderedDict()

    def __call__(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call ``function``: the original one, or the same one made anew."""
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
        self._varying.note(args, kwargs)
        with natively():
            known = guard_skipping.last_of(self)
            if known is not None and (inputs := known.inputs_of(env, args, kwargs)) is not None:
                return known.program.run(env, known.call, inputs)
            call = CallArguments(self.memory, env, *self._varying.stand_ins(env, args, kwargs))
            for program in self._by_key.get(call.key, ()):
                found = self._fit(program, call)
                if not isinstance(found, str):
                    self.programs.move_to_end(program)
                    return program.run(env, call, unique(found))
        return self._without_program(env, call, args, kwargs)

    def _without_program(
        self, env: Environment, call: CallArguments, args: Any, kwargs: Any
    ) -> Any:
        sight = self._sight(call)
        is_new = sight not in self._seen
        if is_new and self._has_to_wait():
            return self._first(env, call, args, kwargs)
        program = self._tried(env, call, is_new)
        if isinstance(program, FirstTime):
            return self._first(env, call, args, kwargs)
        if isinstance(program, NotCompilable):
            if self._varying.give_up():
                return self._call(self.memory.function, args, kwargs)
            self._give_up(str(program))
            return self.memory.function(*args, **kwargs)
        ran = None if is_new else self._seen[sight]
        if ran not in (None, program.result.tensors) and self._varying.give_up():
            return self._call(self.memory.function, args, kwargs)
        if is_new:
            self._count()
        with natively():
            found = program.misfit(call)
            if not isinstance(found, str):
                self._keep(program)
                return program.run(env, call, unique(found))
        self._give_up(f"it changes {found} in a way that can't be followed")
        return self.memory.function(*args, **kwargs)

    def _tried(
        self, env: Environment, call: CallArguments, is_new: bool
    ) -> Program | NotCompilable | FirstTime:
        """The program, or why there is none: returned, as an error of the function itself would be
        shown with one that is raised."""
        try:
            if is_new:
                return self._compile_new(env, call)
            return compile_program(self.memory, env, call)
        except (FirstTime, NotCompilable) as why:
            return type(why)(*why.args)  # without the trace, which holds memory

    def _fit(self, program: Program, call: CallArguments) -> "list[Structure] | str":
        """The program's inputs for this call, or the name of something that has changed."""
        known = None if call.numbers else guard_skipping.surroundings(program)
        if known is not None:
            guard_skipping.note_call(self, program, call, known)
            return [*known, call.structure]
        found = program.misfit(call)
        if not isinstance(found, str):
            guard_skipping.note(program, found[:-1])
        return found

    # ---- which calls are compiled ---------------------------------------------------------------

    def _has_to_wait(self) -> bool:
        """Whether a new form runs as it is, and is compiled when it occurs again."""
        return not self._is_known or self.unused >= UNUSED

    @property
    def unused(self) -> int:
        """How many programs only ran once."""
        return sum(program.calls < 2 for program in self.programs)

    def _compile_new(self, env: Environment, call: CallArguments) -> Program:
        """Compile a form that has not run yet; FirstTime if it has to run before."""
        return compile_program(self.memory, env, call)

    def _sight(self, call: CallArguments) -> Any:
        newest = next(reversed(self.programs), None)
        with natively():
            return call.key, newest and newest.guards.signature()

    def _first(self, env: Environment, call: CallArguments, args: Any, kwargs: Any) -> Any:
        """Run operator by operator, and watch which models and optimizers take part."""
        on_device: set[bool] = set()

        def watcher(_: Tensor) -> None:
            on_device.add(True)

        memory, sight = self.memory, self._sight(call)
        is_new = self.sets < UNUSED  # later ones rarely bring other code
        views.watchers.append(watcher)
        try:
            with memory.trainers.observed(), memory.watch.running(is_new):
                result = memory.function(*args, **kwargs)
        finally:
            views.watchers.remove(watcher)
        tensors = [isinstance(x, torch.Tensor) for x in pytree.tree_leaves(result)]
        if on_device:  # otherwise a program was told to run on the CPU
            self._count()
            with natively():
                if is_new:
                    memory.guards()  # now that more of its code is known
                after = CallArguments(memory, env, args, kwargs)
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

    def _count(self) -> None:
        self.sets = self.record.forms = self.sets + 1

    # ---- messages -------------------------------------------------------------------------------

    def _place(self) -> str:
        """The function's name in the report."""
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


_HERE = str(Path(__file__).parents[1]) + os.sep  # this package
