"""Functional collectives of device tensors; torchax 0.0.13 has some, for `jax.shard_map`."""

import torch
from torchax.tensor import Environment

from ..device import DEVICE_TYPE
from ..dispatch.calls import register
from .functional_collectives_base import OPERATORS, give_results_at_once


def install(env: Environment) -> None:
    """Replace torchax's; torch's own gradients are built from them."""
    for name, function in OPERATORS.items():
        register(env, getattr(torch.ops._c10d_functional, name), function, of_arrays=False)
    give_results_at_once(DEVICE_TYPE)
