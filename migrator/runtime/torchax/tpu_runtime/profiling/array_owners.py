"""What a program's arrays are for: weights, gradients, states of optimizers, or something else."""

import gc
from collections.abc import Iterator
from typing import Any

import torch

from ..lazy.lazy_arrays import settled

WEIGHTS, GRADIENTS, STATES, OTHERS = "weights", "gradients", "optimizer states", "others"


def owners() -> dict[int, str]:
    """By the id of an array, of all models and optimizers that there are; buffers are weights."""
    found: dict[int, str] = {}
    for each in gc.get_objects():
        # A proxy's class is not its type, and asking for it may run the program's own code.
        # One that is being made has no attributes yet.
        if issubclass(type(each), torch.nn.Module):
            held = vars(each)
            for name in ("_parameters", "_buffers"):
                _note(found, WEIGHTS, list(_inside(held.get(name))))
        elif issubclass(type(each), torch.optim.Optimizer):
            groups = getattr(each, "param_groups", [])
            _note(found, WEIGHTS, [p for group in groups for p in group["params"]])
            _note(found, STATES, list(_inside(dict(getattr(each, "state", {})))))
    return found


def _inside(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        value = [*value.values()]
    if isinstance(value, (list, tuple)):
        for each in value:
            yield from _inside(each)
    else:
        yield value


def _note(found: dict[int, str], kind: str, tensors: list[Any]) -> None:
    for tensor in tensors:
        if not isinstance(tensor, torch.Tensor):
            continue
        found.setdefault(id(_array(tensor)), kind)
        if kind == WEIGHTS and tensor.is_leaf and tensor.grad is not None:
            found.setdefault(id(_array(tensor.grad)), GRADIENTS)


def _array(tensor: Any) -> Any:
    """The array of a tensor, or of the one that it is a view of."""
    while (link := tensor.__dict__.get("_link")) is not None:
        tensor = link.parent
    return settled(tensor.__dict__.get("_elem"))
