"""Finding out by tracing what goes into a function and comes out of it.

Every device tensor that it reads becomes an input: parameters, buffers, an optimizer's state where
they are found by their owners, arguments and other tensors by their place. What is written comes
out. It is traced until a trace finds nothing that was not known before; what belongs to models and
optimizers is known at once. Afterwards all is as it was.
"""

import contextlib
import random
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np
import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torchax.tensor import Environment, Tensor

from . import lowering, mesh, scopes, views
from .calls import is_device_tensor
from .differentiation import Backward, split
from .fresh_state import is_known
from .guards import Guards, Snapshot, leaked, put, without_callbacks
from .innocent import Inspection, Suspect
from .programs import (
    Array,
    Call,
    FirstTime,
    Memory,
    NotCompilable,
    Program,
    Template,
    given_arrays,
    has_graph,
    natively,
    root,
    settings,
    sharing,
    unique,
)
from .silence import silent
from .structures import MISSING


class GradientUsed(FirstTime):
    """What was expected to be dropped was looked at."""


class Trace:
    """One tracing of a function; afterwards all is as it was before."""

    def __init__(
        self,
        memory: Memory,
        env: Environment,
        call: Call,
        before: "Trace | None",
        inspection: Inspection | None = None,
        expecting: bool = False,
    ) -> None:
        self.memory, self.env, self.call = memory, env, call
        self.trainers = memory.trainers
        self.is_first = before is None
        self.inspection = inspection  # of a function that has not run yet
        self.training = torch.is_grad_enabled()
        self.differentiable = self.training and memory.differentiable
        with natively():
            self._look(memory.guards(call.structure))
            self.inputs = unique(self.structures)
            self._learn(before)
            self.with_gradient = [
                i for i, leaf in enumerate(self.leaves)
                if self._of(leaf).grad is not None and not self.differentiable
            ]  # fmt: skip
            # Leaves without a gradient now that will have one at the next call, which is dropped.
            self.expected = before.expected if before is not None else [
                i for i, leaf in enumerate(self.leaves)
                if expecting and not isinstance(leaf, int) and leaf.grad is None
            ]  # fmt: skip
        self.unknown: dict[int, Tensor] = {}
        self.touched: set[int] = set()  # ids of the tensors that were read or written
        self.found: dict[int, torch.Tensor] = {}  # leaves whose values were asked for
        self.moved: dict[Any, torch.Tensor] = {}  # CPU tensors that became part of the program
        self.values: list[tuple[Any, torch.Tensor]] = []  # their places and values, in order
        self.used: set[Any] = set()  # places of the CPU tensors that were inputs
        self.changed: set[int] = set()  # state that was written
        self.counted: list[int] = []
        self.written: list[int] = []
        self.read: set[int] = set()
        self.learning: list[int] = []
        self.dropped: list[int] = []
        self.stores: list[tuple[Any, Any, Template]] = []
        self.result: Any = None
        # Of a module: which of its results have a graph, and the forms of their gradients.
        self.attached: list[int] = []
        self.forms: list[tuple[Any, Any]] = []
        self.forms_before = before.forms if before is not None else []
        self.backward: Backward | None = None
        self._results: list[Any] = []
        self._first_values: list[tuple[Tensor, Array]] = []  # of those that were not known
        self._undo: list[tuple[Any, Any, Any]] = []

    def next(self) -> "Trace":
        return Trace(self.memory, self.env, self.call, self)

    def _look(self, guards: Guards) -> None:
        self.guards = guards
        structures = guards.structures()
        assert not isinstance(structures, str)
        self.call.look(self.memory, self.call.structure.value)
        self.structures = [*structures, self.call.structure]

    def _learn(self, before: "Trace | None") -> None:
        """Take what the trace before has found, or what may be known without one."""
        inputs = {id(t): i for i, t in enumerate(self.inputs)}
        requiring: list[Any] = [
            i for i, t in enumerate(self.inputs) if t.requires_grad and t.is_leaf
        ]
        if before is None:
            written, read = self.trainers.state(self.training and not self.differentiable)
            self.state: list[Any] = [t for t in (*written, *read) if id(t) not in inputs]
            self.n_written = sum(id(t) not in inputs for t in written)
            self.on_cpu: list[torch.Tensor] = []
            self.moved_before: dict[Any, torch.Tensor] = {}
            own = [t for t in self.state if t.requires_grad and t.is_leaf]
            self.leaves: list[Any] = [*own, *requiring] if self.training else []
            return
        kept = {id(leaf): leaf for leaf in before.leaves if not isinstance(leaf, int)}
        leaves = [leaf for i, leaf in (kept | before.found).items() if i not in inputs]
        if not self.training:
            leaves, requiring = [], []
        owned = [leaf.grad for leaf in leaves if leaf.grad is not None]
        gradients = {id(g) for g in owned} | {root(g) for g in owned}  # come with their leaves
        self.leaves = [*leaves, *requiring]
        # What was not met again was made in a trace, from values that were no inputs yet.
        known = {id(t): t for t in before.state if id(t) in before.touched} | before.unknown
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

    def follows(self, before: "Trace | None") -> bool:
        """Whether it found nothing that was not known before."""
        if not self._knows_surroundings():
            return False
        if any(id(t) not in self.touched for t in self.state):
            return False
        if self.unknown or self.changed != {id(t) for t in self.state[: self.n_written]}:
            return False
        if self.moved.keys() & self.moved_before.keys() or self.forms != self.forms_before:
            return False
        if any(_place(tensor) not in self.used for tensor in self.on_cpu):
            return False
        if self.training and not set(self.found) <= {id(self._of(x)) for x in self.leaves}:
            return False
        if before is None:
            return not self.moved
        if not _same(before.constants(self.used), self.constants(self.used)):
            raise NotCompilable("it draws random numbers on the CPU; draw them outside")
        return True

    def leaves_gradients(self) -> bool:
        """Whether leaves without a gradient have one afterwards, which counts at the next call."""
        return not {*self.learning} <= {*self.with_gradient, *self.expected}

    def _knows_surroundings(self) -> bool:
        """Whether what it depends on in Python was known when it began."""
        before, now = self.guards, self.memory.guards(self.call.structure)
        known, places = len(before.values), [place[3] for place in before.places]
        if places != [place[3] for place in now.places]:
            return False
        if self.inspection is None or self.stores:
            return known == len(now.values) and before.names == now.names
        # Code that does nothing but compute has left all as it was.
        with natively():
            self._look(now)
            return list(map(id, unique(self.structures))) == list(map(id, self.inputs))

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
        with natively():
            shared = {root(t) for t in self.inputs} & {id(t) for t in self.state}
            pattern = sharing(self.structures)
            if shared or (pattern and self.written and pattern[0] != pattern[1]):
                raise NotCompilable("it is given a tensor and a view of it")

    def program(self, traced: Any) -> Program:
        backward = self.backward
        if backward is not None:
            forward, later, backward.reads = split(traced, self.forms, len(backward.reached))
            backward.program = jax.jit(_named(later, f"{self.memory.name}_backward"))
            traced = self._jitted(forward).trace(*self._given())
        compiled = lowering.compiled(traced, self.memory.name)
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
            expected = [self.leaves[i] for i in self.expected]
            of_no_matter = set(map(id, parameters if self.differentiable else expected))
            return Program(
                self.memory, compiled, self.call.key, self.guards, sharing(self.structures),
                self.state, self.n_written, self.counted, slots, self.on_cpu,
                [(t, t._version) for t in self.guards.on_cpu if _place(t) not in self.used],
                [(p, p.requires_grad, None if id(p) in of_no_matter else p.grad is None)
                 for p in parameters],
                settings(self.trainers), self.leaves, self.with_gradient, self.learning,
                self.dropped, sorted(self.read), self.written, self.stores, self.result,
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
                mesh.place(state)
            written = [tensor.__dict__["_elem"] for tensor in state[:n]]
            learning = [self._of(self.leaves[i]) for i in self.with_gradient]
            return given_arrays(
                self.env, self.memory, written, state[n:], learning, self.on_cpu, self.inputs
            )

    def _jitted(self, function: Any) -> Any:
        # What a module has written may be needed again, if its gradient is differentiated.
        donated = () if self.differentiable else (0,)
        return jax.jit(_named(function, self.memory.name), donate_argnums=donated)

    def run(self) -> Any:
        given = self._given()
        self.shardings = mesh.shardings(given)
        for number in self.call.numbers:
            number.taken()
        cotangents = [jax.ShapeDtypeStruct(*form) for form in self.forms_before]
        later = [cotangents] if cotangents else []
        try:
            with self.trainers.observed(known=True), _random_state_kept():
                traced = self._jitted(self._pure).trace(*given, *later)
        except (FirstTime, NotCompilable):
            raise
        except Suspect as suspect:
            raise FirstTime from suspect
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
        if self.trains and (self.differentiable or not self.training):
            raise NotCompilable("it computes gradients")
        if self.flips:
            raise NotCompilable("it changes requires_grad of a parameter")
        older = self.inspection.tensors if self.inspection is not None else ()
        kept = leaked(self._tracer, older) if self.is_first or cotangents else []
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
        with self._restored():
            state = self._whole([*written, *read])
            for tensor, array in zip(self.state, state, strict=True):
                tensor.__dict__["_elem"] = array
            wrappers = self._wrap(arrays)
            for number, array in zip(self.with_gradient, gradients, strict=True):
                self._leaf(number, wrappers).grad = Tensor(array, env)
            expected = self._expect_gradients()
            own_rates = self._set_rates(numbers)
            env.param.prng = self._tracer = key
            args, kwargs = self._substitute(wrappers)
            snapshot = self._snapshot()
            with natively():
                versions = [tensor._version for tensor in self.state[: self.n_written]]
            try:
                owner = scopes.of(self.memory.watch.owner)
                steps = _compiling(self.inspection)
                with self._watched(moved, wrappers), self._listening(), steps, owner:
                    result = self.memory.function(*args, **kwargs)
                with self._watched(moved, wrappers), natively():
                    self._wrappers = wrappers
                    self.result = Template(result, self.outgoing)
                    self.stores = self._stores(snapshot)
                del result
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
                self._check_expected(expected)
                return *self._outputs(state, gradients, arrays, wrappers), of_inputs

    def _expect_gradients(self) -> dict[int, Tensor]:
        """Gradients of the call before, whose values do not matter: they are to be dropped."""
        leaves = {i: self.leaves[i] for i in self.expected}
        with natively():
            for leaf in leaves.values():
                leaf.grad = Tensor(leaf.__dict__["_elem"], self.env)
            return {i: leaf.grad for i, leaf in leaves.items()}

    def _check_expected(self, gradients: dict[int, Tensor]) -> None:
        for i, gradient in gradients.items():
            leaf = self.leaves[i]
            if leaf.grad is gradient and not {id(leaf), id(gradient)} & self.touched:
                leaf.grad = None  # of a parameter that does not take part
                self.expected.remove(i)
            elif leaf.grad is gradient or id(gradient) in self.touched:
                raise GradientUsed

    def _whole(self, state: list[Array]) -> list[Array]:
        """The arrays of the state; those of a model's parameters as a whole."""
        if mesh.in_use() is None or not self.trainers.modules:
            return state
        return [
            mesh.gather(array, place) if isinstance(tensor, torch.nn.Parameter) else array
            for tensor, array, place in zip(self.state, state, self.shardings, strict=False)
        ]

    @contextlib.contextmanager
    def _listening(self) -> Iterator[None]:
        """Whose code runs is known after the first trace; printing is refused in every one."""
        watch, inspection = self.memory.watch, self.inspection
        looking = inspection or watch.running(self.is_first)
        with without_callbacks(), looking, silent() as printed:
            yield
        if inspection is None and watch.is_blind:
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
            stores.append((holder, name, Template(new, self.outgoing)))
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
        base = root(tensor)
        if base in old:
            raise NotCompilable("it returns a view of a tensor that is there before")
        for number, other in enumerate(self._results):
            if other is tensor:
                return "new", number
            if root(other) == base:
                if views.is_whole(other) and views.is_whole(tensor) and not tensor.requires_grad:
                    return "alias", number
                if views.overlap(other, tensor):
                    raise NotCompilable("it returns tensors that share memory")
        self._results.append(tensor)
        return "new", len(self._results) - 1

    def _differentiate(self, cotangents: Sequence[Array], wrappers: list[Tensor]) -> list[Array]:
        """The gradients of what a module's results depend on, from those of its results."""
        with natively():
            self._check_graphs(wrappers)
            results = [self._results[i] for i in self.attached]
            used = [n for n in range(len(results)) if n in (self.memory.used or [n])]
            self.forms = [(results[n].jax().shape, results[n].jax().dtype) for n in used]
            graphs = [i for i, t in enumerate(self.inputs) if has_graph(t)]
            leaves = [_leaves(result) for result in results]
            pairs = [(x, wrappers[x] if isinstance(x, int) else x) for x in (*self.leaves, *graphs)]
            pairs = [
                (x, tensor) for x, tensor in pairs if any(id(tensor) in ends for ends in leaves)
            ]
        if not cotangents or not pairs or self.forms != self.forms_before:
            return []
        found = torch.autograd.grad(
            [results[n] for n in used], [tensor for _, tensor in pairs],
            [Tensor(array, self.env) for array in cotangents], allow_unused=True,
        )  # fmt: skip
        with natively():
            reached = [n for n, gradient in enumerate(found) if gradient is not None]
            self.backward = Backward(
                self.memory, self.attached, used, self.forms, [x for x, _ in pairs],
                [{n for n, (_, t) in enumerate(pairs) if id(t) in these} for these in leaves],
                reached, [t.requires_grad for t in self.inputs],
            )  # fmt: skip
            return [gradient.jax() for gradient in found if gradient is not None]

    def _check_graphs(self, wrappers: list[Tensor]) -> None:
        """Only what a module returns or stores may have a graph."""
        self.attached = [i for i, result in enumerate(self._results) if result.requires_grad]
        if any(self._results[i].is_leaf for i in self.attached):
            raise NotCompilable("it makes a tensor that requires a gradient")
        if any(has_graph(t) for t in (*self.state, *wrappers)):
            raise NotCompilable("it changes a tensor in place, with a graph")
        hooked = any(
            hooks
            for module in self.trainers.modules.values()
            for hooks in (module._backward_hooks, module._backward_pre_hooks)
        )
        leaves = (x for x in self.leaves if not isinstance(x, int))
        if hooked or _global_hooks() or any(leaf._backward_hooks for leaf in leaves):
            raise NotCompilable("it has hooks on its backward pass")

    def _outputs(
        self,
        state: list[Array],
        gradients: list[Array],
        arrays: list[Array],
        wrappers: list[Tensor],
    ) -> Any:
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
        self.learning = []
        if not self.differentiable:
            now_there = {
                i: leaf.grad.jax() for i, leaf in enumerate(leaves) if leaf.grad is not None
            }
            before = dict(zip(self.with_gradient, gradients, strict=True))
            self.learning = [i for i, array in now_there.items() if before.get(i) is not array]
            there_before = [*self.with_gradient, *self.expected]
            self.dropped = [i for i in there_before if i not in now_there]
        gradients = [leaves[i].grad.jax() for i in self.learning]
        new, inputs = now[: self.n_written], [given[i] for i in self.written]
        if mesh.in_use() is not None:
            places = dict(zip(map(id, self.state), self.shardings, strict=False))
            new = list(map(mesh.stay, new, self.shardings))
            of_leaves = [places.get(id(leaves[i])) for i in self.learning]
            gradients = list(map(mesh.stay, gradients, of_leaves))
        results = [result.jax() for result in self._results]
        return new, inputs, gradients, self.env.prng_key, results

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
            with natively():
                if tensor.requires_grad and tensor.is_leaf:
                    self.found.setdefault(id(tensor), tensor)
            if tensor.__dict__.get("_link") is not None:
                return
            self.touched.add(id(tensor))
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
        with natively():
            gradients = [(p, p.grad, p.requires_grad) for p in parameters]
        try:
            yield
        finally:
            with natively():
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


@contextlib.contextmanager
def _compiling(inspection: Inspection | None) -> Iterator[None]:
    """Optimizers keep their counts and rates as tensors when they think that they are compiled."""
    pauses = contextlib.ExitStack()

    def begin(optimizer: Any, args: Any, kwargs: Any) -> None:
        torch.compiler._is_compiling_flag = True
        if inspection is not None and len(args) == 1 and not kwargs and is_known(optimizer):
            pauses.enter_context(inspection.paused())

    def end(*_: Any) -> None:
        torch.compiler._is_compiling_flag = False
        pauses.close()

    handles = register_optimizer_step_pre_hook(begin), register_optimizer_step_post_hook(end)
    try:
        yield
    finally:
        end()
        for handle in handles:
            handle.remove()


def _named(function: Any, name: str) -> Any:
    """The function under the name that its program is to have."""

    def program(*args: Any) -> Any:
        return function(*args)

    program.__name__ = name
    return program


def _global_hooks() -> bool:
    """Whether there are hooks on the backward passes of all modules."""
    module = torch.nn.modules.module
    return bool(module._global_backward_hooks or module._global_backward_pre_hooks)


def _leaves(tensor: Any) -> dict[int, Any]:
    """The leaves of the graph of a tensor, by their ids."""
    found: dict[int, Any] = {}
    seen, left = set(), [tensor.grad_fn]
    while left:
        node = left.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        left += [following for following, _ in node.next_functions]
        leaf = getattr(node, "variable", None)
        if leaf is not None:
            found[id(leaf)] = leaf
    return found


def _place(tensor: torch.Tensor) -> Any:
    """Where a CPU tensor lies: the same for all aliases of it."""
    return tensor.data_ptr(), tuple(tensor.shape), tensor.stride()


def _same(some: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    return len(some) == len(others) and all(
        a.shape == b.shape and a.dtype == b.dtype and torch.equal(a, b)
        for a, b in zip(some, others, strict=True)
    )
