"""Tensor parallelism: some layers, chosen by name, are divided among the devices."""

import difflib
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, TypeVar

import torch
from torch import nn

from ..device import DEVICE_TYPE
from . import mesh

Model = TypeVar("Model", bound=nn.Module)

# The dimension of a weight (outputs, inputs, …) that is divided.
_DIVIDED = {"column": 0, "row": 1, "replicated": None}


def shard(model: Model, table: Mapping[str, str], device: Any = DEVICE_TYPE) -> Model:
    """Move ``model`` to the devices, and divide the layers that ``table`` names among them.

    Its keys are layer names, in which `*` stands for one part: "blocks.*.attn.q". "column": each
    device computes a part of the outputs. "row": each uses a part of the inputs, and an all-reduce
    adds up the results. "replicated": each has the whole layer, and the input is gathered first, so
    no all-reduce is needed. Layers that aren't named are whole on each device.

    Weights are moved one by one; if ``device`` is the CPU, all of them go there. With a single
    device nothing is divided, but the table is still checked. Raises ValueError for a rule that
    matches no layer, has another word, or divides a dimension that isn't a multiple of the number
    of devices.
    """
    if torch.device(device).type == "cpu":
        return model.to(device)
    count = mesh.start(mesh.MODEL)
    divided, gathered, kinds = _plan(model, table, count)

    def placed(tensor: torch.Tensor) -> torch.Tensor:
        return mesh.placed(tensor.to(DEVICE_TYPE), divided.get(id(tensor)))

    model._apply(placed)  # type: ignore[no-untyped-call]
    for layer in gathered if count > 1 else ():
        layer.register_forward_pre_hook(_gather_input, with_kwargs=True)
    if count > 1:
        mesh.say(f"{type(model).__name__} on {count} devices: " + ", ".join(
            f"{n} layers {kind}" for kind, n in kinds.items()))  # fmt: skip
    return model


def _plan(
    model: nn.Module, table: Mapping[str, str], count: int
) -> tuple[dict[int, int], list[nn.Module], Counter[str]]:
    """Divided dimensions by tensor id, layers with gathered inputs, number of layers by word."""
    layers = {name: m for name, m in model.named_modules() if _weight(m) is not None}
    divided: dict[int, int] = {}
    gathered, kinds, named = [], Counter[str](), set[str]()
    for pattern, kind in table.items():
        rule = f'sharding rule "{pattern}": "{kind}"'
        if kind not in _DIVIDED:
            raise ValueError(f"{rule}: a layer is column, row or replicated")
        wanted = re.compile(re.escape(pattern).replace(r"\*", r"[^.]+"))
        found = [name for name in layers if wanted.fullmatch(name)]
        if not found:
            raise ValueError(
                f"{rule} matches no layer of {type(model).__name__}{_like(pattern, layers)}"
            )
        for name in found:
            if name in named:
                continue  # the first matching rule counts
            named.add(name)
            kinds[kind] += 1
            layer, dim = layers[name], _DIVIDED[kind]
            if dim is None:
                gathered.append(layer)
                continue
            for part in ("weight", "bias") if dim == 0 else ("weight",):
                tensor = getattr(layer, part, None)
                if tensor is None:
                    continue
                if tensor.dim() <= dim or tensor.shape[dim] % count:
                    raise ValueError(
                        f"{rule}: {name}.{part} of shape {tuple(tensor.shape)} cannot be divided "
                        f"over {count} devices along dimension {dim}: make it replicated"
                    )
                divided[id(tensor)] = dim
    return divided, gathered, kinds


def _weight(module: nn.Module) -> Any:
    return module._parameters.get("weight")


def _like(pattern: str, layers: Mapping[str, nn.Module]) -> str:
    """Similar names that a rule may have meant."""
    known = dict.fromkeys(re.sub(r"\b\d+\b", "*", name) for name in layers)
    close = difflib.get_close_matches(pattern, known, 1, 0)
    return f': did you mean "{close[0]}"?' if close else ", which has no layers with weights"


class _Gathered(torch.autograd.Function):
    """The same values, whole on each device."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        return mesh.gathered(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


def _gather_input(
    layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return tuple(map(_gathered, args)), {name: _gathered(x) for name, x in kwargs.items()}


def _gathered(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    if torch.is_grad_enabled() and value.requires_grad:
        return _Gathered.apply(value)
    return mesh.gathered(value)
