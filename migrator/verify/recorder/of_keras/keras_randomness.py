"""The same random numbers from any back end of Keras.

Keras draws by seeds, whose sequence is the same everywhere; what a back end makes of a seed is its
own. Here it is the same: bits that are mixed from the seed and each element's place, by NumPy where
values are known, else, within a program that is compiled, by the back end.
"""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

import numpy as np

# of lowbias32, a mixer of 32 bits
_STEPS = ((16, 0x7FEB352D), (15, 0x846CA68B))
_GOLDEN = 0x9E3779B1
# Acklam's rational approximations of the normal distribution's inverse
_A = (-3.969683028665376e01, 2.209460984245205e02, -2.759285104469687e02, 1.383577518672690e02,
      -3.066479806614716e01, 2.506628277459239e00)  # fmt: skip
_B = (-5.447609879822406e01, 1.615858368580409e02, -1.556989798598866e02, 6.680131188771972e01,
      -1.328068155288572e01, 1.0)  # fmt: skip
_C = (-7.784894002430293e-03, -3.223964580411365e-01, -2.400758277161838e00, -2.549732539343734e00,
      4.374664141464968e00, 2.938163982698783e00)  # fmt: skip
_D = (7.784695709041462e-03, 3.224671290700398e-01, 2.445134137142996e00, 3.754408661907416e00,
      1.0)  # fmt: skip
_TAIL = 0.02425
_WITHIN = 0.5 * math.erfc(2.0 / math.sqrt(2.0))  # beyond two standard deviations, on one side


class Drawn:
    """How often random numbers were drawn; `own`: by the back end itself."""

    def __init__(self) -> None:
        self.count = self.own = 0


def install(keras: ModuleType, drawn: Drawn) -> None:
    """Replace what Keras' back end draws with."""
    module = __import__("keras.src.backend", fromlist=["random"])
    random, back_end = module.random, module.backend()
    maker = _Maker(keras, random, _Arrays(back_end), drawn)
    for name in ("normal", "truncated_normal", "uniform", "randint", "categorical", "dropout",
                 "shuffle"):  # fmt: skip
        setattr(random, name, getattr(maker, name))
    for name in ("gamma", "beta", "binomial"):
        setattr(random, name, _counted(getattr(random, name), drawn))


def _counted(function: Any, drawn: Drawn) -> Any:
    def own(*args: Any, **kwargs: Any) -> Any:
        drawn.own += 1
        return function(*args, **kwargs)

    return own


class _Arrays:
    """The functions of a back end that bits are mixed with, where their values are not known."""

    def __init__(self, back_end: str) -> None:
        self.name = back_end

    def places(self, shape: Any) -> Any:
        """The number of each element, as 32 bits, in this shape."""
        if self.name == "tensorflow":
            import tensorflow as tf

            shape = tf.cast(tf.convert_to_tensor(shape), tf.int32)
            return tf.reshape(tf.cast(tf.range(tf.reduce_prod(shape)), tf.uint32), shape)
        import jax.numpy as jnp

        return jnp.arange(math.prod(shape), dtype=jnp.uint32).reshape(shape)

    def behind(self, shape: Any) -> Any:
        """How many elements the replicas before this one have, of a batch that they share."""
        if self.name != "tensorflow":
            return 0
        import tensorflow as tf

        context = tf.distribute.get_replica_context()
        if context is None or context.num_replicas_in_sync == 1:
            return 0
        size = tf.reduce_prod(tf.cast(tf.convert_to_tensor(shape), tf.int32))
        return tf.cast(size * tf.cast(context.replica_id_in_sync_group, tf.int32), tf.uint32)

    def key(self, seed: Any) -> tuple[Any, Any]:
        if self.name == "tensorflow":
            import tensorflow as tf

            seed = tf.cast(seed, tf.uint32)
        return seed[0], seed[1]


class _Maker:
    def __init__(
        self, keras: ModuleType, random: ModuleType, arrays: _Arrays, drawn: Drawn
    ) -> None:
        self.ops, self.arrays, self.drawn = keras.ops, arrays, drawn
        self.draw_seed, self.floatx = random.draw_seed, random.floatx

    # ---- bits --------------------------------------------------------------------------------

    def _seed(self, seed: Any) -> Any:
        is_drawn = type(seed).__module__.startswith(("jax", "tensorflow"))
        return seed if is_drawn and hasattr(seed, "shape") else self.draw_seed(seed)

    def bits(self, shape: Any, seed: Any, of_batch: bool = False) -> tuple[Any, Any]:
        """32 random bits for each element, and what computes with them: NumPy, or keras.ops.

        ``of_batch``: each replica draws for its part of what one device draws for as a whole.
        """
        self.drawn.count += 1
        seed = self._seed(seed)
        try:
            first, second = (int(v) % 2**32 for v in np.asarray(seed))
            sizes = tuple(int(size) for size in shape)
        except Exception:  # of a program that is compiled; each back end has an error of its own
            places = self.arrays.places(shape)
            places = places + self.arrays.behind(shape) if of_batch else places
            first, second = self.arrays.key(seed)
            return self._mixed(places, first, second, self.ops), self.ops
        places = np.arange(math.prod(sizes), dtype=np.uint32).reshape(sizes)
        with np.errstate(over="ignore"):
            mixed = self._mixed(places, np.uint32(first), np.uint32(second), np)
        return mixed, np

    def _mixed(self, places: Any, first: Any, second: Any, xp: Any) -> Any:
        def number(value: int) -> Any:
            small = np.uint32(value)
            return small if xp is np else self.ops.convert_to_tensor(small, dtype="uint32")

        def mix(x: Any) -> Any:
            for shift, factor in _STEPS:
                x = xp.bitwise_xor(x, xp.right_shift(x, number(shift)))
                x = xp.multiply(x, number(factor))
            return xp.bitwise_xor(x, xp.right_shift(x, number(16)))

        key = mix(xp.bitwise_xor(first, mix(xp.add(second, number(_GOLDEN)))))
        return mix(xp.bitwise_xor(mix(xp.add(xp.multiply(places, number(_GOLDEN)), key)), key))

    def _uniform(self, shape: Any, seed: Any, of_batch: bool = False) -> tuple[Any, Any]:
        """From 0 to below 1, in float32, all of whose values are exact."""
        bits, xp = self.bits(shape, seed, of_batch)
        if xp is np:
            return (bits >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24), np
        top = self.ops.right_shift(bits, self.ops.convert_to_tensor(np.uint32(8), dtype="uint32"))
        return self.ops.cast(self.ops.cast(top, "int32"), "float32") * 2.0**-24, xp

    def _given(self, value: Any, dtype: Any) -> Any:
        return self.ops.cast(self.ops.convert_to_tensor(value), dtype or self.floatx())

    # ---- what Keras asks for -----------------------------------------------------------------

    def uniform(
        self, shape: Any, minval: Any = 0.0, maxval: Any = 1.0, dtype: Any = None, seed: Any = None
    ) -> Any:
        drawn, _ = self._uniform(shape, seed)
        return self._given(drawn * (maxval - minval) + minval, dtype)

    def normal(
        self, shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = None, seed: Any = None
    ) -> Any:
        drawn, xp = self._uniform(shape, seed)
        return self._given(_normal(drawn + 2.0**-25, xp) * stddev + mean, dtype)

    def truncated_normal(
        self, shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = None, seed: Any = None
    ) -> Any:
        drawn, xp = self._uniform(shape, seed)
        inside = _WITHIN + drawn * (1.0 - 2.0 * _WITHIN)
        return self._given(_normal(inside, xp) * stddev + mean, dtype)

    def randint(
        self, shape: Any, minval: Any, maxval: Any, dtype: Any = "int32", seed: Any = None
    ) -> Any:
        drawn, xp = self._uniform(shape, seed)
        floor = np.floor if xp is np else self.ops.floor
        return self._given(floor(drawn * (maxval - minval)) + minval, dtype)

    def categorical(self, logits: Any, num_samples: int, dtype: Any = "int32", seed: Any = None):  # type: ignore[no-untyped-def]
        shape = (*self.ops.shape(logits)[:1], num_samples, *self.ops.shape(logits)[1:])
        drawn, _ = self._uniform(shape, seed)
        noise = -self.ops.log(-self.ops.log(self._given(drawn + 2.0**-25, "float32")))
        return self.ops.cast(self.ops.argmax(logits[:, None, :] + noise, axis=-1), dtype)

    def dropout(self, inputs: Any, rate: float, noise_shape: Any = None, seed: Any = None) -> Any:
        if rate in (0.0, 1.0):
            return inputs if rate == 0.0 else self.ops.zeros_like(inputs)
        shape = self.ops.shape(inputs)
        of_batch = noise_shape is None or noise_shape[0] is None
        if noise_shape is not None:
            wanted = zip(noise_shape, shape, strict=True)
            shape = tuple(own if size is None else size for size, own in wanted)
        drawn, _ = self._uniform(shape, seed, of_batch)
        kept = self.ops.convert_to_tensor(drawn) >= rate
        return self.ops.where(kept, inputs / (1.0 - rate), self.ops.zeros_like(inputs))

    def shuffle(self, x: Any, axis: int = 0, seed: Any = None) -> Any:
        drawn, _ = self._uniform((self.ops.shape(x)[axis],), seed)
        return self.ops.take(x, self.ops.argsort(self._given(drawn, "float32")), axis=axis)


def _normal(share: Any, xp: Any) -> Any:
    """The value of the standard normal distribution below which this share of it lies."""
    lower, upper = share < _TAIL, share > 1.0 - _TAIL
    outer = xp.where(lower, share, xp.where(upper, 1.0 - share, _TAIL))
    q = xp.sqrt(-2.0 * xp.log(outer))
    tail = _polynomial(_C, q) / _polynomial(_D, q)
    middle = xp.where(xp.logical_or(lower, upper), 0.5, share) - 0.5
    r = middle * middle
    inner = middle * _polynomial(_A, r) / _polynomial(_B, r)
    return xp.where(lower, tail, xp.where(upper, -tail, inner))


def _polynomial(coefficients: tuple[float, ...], x: Any) -> Any:
    result: Any = coefficients[0]
    for coefficient in coefficients[1:]:
        result = result * x + coefficient
    return result
