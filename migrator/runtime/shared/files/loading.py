"""Files of tensors, loaded anywhere, whatever machine wrote them."""

from collections.abc import Callable
from typing import Any

import torch

from ..device import DEVICE_TYPE

_ACCELERATORS = ("cuda", "xpu", "mps", "npu")  # the device in files from other machines
MapLocation = Any  # None, str, torch.device, a dict of places, or a callable, as in torch.load


def load(f: Any, map_location: MapLocation = None, **kwargs: Any) -> Any:
    """`torch.load` that also puts tensors on the device.

    ``map_location`` None: tensors saved from a GPU go to the device, and so do modules, because
    files written on the device don't tell; all others to the CPU. A device or its name: all go
    there; "cuda" means the device. A dict: by the device in the file. A callable: as in
    `torch.load`, called with CPU storages. Tensors are moved in dicts, lists, tuples and modules,
    at any depth. Other arguments and errors are those of `torch.load`.
    """
    if isinstance(map_location, (str, torch.device, int)):
        if not _is_device(map_location):
            return torch.load(f, map_location=torch.device(map_location), **kwargs)
        return _move(torch.load(f, map_location="cpu", **kwargs), lambda tensor: True, True, {})
    moved: set[int] = set()  # storages that belong on the device

    def place(storage: Any, location: str) -> Any:
        if callable(map_location):
            chosen = map_location(storage, location)
            return storage if chosen is None else chosen
        chosen = location if map_location is None else map_location.get(location, location)
        if _is_device(chosen):
            moved.add(storage._cdata)
        return storage

    loaded = torch.load(f, map_location=place, **kwargs)
    return _move(loaded, lambda t: t.untyped_storage()._cdata in moved, map_location is None, {})


def load_file(filename: Any, device: str | torch.device | int = "cpu") -> dict[str, torch.Tensor]:
    """`safetensors.torch.load_file`, which also loads onto the device."""
    from safetensors.torch import load_file

    tensors = load_file(filename)
    return {name: tensor.to(device) for name, tensor in tensors.items()}


def _is_device(place: str | torch.device | int) -> bool:
    kind = str(place).partition(":")[0]
    return isinstance(place, int) or kind in (DEVICE_TYPE, *_ACCELERATORS)


def _move(
    value: Any, belongs: Callable[[torch.Tensor], bool], modules: bool, done: dict[int, Any]
) -> Any:
    """``value`` with tensors that belong there on the device; if ``modules``, all of modules, too.
    Containers stay the same objects."""
    if id(value) in done:
        return done[id(value)]
    result = value
    if isinstance(value, torch.Tensor):
        if value.device.type == "cpu" and belongs(value):
            result = value.to(DEVICE_TYPE)
            if isinstance(value, torch.nn.Parameter):
                result = torch.nn.Parameter(result.detach(), value.requires_grad)
    elif isinstance(value, torch.nn.Module):
        there = (lambda tensor: True) if modules else belongs
        result = value._apply(lambda tensor: _move(tensor, there, modules, done))
    elif isinstance(value, dict):
        for key in value:
            value[key] = _move(value[key], belongs, modules, done)
    elif isinstance(value, list):
        value[:] = [_move(item, belongs, modules, done) for item in value]
    elif isinstance(value, tuple):
        items = [_move(item, belongs, modules, done) for item in value]
        result = type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    done[id(value)] = result
    return result
