"""How a write to a part of complex numbers, or to a view with another dtype, changes its base."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import torch

Array = Any  # a jax.Array, or a tracer of one

# Views of complex numbers have other values than these: writing by position would lose a part.
OF_PARTS: dict[Any, Callable[[Array, Array], Array]] = {
    torch.ops.aten.view_as_real: lambda base, value: jax.lax.complex(value[..., 0], value[..., 1]),
    torch.ops.aten.view_as_complex: lambda base, value: jnp.stack([value.real, value.imag], -1),
    torch.ops.aten.real: lambda base, value: jax.lax.complex(value, base.imag),
    torch.ops.aten.imag: lambda base, value: jax.lax.complex(base.real, value),
    torch.ops.aten._conj: lambda base, value: value.conj(),
    torch.ops.aten._neg_view: lambda base, value: -value,
}
