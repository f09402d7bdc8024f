"""Training loops of TensorFlow programs: what runs on each core, and what keeps a program."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import run, write_tree

from migrator import migrate_paths

TARGET = "tf_tpu"
PROGRAM = """import tensorflow as tf
from tensorflow import keras

SIZE = 32
data = tf.data.Dataset.from_tensor_slices((a, b)).batch(SIZE)
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)])
optimizer = keras.optimizers.SGD(0.1)
loss_of = keras.losses.MeanSquaredError()
mean = keras.metrics.Mean()


@tf.function
def train_step(x, y):
    with tf.GradientTape() as tape:
        loss = loss_of(y, model(x, training=True))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    mean.update_state(loss)
    return loss


for epoch in range(2):
    for x, y in data:
        loss = train_step(x, y)
    print(float(loss), float(mean.result()))
"""


def becomes(*changes: tuple[str, str]) -> str:
    """What becomes of the program, changed so."""
    result = run(changed(*changes), TARGET, entry=True)
    left = [d.message for d in result.diagnostics if d.outcome == "reported"]
    assert not left
    return result.source.decode()


def changed(*changes: tuple[str, str]) -> str:
    source = PROGRAM
    for old, new in changes:
        assert old in source
        source = source.replace(old, new)
    return source


def stays(source: str, said: str) -> None:
    """A program is left as it is, and told why."""
    result = run(source, TARGET, entry=True)
    assert result.source.decode() == source
    messages = [d.message for d in result.diagnostics if d.outcome == "reported"]
    assert any(said in message for message in messages), messages


def test_a_step_runs_on_all_cores_and_its_loss_is_that_of_the_batch() -> None:
    text = becomes()
    for part in (
        ".batch(SIZE, drop_remainder=strategy.num_replicas_in_sync > 1)\n",
        "with strategy.scope():\n    model = keras.Sequential(",
        "    mean = keras.metrics.Mean()\n\n\ndef train_step(x, y):\n",
        "    mean.update_state(loss * tf.distribute.get_strategy().num_replicas_in_sync)\n",
        "\n\n\n@tf.function\ndef distributed_train_step(x, y):\n"
        "    loss = strategy.run(train_step, args=(x, y))\n"
        "    return strategy.reduce(tf.distribute.ReduceOp.SUM, loss, axis=None)\n\n\n"
        "with strategy.scope():\n    optimizer.build(model.trainable_variables)\n",
        "    for x, y in strategy.experimental_distribute_dataset(data):\n"
        "        loss = distributed_train_step(x, y)\n",
    ):
        assert part in text, text


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        (  # an average of the program's own is divided, and joined as one
            "loss_of(y, model(x, training=True))",
            "tf.reduce_mean(tf.square(y - model(x)))",
            "        replica_loss = loss / tf.distribute.get_strategy().num_replicas_in_sync\n"
            "    gradients = tape.gradient(replica_loss, model.trainable_variables)\n",
        ),
        (
            "loss_of(y, model(x, training=True))",
            "tf.reduce_mean(tf.square(y - model(x)))",
            "    return strategy.reduce(tf.distribute.ReduceOp.MEAN, loss, axis=None)\n",
        ),
        (  # what nobody reads is not joined
            "loss = train_step(x, y)\n    print(float(loss), ",
            "train_step(x, y)\n    print(",
            "def distributed_train_step(x, y):\n    strategy.run(train_step, args=(x, y))\n",
        ),
        (  # as many random numbers as there are examples
            "    with tf.GradientTape",
            "    x += tf.random.normal([SIZE, 8])\n    with tf.GradientTape",
            "tf.random.normal([SIZE // tf.distribute.get_strategy().num_replicas_in_sync, 8])",
        ),
        (  # what no step updates is counted on the host
            "mean = keras.metrics.Mean()",
            "mean = keras.metrics.Mean()\nother = keras.metrics.Mean()\nother.update_state(1.0)",
            "    mean = keras.metrics.Mean()\nother = keras.metrics.Mean()\n",
        ),
        (
            "for x, y in data:",
            "for step, (x, y) in enumerate(data.take(3)):",
            " in enumerate(strategy.experimental_distribute_dataset(data.take(3))):\n",
        ),
        (  # a model without an input has variables only when it is called
            "keras.Input((8,)), ",
            "",
            "    model(tf.keras.Input(batch_shape=data.element_spec[0].shape, "
            "dtype=data.element_spec[0].dtype), training=True)\n"
            "    optimizer.build(model.trainable_variables)\n",
        ),
        (".batch(SIZE)", ".batch(SIZE, True)", ".batch(SIZE, True)\n"),
        (  # what counts the batches is no part of them
            "for x, y in data:",
            "for step, (x, y) in data.take(3).enumerate(start=1):",
            " in zip(tf.data.Dataset.counter(1), "
            "strategy.experimental_distribute_dataset(data.take(3))):\n",
        ),
        (  # a step that no tf.function compiles has to be compiled
            "@tf.function\n",
            "",
            "@tf.function\ndef distributed_train_step(x, y):\n"
            "    loss = strategy.run(train_step, args=(x, y))\n",
        ),
    ],
)  # fmt: skip
def test_what_a_step_needs_on_several_cores(old: str, new: str, part: str) -> None:
    assert part in becomes((old, new))


def test_models_that_a_step_is_given_are_not_divided() -> None:
    text = becomes(
        ("def train_step(x, y):", "def train_step(net, x, y, opt):"),
        ("model(x", "net(x"),
        (", model.", ", net."),
        ("    optimizer.apply", "    opt.apply"),
        ("train_step(x, y)\n    print", "train_step(model, x, y, optimizer)\n    print"),
    )
    assert (
        "def distributed_train_step(net, x, y, opt):\n    def on_replica(x, y):\n"
        "        return train_step(net, x, y, opt)\n\n"
        "    loss = strategy.run(on_replica, args=(x, y))\n"
    ) in text
    assert "    optimizer.build(model.trainable_variables)\n" in text


OBJECT = """import tensorflow as tf
from tensorflow import keras


class Trainer:
    def __init__(self, data, model, loss_of):
        self.data, self.model, self.loss_of = data, model, loss_of
        self.optimizer = keras.optimizers.SGD(0.1)
        self.mean = keras.metrics.Mean()

    @tf.function
    def step(self, x, y):
        with tf.GradientTape() as tape:
            loss = self.loss_of(y, self.model(x, training=True))
        gradients = tape.gradient(loss, self.model.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.model.trainable_variables))
        self.mean(loss)

    def train(self, epochs):
        for epoch in range(epochs):
            for x, y in self.data:
                self.step(x, y)
            print(float(self.mean.result()))


def main():
    data = tf.data.Dataset.from_tensor_slices((a, b)).batch(32)
    net = keras.Sequential([keras.layers.Dense(4)])
    trainer = Trainer(data, net, loss_of=keras.losses.MeanSquaredError())
    trainer.train(2)


main()
"""


def test_a_step_may_be_a_method_of_the_one_object_that_trains() -> None:
    result = run(OBJECT, TARGET, entry=True)
    assert not [d.message for d in result.diagnostics if d.outcome == "reported"]
    text = result.source.decode()
    for part in (
        "        self.mean(loss * tf.distribute.get_strategy().num_replicas_in_sync)\n\n"
        "    @tf.function\n    def distributed_step(self, x, y):\n"
        "        strategy.run(self.step, args=(x, y))\n",
        "        with strategy.scope():\n"
        "            self.model(tf.keras.Input(batch_shape=self.data.element_spec[0].shape, "
        "dtype=self.data.element_spec[0].dtype), training=True)\n"
        "            self.optimizer.build(self.model.trainable_variables)\n"
        "        for epoch in range(epochs):\n"
        "            for x, y in strategy.experimental_distribute_dataset(self.data):\n"
        "                self.distributed_step(x, y)\n",
        "    with strategy.scope():\n"
        "        net = keras.Sequential([keras.layers.Dense(4)])\n"
        "        trainer = Trainer(data, net, loss_of=keras.losses.MeanSquaredError())\n"
        "    trainer.train(2)\n",
        ".batch(32, drop_remainder=strategy.num_replicas_in_sync > 1)\n",
    ):
        assert part in text, text


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("trainer.train(2)", "Trainer(data, net, None).train(2)", "does not create exactly one"),
        ("trainer.train(2)", "trainer.model = a\n    trainer.train(2)", "is not created"),
        ("trainer.train(2)", "for x, y in data:\n        a.step(x, y)", "is not only called with"),
        (
            "            print(",
            "            self.other = keras.metrics.Mean()\n"
            "            self.other.update_state(1.0)\n            print(",
            "outside of the class",
        ),
        ("self.mean = keras.metrics.Mean()", "self.mean = keras.metrics.Sum()", "an average"),
        (", net, loss", ", nets[0], loss", "is not created in this script"),
    ],
)  # fmt: skip
def test_objects_of_which_something_else_is_done_stay(old: str, new: str, said: str) -> None:
    assert old in OBJECT
    source = OBJECT.replace(old, new)
    stays(source, said)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("    return loss", "    print(loss)\n    return loss", "would only run once"),
        (
            "    return loss",
            "    if x.shape:\n        pass\n    return loss",
            "would only run once",
        ),
        ("    return loss", "    seen.append(1)\n    return loss", "would only run once"),
        ("    return loss", "    count[0] = 1\n    return loss", "would only run once"),
        ("training=True))", "training=True)) + np.ones(2).mean()", "would only run once"),
        (
            "    with tf.GradientTape",
            "    x += tf.random.normal([SIZE, 8])\n    with tf.GradientTape",
            "draws other numbers",
        ),
        (
            "    mean.update_state(loss)\n    return loss",
            "    return loss, gradients",
            "not recognised as",
        ),
        ("keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)])", "Net()", "only run once"),
    ],
)  # fmt: skip
def test_what_a_graph_would_do_once_keeps_a_step_without_one(old: str, new: str, said: str) -> None:
    source = changed(("@tf.function\n", ""), (old, new))
    if "Net()" in source:
        source = source.replace(
            "SIZE = 32\n",
            "SIZE = 32\n\n\nclass Net(keras.Model):\n    def __init__(self):\n"
            "        super().__init__()\n        self.inner = keras.layers.Dense(4)\n\n"
            "    def call(self, x):\n        print(x)\n        return self.inner(x)\n\n\n",
        )
    stays(source, said)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("loss_of(y,", "tf.reduce_sum(y -", "divide the loss by"),
        (
            "    optimizer.apply",
            "    gradients = [tf.clip_by_norm(g, 1.0) for g in gradients]\n    optimizer.apply",
            "changed before they are summed",
        ),
        ("    return loss", "    return tf.square(loss)", "not recognised as"),
        ("mean.update_state(loss)", "mean.update_state(y)", "not recognised as"),
        ("mean = keras.metrics.Mean()", "mean = keras.metrics.Sum()", "not recognised as"),
        ("float(loss), ", "float(loss), mean.update_state(loss), ", "outside of it"),
        ("train_step(x, y)\n", "train_step(x, y)\n        print(x.shape)\n", "in the step"),
        ("loss = train_step(x, y)", "loss = train_step(a, b)", "is not only called with"),
        (".batch(SIZE)", "", "is not a dataset"),
        (".batch(SIZE)", ".batch(SIZE, drop_remainder=False)", "smaller last batch"),
        ("keras.Input((8,)), ", "*layers, ", "creates its variables in the first step"),
        (
            "    return loss",
            '    tf.summary.scalar("loss", loss)\n    return loss',
            "would write on each core",
        ),
        ("    return loss", "    count.assign_add(1)\n    return loss", "would assign to"),
        (
            "    with tf.GradientTape",
            "    x += tf.random.normal([1])\n    with tf.GradientTape",
            "would be drawn again by each core",
        ),
        (
            "    with tf.GradientTape",
            "    y = tf.reshape(y, (SIZE, 4))\n    with tf.GradientTape",
            "the size of a whole batch",
        ),
    ],
)  # fmt: skip
def test_what_is_not_seen_to_train_as_on_one_device_stays(old: str, new: str, said: str) -> None:
    source = changed((old, new))
    if said.startswith("creates its"):
        source = source.replace("model(x, training=True)", "model(x + 1, training=True)")
    stays(source, said)


def test_gradients_that_a_function_returns_may_train_elsewhere() -> None:
    source = PROGRAM[: PROGRAM.index("@tf.function")] + (
        "def grad(x, y):\n    with tf.GradientTape() as tape:\n"
        "        loss = loss_of(y, model(x))\n"
        "    return loss, tape.gradient(loss, model.trainable_variables)\n\n\n"
        "for x, y in data:\n    loss, found = grad(x, y)\n"
        "    optimizer.apply_gradients(zip(found, model.trainable_variables))\n"
    )
    result = run(source, TARGET, entry=True)
    assert result.source.decode() == source
    assert any("outside of a tf.function" in d.message for d in result.diagnostics)


def test_a_loop_in_another_file_than_the_script_stays(tmp_path: Path) -> None:
    files = {"loop.py": PROGRAM, "train.py": "import loop\n\nprint(loop.epoch)\n"}
    write_tree(tmp_path, files)
    report = migrate_paths([tmp_path], TARGET)
    assert {f.path.name: f.result.source.decode() for f in report.files} == files
    found = [d.message for f in report.files for d in f.result.diagnostics]
    assert any("in another file than the script" in message for message in found)
