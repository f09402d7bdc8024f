"""Training loops with tapes: losses, gradients and weights on replicas are those of one device."""

from __future__ import annotations

from pathlib import Path

import pytest
from replicas import HEAD, verified

STEP = """
net = keras.Sequential([layers.Dense(8, "relu"), layers.Dense(4)])
optimizer = keras.optimizers.Adam(0.01)
entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
mean = keras.metrics.Mean()
share = keras.metrics.SparseCategoricalAccuracy()
tested = keras.metrics.Mean()


@tf.function
def train_step(x, y):
    with tf.GradientTape() as tape:
        predicted = net(x, training=True)
        loss = entropy(y, predicted) + 0.1 * tf.reduce_mean(tf.square(predicted))
    gradients = tape.gradient(loss, net.trainable_variables)
    optimizer.apply_gradients(zip(gradients, net.trainable_variables))
    mean(loss)
    share(y, predicted)
    return loss


for epoch in range(2):
    mean.reset_state()
    for images, labels in data:
        loss = train_step(images, labels)
    for images, labels in data:
        tested(entropy(labels, net(images)))
    print("%.4f %.4f %.4f" % (loss, mean.result(), share.result()), float(tested.result()))
"""
GAN = """
SIZE = 32
painter = keras.Sequential([keras.Input((3,)), layers.Dense(8, "relu"), layers.Dense(6)])
judge = keras.Sequential([keras.Input((6,)), layers.Dense(8, "relu"), layers.Dense(1)])
entropy = keras.losses.BinaryCrossentropy(from_logits=True)
of_painter = keras.optimizers.Adam(0.01)
of_judge = keras.optimizers.SGD(0.1)
images = tf.data.Dataset.from_tensor_slices(x).shuffle(96, seed=3).batch(SIZE)


def loss_of_judge(real, fake):
    return entropy(tf.ones_like(real), real) + entropy(tf.zeros_like(fake), fake)


@tf.function
def train_step(real):
    noise = tf.random.normal([SIZE, 3])
    with tf.GradientTape() as first, tf.GradientTape() as second:
        fake = painter(noise, training=True)
        judged, of_fake = judge(real, training=True), judge(fake, training=True)
        loss = entropy(tf.ones_like(of_fake), of_fake)
        other = loss_of_judge(judged, of_fake)
    gradients = first.gradient(loss, painter.trainable_variables)
    of_other = second.gradient(other, judge.trainable_variables)
    of_painter.apply_gradients(zip(gradients, painter.trainable_variables))
    of_judge.apply_gradients(zip(of_other, judge.trainable_variables))


def train(data, epochs):
    for epoch in range(epochs):
        for batch in data:
            train_step(batch)


train(images, 2)
np.save("images.npy", painter(tf.random.normal([4, 3])).numpy())
"""
OBJECT = """

class Trainer:
    def __init__(self, data, model, loss_of):
        self.data, self.model, self.loss_of = data, model, loss_of
        self.optimizer = keras.optimizers.Adam(0.01)
        self.mean = keras.metrics.Mean()

    def step(self, x, y):
        with tf.GradientTape() as tape:
            predicted = self.model(x, training=True)
            loss = self.loss_of(y, predicted) + 0.1 * tf.reduce_mean(tf.square(predicted))
        gradients = tape.gradient(loss, self.model.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.model.trainable_variables))
        self.mean(loss)

    def train(self, epochs):
        for epoch in range(epochs):
            self.mean.reset_state()
            for number, (x, y) in self.data.enumerate():
                self.step(x, y)
            print("%d %.4f" % (number.numpy(), self.mean.result()))


net = keras.Sequential([layers.Dense(8, "relu"), layers.Dense(4)])
trainer = Trainer(data, net, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
trainer.train(2)
"""


@pytest.mark.parametrize("devices", [None, 2, 4])
@pytest.mark.parametrize(
    ("source", "losses"), [(STEP, 6), (GAN, 12), (OBJECT, 6)], ids=["step", "gan", "object"]
)
def test_a_loop_trains_on_several_replicas_as_on_one(
    tmp_path: Path, source: str, losses: int, devices: int | None
) -> None:
    result = verified(tmp_path, HEAD + source, devices)
    assert result.passed, (result.error, result.problems, result.compiled.first)
    assert len(result.losses) == losses and not result.compiled.missing
    kinds = {finding.kind for finding in result.compiled.findings}
    assert kinds >= {
        "loss",
        "gradients",
        "weights",
        "end",
        "start" if source is GAN else "printed",
    }
