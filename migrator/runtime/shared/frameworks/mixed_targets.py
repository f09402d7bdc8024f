"""timm's Mixup, which until timm 0.6 makes its targets on "cuda"."""

from typing import Any

from ..device import DEVICE_TYPE
from .import_hooks import when_imported


def _on_the_device(mixup: Any) -> None:
    for function in (mixup.one_hot, mixup.mixup_target):
        *others, device = function.__defaults__ or (None,)
        if device == "cuda":
            function.__defaults__ = (*others, DEVICE_TYPE)


def install() -> None:
    """Make them on the device when timm is imported."""
    when_imported("timm.data.mixup", _on_the_device)
