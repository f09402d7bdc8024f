"""The same order of samples from any back end: that in which `fit` shuffles arrays."""

from __future__ import annotations

from typing import Any

import numpy as np


class Order:
    """Orders of samples, by how many were asked for since a training began."""

    def __init__(self, seed: int) -> None:
        self.seed, self.fits, self.asked = seed, 0, 0

    def begin(self) -> None:
        """A training begins; what was asked for to build its model does not count."""
        self.fits, self.asked = self.fits + 1, 0

    def permutation(self, count: int) -> Any:
        self.asked += 1
        return np.random.RandomState([self.seed, self.fits, self.asked]).permutation(count)


class _Random:
    def __init__(self, order: Order) -> None:
        self.permutation = order.permutation

    def __getattr__(self, name: str) -> Any:
        return getattr(np.random, name)


class _NumPy:
    """NumPy as the module of array adapters sees it."""

    def __init__(self, order: Order) -> None:
        self.random = _Random(order)

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)


def install(order: Order) -> None:
    """TensorFlow's data set of arrays takes their order from NumPy, as other back ends do."""
    from keras.src.trainers.data_adapters import array_data_adapter

    module: Any = array_data_adapter
    module.np = _NumPy(order)
    adapter = module.ArrayDataAdapter
    in_tensorflow = adapter.get_tf_dataset

    def get_tf_dataset(self: Any) -> Any:
        if not self._shuffle:
            return in_tensorflow(self)
        import tensorflow as tf
        from keras.src import tree

        first = next(iter(self.get_numpy_iterator()))

        def batches() -> Any:
            for batch in self.get_numpy_iterator():
                yield tree.lists_to_tuples(batch)

        def spec(array: Any) -> Any:
            partial = bool(self._partial_batch_size)
            size = None if partial else array.shape[0]
            return tf.TensorSpec((size, *array.shape[1:]), array.dtype)

        signature = tree.map_structure(spec, tree.lists_to_tuples(first))
        return tf.data.Dataset.from_generator(batches, output_signature=signature)

    adapter.get_tf_dataset = get_tf_dataset
    _take_a_batch_first()


def _take_a_batch_first() -> None:
    """A first training takes a batch to build by, on JAX and under a strategy, and a data set that
    shuffles has another order the next time: TensorFlow without a strategy takes one, too."""
    if __import__("keras").backend.backend() != "tensorflow":
        return
    from keras.src.trainers.data_adapters.tf_dataset_adapter import TFDatasetAdapter

    module = __import__("keras.src.backend.tensorflow.trainer", fromlist=["trainer"])
    trainer: Any = module.TensorFlowTrainer
    build = trainer._maybe_symbolic_build

    def built(self: Any, iterator: Any = None, data_batch: Any = None) -> Any:
        parts = (self._compile_metrics, self._compile_loss, *self._flatten_layers())
        is_first = any(part is not None and not part.built for part in parts)
        if iterator is not None and isinstance(iterator.data_adapter, TFDatasetAdapter):
            if not is_first:
                return None
            if self._distribute_strategy is None:
                next(next(iter(iterator))[2])
        return build(self, iterator, data_batch)

    trainer._maybe_symbolic_build = built
