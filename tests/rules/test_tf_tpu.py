"""TensorFlow programs with TPUStrategy: what stands in its scope, and what keeps a program."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import migrated, outcomes, reported_codes, run, write_tree

from migrator import migrate_paths
from migrator.examples import rules_of
from migrator.options import Options
from migrator.pipeline.engine import migrate_file
from migrator.targets import find_target

TARGET = "tf_tpu"
HEAD = "import os\nimport tensorflow as tf\nfrom tensorflow import keras\n"
MADE = """
try:
    tpu = tf.distribute.cluster_resolver.TPUClusterResolver(os.environ.get("TPU_NAME", "local"))
    tf.config.experimental_connect_to_cluster(tpu)
    tf.tpu.experimental.initialize_tpu_system(tpu)
    strategy = tf.distribute.TPUStrategy(tpu)
except (ValueError, tf.errors.NotFoundError, tf.errors.InternalError) as error:
    tf.get_logger().warning("no TPU was found, so this runs on the CPU or GPU: %s", error)
    strategy = tf.distribute.get_strategy()

"""


def script(body: str) -> str:
    """What becomes of a script, below the strategy that is made in it."""
    text = migrated(HEAD + body, TARGET, entry=True)
    assert text.startswith(HEAD + MADE), text
    return text.removeprefix(HEAD + MADE)


@pytest.mark.parametrize(
    ("body", "becomes"),
    [
        (
            'm = keras.Sequential()\nm.compile("sgd")\nm.fit(x)\n',
            'with strategy.scope():\n    m = keras.Sequential()\n    m.compile("sgd")\nm.fit(x)\n',
        ),
        (  # what is far apart has a block of its own
            "m = keras.Sequential()\na = 1\nb = 2\nc = 3\nd = 4\nm.compile('sgd')\nm.fit(x)\n",
            "with strategy.scope():\n    m = keras.Sequential()\na = 1\nb = 2\nc = 3\nd = 4\n"
            "with strategy.scope():\n    m.compile('sgd')\nm.fit(x)\n",
        ),
        (  # once for each fold
            "for fold in folds:\n    # anew\n    m = keras.Sequential()\n    m.compile('sgd')\n"
            "    m.fit(fold)\n",
            "for fold in folds:\n    # anew\n    with strategy.scope():\n"
            "        m = keras.Sequential()\n        m.compile('sgd')\n    m.fit(fold)\n",
        ),
        (
            "if again:\n    m = keras.models.load_model('m.keras')\nelse:\n    m = keras.Model()\n"
            "m.fit(x)\n",
            "with strategy.scope():\n    if again:\n"
            "        m = keras.models.load_model('m.keras')\n    else:\n"
            "        m = keras.Model()\nm.fit(x)\n",
        ),
        (  # functions that only make something are called in the scope
            "def net():\n    return keras.Sequential()\n\n\ndef main():\n    m = net()\n"
            "    m.compile('sgd')\n    m.fit(x)\n\n\nmain()\n",
            "def net():\n    return keras.Sequential()\n\n\ndef main():\n"
            "    with strategy.scope():\n        m = net()\n        m.compile('sgd')\n"
            "    m.fit(x)\n\n\nmain()\n",
        ),
        (
            "class Net(keras.Model):\n    def call(self, x):\n        return x\n\n\n"
            "m = Net()  # small\nm.fit(x)\n",
            "class Net(keras.Model):\n    def call(self, x):\n        return x\n\n\n"
            "with strategy.scope():\n    m = Net()  # small\nm.fit(x)\n",
        ),
    ],
)
def test_models_and_optimizers_are_made_in_the_scope(body: str, becomes: str) -> None:
    assert script(body) == becomes


def test_a_model_of_another_file_is_made_in_the_scope(tmp_path: Path) -> None:
    net = "import keras\n\n\ndef net():\n    return keras.Sequential()\n"
    train = f"{HEAD}import nets\n\nm = nets.net()\nm.compile('sgd')\nm.fit(x)\n"
    write_tree(tmp_path, {"nets.py": net, "train.py": train})
    report = migrate_paths([tmp_path], TARGET)
    made = {file.path.name: file.result.source.decode() for file in report.files}
    assert made["nets.py"] == net
    assert "with strategy.scope():\n    m = nets.net()\n    m.compile('sgd')\n" in made["train.py"]


@pytest.mark.parametrize(
    "body",
    [
        "print(keras.__version__)\n",
        "strategy = tf.distribute.get_strategy()\nwith strategy.scope():\n    m = keras.Model()\n",
        "strategy = tf.distribute.TPUStrategy(t)\nwith strategy.scope():\n    n = keras.Model()\n",
        "def net():\n    return keras.Sequential()\n",
    ],
)
def test_programs_without_a_model_or_with_a_strategy_get_none(body: str) -> None:
    assert migrated(HEAD + body, TARGET, entry=True) == HEAD + body


@pytest.mark.parametrize(
    "name", ["MirroredStrategy()", "OneDeviceStrategy('/gpu:0')", "MultiWorkerMirroredStrategy()"]
)
def test_other_strategies_become_one_and_their_uses_stay(name: str) -> None:
    uses = "data = s.experimental_distribute_dataset(data)\nloss = s.run(step, args=(x,))\n"
    text = migrated(f"{HEAD}s = tf.distribute.{name}\n{uses}", TARGET)
    assert text == HEAD + MADE.strip("\n").replace("strategy = ", "s = ") + "\n" + uses


@pytest.mark.parametrize(
    ("source", "code", "line"),
    [
        ("sess = tf.compat.v1.Session()\n", "KER003", 4),
        ("e = tf.estimator.Estimator(f)\n", "KER003", 4),
        ("e = tf.compat.v1.estimator.tpu.TPUEstimator(f)\n", "KER003", 4),
        ("s = tf.distribute.experimental.ParameterServerStrategy(r)\n", "KER003", 4),
        ("s = None\nif n:\n    s = tf.distribute.MirroredStrategy()\n", "KER003", 6),
        ("o = keras.optimizers.Adam(\n    clipnorm=1.0,\n)\n", "KER003", 5),
        ("TF_CONFIG = 1\ns = tf.distribute.MultiWorkerMirroredStrategy()\n", "KER030", 5),
    ],
)
def test_what_does_not_run_on_a_tpu_is_named(source: str, code: str, line: int) -> None:
    whole = f"{HEAD}{source}m = keras.Sequential()\nm.fit(x)\n"
    result = run(whole, TARGET, entry=True)
    assert result.source.decode() == whole
    found = [d.range.line for d in result.diagnostics if d.code == code and d.outcome == "reported"]
    assert found == [line]


STEP = """import keras
import tensorflow as tf


class Net(keras.Model):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            {0}
        gradients = tape.gradient(loss, self.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_weights))
"""


@pytest.mark.parametrize(
    ("loss", "outcome"),
    [
        ("loss = self.compute_loss(x, y, self(x))", "kept"),
        ("loss = keras.losses.MeanSquaredError()(y, self(x))", "kept"),
        ("loss = tf.nn.compute_average_loss(each)", "kept"),
        ("loss = tf.reduce_mean(each) / tf.distribute.get_strategy().num_replicas_in_sync", "kept"),
        ("loss = tf.reduce_mean(each)", "rewritten"),
        ("loss = 0.5 * tf.reduce_mean(each) + tf.reduce_mean(tf.square(x))", "rewritten"),
        ("loss = tf.abs(each)\n            loss = tf.reduce_mean(loss)", "rewritten"),
        ("loss = tf.reduce_mean(each)\n            loss += self.compute_loss()", "reported"),
        ("loss = tf.reduce_mean(each, axis=0)", "reported"),
        ("loss = tf.reduce_sum(each)", "reported"),
        ("loss = tf.reduce_mean(keras.losses.MeanSquaredError()(y, self(x)))", "kept"),
        ("loss = tf.reduce_mean(each) * tf.reduce_mean(each)", "reported"),
        ("loss = keras.losses.MeanSquaredError(reduction='sum')(y, self(x))", "reported"),
        ("loss = elsewhere(x)", "reported"),
    ],
)
def test_losses_that_a_step_averages_are_shared_out(loss: str, outcome: str) -> None:
    result = run(STEP.format(loss), TARGET)
    found = {kind for code, kind, _ in outcomes(result) if code in ("KER003", "KER042")}
    assert outcome in found
    text = result.source.decode()
    assert ("tape.gradient(replica_loss," in text) is (outcome == "rewritten")
    assert (text == STEP.format(loss)) is (outcome != "rewritten")


LOSS = """import keras
import tensorflow as tf


class Net(keras.Model):
    def compute_loss(self, x, y, y_pred, sample_weight=None):
        {0}
"""
BY_REPLICAS = " / tf.distribute.get_strategy().num_replicas_in_sync"


@pytest.mark.parametrize(
    ("loss", "becomes"),
    [
        ("return tf.reduce_mean(each)", f"return tf.reduce_mean(each){BY_REPLICAS}"),
        ("return keras.ops.mean(each)", f"return keras.ops.mean(each){BY_REPLICAS}"),
        (
            "loss = tf.reduce_mean(each)\n        self.seen(loss)\n        return loss",
            "loss = tf.reduce_mean(each)\n        self.seen(loss)\n"
            f"        return loss{BY_REPLICAS}",
        ),
        (
            "return super().compute_loss(x, y, y_pred) + tf.reduce_mean(each)",
            f"return super().compute_loss(x, y, y_pred) + (tf.reduce_mean(each){BY_REPLICAS})",
        ),
        ("return super().compute_loss(x, y, y_pred)", "kept"),
        ("return keras.losses.MeanSquaredError()(y, y_pred)", "kept"),
        (f"return tf.reduce_mean(each){BY_REPLICAS}", "kept"),
        ("return tf.reduce_sum(each)", "reported"),
        ("return elsewhere(y, y_pred)", "reported"),
    ],
)
def test_a_models_own_loss_is_shared_out(loss: str, becomes: str) -> None:
    """Keras divides what its losses compute, not what `compute_loss` returns."""
    result = run(LOSS.format(loss), TARGET)
    is_rewritten = becomes not in ("kept", "reported")
    assert result.source.decode() == LOSS.format(becomes if is_rewritten else loss)
    assert ("KER003" in reported_codes(result)) is (becomes == "reported")


def test_an_average_is_divided_where_it_is_added_to_what_keras_divides() -> None:
    whole = "loss = 0.1 * tf.reduce_mean(each) + self.compute_loss(x, y, self(x))"
    text = run(STEP.format(whole), TARGET).source.decode()
    divided = "(0.1 * tf.reduce_mean(each)) / tf.distribute.get_strategy().num_replicas_in_sync"
    assert f"loss = {divided} + self.compute_loss(x, y, self(x))\n" in text
    apart = f"def both(a, b, c):\n    return {whole[7:]}\n\n\n".replace("self.", "a.")
    text = run(apart + STEP.format("loss = both(self, x, y)"), TARGET).source.decode()
    assert f"    return {divided} + a.compute_loss" in text


def test_gradients_that_are_only_looked_at_keep_nothing() -> None:
    look = "with tf.GradientTape() as tape:\n    y = m(x)\nshown = tape.gradient(y, x)\n"
    text = script(f"m = keras.Sequential()\nm.fit(x)\n{look}")
    assert text.startswith("with strategy.scope():\n    m = keras.Sequential()\n")


def test_what_gpus_need_goes() -> None:
    text = script(
        "for gpu in tf.config.list_physical_devices('GPU'):\n"
        "    tf.config.experimental.set_memory_growth(gpu, True)\n"
        "keras.mixed_precision.set_global_policy('mixed_float16')\n"
        "with tf.device('/GPU:0'):\n    m = keras.Sequential()\n"
        "    o = keras.mixed_precision.LossScaleOptimizer(keras.optimizers.Adam())\n"
        "    m.compile(o, jit_compile=True)\n    m.fit(x)\n"
        "print(len(tf.config.list_physical_devices('GPU')))\n"
    )
    assert text == (
        "keras.mixed_precision.set_global_policy('mixed_bfloat16')\n"
        "with strategy.scope():\n    m = keras.Sequential()\n    o = keras.optimizers.Adam()\n"
        "    m.compile(o)\nm.fit(x)\n"
        'print(len(tf.config.list_logical_devices("TPU")))\n'
    )


MODEL = """

class Net(keras.Model):
    def __init__(self, inner):
        super().__init__({0})
        self.inner = inner

    def train_step(self, data):
        with tf.GradientTape() as tape:
            loss = self.compute_loss(data[0], data[1], self.inner(data[0]))
        found = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(found, self.trainable_variables))
        return {{"loss": loss}}
{1}

m = Net(keras.Sequential([keras.layers.Dense(1)]))
m.compile("sgd", "mse")
m.fit(x, y)
"""


@pytest.mark.parametrize(
    ("given", "call", "stays"),
    [
        ("", "", True),
        ("", "\n    def call(self, x):\n        return self.inner(x)\n", False),
        ("inner.inputs, inner.outputs", "", False),
    ],
)
def test_a_model_has_to_say_how_it_is_built(given: str, call: str, stays: bool) -> None:
    source = HEAD + MODEL.format(given, call)
    result = run(source, TARGET, entry=True)
    assert (result.source.decode() == source) is stays
    assert stays is any("has no call" in d.message for d in result.diagnostics)


def test_what_makes_the_strategy_is_imported_above_it() -> None:
    below = "import os\nimport tensorflow as tf\nprint(os, tf)\nm.fit(x)\n"
    net = "m = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])\n"
    text = migrated(f"from tensorflow import keras\n{net}{below}", TARGET, entry=True)
    head = "from tensorflow import keras\nimport os\nimport tensorflow as tf\n"
    assert text == f"{head}{MADE}with strategy.scope():\n    {net}{below}"


def test_a_program_for_another_back_end_stays() -> None:
    source = 'import os\n\nos.environ["KERAS_BACKEND"] = "jax"\nimport keras\n'
    assert reported_codes(run(source, TARGET)) == {"KER001"}


MASKED = "def loss_of(y, p):\n    return tf.reduce_mean({})\n\n\n"


@pytest.mark.parametrize(
    ("source", "code", "lines"),
    [
        ("m.compile('sgd')\nm.fit(x)\n", "KER053", [5]),
        ("m.compile('sgd', steps_per_execution=8)\nm.fit(x)\n", "KER053", []),
        ("m.compile('sgd')\nm.predict(x)\n", "KER053", []),
        (MASKED.format("tf.boolean_mask(p, y > 0)") + "m.compile('sgd', loss_of)\n", "KER054", [5]),
        (MASKED.format("p[tf.where(y)]") + "m.compile('sgd', loss_of)\n", "KER054", [5]),
        (MASKED.format("tf.where(y > 0, p, 0)") + "m.compile('sgd', loss_of)\n", "KER054", []),
        (MASKED.format("tf.boolean_mask(p, y > 0)") + "d = d.map(loss_of)\n", "KER054", []),
        ("d = tf.data.TextLineDataset('a.txt')\nm.fit(d)\n", "KER055", [5]),
        ("p = 'gs://b/a'\nd = tf.data.TFRecordDataset(p)\nm.fit(d)\n", "KER055", []),
        ("d = tf.data.Dataset.range(9).batch(3, True)\nm.fit(d)\n", "KER057", [5]),
        ("n = 192\nm.fit(x, batch_size=n)\n", "KER057", []),
        ("m.fit(x, batch_size=60)\n", "KER057", [5]),
    ],
)
def test_advice_for_programs_on_tpus(source: str, code: str, lines: list[int]) -> None:
    head, net = HEAD, "m = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])\n"
    where = source.startswith("def")
    result = run(head + (source + net if where else net + source), TARGET, entry=True)
    assert [d.range.line for d in result.diagnostics if d.code == code] == lines
    elsewhere = run(head + (source + net if where else net + source), "keras_jax", entry=True)
    assert not [d for d in elsewhere.diagnostics if d.code == code]


@pytest.mark.parametrize("target", [TARGET, "keras_jax"])
@pytest.mark.parametrize(
    ("made", "steps", "lines"),
    [
        (".batch(64)", ", steps_per_epoch=9", [6]),
        (".batch(64)", "", []),
        (".batch(64)", ", steps_per_epoch=None", []),
        (".repeat().batch(64)", ", steps_per_epoch=9", []),
    ],
)
def test_counted_epochs_need_data_without_end(
    target: str, made: str, steps: str, lines: list[int]
) -> None:
    net = "m = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])\n"
    source = f"{HEAD}{net}d = tf.data.Dataset.from_tensor_slices(x){made}\nm.fit(d{steps})\n"
    result = run(source, target, entry=True)
    assert [d.range.line for d in result.diagnostics if d.code == "KER056"] == lines


@pytest.mark.parametrize("rule", rules_of("KER"), ids=lambda rule: rule.code)
def test_a_second_run_changes_nothing(rule: object) -> None:
    examples = getattr(rule, "examples", ())
    assert examples
    for example in examples:
        options = Options(entry=True)
        once = migrate_file(Path("a.py"), example.before.encode(), find_target(TARGET), options)
        again = migrate_file(Path("a.py"), once.source, find_target(TARGET), options)
        assert again.source.decode() == once.source.decode()
