"""Watches a program: its losses, its gradients, what its modules compute, what it trains.

All of that needs values. If steps are compiled as a whole, compiled.py reports what can be seen of
them. Inputs and outputs of their modules can only be watched operator by operator
(`Watch.closely`).
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import padding
import scaling
import sharded
import torch
from gradients import norms, others
from program_events import Events
from randomness import is_traced
from recorded_process import Finished
from recorded_tensors import (
    compute_what_is_recorded,
    for_json,
    has_values,
    is_there,
    kept,
    leaves,
    now,
    unwrapped,
)
from recording_store import Store, name_of
from rounding import CONVOLUTIONS
from torch import nn
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

_SMALL = 2**16  # elements of a buffer that is compared after each step


class Watch(Events):
    """What was seen of a program, in the order in which it happened.

    ``events`` are dictionaries for JSON: `kind`, `name`, `step` (optimizer steps before it), `line`
    and `loop` of the program; tensors are in the store under the names that `tensors` lists.
    """

    def __init__(
        self,
        store: Store,
        steps: int,
        root: Path,
        stop: int | None = None,
        stop_calls: int | None = None,
    ) -> None:
        super().__init__(store, root)
        self.steps = steps
        self.stop, self.stop_calls = stop, stop_calls
        self.shortened = False  # why it ended
        self.begun: Counter[int] = Counter()  # steps, by optimizer
        self.last: dict[str, list[tuple[str, torch.Tensor]]] = {}  # states after the last of these
        self.parted: dict[str, list[tuple[str, torch.Tensor]]] = {}  # before ranks did
        self.trains = self.closely = False
        self.tracing: Any = None  # the trace of a program that JAX is tracing: compiled.Traced
        self.depth = 0
        self.calls: Counter[tuple[str, bool]] = Counter()
        self.trained: dict[int, tuple[str, nn.Module]] = {}
        # By id: a class may hash by attributes that aren't set yet, as torchmetrics' does.
        self.modules: weakref.WeakValueDictionary[int, nn.Module] = weakref.WeakValueDictionary()
        self.names: dict[int, tuple[str, nn.Module]] = {}
        self.taken: Counter[str] = Counter()
        self.started: set[int] = set()
        self.windows = padding.Windows()
        self.paused = False
        self.devices: set[str] = set()  # device types of tensors

    # ---- what happens ----------------------------------------------------------------------------

    def install(self, closely: bool, counting: bool = True) -> None:
        """Watch this process; `closely`: values of every step, too; `counting`: the steps."""
        self.closely = closely
        self._modules_made()
        self._optimizers_made()
        self.windows.follow()
        if closely:
            self.modules_called()
        if counting:
            register_optimizer_step_pre_hook(self._before_step)
            register_optimizer_step_post_hook(self._after_step)
            scaling.install()
            self._backward()

    def _modules_made(self) -> None:
        made = nn.Module.__init__
        watch = self

        def init(self: nn.Module, *args: Any, **kwargs: Any) -> None:
            made(self, *args, **kwargs)
            watch.modules[id(self)] = self

        nn.Module.__init__ = init  # type: ignore[method-assign]

    def _optimizers_made(self) -> None:
        made = Optimizer.__init__
        watch = self

        def init(self: Optimizer, *args: Any, **kwargs: Any) -> None:
            made(self, *args, **kwargs)
            watch._optimizer(self)

        Optimizer.__init__ = init  # type: ignore[method-assign]

    def _optimizer(self, optimizer: Optimizer) -> None:
        """Remember the parameters it trains, to read them at the end."""
        self.trains = True
        trained = {id(p) for group in optimizer.param_groups for p in group["params"]}
        holding = [
            m for m in list(self.modules.values()) if trained & {id(p) for p in m.parameters()}
        ]
        inner = {id(child) for m in holding for child in m.modules() if child is not m}
        for module in holding:
            if id(module) not in inner:
                self.name(module)
                self.trained[id(unwrapped(module))] = (self.name(module), unwrapped(module))

    def modules_called(self, training: bool = True) -> None:
        """Watch all calls of modules, or only those that evaluate."""
        called = nn.Module.__call__
        watch = self

        def call(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
            skipped = self.training and not training
            if watch.depth or watch.paused or skipped or not has_values() or not watch._wants(self):
                watch.depth += 1
                try:
                    return called(self, *args, **kwargs)
                finally:
                    watch.depth -= 1
            watch._start(self)
            about = {"training": self.training}
            name, given = watch.name(self), {**dict(enumerate(args)), **kwargs}
            padded = watch.windows.padding(given)
            watch._tensors("input", name, given, padded, **about)
            watch.depth += 1
            try:
                output = called(self, *args, **kwargs)
            finally:
                watch.depth -= 1
            watch._tensors("output", name, output, padded, **about)
            return output

        nn.Module.__call__ = call  # type: ignore[method-assign]

    def _wants(self, module: nn.Module) -> bool:
        """Whether this call of a module is one of the first, in training or in evaluation."""
        parameter = next(iter(module.parameters()), None)
        if parameter is not None and parameter.device.type == "meta":  # it computes shapes
            return False
        key = (self.name(module), module.training)
        self.calls[key] += 1
        if self.stop_calls is not None and not self.trains and self.calls[key] > self.stop_calls:
            if any(True for _ in module.parameters()):  # others may produce the data
                self._finish_early()
        return self.calls[key] <= self.steps

    def _finish_early(self) -> None:
        self.shortened = True
        raise Finished

    def _backward(self) -> None:
        engine = torch.autograd._engine_run_backward  # type: ignore[attr-defined]

        def run(roots: Any, *args: Any, **kwargs: Any) -> Any:
            # only `backward` accumulates; torch.autograd.grad returns gradients
            if kwargs.get("accumulate_grad") and not self.paused:
                self._losses([root for root in roots if isinstance(root, torch.Tensor)])
            return engine(roots, *args, **kwargs)

        torch.autograd._engine_run_backward = run  # type: ignore[attr-defined]

    def _losses(self, roots: list[torch.Tensor]) -> None:
        tensors = [scaling.before_scaling(root) for root in roots]
        if is_traced():
            if self.tracing is not None:
                self.tracing.happened.extend(tensors)
            return
        self.trains = True
        with self.at_rest():
            for tensor in tensors:
                if tensor.numel() == 1 and not tensor.is_complex():
                    self.loss(kept(tensor))

    def loss(self, tensor: torch.Tensor) -> None:
        def read() -> dict[str, Any]:
            value = now(tensor)
            return {"value": for_json(float(value)), "dtype": name_of(value.dtype) or "F32"}

        self.later("loss", "loss", lambda: is_there(tensor), read)

    def _before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> Any:
        if is_traced():
            if self.tracing is not None:
                self.tracing.stepped(optimizer)
            return None
        if self.paused:
            return None
        closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
        if closure is None or isinstance(optimizer, torch.optim.LBFGS):
            self._about_to_use(optimizer)
            return None

        def called() -> Any:
            result = closure()  # it makes the gradients, as in Lightning's training
            self._about_to_use(optimizer)
            return result

        if "closure" in kwargs:
            return args, {**kwargs, "closure": called}
        return (args[0], called, *args[2:]), kwargs

    def _about_to_use(self, optimizer: Optimizer) -> None:
        self.begin([optimizer])
        self.gradients(optimizer)
        if self.closely and self.step < self.steps:
            with self.at_rest():
                self._buffers()

    def begin(self, optimizers: list[Optimizer]) -> None:
        """These optimizers begin a step, which may be one more than needed."""
        if any(self.begun[id(optimizer)] == self.stop for optimizer in optimizers):
            self._finish_early()
        self.begun.update(map(id, optimizers))

    def gradients(self, optimizer: Optimizer) -> None:
        """The norms of gradients that an optimizer is about to use, or has used."""
        with self.at_rest():
            used = list(self.parameters(optimizer))
            about = {}
            if self.closely:
                about["others"] = others(self.names.values(), [p for _, p in used])
            found = norms(used, self.trained.values())
            self.later("gradients", type(optimizer).__name__, *found, **about)

    def _after_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if not self.paused and not is_traced():
            self.stepped(1)

    def stepped(self, number: int) -> None:
        """Count completed optimizer steps."""
        self.step += number
        if number and self.stop is not None and self.stop in self.begun.values():
            with self.at_rest():
                self.last = {name: self._state(module) for name, module in self.trained.values()}
        if number and self.store.wants_weights(self.step):
            for name, module in self.trained.values():
                self.state("weights", name, module)

    def parameters(self, optimizer: Optimizer) -> Iterator[tuple[str, torch.Tensor]]:
        names = {
            id(p): sharded.plain(f"{name}.{path}")
            for name, module in self.trained.values()
            for path, p in module.named_parameters()
        }
        for number, group in enumerate(optimizer.param_groups):
            for place, parameter in enumerate(group["params"]):
                yield names.get(id(parameter), f"group{number}.{place}"), parameter

    # ---- states ----------------------------------------------------------------------------------

    def _start(self, module: nn.Module) -> None:
        module = unwrapped(module)
        if id(module) in self.started:
            return
        self.started.add(id(module))
        self.state("start", self.name(module), module)

    def state(self, when: str, name: str, module: nn.Module) -> None:
        with self.at_rest():
            self.keep(when, name, self._state(module))

    def _state(self, module: nn.Module) -> list[tuple[str, torch.Tensor]]:
        """Parameters and buffers of a module."""
        found = sharded.state_dict(module).items()
        return [(path, self.kept(v)) for path, v in found if isinstance(v, torch.Tensor)]

    def _buffers(self) -> None:
        """Statistics that trained modules have collected so far."""
        for name, module in self.trained.values():
            found = [(sharded.plain(path), kept(b)) for path, b in module.named_buffers()
                     if b.numel() <= _SMALL]  # fmt: skip
            if found:
                self.keep("buffers", name, found)

    def leave_group(self) -> None:
        """Ranks leave their group: the last moment at which divided parameters can be read as a
        whole."""
        with self.at_rest():
            found = [(n, m) for n, m in self.trained.values() if sharded.has_parts(m)]
            self.parted = {name: self._state(module) for name, module in found}

    def finish(self) -> None:
        """The final states of trained objects; after the last step, if the next one was ended
        early."""
        last = self.parted | (self.last if self.shortened else {})
        with self.at_rest():
            for name, module in self.trained.values():
                self.keep("end", name, last.get(name) or self._state(module))
            while self.unread:
                self._write()

    # ---- keeping ---------------------------------------------------------------------------------

    def _tensors(
        self, kind: str, name: str, value: Any, padded: padding.Padding, **about: Any
    ) -> None:
        with self.at_rest():
            found = [(path, self.kept(tensor)) for path, tensor in leaves(value)]
            self.keep(kind, name, found, padded, **about)

    def keep(
        self,
        kind: str,
        name: str,
        found: list[tuple[str, torch.Tensor]],
        padded: padding.Padding = padding.NONE,
        **about: Any,
    ) -> None:
        """An event with the values of tensors, as `kept` returned them."""
        number = len(self.events)

        def read() -> dict[str, Any]:
            tensors = [(path, padded.without(now(tensor))) for path, tensor in found]
            if kind in ("input", "output"):
                tensors = padding.compared(kind, tensors)
            return {"tensors": self.stored(kind, name, number, tensors)}

        self.later(kind, name, lambda: all(is_there(tensor) for _, tensor in found), read, **about)

    def read(self) -> None:
        with self.at_rest():  # `self` may be a PerThread, which `super()` refuses
            Events.read(self)

    def finish_reading(self) -> None:
        with self.at_rest():
            Events.finish_reading(self)

    def kept(self, tensor: torch.Tensor) -> torch.Tensor:
        """The present values of a tensor; its device is noted."""
        self.devices.add(tensor.device.type)
        return kept(tensor)

    def name(self, module: nn.Module) -> str:
        """A module's class, with a number where there are several of them."""
        module = unwrapped(module)
        if id(module) not in self.names:
            kind = type(sharded.inner(module)).__name__
            self.taken[kind] += 1
            number = f"#{self.taken[kind]}" if self.taken[kind] > 1 else ""
            self.names[id(module)] = (kind + number, module)
        return self.names[id(module)][0]

    @property
    def convolves(self) -> bool:
        """Whether there is a layer that cuDNN computes."""
        return any(isinstance(module, CONVOLUTIONS) for module in list(self.modules.values()))

    def leave(self) -> None:
        """Stop watching, in a child of the program's process."""
        self.paused = True

    def restart(self, store: Store) -> None:
        """Start anew, in a child that is a rank."""
        self.left = self.store  # the parent's, whose buffers must not be written here
        self.store, self.events, self.paused = store, [], False
        self.unread.clear()

    def at_rest(self) -> _AtRest:
        """Don't watch while the recorder itself reads values."""
        return _AtRest(self)


class _AtRest:
    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.no_grad = torch.no_grad()

    def __enter__(self) -> None:
        self.before, self.watch.paused = self.watch.paused, True
        self.no_grad.__enter__()
        if not self.before:
            compute_what_is_recorded()

    def __exit__(self, *exception: Any) -> None:
        self.no_grad.__exit__(*exception)
        self.watch.paused = self.before
