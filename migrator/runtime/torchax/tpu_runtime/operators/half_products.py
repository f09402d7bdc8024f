"""Products of bfloat16 in the one pass that they take, whatever the precision of float32 is.

The numbers are the same. But libtpu 0.0.52 refuses a step with attention in bfloat16 whose products
ask for more (`Mosaic failed to compile TPU kernel ... HLO name online-softmax: Bad lhs type`).
"""

from typing import Any

import jax.numpy as jnp
from jax import lax
from jax._src.interpreters import mlir
from jax._src.lax.lax import _dot_general_lower
from torchax.tensor import Environment


def _lower(ctx: Any, left: Any, right: Any, *, precision: Any, **how: Any) -> Any:
    if all(aval.dtype == jnp.bfloat16 for aval in ctx.avals_in):
        precision = None
    return _dot_general_lower(ctx, left, right, precision=precision, platform="tpu", **how)


def install(env: Environment) -> None:
    """For TPUs; on a CPU there are no passes."""
    mlir.register_lowering(lax.dot_general_p, _lower, platform="tpu")
