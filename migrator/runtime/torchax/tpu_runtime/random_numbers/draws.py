"""Random numbers of a key, in the range of a GPU's, and as exact.

JAX 0.10: `exponential` gives 0 in one of 8 million draws; scaled uniform numbers reach their upper
end; bfloat16 has 128 uniform numbers, so that its normal ones stay below 2.9 and one exponential
one in 128 is 0. torchax 0.0.13: each row of `multinomial` gets the same draw; halves of `rand` are
rounded to 1; complex numbers are real; the scale of dropout is rounded to a half.
"""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import torch
import torch.nn.functional as F
from torchax.ops import mappings
from torchax.tensor import Environment

from ..dispatch.calls import Function, is_device_tensor, register, replaces
from ..dispatch.jax_kernels import Array, kernel

Shape = Sequence[int]


def _wide(dtype: Any) -> str:
    """What is computed in: halves are float32 until the end."""
    return str(jnp.promote_types(dtype, jnp.float32))


def _bits(key: Array, shape: Shape, wide: str) -> Array:
    return jax.random.bits(key, shape, "uint64" if wide == "float64" else "uint32")


def _from_zero(key: Array, shape: Shape, wide: str) -> Array:
    """Uniform numbers in [0, 1), all that the dtype has at a distance of its last digit."""
    digits = jnp.finfo(wide).nmant + 1
    bits = _bits(key, shape, wide)
    return (bits >> (bits.dtype.itemsize * 8 - digits)).astype(wide) * 2.0**-digits


def _to_one(key: Array, shape: Shape, wide: str) -> Array:
    """Uniform numbers in (0, 1], the smallest far below the distance to the next."""
    bits = _bits(key, shape, wide)
    size = 2.0 ** -(bits.dtype.itemsize * 8)
    return bits.astype(wide) * size + size / 2


def _rounded(values: Any, dtype: str) -> Array:
    """As numbers of ``dtype``; XLA may leave out a conversion there and back."""
    info = jnp.finfo(dtype)
    return jax.lax.reduce_precision(jnp.asarray(values, _wide(dtype)), info.nexp, info.nmant)


@kernel
def _uniform(key: Array, shape: Shape, dtype: str, low: Any, high: Any) -> Array:
    drawn = _from_zero(key, shape, _wide(dtype)) * (high - low) + low
    drawn = _rounded(drawn, dtype)
    return jnp.where(drawn >= _rounded(high, dtype), low, drawn).astype(dtype)


@kernel
def _normal(key: Array, shape: Shape, dtype: str, mean: Any, deviation: Any) -> Array:
    return (jax.random.normal(key, shape, _wide(dtype)) * deviation + mean).astype(dtype)


def _standard_exponential(key: Array, shape: Shape, wide: str) -> Array:
    """Never 0: its logarithm and its reciprocal are finite, as a GPU's are."""
    least = float(jnp.finfo(wide).eps) / 2
    return jnp.maximum(-jnp.log(_to_one(key, shape, wide)), least)


@kernel
def _exponential(key: Array, shape: Shape, dtype: str, rate: Any) -> Array:
    return (_standard_exponential(key, shape, _wide(dtype)) / rate).astype(dtype)


@kernel
def _cauchy(key: Array, shape: Shape, dtype: str, median: Any, sigma: Any) -> Array:
    wide = _wide(dtype)
    least = float(jnp.finfo(wide).eps)
    place = jnp.clip(_to_one(key, shape, wide), least, 1 - least)
    return (jnp.tan(jnp.pi * (place - 0.5)) * sigma + median).astype(dtype)


@kernel
def _log_normal(key: Array, shape: Shape, dtype: str, mean: Any, deviation: Any) -> Array:
    return jnp.exp(jax.random.normal(key, shape, _wide(dtype)) * deviation + mean).astype(dtype)


@kernel
def _geometric(key: Array, shape: Shape, dtype: str, p: Any) -> Array:
    trials = jnp.ceil(jnp.log(_to_one(key, shape, "float32")) / jnp.log1p(-p))
    return jnp.maximum(trials, 1).astype(dtype)


@kernel
def _bernoulli(key: Array, shape: Shape, dtype: str, p: Any) -> Array:
    return (_from_zero(key, shape, "float32") < p).astype(dtype)


@kernel
def _integers(key: Array, shape: Shape, dtype: str, low: int, high: int) -> Array:
    """In [low, high); ``high`` may be one more than the largest integer of the device."""
    whole = jnp.iinfo(jax.dtypes.canonicalize_dtype("int64"))
    if high <= whole.max:
        return jax.random.randint(key, shape, low, high, whole.dtype).astype(dtype)
    if low > whole.min:
        drawn = jax.random.randint(key, shape, low - 1, high - 1, whole.dtype) + 1
        return drawn.astype(dtype)
    bits = jax.random.bits(key, shape, f"uint{whole.bits}")
    return jax.lax.bitcast_convert_type(bits, whole.dtype).astype(dtype)


@kernel
def _complex(key: Array, shape: Shape, dtype: str, is_normal: bool) -> Array:
    part = "float64" if dtype == "complex128" else "float32"
    pairs = (*shape, 2)
    if is_normal:
        drawn = jax.random.normal(key, pairs, part) * math.sqrt(0.5)
    else:
        drawn = _from_zero(key, pairs, part)
    return jax.lax.complex(drawn[..., 0], drawn[..., 1])


@kernel
def _choose(key: Array, weights: Array, count: int, replacement: bool) -> Array:
    """Places in each row, each row by draws of its own; one of weight 0 is never chosen."""
    rows = weights.astype(_wide(weights.dtype))
    if count == 1 or not replacement:
        # As torch does it: the first to happen, each at its rate.
        first = rows / _standard_exponential(key, rows.shape, str(rows.dtype))
        return jax.lax.top_k(first, count)[1]
    summed = jnp.cumsum(rows, -1)
    places = _to_one(key, (*rows.shape[:-1], count), str(rows.dtype)) * summed[..., -1:]
    search = jax.vmap(jnp.searchsorted) if rows.ndim > 1 else jnp.searchsorted
    return search(summed, places)


@kernel
def _dropped(key: Array, x: Array, p: Any) -> tuple[Array, Array]:
    kept = _from_zero(key, x.shape, "float32") > p
    return _scaled(x, kept, 1 / (1 - p)), kept


@kernel
def _scaled(x: Array, kept: Array, scale: Any) -> Array:
    wide = jnp.promote_types(x.dtype, jnp.float32)
    return (x.astype(wide) * kept * scale).astype(x.dtype)


# ---- as torch calls them -------------------------------------------------------------------------


def _number(value: Any, dtype: Any = jnp.float32) -> Array:
    """A parameter as an array: another number is no other program."""
    return jnp.asarray(value, _wide(dtype))


def _check(holds: bool, what: str) -> None:
    if not holds:
        raise RuntimeError(what)


def uniform(key: Array, shape: Shape, dtype: Any, low: float = 0, high: float = 1) -> Array:
    """In [low, high)."""
    _check(low <= high, f"uniform_ expects from <= to, not {low} and {high}")
    return _uniform(key, tuple(shape), str(dtype), _number(low, dtype), _number(high, dtype))


def normal(key: Array, shape: Shape, dtype: Any, mean: float = 0, std: float = 1) -> Array:
    """Around ``mean``."""
    _check(std >= 0, f"normal expects std >= 0.0, but found std {std}")
    return _normal(key, tuple(shape), str(dtype), _number(mean, dtype), _number(std, dtype))


def exponential(key: Array, shape: Shape, dtype: Any, rate: float) -> Array:
    """Above 0."""
    _check(rate > 0, f"exponential_ expects lambda > 0.0, but found lambda={rate}")
    return _exponential(key, tuple(shape), str(dtype), _number(rate, dtype))


def cauchy(key: Array, shape: Shape, dtype: Any, median: float, sigma: float) -> Array:
    """Finite."""
    _check(sigma > 0, f"cauchy_ expects sigma > 0.0, but found sigma={sigma}")
    return _cauchy(key, tuple(shape), str(dtype), _number(median, dtype), _number(sigma, dtype))


def log_normal(key: Array, shape: Shape, dtype: Any, mean: float, std: float) -> Array:
    """Their logarithms are around ``mean``."""
    _check(std > 0, f"log_normal_ expects std > 0.0, but found std={std}")
    return _log_normal(key, tuple(shape), str(dtype), _number(mean, dtype), _number(std, dtype))


def geometric(key: Array, shape: Shape, dtype: Any, p: float) -> Array:
    """1 or more."""
    _check(0 < p < 1, f"geometric_ expects p to be in (0, 1), but got p={p}")
    return _geometric(key, tuple(shape), str(dtype), _number(p))


def bernoulli(key: Array, shape: Shape, dtype: Any, p: Any) -> Array:
    """0 and 1; ``p`` is a number, or an array that may be broadcast."""
    if not isinstance(p, jax.Array):
        _check(0 <= p <= 1, f"bernoulli_ expects p to be in [0, 1], but got p={p}")
    return _bernoulli(key, tuple(shape), str(dtype), _number(p, getattr(p, "dtype", jnp.float32)))


def integers(key: Array, shape: Shape, dtype: Any, low: int, high: int) -> Array:
    """In [low, high)."""
    _check(low < high, f"random_ expects 'from' to be less than 'to', but got {low} >= {high}")
    whole = jnp.iinfo(jax.dtypes.canonicalize_dtype("int64"))
    _check(
        whole.min <= low and high <= int(whole.max) + 1,
        f"random numbers from {low} to {high}: integers of this device have {whole.bits} bits"
        " (64 with JAX_ENABLE_X64=1)",
    )
    return _integers(key, tuple(shape), str(dtype), int(low), int(high))


def any_integers(key: Array, shape: Shape, dtype: Any, *ends: int | None) -> Array:
    """`random_()`, `random_(to)` and `random_(from, to)`: without an end, all that are exact."""
    dtype = jnp.dtype(dtype)
    if dtype == jnp.bool_:
        least, most = 0, 1
    elif jnp.issubdtype(dtype, jnp.floating):
        least, most = -(2 ** (jnp.finfo(dtype).nmant + 1)), 2 ** (jnp.finfo(dtype).nmant + 1)
    else:
        least, most = int(jnp.iinfo(dtype).min), int(jnp.iinfo(dtype).max)
    low, high = (ends if len(ends) == 2 else (0, *ends)) if ends else (0, most + 1)
    low = least if low is None else low
    return integers(key, shape, dtype, low, most + 1 if high is None else high)


_HALVES = (torch.float16, torch.bfloat16)


@replaces(F.dropout, torch.dropout, torch.dropout_)
def _dropout(env: Environment, function: Function, args: Any, kwargs: Any) -> Any:
    """Of halves, as a GPU's kernel: torch's own formula rounds 1 / (1 - p) to one."""
    given = dict(zip(("input", "p", "train", "inplace"), args, strict=False)) | kwargs
    x, p = given["input"], given.get("p", 0.5)
    train = given.get("train", given.get("training", True))
    if not is_device_tensor(x) or x.dtype not in _HALVES or not train or not 0 < p < 1:
        return NotImplemented
    with env:
        dropped = torch.native_dropout(x, p, train)[0]
        in_place = function is torch.dropout_ or given.get("inplace")
        return x.copy_(dropped) if in_place else dropped


def _factories(env: Environment) -> dict[Any, Any]:
    """Operators that make tensors of a size."""

    def dtype_of(dtype: Any) -> Any:
        return jnp.dtype(mappings.t2j_dtype(dtype or torch.get_default_dtype()))

    def sizes(size: Any) -> Shape:
        given: Shape = size[0] if len(size) == 1 and not isinstance(size[0], int) else size
        return given

    def made(is_normal: bool) -> Any:
        def draw(*size: Any, dtype: Any = None, **rest: Any) -> Array:
            shape, wanted = tuple(rest.get("size", sizes(size))), dtype_of(dtype)
            key = env.get_and_rotate_prng_key()
            if wanted.kind == "c":
                return _complex(key, shape, str(wanted), is_normal)
            return (normal if is_normal else uniform)(key, shape, wanted)

        return draw

    def like(is_normal: bool) -> Any:
        draw = made(is_normal)
        return lambda x, *, dtype=None, **rest: draw(
            x.shape, dtype=mappings.j2t_dtype(x.dtype) if dtype is None else dtype
        )

    def randint(*args: Any, dtype: Any = None, **rest: Any) -> Array:
        names = ("low", "high", "size") if len(args) == 3 or "low" in rest else ("high", "size")
        given = dict(zip((n for n in names if n not in rest), args, strict=False)) | rest
        key = env.get_and_rotate_prng_key()
        wanted = dtype_of(dtype or torch.int64)
        return integers(key, given["size"], wanted, given.get("low", 0), given["high"])

    def randint_like(x: Array, *args: Any, dtype: Any = None, **rest: Any) -> Array:
        ends = [*args, *(rest[name] for name in ("low", "high") if name in rest)]
        low, high = ends if len(ends) == 2 else (0, *ends)
        wanted = dtype_of(dtype) if dtype is not None else x.dtype
        return integers(env.get_and_rotate_prng_key(), x.shape, wanted, low, high)

    aten = torch.ops.aten
    return {
        aten.rand: made(False),
        aten.randn: made(True),
        aten.rand_like: like(False),
        aten.randn_like: like(True),
        aten.randint: randint,
        aten.randint_like: randint_like,
    }


def _choices(env: Environment) -> dict[Any, Any]:
    """Operators that choose by the values of a tensor, or among them."""

    def bernoulli_of(x: Array, p: Any = None, *, generator: Any = None) -> Array:
        chance = x if p is None else p
        return bernoulli(env.get_and_rotate_prng_key(), x.shape, x.dtype, chance)

    def multinomial(
        weights: Array, count: int, replacement: bool = False, *, generator: Any = None
    ) -> Array:
        most = weights.shape[-1]
        _check(count > 0, "cannot sample n_sample <= 0 samples")
        _check(
            replacement or count <= most,
            "cannot sample n_sample > prob_dist.size(-1) samples without replacement",
        )
        return _choose(env.get_and_rotate_prng_key(), weights, count, replacement)

    def native_dropout(x: Array, p: float, train: bool | None) -> Any:
        if not train or p == 0:
            return x, jnp.ones(x.shape, bool)
        if p == 1:
            return jnp.zeros_like(x), jnp.zeros(x.shape, bool)
        return _dropped(env.get_and_rotate_prng_key(), x, _number(p))

    def native_dropout_backward(gradient: Array, mask: Array, scale: float) -> Array:
        return _scaled(gradient, mask, _number(scale))

    aten = torch.ops.aten
    return {
        aten.bernoulli: bernoulli_of,
        aten.multinomial: multinomial,
        aten.native_dropout: native_dropout,
        aten.native_dropout_backward: native_dropout_backward,
    }


def install(env: Environment) -> None:
    """Replace torchax's draws that make tensors; generators.py has those that fill them."""
    for operator, function in (_factories(env) | _choices(env)).items():
        register(env, operator, function, of_arrays=True)
    for torch_function in (torch.rand, torch.randn, torch.randint):
        made_by = env._ops[getattr(torch.ops.aten, torch_function.__name__)]
        env._ops[torch_function] = made_by
