"""What the layers inside of models give: the outputs of all modules in the calls that are kept,
and the gradients that come back to these outputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, TypeVar

import padding
import torch
from recorded_tensors import has_gradient, has_values, leaves, unwrapped
from torch import nn
from watch_training import Watch

_T = TypeVar("_T")


def install(watch: Watch) -> None:
    """Record them as `layer` and `layer gradient`, named by the model and the path in it.

    After `watch.install`.
    """
    called = nn.Module.__call__
    inside: list[tuple[str, dict[int, str]]] = []  # the model whose call is kept, and its modules
    gradients = _Gradients(watch)
    gradients.install()

    def call(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if watch.depth == 0:
            inside[:] = _of_model(watch, self)
            gradients.made.clear()
        if inside and watch.depth and (path := inside[0][1].get(id(self))):
            gradients.take(f"{inside[0][0]}.{path}", (args, kwargs))
        output = called(self, *args, **kwargs)
        if inside and not watch.paused and has_values():
            (model, paths), *_ = inside
            path = paths.get(id(self))
            if watch.depth and path:
                watch._tensors("layer", f"{model}.{path}", output, padding.NONE)
            if path is not None:
                gradients.follow(f"{model}.{path}" if path else model, output)
        return output

    nn.Module.__call__ = call  # type: ignore[method-assign]


def _of_model(watch: Watch, model: nn.Module) -> list[tuple[str, dict[int, str]]]:
    """The model's name and the paths of its modules, if `watch` will keep this call of it."""
    if watch.paused or not has_values():
        return []
    name = watch.name(model)
    if watch.calls[name, model.training] >= watch.steps:
        return []
    return [(name, {id(m): path for path, m in unwrapped(model).named_modules()})]


class _Gradients:
    """Keeps the gradients that come back to outputs until their backward pass is over: values must
    not be read in one."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.followed = 0  # outputs so far
        self.came: list[tuple[int, str, str, torch.Tensor]] = []
        # Of the model that is called: its modules' outputs, kept for their ids, with their numbers;
        # and by number, the modules that take them.
        self.made: dict[int, tuple[torch.Tensor, list[int]]] = {}
        self.outer: dict[int, int] = {}  # by number: of the module that returns the same output
        self.takers: dict[int, list[str]] = {}

    def install(self) -> None:
        engine = torch.autograd._engine_run_backward  # type: ignore[attr-defined]

        def run(*args: Any, **kwargs: Any) -> Any:
            try:
                return engine(*args, **kwargs)
            finally:
                if self.came and has_values():
                    self._keep()

        torch.autograd._engine_run_backward = run  # type: ignore[attr-defined]

    def follow(self, name: str, output: Any) -> None:
        self.followed += 1
        for path, tensor in leaves(output):
            if has_gradient(tensor):
                tensor.register_hook(_append(self.came, self.followed, name, path))
                numbers = self.made.setdefault(id(tensor), (tensor, []))[1]
                if numbers:
                    self.outer[numbers[-1]] = self.followed
                numbers.append(self.followed)

    def take(self, name: str, given: Any) -> None:
        """Note that a module is given what others made: it sends the gradients back."""
        for number in {n for _, t in leaves(given) for n in self.made.get(id(t), (t, ()))[1]}:
            self.takers.setdefault(number, []).append(name)

    def _keep(self) -> None:
        """One event for each output, in the order in which their gradients came."""
        events: dict[tuple[int, int], tuple[str, list[tuple[str, torch.Tensor]]]] = {}
        often: Counter[tuple[int, str]] = Counter()  # more than once: a backward of a backward
        with self.watch.at_rest():
            for number, name, path, gradient in self.came:
                key = (number, often[number, path])
                often[number, path] += 1
                found = events.setdefault(key, (name, []))[1]
                found.append((path, self.watch.kept(gradient)))
            self.came.clear()
            for (number, _), (name, found) in _outer_first(events, self.outer):
                takers = self.takers.get(number, [])
                self.watch.keep("layer gradient", name, found, takers=takers)


def _outer_first(
    events: dict[tuple[int, int], _T], outer: dict[int, int]
) -> Iterator[tuple[tuple[int, int], _T]]:
    """Modules whose output is what one inside of them returned: the gradient comes to the outermost
    first. Hooks are called the other way round."""
    inside: list[tuple[int, int]] = []
    left = set(events)
    for key in events:
        inside.append(key)
        left.remove(key)
        if (outer.get(key[0]), key[1]) not in left:
            yield from ((each, events[each]) for each in reversed(inside))
            inside.clear()


def _append(to: list[tuple[int, str, str, torch.Tensor]], number: int, name: str, path: str) -> Any:
    """A hook that keeps a gradient, and leaves it as it is."""

    def hook(gradient: torch.Tensor) -> None:
        to.append((number, name, path, gradient.detach()))

    return hook
