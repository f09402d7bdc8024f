"""Programs with a published time on a TPU, compiled for that TPU without one.

A product, a copy, an all-reduce, and training steps of Llama models as MaxText's recipes have
them: float32 weights and Adam states divided over all chips, bfloat16 products, attention by JAX's
kernel, each layer computed again in the backward pass but for what the recipe keeps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jax.experimental import topologies
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

BF16, F32 = jnp.bfloat16, jnp.float32
BLOCK = 1024  # of the attention kernel; the recipes raise a limit of the compiler for 2,048
AXIS = "x"

Compiled = Any
Weights = dict[str, Any]


def mesh_of(topology: str) -> Mesh:
    devices = topologies.get_topology_desc(topology, "tpu").devices
    return Mesh(np.array(devices), (AXIS,))


def array(mesh: Mesh, shape: tuple[int, ...], dtype: Any, *parts: str | None) -> Any:
    """An array that has no values."""
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*parts)))


def product(topology: str, size: int) -> Compiled:
    """Of two bfloat16 matrices, on the first device."""
    mesh = Mesh(mesh_of(topology).devices[:1], (AXIS,))
    given = array(mesh, (size, size), BF16)
    return jax.jit(lambda a, b: a @ b).lower(given, given).compile()


def copy(topology: str, elements: int) -> Compiled:
    mesh = Mesh(mesh_of(topology).devices[:1], (AXIS,))
    return jax.jit(lambda a: a.copy()).lower(array(mesh, (elements,), BF16)).compile()


def all_reduce(topology: str, size: int) -> Compiled:
    """The sum of a matrix of each device."""
    mesh = mesh_of(topology)
    summed = jax.shard_map(
        lambda a: jax.lax.psum(a, AXIS), mesh=mesh, in_specs=P(), out_specs=P(), check_vma=False
    )
    return jax.jit(summed).lower(array(mesh, (size, size), BF16)).compile()


@dataclass(frozen=True)
class Llama:
    """``kept``: what the backward pass does not compute again. ``batch``: of a device."""

    batch: int
    width: int = 4096
    heads: int = 32
    groups: int = 8  # of heads that share keys and values
    hidden: int = 14336
    words: int = 128256
    depth: int = 32
    length: int = 8192
    kept: tuple[str, ...] = ("input", "query", "key", "value", "out")

    @property
    def head(self) -> int:
        return self.width // self.heads

    def shapes(self, depth: int) -> dict[str, tuple[int, ...]]:
        wide, narrow = self.heads * self.head, self.groups * self.head
        layer = {
            "query": (self.width, wide), "key": (self.width, narrow),
            "value": (self.width, narrow), "out": (wide, self.width),
            "gate": (self.width, self.hidden), "up": (self.width, self.hidden),
            "down": (self.hidden, self.width), "norm1": (self.width,), "norm2": (self.width,),
        }  # fmt: skip
        layers = {f"{n}.{name}": shape for n in range(depth) for name, shape in layer.items()}
        ends = {"embed": (self.words, self.width), "logits": (self.width, self.words)}
        return {**layers, **ends, "norm": (self.width,)}


def train_step(topology: str, model: Llama, depth: int) -> Compiled:
    """A step of Adam of a model with ``depth`` layers."""
    mesh = mesh_of(topology)
    weights = {n: array(mesh, s, F32, AXIS) for n, s in model.shapes(depth).items()}
    tokens = array(mesh, (model.batch * mesh.size, model.length), jnp.int32, AXIS)
    same = {name: given.sharding for name, given in weights.items()}
    step = jax.jit(
        partial(_step, model, mesh, depth), donate_argnums=(0, 1, 2),
        out_shardings=(same, same, same, NamedSharding(mesh, P())),
    )  # fmt: skip
    return step.lower(weights, weights, weights, tokens).compile()


def _step(
    model: Llama, mesh: Mesh, depth: int, weights: Weights, mean: Weights, square: Weights,
    tokens: Any,
) -> tuple[Weights, Weights, Weights, Any]:  # fmt: skip
    loss, gradients = jax.value_and_grad(partial(_loss, model, mesh, depth))(weights, tokens)
    mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, gradients)
    square = jax.tree.map(lambda v, g: 0.95 * v + 0.05 * g * g, square, gradients)
    weights = jax.tree.map(
        lambda w, m, v: w - 1e-4 * (m / (jnp.sqrt(v) + 1e-8) + 0.1 * w), weights, mean, square
    )
    return weights, mean, square, loss


def _loss(model: Llama, mesh: Mesh, depth: int, weights: Weights, tokens: Any) -> Any:
    divided = NamedSharding(mesh, P(AXIS))
    x = jnp.take(weights["embed"].astype(BF16), tokens, axis=0)
    x = jax.lax.with_sharding_constraint(x, divided)
    policy = jax.checkpoint_policies.save_only_these_names(*model.kept)
    attend = _attention(model, mesh)
    for number in range(depth):
        own = f"{number}."
        layer = {n.removeprefix(own): w for n, w in weights.items() if n.startswith(own)}
        x = jax.checkpoint(partial(_layer, model, attend), policy=policy)(layer, x)
        x = jax.lax.with_sharding_constraint(x, divided)
    logits = _norm(x, weights["norm"]) @ weights["logits"].astype(BF16)
    logits = logits.astype(F32)
    picked = jnp.take_along_axis(logits, tokens[..., None], -1)[..., 0]
    return (jax.nn.logsumexp(logits, -1) - picked).mean()


def _layer(model: Llama, attend: Callable[..., Any], w: Weights, x: Any) -> Any:
    x = checkpoint_name(x, "input")
    h = _norm(x, w["norm1"])

    def heads(name: str, count: int) -> Any:
        made = checkpoint_name(h @ w[name].astype(BF16), name)
        made = made.reshape(*made.shape[:2], count, model.head).swapaxes(1, 2)
        return made if name == "value" else _rotate(made)

    q, k, v = heads("query", model.heads), heads("key", model.groups), heads("value", model.groups)
    mixed = attend(q * model.head**-0.5, k, v).swapaxes(1, 2)
    mixed = mixed.reshape(*x.shape[:2], model.heads * model.head)
    x = x + checkpoint_name(mixed @ w["out"].astype(BF16), "out")
    h = _norm(x, w["norm2"])
    gate, up = h @ w["gate"].astype(BF16), h @ w["up"].astype(BF16)
    return x + (jax.nn.silu(gate) * up) @ w["down"].astype(BF16)


def _norm(x: Any, weight: Any) -> Any:
    wide = x.astype(F32)
    wide = wide * jax.lax.rsqrt(jnp.square(wide).mean(-1, keepdims=True) + 1e-5)
    return (wide * weight).astype(BF16)


def _rotate(x: Any) -> Any:
    half = x.shape[-1] // 2
    turn = 500000.0 ** -(jnp.arange(half) / half)
    angles = jnp.arange(x.shape[-2])[:, None] * turn
    cos, sin = jnp.cos(angles).astype(BF16), jnp.sin(angles).astype(BF16)
    left, right = x[..., :half], x[..., half:]
    return jnp.concatenate([left * cos - right * sin, right * cos + left * sin], -1)


def _attention(model: Llama, mesh: Mesh) -> Callable[..., Any]:
    """JAX's causal attention kernel, for the batch of each device."""
    names = ("block_q", "block_kv", "block_kv_compute", "block_q_dkv", "block_kv_dkv",
             "block_kv_dkv_compute")  # fmt: skip
    sizes = splash.BlockSizes(**dict.fromkeys(names, BLOCK), use_fused_bwd_kernel=True)
    mask = masks.MultiHeadMask([masks.CausalMask((model.length,) * 2)] * model.heads)
    kernel = splash.make_splash_mha(mask, block_sizes=sizes, head_shards=1, q_seq_shards=1)

    def attend(q: Any, k: Any, v: Any) -> Any:
        return jax.vmap(kernel)(q, k, v)

    return jax.shard_map(attend, mesh=mesh, in_specs=P(AXIS), out_specs=P(AXIS), check_vma=False)
