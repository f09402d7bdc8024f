"""Random numbers, and dropout: torch_tpu 0.2.0 compares and scales halves as halves."""

from torch import Tensor

from ..device import is_loaded
from ..dispatch.replaced_kernels import replace
from ..random_numbers import random_kernels


def install() -> None:
    if is_loaded():
        random_kernels.install()
        replace("native_dropout", _dropout)
        replace("native_dropout_backward", random_kernels.scaled)


def _dropout(input: Tensor, p: float, train: bool | None = None) -> tuple[Tensor, Tensor]:
    kept = random_kernels.numbers(input) < (1 - p if train is not False else 1)
    scale = 1 / (1 - p) if train is not False and p < 1 else 1.0
    return random_kernels.scaled(input, kept, scale), kept
