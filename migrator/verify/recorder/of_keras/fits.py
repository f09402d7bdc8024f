"""Gradients of Keras' own training, as its optimizers apply them.

Steps are compiled, so that the norms are told from within them: on TensorFlow by a variable, since
XLA compiles the step; on JAX by a callback. On several replicas of TensorFlow's, they are those of
the sum that the strategy makes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from at_work import AtWork


class Fits:
    """What optimizers applied since the last step was over."""

    def __init__(self, at_work: AtWork) -> None:
        self.at_work, self.back_end = at_work, ""
        self.found: dict[int, tuple[str, dict[str, float]]] = {}  # by optimizer
        self.variables: dict[tuple[int, tuple[str, ...]], Any] = {}  # of TensorFlow's
        self.written: dict[int, tuple[str, tuple[str, ...], Any]] = {}

    def install(self, keras: Any) -> None:
        base, self.back_end = keras.optimizers.Optimizer, keras.backend.backend()
        tell = {"tensorflow": self._of_tensorflow, "jax": self._of_jax}.get(self.back_end)
        if tell is None:
            return
        update = base._backend_update_step

        def updated(self: Any, grads: Any, variables: Any, learning_rate: Any) -> Any:
            pairs = [(v, g) for g, v in zip(grads, variables, strict=True) if g is not None]
            named = all(hasattr(variable, "path") for variable, _ in pairs)
            if named and not getattr(self, "gradient_accumulation_steps", None):
                names = tuple(variable.path.replace("/", ".") for variable, _ in pairs)
                tell(self, names, [gradient for _, gradient in pairs])
            return update(self, grads, variables, learning_rate)

        base._backend_update_step = updated

    def begin(self) -> None:
        """A training begins: what others have applied is not its own."""
        self.found.clear()
        self.written.clear()

    def taken(self) -> list[tuple[str, dict[str, float | str]]]:
        """What was applied in a step that is over: the optimizer's class, and the norms."""
        for key, (kind, names, variable) in self.written.items():
            self._take(key, kind, names, variable.numpy())
        if self.back_end == "jax":
            import jax

            jax.effects_barrier()
        found = [*self.found.values()]
        self.found.clear()
        return [
            (kind, {n: v if math.isfinite(v) else str(v) for n, v in norms.items()})
            for kind, norms in found
        ]

    def _take(self, key: int, kind: str, names: Sequence[str], norms: Any) -> None:
        self.found[key] = (kind, dict(zip(names, map(float, norms), strict=True)))

    # ---- within a step -----------------------------------------------------------------------

    def _of_jax(self, optimizer: Any, names: tuple[str, ...], gradients: list[Any]) -> None:
        import jax
        import jax.numpy as jnp

        wide = [jnp.asarray(gradient, jnp.float32) for gradient in gradients]
        norms = jnp.stack([jnp.sqrt(jnp.sum(jnp.square(gradient))) for gradient in wide])
        take = partial(self._take, id(optimizer), type(optimizer).__name__, names)
        jax.debug.callback(take, norms)

    def _of_tensorflow(self, optimizer: Any, names: tuple[str, ...], gradients: list[Any]) -> None:
        import tensorflow as tf

        if not self.at_work.training:
            return  # a loop of the program's own
        kind = type(optimizer).__name__
        wide = [tf.cast(tf.convert_to_tensor(gradient), tf.float32) for gradient in gradients]
        context = tf.distribute.get_replica_context()
        if context is not None and context.num_replicas_in_sync > 1:
            if not self.at_work.compiled:
                wide = context.all_reduce(tf.distribute.ReduceOp.SUM, wide)
                take = partial(self._of_replica, id(optimizer), kind, names)
                replica = context.replica_id_in_sync_group
                tf.numpy_function(take, [replica, tf.stack([tf.norm(g) for g in wide])], [])
            return
        key = (id(optimizer), names)
        if key not in self.variables:
            with tf.init_scope():
                self.variables[key] = tf.Variable(tf.zeros(len(names)), trainable=False)
        self.variables[key].assign(tf.stack([tf.norm(gradient) for gradient in wide]))
        self.written[id(optimizer)] = (kind, names, self.variables[key])

    def _of_replica(
        self, key: int, kind: str, names: Sequence[str], replica: Any, norms: Any
    ) -> None:
        if int(replica) == 0:
            self._take(key, kind, names, norms)
