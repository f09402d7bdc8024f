"""Attention and padded sequences.

torchax 0.0.13: `scaled_dot_product_attention` raises for masks that need broadcasting, like (batch,
1, 1, length), and gives NaN for a query whose whole row is masked, where torch gives 0;
`pack_padded_sequence` raises.
"""

from typing import Any

import jax.numpy as jnp
import torch
import torch.nn.functional as F
from torchax.tensor import Environment, Tensor

from ..dispatch import modes
from ..dispatch.calls import Function, holds_device_tensor, native, register, replaces
from ..dispatch.jax_kernels import Array
from .scaled_dot_product import scaled_dot_product, softmax

FUNCTIONS = (F.scaled_dot_product_attention, torch.ops.aten.scaled_dot_product_attention)


@replaces(*FUNCTIONS)
def _attention(env: Environment, function: Function, args: Any, kwargs: Any) -> Any:
    if not holds_device_tensor((args, kwargs)):
        return NotImplemented
    with modes.modes_from_within(env):
        return scaled_dot_product(*args, **kwargs)


@replaces(torch.ops.aten._safe_softmax, torch.ops.aten._safe_softmax.default)
def _safe_softmax(env: Environment, function: Function, args: Any, kwargs: Any) -> Any:
    if not holds_device_tensor(args):
        return NotImplemented
    with env:
        return softmax(*args, **kwargs)


def _packed_places(batch_sizes: torch.Tensor) -> Array:
    """The positions in a (time, batch) sequence that a packed one contains, in its order."""
    count = int(batch_sizes[0])
    rows = [t * count + b for t, size in enumerate(batch_sizes.tolist()) for b in range(size)]
    return jnp.array(rows)


def _pack(x: Tensor, lengths: torch.Tensor, batch_first: bool) -> tuple[Tensor, torch.Tensor]:
    lengths = lengths.cpu()
    steps = native(torch.arange, (int(lengths.max()),), {"device": "cpu"})
    batch_sizes = native(torch.gt, (lengths[None, :], steps[:, None]), {}).sum(1)
    array = x.jax().swapaxes(0, 1) if batch_first else x.jax()
    flat = array.reshape(-1, *array.shape[2:])
    return Tensor(flat[_packed_places(batch_sizes)], x._env), batch_sizes


def _pack_backward(
    gradient: Tensor, sizes: Any, batch_sizes: torch.Tensor, batch_first: bool
) -> Tensor:
    rows = (sizes[1], sizes[0], *sizes[2:]) if batch_first else tuple(sizes)
    array = gradient.jax()
    flat = jnp.zeros((rows[0] * rows[1], *rows[2:]), array.dtype)
    full = flat.at[_packed_places(batch_sizes)].set(array).reshape(rows)
    return Tensor(full.swapaxes(0, 1) if batch_first else full, gradient._env)


def install(env: Environment) -> None:
    """Add the two operators for packed sequences."""
    aten = torch.ops.aten
    register(env, aten._pack_padded_sequence, _pack, of_arrays=False)
    register(env, aten._pack_padded_sequence_backward, _pack_backward, of_arrays=False)
