"""Training loops of a program's own, on TensorFlow: what tapes differentiate, and what trains.

Steps are compiled, so what is seen is told from within them. On several replicas, each tells of its
part of a batch: losses and gradients are added up, as the strategy adds them up.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

import numpy as np
from at_work import AtWork
from watch_fits import FitWatch

_RANDOM = {
    "normal": ("mean", "stddev"),
    "truncated_normal": ("mean", "stddev"),
    "uniform": ("minval", "maxval"),
}


class _Trained:
    """What an optimizer trains, as a model is watched."""

    def __init__(self, weights: list[Any]) -> None:
        self.weights = weights


class Tapes:
    """Watches tapes and optimizers, but for those that Keras' own training uses."""

    def __init__(self, watch: FitWatch, at_work: AtWork, seed: int) -> None:
        self.watch, self.at_work, self.seed = watch, at_work, seed
        self.depth = 0  # of compiled functions
        self.unapplied = 0  # gradients of a step that nothing compiles
        self.told: defaultdict[int, deque[Any]] = defaultdict(deque)  # by replica
        self.drawn: defaultdict[int, int] = defaultdict(int)

    def install(self, keras: Any) -> None:
        if keras.backend.backend() != "tensorflow":
            return
        import tensorflow as tf

        self.tf: Any = tf
        self._watch_optimizers(keras.optimizers.Optimizer)
        self._watch_tapes()
        self._watch_functions(type(tf.function(lambda: None)))
        trainer = __import__("keras.src.backend.tensorflow.trainer", fromlist=["trainer"])
        for name in ("fit", "evaluate", "predict", "train_on_batch", "test_on_batch"):
            setattr(trainer.TensorFlowTrainer, name,
                    self._as_own(getattr(trainer.TensorFlowTrainer, name)))  # fmt: skip
        for name in _RANDOM:
            setattr(tf.random, name, self._drawing(name, getattr(tf.random, name)))

    # ---- what is seen ------------------------------------------------------------------------

    def _as_own(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            self.at_work.training += 1
            try:
                return method(*args, **kwargs)
            finally:
                self.at_work.training -= 1

        return called

    def _watch_optimizers(self, base: Any) -> None:
        build, apply, tapes = base.build, base.apply, self

        def applied(self: Any, *args: Any, **kwargs: Any) -> Any:
            found = apply(self, *args, **kwargs)
            if not tapes.at_work.own and tapes._is_eager():
                tapes.unapplied -= 1
                if tapes.unapplied <= 0:  # its weights are those behind the step
                    tapes._write()
            return found

        def built(self: Any, variables: Any) -> None:
            build(self, variables)
            if not tapes.at_work.own:
                with tapes.tf.init_scope():
                    trained = _Trained(list(variables))
                    tapes.watch.begin(trained, type(self).__name__)

        base.build, base.apply = built, applied

    def _watch_tapes(self) -> None:
        base, tapes = self.tf.GradientTape, self
        enter, gradient = base.__enter__, base.gradient

        def entered(self: Any) -> Any:
            if not tapes.at_work.own and tapes._is_eager():
                tapes._write()
            return enter(self)

        def differentiated(self: Any, target: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
            found = gradient(self, target, sources, *args, **kwargs)
            named = isinstance(sources, list | tuple) and all(hasattr(s, "path") for s in sources)
            if not tapes.at_work.own and named and getattr(target, "shape", None) == ():
                tapes._tell(target, list(sources), list(found))
            return found

        base.__enter__, base.gradient = entered, differentiated

    def _watch_functions(self, kind: Any) -> None:
        call, tapes = kind.__call__, self

        def called(self: Any, *args: Any, **kwargs: Any) -> Any:
            compiled = bool(self._jit_compile)
            tapes.depth, tapes.at_work.compiled = tapes.depth + 1, tapes.at_work.compiled + compiled
            try:
                return call(self, *args, **kwargs)
            finally:
                tapes.depth -= 1
                tapes.at_work.compiled -= compiled
                if not tapes.depth:
                    tapes._write()

        kind.__call__ = called

    def _tell(self, loss: Any, sources: list[Any], gradients: list[Any]) -> None:
        """Tell of a loss and its gradients, when they are computed."""
        tf = self.tf
        replica, count = self._replica()
        pairs = [(s, g) for s, g in zip(sources, gradients, strict=True) if g is not None]
        names = [source.path.replace("/", ".") for source, _ in pairs]

        def take(replica: Any, loss: Any, *found: Any) -> None:
            self.told[int(replica)].append((count, float(loss), names, found))

        dense = [tf.cast(tf.convert_to_tensor(gradient), tf.float32) for _, gradient in pairs]
        tf.numpy_function(take, [replica, tf.cast(loss, tf.float32), *dense], [])
        self.unapplied += self._is_eager()

    def _is_eager(self) -> bool:
        """Whether a step runs as Python does."""
        return not self.depth and bool(self.tf.executing_eagerly())

    def _replica(self) -> tuple[Any, int]:
        context = self.tf.distribute.get_replica_context()
        if context is None or context.num_replicas_in_sync == 1:
            return 0, 1
        return context.replica_id_in_sync_group, context.num_replicas_in_sync

    # ---- what is kept ------------------------------------------------------------------------

    def finish(self) -> None:
        """The program has ended: what was told last is kept."""
        if hasattr(self, "tf"):
            self._write()

    def _write(self) -> None:
        """Keep what all replicas have told of, on the thread of the program."""
        watch, weighed, self.unapplied = self.watch, False, 0
        while self.told[0] and all(self.told[r] for r in range(self.told[0][0][0])):
            parts = [self.told[replica].popleft() for replica in range(self.told[0][0][0])]
            _, _, names, _ = parts[0]
            norms = {}
            for place, name in enumerate(names):
                total = sum(found[place].astype(np.float64) for *_, found in parts)
                norms[name] = float(np.sqrt(np.sum(np.square(total))))
            whole = {n: v if math.isfinite(v) else str(v) for n, v in norms.items()}
            watch.event("gradients", "GradientTape", norms=whole)
            watch.step += 1
            loss = sum(part[1] for part in parts)
            watch.event("loss", "loss", value=loss if math.isfinite(loss) else str(loss),
                        dtype="F32")  # fmt: skip
            weighed = weighed or watch.store.wants_weights(watch.step)
        watch.looked(weighed)

    # ---- what is drawn -----------------------------------------------------------------------

    def _drawing(self, name: str, own: Callable[..., Any]) -> Callable[..., Any]:
        """Numbers of a training loop: those of one device, of which each replica has its part."""
        low, high = _RANDOM[name]

        def draw(shape: Any, *args: Any, **kwargs: Any) -> Any:
            graph = getattr(self.tf.compat.v1.get_default_graph(), "name", "")
            dtype = self.tf.as_dtype(kwargs.get("dtype", args[2] if len(args) > 2 else "float32"))
            if self.at_work.own or graph.startswith("Dataset_") or not dtype.is_floating:
                return own(shape, *args, **kwargs)
            first = kwargs.get(low, args[0] if args else 0.0)
            second = kwargs.get(high, args[1] if len(args) > 1 else None)
            replica, count = self._replica()
            wanted = self.tf.convert_to_tensor(shape, self.tf.int32)

            def numbers(replica: Any, shape: Any) -> Any:
                return self._numbers(name, int(replica), count, tuple(int(s) for s in shape))

            found = self.tf.numpy_function(numbers, [replica, wanted], self.tf.float32)
            found.set_shape(self.tf.TensorShape(self.tf.get_static_value(wanted)))
            second = 1.0 if second is None else second
            span = second - first if name == "uniform" else second
            return self.tf.cast(found, dtype) * self.tf.cast(span, dtype) + self.tf.cast(
                first, dtype
            )

        return draw

    def _numbers(self, name: str, replica: int, count: int, shape: tuple[int, ...]) -> Any:
        place = self.drawn[replica] if count > 1 else max(self.drawn.values(), default=0)
        if count > 1:
            self.drawn[replica] += 1
        else:
            self.drawn = defaultdict(lambda: place + 1, dict.fromkeys(self.drawn, place + 1))
            self.drawn[0] = place + 1
        whole = (shape[0] * count, *shape[1:]) if shape else shape
        generator = np.random.RandomState([self.seed, place])
        if name == "uniform":
            found = generator.random_sample(whole)
        else:
            found = generator.standard_normal(whole)
        if name == "truncated_normal":
            found = np.where(np.abs(found) > 2, found / 4, found)
        rows = slice(replica * shape[0], (replica + 1) * shape[0]) if shape else ...
        return np.asarray(found[rows], np.float32)
