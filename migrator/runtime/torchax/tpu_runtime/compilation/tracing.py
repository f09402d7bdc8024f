"""Find a function's inputs and outputs by tracing.

Every device tensor that it reads becomes an input: parameters, buffers, and optimizer state are
found through their owners, arguments and other tensors by their place. Written tensors are
outputs. It is traced until a trace finds nothing new; the tensors of models and optimizers are
known at once. Afterwards everything is as it was.
"""

import contextlib
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import torch
from torchax.tensor import Tensor

from ..dispatch.calls import is_leaf, natively
from ..distributed import mesh
from ..lazy import assertions
from ..lazy.lazy_arrays import form, stored
from ..profiling import module_scopes
from ..tensors import views
from . import learning_rates
from .closure_variables import set_item
from .compile_state import FirstTime, NotCompilable, Suspect
from .compiled_program import Array, Program, given_arrays, has_graph
from .differentiation import split
from .executable import Executable, Later
from .function_state import sharing
from .lowering import with_program_name
from .models_and_optimizers import settings
from .program_code import line_of, without_collector
from .result_templates import Template
from .side_effects import random_state_kept, silent
from .stateful_objects import keeps_state
from .trace_inputs import place_of
from .trace_outputs import Outputs
from .undo_log import equal, leaked


class Trace(Outputs):
    """One trace of a function; afterwards everything is as it was before."""

    def next(self) -> "Trace":
        return Trace(self.memory, self.env, self.call, self)

    def program(self, traced: Any) -> Program:
        backward = self.backward
        if backward is not None:
            forward, later, backward.reads = split(traced, self.forms, len(backward.reached))
            backward.program = Later(with_program_name(later, f"{self.memory.name}_backward"))
            traced = self._jitted(forward).trace(*jax.tree.map(form, self._given()))
        donated = 0 if self.differentiable else self.n_written + len(self.changing)
        compiled = Executable(traced, self.memory.name, donated)
        numbers = {id(t): i for i, t in enumerate(self.state)}
        slots = [
            (optimizer, parameter, name, numbers[id(value)])
            for optimizer in self.trainers.optimizers.values()
            for parameter, inner in optimizer.state.items()
            for name, value in inner.items()
            if id(value) in numbers
        ]
        with natively():
            parameters = self.trainers.parameters() if self.training else []
            return Program(
                self.memory, compiled, self.call.key, self.guards, sharing(self.structures),
                self.state, self.n_written, self.counted, slots, self.on_cpu,
                [(t, t._version) for t in self.guards.on_cpu if place_of(t) not in self.used],
                [(p, p.requires_grad, None if self.differentiable else p.grad is None)
                 for p in parameters],
                settings(self.trainers, self.varying), self.varying,
                self.leaves, self.with_gradient, self.learning, sorted(self.read), self.written,
                self.changing, self.stores, self.result, (self.asserted, self.assumptions),
                [number.taken() for number in self.call.numbers],
                {i for i, t in enumerate(self.inputs) if has_graph(t)}, backward,
                self.shardings,
            )  # fmt: skip

    # ---- one run --------------------------------------------------------------------------------

    def _given(self) -> tuple[Any, ...]:
        state, n = self.state, self.n_written
        with natively():
            if mesh.in_use() is not None:
                mesh.place_states(self.trainers.optimizers.values())
                mesh.place_on_mesh(state)
            written = list(map(stored, state[:n]))
            learning = [self._of(self.leaves[i]) for i in self.with_gradient]
            return given_arrays(
                self.env, self.memory, self.varying, written, state[n:], learning, self.on_cpu,
                self.inputs, self.changing,
            )  # fmt: skip

    def _jitted(self, function: Any) -> Any:
        # A tensor that a module has written may be needed again, to differentiate its gradient.
        donated = () if self.differentiable else (0,)
        return jax.jit(with_program_name(function, self.memory.name), donate_argnums=donated)

    def run(self) -> Any:
        passed = (*self.call.given[0], *self.call.given[1].values())
        if name := self.guards.stateful or ("an argument" if any(map(keeps_state, passed)) else ""):
            raise NotCompilable(f"it uses {name}, which changes when it is used")
        given = jax.tree.map(form, self._given())
        self.shardings = mesh.shardings(given)
        for number in self.call.numbers:
            number.taken()
        cotangents = [jax.ShapeDtypeStruct(*form) for form in self.forms_before]
        later = [cotangents] if cotangents else []
        try:
            with self.trainers.observed(known=True), random_state_kept():
                traced = self._jitted(self._pure).trace(*given, *later)
        except (FirstTime, NotCompilable):
            raise
        except Suspect as suspect:
            raise FirstTime from suspect
        except jax.errors.JAXTypeError as error:
            why = line_of(error) or _first_line(error)
            raise NotCompilable(f"it reads a value of the device ({why})") from error
        except Exception as error:  # if it is the program's own, running it will raise it again
            why = f"{type(error).__name__}: {_first_line(error)}"
            why += f", at {where}" if (where := line_of(error)) else ""
            raise NotCompilable(f"it cannot be traced ({why})") from error
        finally:
            # The others were created in the trace, and hold tracers.
            self.found = {i: leaf for i, leaf in self.found.items() if i in self.guards.fixed}
            changed = [pair for pair in self.guards.arrays if not equal(*pair)]
            for array, before in changed:
                array[...] = before
        if changed:
            raise NotCompilable("it changes a NumPy array")
        if self.makes_state:
            raise FirstTime
        if self.trains and (self.differentiable or not self.training):
            raise NotCompilable("it computes gradients")
        if self.flips:
            raise NotCompilable("it changes requires_grad of a parameter")
        older = self.inspection.tensors if self.inspection is not None else ()
        kept = leaked(self._trace, older) if self.is_first or cotangents else []
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
        cotangents: Sequence[Array] = (),
    ) -> Any:
        env = self.env
        written, arrays = self._apart(written, arrays)
        with self._restored():
            state = self._whole([*written, *read])
            for tensor, array in zip(self.state, state, strict=True):
                tensor.__dict__["_elem"] = array
            wrappers = self._wrap(arrays)
            self._gradients = {
                number: Tensor(array, env)
                for number, array in zip(self.with_gradient, gradients, strict=True)
            }
            for number, gradient in self._gradients.items():
                self._leaf(number, wrappers).grad = gradient
            own_rates = self._set_rates(numbers)
            env.param.prng = key
            self._trace = weakref.ref(key._trace)
            args, kwargs = self._substitute(wrappers)
            snapshot = self._snapshot()
            with natively():
                versions = [tensor._version for tensor in self.state[: self.n_written]]
            try:
                owner = module_scopes.scope_of_module(self.memory.watch.owner)
                steps = learning_rates.as_tensors(self.inspection)
                with (
                    self._watched(moved, wrappers), self._listening(), steps, owner,
                    assertions.collected(key._trace) as conditions,
                ):  # fmt: skip
                    result = self.memory.function(*args, **kwargs)
                with self._watched(moved, wrappers), natively():
                    self._wrappers = wrappers
                    self.result = Template(result, self.outgoing, self.call.structure)
                    self.stores = self._stores(snapshot)
                    asserted = [condition for condition, _ in conditions]
                    self.asserted = Template(asserted, self.outgoing)
                    self.assumptions = [assumption for _, assumption in conditions]
                del result, asserted, conditions
                of_inputs = []
                if self.differentiable:
                    with self._watched(moved, wrappers), self._listening():
                        of_inputs = self._differentiate(cotangents, wrappers)
                    if len(snapshot.changes()) != len(self.stores):
                        raise NotCompilable("it remembers something in a backward pass")
            finally:
                snapshot.restore()
            if any(a is not b for a, b in zip(own_rates, self._rates(), strict=True)):
                raise NotCompilable("it changes the learning rate; do that outside")
            with natively():
                self.counted = [i for i, v in enumerate(versions) if self.state[i]._version != v]
                return *self._outputs(state, gradients, arrays, wrappers), of_inputs

    def _apart(self, written: list[Array], arrays: list[Array]) -> tuple[list[Array], list[Array]]:
        """The state that it changes, and all inputs in order."""
        owned, others = iter(written[self.n_written :]), iter(arrays)
        numbers = range(len(self.inputs))
        inputs = [next(owned if i in self.changing else others) for i in numbers]
        return written[: self.n_written], inputs

    def _whole(self, state: list[Array]) -> list[Array]:
        """The arrays of the state; gathered for a model's parameters."""
        if mesh.in_use() is None or not self.trainers.modules:
            return state
        return [
            mesh.gather(array, place) if isinstance(tensor, torch.nn.Parameter) else array
            for tensor, array, place in zip(self.state, state, self.shardings, strict=False)
        ]

    @contextlib.contextmanager
    def _listening(self) -> Iterator[None]:
        """Which code runs is known after the first trace; printing is refused in every trace."""
        watch, inspection = self.memory.watch, self.inspection
        looking = inspection or watch.running(self.is_first)
        with without_collector(), looking, silent() as printed:
            yield
        if inspection is None and watch.is_blind:
            raise NotCompilable("a profiler is at work, and what it depends on cannot be watched")
        if printed:
            raise NotCompilable(printed[0])

    def _wrap(self, arrays: list[Array]) -> list[Tensor]:
        """Separate tensors for the arguments: nothing of the trace stays in the caller's."""
        return [
            Tensor(array, self.env, tensor.requires_grad and (self.training or is_leaf(tensor)))
            for array, tensor in zip(arrays, self.inputs, strict=True)
        ]

    def _set_rates(self, numbers: list[Any]) -> list[Any]:
        groups = self.trainers.groups()
        learning_rates.set_settings(self.env, groups, self.varying, numbers[len(groups) :])
        for group, number in zip(groups, numbers, strict=False):
            if number is not None:
                group["lr"] = Tensor(number, self.env)
            if group.get("foreach"):  # doesn't accept a tensor as rate; here it isn't faster
                group["foreach"] = False
        return self._rates()

    def _rates(self) -> list[Any]:
        return [group["lr"] for group in self.trainers.groups()]

    def _substitute(self, wrappers: list[Tensor]) -> Any:
        """Put the wrappers in place of the tensors; returns the arguments."""
        others = {id(t): w for t, w in zip(self.inputs, wrappers, strict=True)}

        def exchange(holder: Any, name: Any, value: Any) -> None:
            self._undo.append((holder, name, holder[name]))
            set_item(holder, name, value)

        for (holder, name, *_), structure in zip(self.guards.places, self.structures, strict=False):
            value = structure.with_tensors(others, exchange)
            if value is not structure.value:
                exchange(holder, name, value)
        return self.call.structure.with_tensors(others, exchange)

    @contextlib.contextmanager
    def _watched(self, inputs: list[Array], wrappers: list[Tensor]) -> Iterator[None]:
        known = {id(tensor) for tensor in self.state}
        given = {id(wrapper): number for number, wrapper in enumerate(wrappers)}
        moved = {place_of(t): array for t, array in zip(self.on_cpu, inputs, strict=True)}

        def watch(tensor: Tensor) -> None:
            number = given.get(id(tensor))
            if number is not None:
                self.read.add(number)
                return
            with natively():
                if tensor.requires_grad and is_leaf(tensor) and id(tensor) not in self.found:
                    self.found[id(tensor)] = tensor
                    self._first_gradients.append((tensor, tensor.grad))
            if tensor.__dict__.get("_link") is not None:
                return
            self.touched.add(id(tensor))
            array = tensor.__dict__["_elem"]
            if id(tensor) not in known and not isinstance(array, jax.core.Tracer):
                if id(tensor) not in self.unknown:
                    self.unknown[id(tensor)] = tensor
                    self._first_values.append((tensor, array))

        move: Any = self.env.t2j_copy

        def moving(tensor: torch.Tensor) -> Any:
            place = place_of(tensor)
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
        key = self.env.param.__dict__["prng"]
        parameters = [*(x for x in self.leaves if not isinstance(x, int))]
        parameters += self.trainers.parameters()
        with natively():
            gradients = [(p, p.grad, p.requires_grad) for p in parameters]
        try:
            yield
        finally:
            with natively():
                self.flips = any(p.requires_grad != required for p, _, required in gradients)
                self.trains = any(p.grad is not gradient for p, gradient, _ in gradients)
                for tensor, gradient in self._first_gradients:
                    tensor.grad = gradient
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
                set_item(holder, name, value)
            self._undo.clear()
            self._first_gradients.clear()
            self._wrappers, self._results, self._gradients = [], [], {}


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
