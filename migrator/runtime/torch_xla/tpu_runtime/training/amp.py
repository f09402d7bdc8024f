"""Mixed precision: torch's own autocast for XLA, in bfloat16."""

import functools
import warnings
from collections.abc import Callable
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

import torch

from ..device import DEVICE_TYPE

P = ParamSpec("P")
R = TypeVar("R")


class autocast:
    """`torch.autocast` for the device: a context manager and a decorator.

    Takes the arguments of ``torch.autocast`` (device type first) and of ``torch.cuda.amp.autocast``
    (enabled first), which in stock torch_xla 2.9 silently leaves float32. The device type is
    ignored, except that "cpu" means torch's autocast of the CPU. float16 becomes bfloat16, which
    the TPU computes in, and which is the default. Another dtype disables it, with a warning, as in
    torch.
    """

    def __init__(
        self,
        device_type: str | bool | None = None,
        dtype: torch.dtype | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        if isinstance(device_type, bool):  # torch.cuda.amp.autocast(True)
            enabled = device_type
            device_type = None
        self._arguments: dict[str, Any] = {"enabled": enabled, "cache_enabled": cache_enabled}
        if device_type is not None and torch.device(device_type).type == "cpu":
            self._arguments |= {"device_type": "cpu", "dtype": dtype}
        else:
            if dtype not in (None, torch.float16, torch.bfloat16):
                warnings.warn(f"autocast to {dtype} is not supported: disabled", stacklevel=2)
                self._arguments["enabled"] = False
            self._arguments |= {"device_type": DEVICE_TYPE, "dtype": torch.bfloat16}
        self._entered: list[torch.autocast] = []

    def __enter__(self) -> "autocast":
        context = torch.autocast(**self._arguments)
        context.__enter__()
        self._entered.append(context)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._entered.pop().__exit__(kind, error, trace)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
            with self:
                return function(*args, **kwargs)

        return wrapped
