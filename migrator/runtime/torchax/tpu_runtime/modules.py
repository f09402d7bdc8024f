"""Data loaders and inference mode, which fail with torchax's tensors."""

import warnings
from collections import Counter
from importlib.util import find_spec
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.utils.data import DataLoader
from torchax.tensor import Environment

from .calls import patch

MANY = 100  # calls of a module


class inference_mode(torch.no_grad):
    """`torch.inference_mode` as `no_grad`.

    torchax 0.0.13 doesn't work in inference mode: operators arrive in another form and raise.
    """

    def __new__(cls, mode: Any = True) -> Any:
        return object.__new__(cls) if not callable(mode) else cls()(mode)

    def __init__(self, mode: bool = True) -> None:
        super().__init__()
        self.mode = mode

    def __enter__(self) -> None:
        self.prev = torch.is_grad_enabled()
        if self.mode:
            torch.set_grad_enabled(False)

    def clone(self) -> "inference_mode":
        return type(self)(self.mode)


def _tell_of_many_calls() -> None:
    """Tell the user that a model could run faster, in a copy that compiles nothing."""
    calls: Counter[int] = Counter()

    def note(module: torch.nn.Module, _: object) -> None:
        calls[id(module)] += 1
        if calls[id(module)] == MANY:
            told.remove()
            warnings.warn(
                f"{type(module).__name__} was called {MANY} times, operator by operator: this copy "
                "of tpu_runtime is for a program that calls a model once. Run tpu-migrate again, "
                "with --runtime copy",
                stacklevel=3,
            )

    told = register_module_forward_pre_hook(note)


def install(env: Environment) -> None:
    """Replace inference mode, and never pin memory.

    Pinning raises, because there is no CUDA; it only makes copies to a GPU faster.
    """
    if find_spec(f"{__package__}.parts") is None:
        _tell_of_many_calls()
    patch(torch, inference_mode=inference_mode)
    patch(DataLoader, pin_memory=property(lambda self: False, lambda self, value: None))
