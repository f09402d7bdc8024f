"""Farthest point sampling, as one loop: unrolled, 512 points take 20 s to compile."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import torch
from torch import Tensor
from torchax.tensor import Tensor as DeviceTensor

Array = Any


def farthest_points(points: Any, count: int, may_be: Any) -> Tensor:
    """Indices (batch, count), beginning with 0: each is the farthest from all before it.

    Of equally far ones, it is the first; only points that ``may_be`` chosen count.
    """
    points, may_be = torch.ones_like(points) * points, may_be.clone()  # no views
    return DeviceTensor(_chosen(points.jax(), count, may_be.jax()), points._env)


@functools.partial(jax.jit, static_argnums=1)
def _chosen(points: Array, count: int, may_be: Array) -> Array:
    def step(carry: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], Array]:
        distances, last = carry
        point = jnp.take_along_axis(points, last[:, None, None], 1)
        distances = jnp.minimum(distances, jnp.square(points - point).sum(-1))
        following = jnp.where(may_be, distances, -1).argmax(1).astype(last.dtype)
        return (distances, following), last

    distances = jnp.full(points.shape[:2], 1e10, points.dtype)
    first = jnp.zeros(points.shape[0], int)
    _, chosen = jax.lax.scan(step, (distances, first), None, length=count)
    return chosen.T
