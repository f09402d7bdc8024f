"""Exchanges between ranks: programs that all of them run at the same time, each with its own row.

A rank's array is a row of an array that spans the devices of all ranks, without a copy; XLA does
the exchange. Values that only one rank sends are sent as bits, so that they arrive unchanged.
Tensors of one type are concatenated, like torch's buckets: one exchange is one program.

JAX 0.10 on the CPU: in `lax.psum_scatter` between processes, a rank's part may silently end in
what another rank has written there since. So the whole is summed there.
"""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

Array = Any

_AXIS = "rank"
_BUCKET = 2**28  # bytes that are concatenated
_ROWS = PartitionSpec(_AXIS)
_BITS = {1: jnp.uint8, 2: jnp.uint16, 4: jnp.uint32, 8: jnp.uint64}
_SUMMED: dict[str, Callable[..., Array]] = {
    "sum": lax.psum,
    "avg": lax.psum,
    "min": lax.pmin,
    "max": lax.pmax,
}
_JOINED: dict[str, Callable[..., Array]] = {
    "product": jnp.prod,
    "band": jnp.bitwise_and.reduce,
    "bor": jnp.bitwise_or.reduce,
    "bxor": jnp.bitwise_xor.reduce,
}


class Exchange:
    """The exchanges of a set of ranks, given by their devices in rank order."""

    def __init__(self, devices: Sequence[jax.Device]) -> None:
        self.size = len(devices)
        self._mesh = Mesh(np.array(devices), (_AXIS,))
        self._rows = NamedSharding(self._mesh, _ROWS)
        self._programs: dict[Any, Any] = {}
        self._on_cpu = devices[0].platform == "cpu"

    def reduce(self, arrays: list[Array], operation: str) -> list[Array]:
        """The sum, or another ``operation``, of all ranks' values, on each of them."""
        return self._in_buckets(arrays, _reduced, operation, self.size)

    def broadcast(self, arrays: list[Array], root: int) -> list[Array]:
        """The value of ``root``, on each rank."""
        return self._in_buckets(arrays, _broadcast, root)

    def gather(self, arrays: list[Array]) -> list[Array]:
        """The values of all ranks, stacked by rank in a new first dimension."""
        return [self._run(array, _gathered) for array in arrays]

    def scatter(self, arrays: list[Array], root: int) -> list[Array]:
        """This rank's part, along the first dimension, of the value of ``root``."""
        return [self._run(array, _scattered, root, self._on_cpu)[0] for array in arrays]

    def reduce_scatter(self, arrays: list[Array], operation: str) -> list[Array]:
        """This rank's part of the sum, or another ``operation``, of all ranks' values."""
        how = operation, self.size, self._on_cpu
        return [self._run(array, _reduced_part, *how)[0] for array in arrays]

    def transpose(self, arrays: list[Array]) -> list[Array]:
        """All-to-all along the first dimension: the parts that the ranks have for this one."""
        return [self._run(array, _transposed) for array in arrays]

    def _in_buckets(
        self, arrays: list[Array], body: Callable[..., Array], *how: Any
    ) -> list[Array]:
        results = list(arrays)
        for bucket in _buckets(arrays) if self.size > 1 else ():
            given = [arrays[i] for i in bucket]
            row = given[0].reshape(-1) if len(given) == 1 else _joined(given)
            parts = self._run(row, body, *how)
            if len(given) == 1:
                results[bucket[0]] = parts.reshape(given[0].shape)
                continue
            for i, part in zip(bucket, _split_flat(parts, _shapes(given)), strict=True):
                results[i] = part
        return results

    def _run(self, array: Array, body: Callable[..., Array], *how: Any) -> Array:
        program = self._programs.get((body, how))
        if program is None:
            mapped = jax.shard_map(
                lambda row: body(row, *how),
                mesh=self._mesh, in_specs=_ROWS, out_specs=_ROWS, check_vma=False,
            )  # fmt: skip
            program = self._programs[body, how] = jax.jit(mapped)
        array = array if array.ndim else array[None]
        if self._on_cpu:  # concurrent programs there wait for each other's threads
            array.block_until_ready()
        shape = (self.size * array.shape[0], *array.shape[1:])
        row = jax.make_array_from_single_device_arrays(shape, self._rows, [array])
        result = program(row).addressable_data(0)
        if self._on_cpu:
            result.block_until_ready()
        return result


def _buckets(arrays: list[Array]) -> Iterator[list[int]]:
    """Indices of arrays of the same type, grouped up to some size."""
    kinds: dict[Any, list[int]] = {}
    for i, array in enumerate(arrays):
        bucket = kinds.setdefault(array.dtype, [])
        if bucket and sum(arrays[j].nbytes for j in bucket) + array.nbytes > _BUCKET:
            yield bucket
            bucket = kinds[array.dtype] = []
        bucket.append(i)
    yield from kinds.values()


@jax.jit
def _joined(arrays: list[Array]) -> Array:
    return jnp.concatenate([array.reshape(-1) for array in arrays])


def _shapes(arrays: list[Array]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(array.shape) for array in arrays)


@functools.partial(jax.jit, static_argnums=1)
def _split_flat(row: Array, shapes: tuple[tuple[int, ...], ...]) -> list[Array]:
    ends = np.cumsum([math.prod(shape) for shape in shapes])[:-1]
    parts = jnp.split(row, ends)
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


def _reduced(row: Array, operation: str, size: int) -> Array:
    kind = row.dtype
    if kind == jnp.bool_:
        row = row.astype(jnp.int32)
    if operation in _SUMMED:
        total = _SUMMED[operation](row, _AXIS)
    else:
        total = _JOINED[operation](lax.all_gather(row, _AXIS), axis=0)
    return _mean(total, operation, size).astype(kind)


def _reduced_part(row: Array, operation: str, size: int, on_cpu: bool) -> Array:
    if operation in ("sum", "avg") and row.dtype != jnp.bool_:
        return _mean(_summed_part(row, on_cpu), operation, size).astype(row.dtype)
    return _local_shard(_reduced(row, operation, size))


def _summed_part(row: Array, on_cpu: bool) -> Array:
    if on_cpu:
        return _local_shard(lax.psum(row, _AXIS))
    return lax.psum_scatter(row, _AXIS, scatter_dimension=0, tiled=True)


def _local_shard(total: Array) -> Array:
    """This rank's part along the first dimension."""
    parts = total.reshape(lax.axis_size(_AXIS), -1, *total.shape[1:])
    return parts[lax.axis_index(_AXIS)]


def _mean(total: Array, operation: str, size: int) -> Array:
    if operation != "avg":
        return total
    if jnp.issubdtype(total.dtype, jnp.integer):  # as NCCL divides integers
        return lax.div(total, jnp.asarray(size, total.dtype))
    return total / size


def _broadcast(row: Array, root: int) -> Array:
    return _from_bits(lax.psum(_of_root(row, root), _AXIS), row)


def _scattered(row: Array, root: int, on_cpu: bool) -> Array:
    return _from_bits(_summed_part(_of_root(row, root), on_cpu), row)


def _of_root(row: Array, root: int) -> Array:
    """The bits of a value, and 0 on other ranks."""
    if jnp.iscomplexobj(row):
        row = jnp.stack([row.real, row.imag], -1)
    if row.dtype == jnp.bool_:
        bits = row.astype(jnp.uint8)
    else:
        bits = lax.bitcast_convert_type(row, _BITS[row.dtype.itemsize])
    return jnp.where(lax.axis_index(_AXIS) == root, bits, jnp.zeros_like(bits))


def _from_bits(bits: Array, like: Array) -> Array:
    if like.dtype == jnp.bool_:
        return bits.astype(jnp.bool_)
    if jnp.iscomplexobj(like):
        parts = lax.bitcast_convert_type(bits, like.real.dtype)
        return lax.complex(parts[..., 0], parts[..., 1])
    return lax.bitcast_convert_type(bits, like.dtype)


def _gathered(row: Array) -> Array:
    return lax.all_gather(row, _AXIS)


def _transposed(row: Array) -> Array:
    return lax.all_to_all(row, _AXIS, 0, 0, tiled=True)


@functools.cache
def of_devices(numbers: tuple[int, ...]) -> Exchange:
    """The exchanges of the ranks with these devices."""
    devices = {device.id: device for device in jax.devices()}
    return Exchange([devices[number] for number in numbers])
