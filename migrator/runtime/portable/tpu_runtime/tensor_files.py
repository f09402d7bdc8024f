"""Files of tensors, which any machine reads, whatever it was that wrote them."""

from typing import Any

import torch

from . import device_choice


def save(obj: object, f: Any, *args: Any, **kwargs: Any) -> None:
    """`torch.save`; tensors on a TPU are written as CPU tensors."""
    place = device_choice.tpu() if device_choice.chosen_device() == "tpu" else torch
    place.save(obj, f, *args, **kwargs)


def load(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
    """`torch.load`; without ``map_location`` a TPU's program gets CPU tensors."""
    place = device_choice.tpu() if device_choice.chosen_device() == "tpu" else torch
    return place.load(f, map_location, *args, **kwargs)


def load_file(filename: Any, device: Any = "cpu") -> dict[str, torch.Tensor]:
    """`safetensors.torch.load_file`, onto a TPU, too."""
    import safetensors.torch

    place = device_choice.tpu() if device_choice.chosen_device() == "tpu" else safetensors.torch
    return place.load_file(filename, device)  # type: ignore[no-any-return]


def decode_image(*args: Any, **kwargs: Any) -> torch.Tensor:
    """`torchvision.io.decode_image`."""
    return _images().decode_image(*args, **kwargs)  # type: ignore[no-any-return]


def read_image(*args: Any, **kwargs: Any) -> torch.Tensor:
    """`torchvision.io.read_image`, or `decode_image` of a path."""
    return _images().read_image(*args, **kwargs)  # type: ignore[no-any-return]


def _images() -> Any:
    if device_choice.chosen_device() == "tpu" and hasattr(device_choice.tpu(), "decode_image"):
        return device_choice.tpu()
    import torchvision.io

    return torchvision.io
