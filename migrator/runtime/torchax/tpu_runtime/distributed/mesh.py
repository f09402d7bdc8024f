"""All devices at once: one process and a mesh; its axis divides batches, or a model's weights.

JAX computes with whole arrays wherever their parts are, so a placement never changes the results,
except for rounding. The mesh is used from the first model on that asks for it (data_parallel.py,
tensor_parallel.py): compiled programs then get their state on all devices, and their arguments
split along the first dimension, or whole if weights are divided. XLA adds the necessary exchanges
between devices.
"""

import functools
import sys
from collections.abc import Callable, Iterable
from typing import Any

import jax
import torch
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from torchax.tensor import Tensor

from ..device import device_count
from ..dispatch.calls import is_device_tensor
from ..lazy import lazy_graph, lazy_programs
from ..lazy.lazy_arrays import LazyArray, stored
from ..tensors.views import peek

Array = Any
DATA, MODEL = "data", "model"  # what an axis divides: batches, or weights

_mesh: Mesh | None = None
_told: set[str] = set()


def start(axis: str) -> int:
    """Use all devices from here on; returns their number.

    If they divide weights, each gets whole batches. Raises RuntimeError for the other way.
    """
    global _mesh
    count = device_count()
    if _mesh is None and count > 1:
        # Explicit axes, JAX's default, put shardings into types, which torchax's operators lack.
        _mesh = jax.make_mesh((count,), (axis,), axis_types=(AxisType.Auto,))
        lazy_graph.run()
        lazy_programs.has_placements = True
    if _mesh is not None and not divides(axis) and axis != DATA:
        raise RuntimeError("a program divides its batches or its weights, not both")
    say(f"{count} device{'s' * (count > 1)} ({jax.devices()[0].device_kind})")
    return count


def in_use() -> Mesh | None:
    return _mesh


def divides(axis: str) -> bool:
    """Whether the devices divide batches rather than weights."""
    return _mesh is not None and _mesh.axis_names == (axis,)


def say(what: str) -> None:
    if what not in _told:
        _told.add(what)
        print(f"tpu_runtime: {what}", file=sys.stderr, flush=True)


def _is_placed(array: Array) -> bool:
    if type(array) is LazyArray:  # XLA places it where it is computed
        return True
    return isinstance(array.sharding, NamedSharding) and array.sharding.mesh is _mesh


def replicate_on_mesh(array: Array) -> Array:
    """A model's tensor: as it is if it is on the mesh, otherwise whole on every device."""
    if _mesh is None or _is_placed(array):
        return array
    return jax.device_put(array, NamedSharding(_mesh, PartitionSpec()))


def split(array: Array) -> Array:
    """A model's input: a part for each device if the first dimension can be divided."""
    is_lazy = type(array) is LazyArray
    if _mesh is None or (not is_lazy and _is_placed(array)):
        return array
    if not divides(DATA) or array.ndim == 0 or array.shape[0] % _mesh.size or not array.shape[0]:
        return replicate_on_mesh(array)
    parted = NamedSharding(_mesh, PartitionSpec(DATA))
    if is_lazy:
        place = functools.partial(jax.lax.with_sharding_constraint, shardings=parted)
        return lazy_graph.call("split", place, array)
    return jax.device_put(array, parted)


def note_batch(tensor: torch.Tensor) -> None:
    """Print once how large the batches are."""
    traced = isinstance(tensor.__dict__.get("_elem"), jax.core.Tracer)
    if _mesh is None or traced or tensor.dim() == 0:
        return
    n = tensor.shape[0]
    if n % _mesh.size == 0:
        say(f"a batch of {n} is {n // _mesh.size} on each of {_mesh.size} devices")
    else:
        say(f"a batch of {n} cannot be split over {_mesh.size} devices: each computes all of it")


def shard(array: Array) -> Array:
    """A part of a parameter for each device, along its longest divisible dimension."""
    if _mesh is None or not divides(DATA) or _is_placed(array):
        return replicate_on_mesh(array)
    dividing = [n for n in array.shape if n and n % _mesh.size == 0]
    if not dividing:
        return replicate_on_mesh(array)
    before: list[str | None] = [None] * array.shape.index(max(dividing))
    return jax.device_put(array, NamedSharding(_mesh, PartitionSpec(*before, DATA)))


def once_each(how: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """`how` to place an array; one that is met again, like a shared step count, is placed once.

    Two copies may be the same memory on one of the devices, and a program can't overwrite it twice.
    """
    placed: dict[int, tuple[Array, Array]] = {}

    def place(array: Array) -> Array:
        if id(array) not in placed:
            placed[id(array)] = array, how(array)
        return placed[id(array)][1]

    return place


def place_on_mesh(
    tensors: Iterable[Any], how: Callable[[Array], Array] = replicate_on_mesh
) -> None:
    """Put tensors of a model onto the mesh."""
    how = once_each(how)
    for tensor in filter(is_device_tensor, tensors):
        peek(tensor)  # a parameter that was an alias stops being one
        whole, array = tensor.__dict__.get("_link") is None, stored(tensor)
        if whole and isinstance(array, jax.Array) and not isinstance(array, jax.core.Tracer):
            tensor.__dict__["_elem"] = how(array)


def place_states(optimizers: Iterable[torch.optim.Optimizer]) -> None:
    """Put optimizer state with a parameter's shape where the parameter is."""
    for optimizer in optimizers:
        for parameter, inner in optimizer.state.items():
            array = stored(parameter) if is_device_tensor(parameter) else None
            if isinstance(array, jax.Array) and not isinstance(array, jax.core.Tracer):
                tensors = filter(is_device_tensor, inner.values())
                alike = [tensor for tensor in tensors if tensor.shape == array.shape]
                place_on_mesh(alike, functools.partial(jax.device_put, device=array.sharding))


def shardings(given: Any) -> list[Any]:
    """The placement of the arrays among a program's inputs."""
    return [getattr(x, "sharding", None) for x in jax.tree.leaves(given)]  # lazy arrays have none


def as_before(given: Any, known: list[Any]) -> Any:
    """A program's inputs, placed as when it was compiled."""
    leaves, tree = jax.tree.flatten(given)
    moved = [
        array if sharding is None or type(array) is LazyArray or array.sharding == sharding
        else jax.device_put(array, sharding)
        for array, sharding in zip(leaves, known, strict=True)
    ]  # fmt: skip
    return jax.tree.unflatten(tree, moved)


def gather(array: Array, sharding: Any) -> Array:
    """In a trace with split batches: the whole of a parameter.

    Otherwise XLA may gather the batch instead, and split the model.
    """
    if _mesh is None or not divides(DATA) or sharding is None or not any(sharding.spec):
        return array
    return jax.lax.with_sharding_constraint(array, NamedSharding(_mesh, PartitionSpec()))


def stay(array: Array, sharding: Any) -> Array:
    """In a trace: give a replacement for an array the same placement."""
    if sharding is None:
        return array
    return jax.lax.with_sharding_constraint(array, sharding)


def placed(tensor: torch.Tensor, dim: int | None) -> torch.Tensor:
    """A part of a model's tensor for each device, along ``dim``; None: the whole of it."""
    if _mesh is not None:
        place_as = NamedSharding(
            _mesh, PartitionSpec(*[None] * (dim or 0), MODEL if dim is not None else None)
        )
        place_on_mesh([tensor], functools.partial(jax.device_put, device=place_as))
    return tensor


def gathered(tensor: Any) -> torch.Tensor:
    """The same values, whole on each device."""
    if _mesh is None or not is_device_tensor(tensor):
        return tensor  # type: ignore[no-any-return]
    whole = NamedSharding(_mesh, PartitionSpec())
    return Tensor(jax.lax.with_sharding_constraint(tensor.jax(), whole), tensor._env)
