"""TensorFlow with TPUStrategy, as far as that can be seen without a TPU.

The fallback computes what the original does; a MirroredStrategy over logical CPUs stands in for the
cores of a TPU: it divides batches and adds up gradients in the same way.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from replicas import HEAD, verified

FIT = """

def net():
    return keras.Sequential([keras.Input((6,)), layers.Dense(8, "relu"), layers.Dense(4)])


def main():
    with tf.device("/GPU:0"):
        model = net()
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.1), loss, metrics=["accuracy"])
    model.fit(data, epochs=2, verbose=0)
    print("loss: %.4f" % model.evaluate(data, verbose=0)[0])


if __name__ == "__main__":
    main()
"""
OWN_STEP = """

class Auto(keras.Model):
    def __init__(self):
        super().__init__()
        self.inner = layers.Dense(3, activation="relu")
        self.outer = layers.Dense(6)
        self.mean = keras.metrics.Mean(name="loss")

    def call(self, x):
        return self.outer(self.inner(x))

    def train_step(self, data):
        x, _ = data
        with tf.GradientTape() as tape:
            error = tf.reduce_mean(tf.reduce_sum(tf.square(self(x) - x), axis=1))
            small = tf.reduce_mean(tf.square(self.inner(x)))
            loss = error + 0.1 * small
        gradients = tape.gradient(loss, self.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_weights))
        self.mean.update_state(loss)
        return {"loss": self.mean.result()}


model = Auto()
model.compile(keras.optimizers.SGD(0.1))
model.fit(data, epochs=2, verbose=0)
"""
STRATEGY = """
strategy = tf.distribute.MirroredStrategy()
with strategy.scope():
    model = keras.Sequential([keras.Input((6,)), layers.Dense(4)])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
model.fit(data, epochs=2, verbose=0)
"""


@pytest.mark.parametrize("devices", [None, 4])
@pytest.mark.parametrize("source", [FIT, OWN_STEP, STRATEGY], ids=["fit", "own_step", "strategy"])
def test_a_strategy_trains_as_one_device_does(
    tmp_path: Path, source: str, devices: int | None
) -> None:
    result = verified(tmp_path, HEAD + source, devices)
    assert result.passed, (result.error, result.problems, result.compiled.first)
    assert len(result.losses) == 6 and not result.compiled.missing
    assert sum(f.kind == "gradients" for f in result.compiled.findings) >= 6 * 2
