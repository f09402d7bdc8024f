"""Functional collectives of device tensors; torch_xla 2.9 fails in an assertion."""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from ..device import DEVICE_TYPE
from .functional_collectives_base import OPERATORS, WITH_GRADIENTS, give_results_at_once

# The registrations live as long as these objects.
_libraries: list[torch.library.Library] = []


def _replace(namespace: str, functions: Mapping[str, Callable[..., Any]]) -> None:
    """Above autograd, which their parts support."""
    library = torch.library.Library(namespace, "IMPL")
    for name, function in functions.items():
        library.impl(name, function, "AutogradXLA")
    _libraries.append(library)


def install() -> None:
    """Replace them."""
    _replace("_c10d_functional", OPERATORS)
    _replace("_c10d_functional_autograd", WITH_GRADIENTS)
    give_results_at_once(DEVICE_TYPE)
