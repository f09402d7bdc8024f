"""Rounds a program otherwise, on TensorFlow: what layers compute, and gradients.

As the recorder of PyTorch's does (see its rounding.py): each element is moved, up or down by
chance, by one unit of its own magnitude or of the root mean square of the tensor.
"""

from __future__ import annotations

from typing import Any

_EPS = 2.0**-23  # of float32
_EPS_HALF = 2.0**-7  # of bfloat16, which a TPU has in the place of float16


class KerasRounding:
    """Rounds what is computed from here on; ``number`` chooses the signs."""

    def __init__(self, number: int) -> None:
        self.number, self.places = number, 0
        self.depth = 0  # of layers of Keras' own that are at work: what they call is theirs

    def install(self, keras: Any) -> None:
        layer, optimizer = keras.Layer, keras.optimizers.Optimizer
        called, applied = layer.__call__, optimizer.apply
        rounding = self

        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            module = type(self).__module__
            is_leaf = module.startswith("keras.src.layers.")
            rounding.depth += is_leaf
            try:
                output = called(self, *args, **kwargs)
            finally:
                rounding.depth -= is_leaf
            return rounding.moved(output) if is_leaf and not rounding.depth else output

        def apply(self: Any, grads: Any, trainable_variables: Any = None) -> Any:
            return applied(self, [rounding.moved(g) for g in grads], trainable_variables)

        layer.__call__ = call
        optimizer.apply = apply

    def moved(self, tensor: Any) -> Any:
        """A tensor as it is rounded otherwise; what is no tensor of floats stays."""
        import tensorflow as tf

        if not isinstance(tensor, tf.Tensor) or not tensor.dtype.is_floating:
            return tensor
        self.places += 1
        eps = _EPS if tensor.dtype.size > 2 else _EPS_HALF
        exact = tf.stop_gradient(tf.cast(tensor, tf.float32))
        typical = tf.sqrt(tf.reduce_mean(tf.square(exact)))
        size = tf.maximum(tf.abs(exact), typical) * tf.abs(tf.sign(exact))
        seed = [self.number, self.places]
        drawn = tf.random.stateless_uniform(tf.shape(exact), seed, dtype=tf.float32)
        signs = tf.where(drawn < 0.5, -1.0, 1.0)
        return tensor + tf.cast(size * signs * eps, tensor.dtype)
