"""Mixed precision: bfloat16 without loss scaling on a TPU, torch's own on a GPU."""

from typing import Any

import torch

from . import device_choice


def autocast(*args: Any, **kwargs: Any) -> Any:
    """`torch.autocast`, with or without the device type; off on the CPU unless that is named.

    Takes the arguments of ``torch.autocast`` and of ``torch.cuda.amp.autocast``.
    """
    if device_choice.chosen_device() == "tpu":
        return device_choice.tpu().autocast(*args, **kwargs)
    names_device = "device_type" in kwargs or (args and isinstance(args[0], str))
    if names_device:
        return torch.autocast(*args, **kwargs)
    enabled = kwargs.pop("enabled", args[0] if args else True)
    dtype = kwargs.pop("dtype", args[1] if len(args) > 1 else None)
    if device_choice.chosen_device() == "cpu":
        return torch.autocast("cpu", enabled=False)
    return torch.autocast("cuda", dtype=dtype or torch.float16, enabled=enabled, **kwargs)


def GradScaler(*args: Any, **kwargs: Any) -> torch.amp.GradScaler:
    """A `GradScaler` for the device, with the arguments of ``torch.cuda.amp.GradScaler``.

    bfloat16 has the range of float32 and needs none: it is off on a TPU, and on the CPU.
    """
    kwargs.pop("device", None)
    if device_choice.chosen_device() == "tpu" and hasattr(device_choice.tpu(), "GradScaler"):
        return device_choice.tpu().GradScaler(*args, **kwargs)  # type: ignore[no-any-return]
    if device_choice.chosen_device() != "cuda":
        return torch.amp.GradScaler("cpu", enabled=False)
    return torch.amp.GradScaler("cuda", *args, **kwargs)
