"""What the layers inside of models give: the outputs of all modules in the calls that are kept."""

from __future__ import annotations

from typing import Any

import padding
from torch import nn
from values import has_values, unwrapped
from watch import Watch


def install(watch: Watch) -> None:
    """Record them as `layer`, named by the model and the path in it. After `watch.install`."""
    called = nn.Module.__call__
    inside: list[tuple[str, dict[int, str]]] = []  # the model whose call is kept, and its modules

    def call(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if watch.depth == 0:
            inside[:] = _of_model(watch, self)
        output = called(self, *args, **kwargs)
        if watch.depth and inside and not watch.paused and has_values():
            (model, paths), *_ = inside
            if path := paths.get(id(self)):
                watch._tensors("layer", f"{model}.{path}", output, padding.NONE)
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
