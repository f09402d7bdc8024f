"""Every operation and every module of one step: what it gives, and the gradient that comes back.

Large tensors are not kept whole: see `Trace._sample`.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import Any

import torch
from recorded_process import Finished
from recorded_tensors import has_gradient, is_transformed, leaves, on_host, unwrapped
from torch import nn
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.overrides import TorchFunctionMode
from watch_training import Watch

WHOLE = 2**14  # elements of a tensor that is stored whole; of a larger one, about as many numbers
_OPERATIONS = 50_000  # bytes stored per step
_BEFORE = 1000  # bytes stored from before the first module
_TRANSPARENT = {"to", "cuda", "cpu", "clone", "contiguous"}  # places that keep type and gradient
_GIVE_TENSORS = {"T", "mT", "H", "mH", "data", "real", "imag"}  # of the attributes
_OWN_METHODS = {"detach", "flatten", "type_as", "__setitem__"}
_UNSET = {"empty", "empty_like", "empty_strided", "new_empty"}  # whose results are random
_SETTING = {"fill_", "zero_", "copy_", "normal_", "uniform_", "random_", "bernoulli_"}
# Functions that only query something, or aren't part of the computation.
_NOT_SEEN = {"size", "dim", "numel", "item", "tolist", "backward", "register_hook", "stride",
             "requires_grad_", "is_floating_point", "__len__", "__repr__", "__format__",
             "__hash__", "retain_grad", "is_contiguous", "data_ptr", "numpy"}  # fmt: skip

Inputs = list[tuple[str, torch.Tensor]]


class OperationTrace(TorchFunctionMode):
    """Adds events to those of ``watch``, for the step that is numbered ``step``.

    * `op`: `name`, the `module` and its `call` in which it ran, `number`; samples of its tensors:
      `tensors` (what it gives), `reads` (what it takes that no operation of this step has made) and
      `writes` (buffers, after it); `inputs` (operation and place that each tensor comes from),
      `arguments` (numbers), `wanted` (what it takes that has a gradient), `wants` (whether what it
      gives has one).
    * `module`: `tensors`, and `writes` (its own buffers).
    * `grad`: the gradient of `place` in operation `of`.
    """

    def __init__(self, watch: Watch, step: int) -> None:
        super().__init__()
        self.watch, self.focus = watch, step
        self.active = self.entered = self.inside = False
        self.stack: list[tuple[str, int]] = []
        self.calls: Counter[str] = Counter()
        self.paths: dict[int, str] = {}  # of modules, and of their parameters and buffers
        self.buffers: set[int] = set()
        self.made: weakref.WeakKeyDictionary[nn.Module, str] = weakref.WeakKeyDictionary()
        self.known: dict[int, tuple[Any, int, str]] = {}  # tensors: what made them
        self.number = self.sampled = 0
        self.early: deque[tuple[dict[str, Any], list[Any]]] | None = deque(maxlen=_BEFORE)

    def install(self, runtime: Any) -> None:
        """Watch this process. ``runtime``: that of migrated code, or None.

        Its `setup` puts torchax between torch and the program; this has to stand before it.
        """
        self._modules()
        register_optimizer_step_pre_hook(self._before_step)
        register_optimizer_step_post_hook(self._after_step)
        setup = getattr(runtime, "setup", None)
        if setup is None:
            self._enter()
            return

        @functools.wraps(setup)
        def set_up(*args: Any, **kwargs: Any) -> Any:
            result = setup(*args, **kwargs)
            self._enter()
            return result

        runtime.setup = set_up

    def _enter(self) -> None:
        if not self.entered:
            self.entered = True
            self._own_methods()
            self.__enter__()
            self.active = self.focus == self.watch.step

    def _own_methods(self) -> None:
        """Let methods that torchax's tensors define themselves pass through torch's functions."""
        module = sys.modules.get("torchax.tensor")
        for name, value in list(vars(module.Tensor).items()) if module is not None else ():
            if name in _OWN_METHODS and callable(value):
                setattr(module.Tensor, name, self._seen(name, value))  # type: ignore[union-attr]
            elif name in _GIVE_TENSORS and isinstance(value, property) and value.fget is not None:
                setattr(module.Tensor, name, value.getter(self._seen(name, value.fget)))  # type: ignore[union-attr]

    def _seen(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            return self.__torch_function__(named, (), args, kwargs)

        def named(*args: Any, **kwargs: Any) -> Any:
            return method(*args, **kwargs)

        named.__name__, named.__qualname__ = name, f"Tensor.{name}"
        return call

    # ---- steps and modules -----------------------------------------------------------------------

    def _before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        self.active = False
        self.watch.step += 1

    def _after_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if self.watch.step == self.focus + 1:
            self.flush()
            with self.watch.at_rest():
                found = [(p, t.detach()) for p, t in self.watch.parameters(optimizer)]
                self.watch.step -= 1  # it belongs to the step that it ends
                self._operation(f"{type(optimizer).__name__}.step", found, [], {}, {}, [])
            raise Finished
        self.active = self.entered and self.watch.step == self.focus

    def _modules(self) -> None:
        called, created, moved = nn.Module.__call__, nn.Module.__init__, nn.Module._apply
        trace = self

        def apply(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
            return trace._unseen(moved, self, *args, **kwargs)

        def init(self: nn.Module, *args: Any, **kwargs: Any) -> None:
            created(self, *args, **kwargs)
            code = getattr(type(self).__init__, "__code__", None)
            if code is None or not trace.watch.is_own(code.co_filename):  # else: in its own class
                trace.made[self] = trace.watch.line()

        def call(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
            trace._enter()  # if the program has not set up a runtime
            module = unwrapped(self)
            if not trace.active or trace.watch.paused or is_transformed() or module is not self:
                return called(self, *args, **kwargs)
            path = trace._path(self)
            trace.calls[path] += 1
            within = path, trace.calls[path]
            if not trace.stack and within[1] > trace.watch.steps:
                return trace._unseen(called, self, *args, **kwargs)
            trace.flush()
            trace.stack.append(within)
            try:
                output = called(self, *args, **kwargs)
            finally:
                trace.stack.pop()
            trace._module(self, within, output)
            return output

        nn.Module._apply = apply  # type: ignore[method-assign]
        nn.Module.__init__ = init  # type: ignore[method-assign]
        nn.Module.__call__ = call  # type: ignore[method-assign]

    def _unseen(self, called: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        active, self.active = self.active, False
        try:
            return called(*args, **kwargs)
        finally:
            self.active = active

    def _path(self, module: nn.Module) -> str:
        if not self.stack or id(module) not in self.paths:
            name = self.watch.name(module)
            if self.stack:
                name = f"{self.stack[-1][0]}.{name}"
            for path, inner in module.named_modules(prefix=name):
                self.paths[id(inner)] = path
            for path, value in module.named_parameters(prefix=name):
                self.paths[id(value)] = path
            for path, value in module.named_buffers(prefix=name):
                self.paths[id(value)] = path
                self.buffers.add(id(value))
        return self.paths[id(module)]

    def _module(self, module: nn.Module, within: tuple[str, int], output: Any) -> None:
        with self.watch.at_rest():
            outputs = list(leaves(output))
            own = [(name, b) for name, b in module._buffers.items()
                   if b is not None and b.numel() <= WHOLE]  # fmt: skip
            self._keep("module", within[0], call=within[1], made=self.made.get(module, ""),
                       samples={"tensors": outputs, "writes": own})  # fmt: skip

    # ---- operations ------------------------------------------------------------------------------

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = name_of(func)
        last = name.rpartition(".")[2]
        if (
            not self.active
            or self.inside
            or self.watch.paused
            or last in _NOT_SEEN
            or is_transformed()
            or self.number >= _OPERATIONS
        ):
            if last == "backward":
                self.flush()
            return func(*args, **kwargs)
        given = {**dict(enumerate(args)), **kwargs}
        inputs = list(leaves(given))
        wanted = [path for path, t in inputs if has_gradient(t)]
        reads = {}
        if last not in _SETTING and not name.startswith("torch.nn.init."):
            with self.watch.at_rest():
                reads = {p: on_host(t) for p, t in inputs if self._source(t) is None}
        self.inside = True  # its inputs were not seen
        try:
            result = func(*args, **kwargs)
        finally:
            self.inside = False
        outputs = list(leaves(args[0] if last == "__setitem__" else result))
        if not outputs:
            return result
        if last in _TRANSPARENT and inputs and self._is_same(inputs[0][1], outputs):
            source = self._source(inputs[0][1])
            if source is not None:
                self.known[id(outputs[0][1])] = (weakref.ref(outputs[0][1]), *source)
            return result
        with self.watch.at_rest():
            self._operation(name, outputs, inputs, reads, dict(_numbers(given)), wanted)
        return result

    def _operation(self, name: str, outputs: Inputs, inputs: Inputs,
                   reads: dict[str, torch.Tensor], numbers: dict[str, Any],
                   wanted: list[str]) -> None:  # fmt: skip
        self.number += 1
        number = self.number
        given = {id(t) for _, t in outputs}
        states = [t for _, t in inputs if id(t) in self.buffers and id(t) not in given]
        writes = [(self.paths[id(t)], t) for t in states if t.numel() <= WHOLE]
        names = {p: self.paths[id(t)] for p, t in inputs if id(t) in self.paths}
        for path, tensor in inputs:
            if path in reads and self._source(tensor) is None:
                self._remember(tensor, number, f"reads.{path}")
        module, call = self.stack[-1] if self.stack else ("", 1)
        sources = {path: self._source(tensor) for path, tensor in inputs}
        wants = any(has_gradient(t) for _, t in outputs)
        given_back = [] if name.rpartition(".")[2] in _UNSET else outputs
        samples = {"reads": list(reads.items()), "tensors": given_back, "writes": writes}
        self._keep("op", name, number=number, module=module, call=call, names=names, wanted=wanted,
                   wants=wants, inputs=sources, arguments=numbers, samples=samples)  # fmt: skip
        for path, tensor in outputs:
            self._remember(tensor, number, f"tensors.{path}")

    def _is_same(self, before: torch.Tensor, outputs: Inputs) -> bool:
        after = outputs[0][1]
        integers = not before.is_floating_point() and not after.is_floating_point()
        same = (before.dtype == after.dtype or integers) and before.shape == after.shape
        return len(outputs) == 1 and same and before.requires_grad == after.requires_grad

    def _source(self, tensor: torch.Tensor) -> tuple[int, str] | None:
        """The operation that made a tensor, and its place among the results; None: made earlier."""
        found = self.known.get(id(tensor))
        return found[1:] if found is not None and found[0]() is tensor else None

    def _remember(self, tensor: torch.Tensor, number: int, place: str) -> None:
        trained = has_gradient(tensor)
        if trained and tensor.is_leaf:
            # A module that moves to a device swaps its parameters, and then there must be no weak
            # reference to one, and no hook. After its first call it stays where it is.
            if self.early is not None and isinstance(tensor, nn.Parameter):
                return
            self.known[id(tensor)] = (lambda: tensor, number, place)
        else:
            self.known[id(tensor)] = (weakref.ref(tensor), number, place)
        if trained:
            self._hook(tensor, number, place)

    def _hook(self, tensor: torch.Tensor, number: int, place: str) -> None:
        name = self.paths.get(id(tensor), "")

        def hook(gradient: torch.Tensor) -> None:
            if not is_transformed():
                with self.watch.at_rest():
                    self._keep("grad", name, of=number, place=place,
                               samples={"tensors": [("", gradient)]})  # fmt: skip

        with torch._C.DisableTorchFunction(), torch.enable_grad():
            tensor.register_hook(hook)  # type: ignore[no-untyped-call]

    # ---- keeping ---------------------------------------------------------------------------------

    def _keep(self, kind: str, name: str, *, samples: dict[str, Inputs], **more: Any) -> None:
        tensors: list[tuple[str, torch.Tensor]] = []
        found = {}
        for group, members in samples.items():
            found[group] = {p: self._sample(on_host(t), tensors) for p, t in members}
        event = {"kind": kind, "name": name, "step": self.watch.step,
                 "line": self.watch.line(), **found, **more}  # fmt: skip
        if self.early is None:
            self._write(event, tensors)
        else:
            self.early.append((event, tensors))

    def _sample(self, tensor: torch.Tensor, tensors: Inputs) -> dict[str, Any]:
        """What is kept of a tensor: all of it, or elements at equal distances, and sums.

        The sums are over blocks, with random signs that are the same in all runs, divided by the
        root of the block's size: each element moves one of them.
        """
        entry: dict[str, Any] = {"shape": list(tensor.shape), "stride": 1}
        flat = tensor.reshape(-1)
        if flat.numel() > WHOLE:
            entry["stride"] = -(-flat.numel() // (WHOLE // 2))
            entry["sums"] = self._key(tensors, _signed_sums(flat, entry["stride"]))
            flat = flat[:: entry["stride"]].clone()
        entry["values"] = self._key(tensors, flat)
        return entry

    def _key(self, tensors: Inputs, tensor: torch.Tensor) -> str:
        self.sampled += 1
        tensors.append((str(self.sampled), tensor))
        return str(self.sampled)

    def _write(self, event: dict[str, Any], tensors: Inputs) -> None:
        for key, tensor in tensors:
            self.watch.store.add(key, tensor)
        self.watch.events.append(event)

    def flush(self) -> None:
        """Write the events before the first module, as far as they are kept."""
        early, self.early = self.early, None
        with self.watch.at_rest():
            for event, tensors in early or ():
                self._write(event, tensors)


@functools.cache
def name_of(func: Any) -> str:
    """A function of torch as programs write it: torch.matmul, Tensor.add, functional.linear.

    What a runtime puts in the place of one has its name.
    """
    while hasattr(func, "__wrapped__") and func.__module__.startswith("tpu_runtime."):
        func = func.__wrapped__
    name = str(getattr(func, "__name__", func))
    if name == "__get__":
        name = str(getattr(func.__self__, "__name__", ""))
        return f"Tensor.{name if name in _GIVE_TENSORS else 'size'}"
    if getattr(func, "__objclass__", None) is not None:
        return f"Tensor.{name}"
    where = getattr(func, "__module__", None) or "torch"
    if str(getattr(func, "__qualname__", "")).startswith("Tensor.") or where == "torch._tensor":
        return f"Tensor.{name}"
    if where in ("torch.nn.functional", "torch._C._nn"):
        return f"torch.nn.functional.{name}"
    return f"torch.{name}" if where.startswith("torch._") else f"{where}.{name}"


def _numbers(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The numbers among a call's arguments."""
    if isinstance(value, (bool, int, float)):
        yield path, value
        return
    items = value.items() if isinstance(value, dict) else ()
    if isinstance(value, (list, tuple)) and len(value) < 10:
        items = enumerate(value)
    for key, item in items:
        yield from _numbers(item, f"{path}.{key}" if path else str(key))


@functools.cache
def _signs(size: int) -> torch.Tensor:
    generator = torch._C.Generator().manual_seed(size)
    signs = torch.empty(size, dtype=torch.int8)
    return signs.random_(0, 2, generator=generator) * 2 - 1


def _signed_sums(flat: torch.Tensor, size: int) -> torch.Tensor:
    floats = flat.is_floating_point()
    kind = torch.float64 if floats else torch.int64
    signs = _signs(size).to(kind)
    sums = []
    for part in flat.split(size * 512):
        whole = part.to(kind)
        ragged = whole.numel() % size
        if ragged:
            whole = torch.cat([whole, whole.new_zeros(size - ragged)])
        sums.append((whole.reshape(-1, size) * signs).sum(1))
    total = torch.cat(sums)
    return (total / size**0.5).to(flat.dtype) if floats else total
