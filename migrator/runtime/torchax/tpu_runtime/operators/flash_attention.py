"""Attention to many keys, by a TPU kernel that never holds all scores in memory.

The kernel is JAX's splash attention (https://github.com/jax-ml/jax). It is for TPUs; elsewhere, and
if it doesn't fit, attention is written out (scaled_dot_product.py). TPU_RUNTIME_FLASH=off never
uses it; TPU_RUNTIME_FLASH=interpret uses it on any device, for any number of keys, in Pallas's
interpreter: slow, for comparing numbers.
"""

import functools
import os
from typing import Any

import jax
import jax.numpy as jnp
import torch
from jax.experimental.pallas.ops.tpu import splash_attention
from jax.sharding import PartitionSpec
from torchax.tensor import Environment, Tensor

from ..dispatch import modes
from ..dispatch.calls import (
    Function,
    holds_device_tensor,
    is_device_tensor,
    needs_gradient,
    replaces,
)
from ..dispatch.jax_kernels import Array
from ..distributed import mesh
from ..lazy import lazy_graph
from ..tensors.views import peek
from ..training import amp
from .padded_attention import FUNCTIONS
from .scaled_dot_product import factor_of, scaled_dot_product

VARIABLE = "TPU_RUNTIME_FLASH"
# From this size on the scores dominate time and memory: MaxDiffusion's flash_min_seq_length.
SHORTEST = 4096
_BLOCK = 512  # queries, and keys, at a time: MaxText's sa_block_q and sa_block_kv
_LANES = 128  # of a TPU's registers: a block is a multiple of this

_mode = os.environ.get(VARIABLE, "")


def attention(
    env: Environment,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """`F.scaled_dot_product_attention`, by the kernel if it fits."""

    def written_out(query: Any, key: Any, value: Any, mask: Any) -> torch.Tensor:
        how = dropout_p, is_causal, scale, enable_gqa
        return scaled_dot_product(query, key, value, mask, *how)

    given = query, key, value, attn_mask
    if env.param.autocast_dtype is not None:
        stock = torch.nn.functional.scaled_dot_product_attention
        (query, key, value), _ = amp.cast_arguments(env, stock, (query, key, value), {})
    if dropout_p or not _fits(query, key, value, attn_mask, is_causal, enable_gqa):
        return written_out(*given)
    factor = factor_of(query, scale)
    inputs: tuple[Any, ...] = query, key, value
    arrays = [peek(tensor) for tensor in inputs]
    if attn_mask is not None:
        arrays.append(_of_keys(attn_mask, query.shape[0], key.shape[2]))
    devices = mesh.in_use()
    by_kernel = functools.partial(
        _attend, causal=is_causal, factor=factor, interpret=_mode == "interpret", devices=devices
    )

    def by_xla(*arrays: Array) -> Array:
        tensors = [Tensor(array, env) for array in arrays]
        mask = None if attn_mask is None else tensors.pop()[:, None, None]
        of_query, of_key, of_value = tensors
        made: Any = written_out(of_query, of_key, of_value, mask)
        return made.jax()

    def by_either(*arrays: Array) -> Array:
        """A program is made for a device, not on one."""
        made = jax.lax.platform_dependent(*arrays, tpu=by_kernel, default=by_xla)
        return made

    at_once = not lazy_graph.is_recording() and not isinstance(arrays[0], jax.core.Tracer)
    if at_once and _mode != "interpret" and jax.default_backend() != "tpu":
        return written_out(*given)
    function = by_kernel if at_once or _mode == "interpret" else by_either
    made = lazy_graph.call(("attention", is_causal, factor, devices), function, *arrays)
    return Tensor(made, env)


def _fits(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    is_causal: bool,
    enable_gqa: bool,
) -> bool:
    """Whether the kernel supports the call and is worth it. It has no gradient here."""
    tensors = query, key, value
    if _mode == "off" or needs_gradient((tensors, mask)) or not all(map(is_device_tensor, tensors)):
        return False
    if query.dtype not in (torch.float32, torch.bfloat16):
        return False
    if not all(x.dim() == 4 and x.dtype == query.dtype and x.numel() for x in tensors):
        return False
    (batch, heads, _, dim), (_, kv_heads, keys, _) = query.shape, key.shape
    if key.shape != (batch, kv_heads, keys, dim) or value.shape[:3] != key.shape[:3]:
        return False
    if heads != kv_heads and not (enable_gqa and heads % kv_heads == 0):
        return False
    if keys < SHORTEST and _mode != "interpret":
        return False
    return mask is None or (not is_causal and _hides_keys(mask, batch, keys))


def _hides_keys(mask: torch.Tensor, batch: int, keys: int) -> bool:
    """Whether it is the same for all heads and queries: (batch, 1, 1, keys), True: attend."""
    shape = (1,) * (4 - mask.dim()) + tuple(mask.shape)
    fits = len(shape) == 4 and shape[0] in (1, batch) and shape[1:] == (1, 1, keys)
    return is_device_tensor(mask) and mask.dtype == torch.bool and fits


def _of_keys(mask: Any, batch: int, keys: int) -> Array:
    """Which keys are visible: (batch, keys)."""

    def given(seen: Array) -> Array:
        return jnp.broadcast_to(seen.reshape(-1, keys), (batch, keys))

    return lazy_graph.call(("keys", batch, keys), given, peek(mask))


@functools.partial(jax.jit, static_argnames=("causal", "factor", "interpret", "devices"))
def _attend(
    query: Array,
    key: Array,
    value: Array,
    visible: Array | None = None,
    *,
    causal: bool,
    factor: float,
    interpret: bool,
    devices: Any,
) -> Array:
    """Attention of (batch, heads, tokens, dim); ``visible``: (batch, keys), bool."""
    batch, queries, keys = query.shape[0], query.shape[2], key.shape[2]
    query = _padded(query * jnp.asarray(factor, query.dtype), 2)
    key, value = _padded(key, 2), _padded(value, 2)
    hidden = visible is not None or key.shape[2] != keys
    segments = None
    if hidden:  # a query attends to the keys of its own segment
        seen = jnp.ones((batch, keys), bool) if visible is None else visible
        ones = jnp.ones((batch, query.shape[2]), jnp.int32)
        segments = splash_attention.SegmentIds(ones, _padded(seen.astype(jnp.int32), 1))

    def attend(query: Array, key: Array, value: Array, segments: Any) -> Array:
        kernel = _kernel(query.shape[1:], key.shape[1:], causal, interpret)
        return jax.vmap(kernel)(query, key, value, segments)

    run = attend if devices is None else _divided(attend, devices, batch, key.shape[1])
    with jax.default_matmul_precision(_precision(query.dtype)):
        result = run(query, key, value, segments)[:, :, :queries]
    if visible is None:
        return result
    return jnp.where(visible.any(-1)[:, None, None, None], result, 0)  # 0 if no key is visible


def _padded(array: Array, axis: int) -> Array:
    """Padded with zeros at the end, to a multiple of the block."""
    missing = -array.shape[axis] % _block(array.shape[axis])
    widths = [(0, missing if i == axis else 0) for i in range(array.ndim)]
    return jnp.pad(array, widths) if missing else array


def _block(tokens: int) -> int:
    return min(_BLOCK, -(-tokens // _LANES) * _LANES)


def _precision(dtype: Any) -> str:
    """The kernel's precision of products: one pass for bfloat16, like flash attention on GPUs.

    A TPU's kernels only support this and the highest.
    """
    config: Any = jax.config
    asked = config.jax_default_matmul_precision
    return "default" if dtype == jnp.bfloat16 or asked in (None, "default") else "highest"


def _divided(attend: Any, devices: Any, batch: int, heads: int) -> Any:
    """Each device has its heads, or its samples: XLA can't partition a kernel by itself."""
    of_heads = of_samples = PartitionSpec()
    if mesh.divides(mesh.MODEL) and heads % devices.size == 0:
        of_heads = PartitionSpec(None, mesh.MODEL)
    elif mesh.divides(mesh.DATA) and batch % devices.size == 0:
        of_heads = of_samples = PartitionSpec(mesh.DATA)
    return jax.shard_map(
        attend, mesh=devices, in_specs=(of_heads, of_heads, of_heads, of_samples),
        out_specs=of_heads, check_vma=False,
    )  # fmt: skip


def _kernel(query: Any, key: Any, causal: bool, interpret: bool) -> Any:
    """The kernel for one sample: (heads, tokens, dim)."""
    heads, queries, _ = query
    keys = key[1]
    kind = splash_attention.CausalMask if causal else splash_attention.FullMask
    sizes = splash_attention.BlockSizes(_block(queries), _block(keys))
    return splash_attention.make_splash_mha(
        splash_attention.MultiHeadMask([kind((queries, keys))] * heads), block_sizes=sizes,
        head_shards=1, q_seq_shards=1, interpret=interpret,
    )  # fmt: skip


def _attention(env: Environment, function: Function, args: Any, kwargs: Any) -> Any:
    if not holds_device_tensor((args, kwargs)):
        return NotImplemented
    with modes.modes_from_within(env):
        return attention(env, *args, **kwargs)


def install(env: Environment) -> None:
    """Use the kernel if it fits."""
    replaces(*FUNCTIONS)(_attention)
