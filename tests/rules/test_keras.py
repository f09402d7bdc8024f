"""Keras scripts on JAX: the back end above all, TensorFlow left where only it will do."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import migrated, outcomes, reported_codes, run, write_tree

from migrator import migrate_paths
from migrator.examples import rules_of
from migrator.options import Options
from migrator.pipeline.engine import migrate_file
from migrator.targets import find_target

TARGET = "keras_jax"
SET_UP = (
    'os.environ["KERAS_BACKEND"] = "jax"\n'
    'os.environ["JAX_DEFAULT_MATMUL_PRECISION"] = "highest"  # float32 stays float32\n'
)
LAYER = """import keras
import tensorflow as tf


class Layer(keras.layers.Layer):
    def call(self, x):
        return {0}
"""


def script(source: str) -> str:
    return migrated(source, TARGET, entry=True)


@pytest.mark.parametrize(
    ("above", "head"),
    [
        ("import keras\n", f"import os\n\n{SET_UP}\nimport keras\n"),
        ('"""Doc."""\nimport keras\n', f'"""Doc."""\n\nimport os\n\n{SET_UP}\nimport keras\n'),
        ("import os\nimport keras\n", f"import os\n\n{SET_UP}\nimport keras\n"),
        ("import sys\nimport keras\n", f"import sys\nimport os\n\n{SET_UP}\nimport keras\n"),
        ("import keras\nimport os\n", f"import os\n\n{SET_UP}\nimport keras\n"),
        (
            "import numpy as np\nfrom tensorflow import keras\nimport os, sys\n",
            f"import os\n\n{SET_UP}\nimport numpy as np\nimport keras\nimport sys\n",
        ),
        (
            "from __future__ import annotations\nimport keras\n",
            f"from __future__ import annotations\nimport os\n\n{SET_UP}\nimport keras\n",
        ),
        (
            "import os\nimport tensorflow as tf\nkeras = tf.keras\n",
            f"import os\n\n{SET_UP}\nimport keras\n",
        ),
    ],
)
def test_the_back_end_is_chosen_above_what_may_import_keras(above: str, head: str) -> None:
    use = "print(os, keras.Sequential([keras.layers.Dense(1)]))\n"
    assert script(above + use) == head + use


def test_imports_that_are_added_stand_below_it() -> None:
    text = script("import os\nimport tensorflow as tf\ntf.keras.Sequential().fit(x)\n")
    assert text == f"import os\n\n{SET_UP}\nimport keras\nkeras.Sequential().fit(x)\n"


def test_libraries_get_no_set_up_and_torch_keeps_its_own() -> None:
    library = "from tensorflow import keras\n\n\ndef make():\n    return keras.Sequential()\n"
    assert migrated(library, TARGET) == library.replace("from tensorflow import", "import")
    gpu = "import torch\nx = torch.ones(2).cuda()\n"
    assert migrated(gpu, TARGET, entry=True) == gpu
    keras = "import keras\nkeras.Sequential().fit(x)\n"
    for target in ("torchax", "torch_xla"):
        result = run(keras, target, entry=True)
        assert result.source.decode() == keras and not result.diagnostics


@pytest.mark.parametrize(
    ("code", "becomes"),
    [
        ("tf.nn.relu(x)", "keras.ops.relu(x)"),
        ("tf.reduce_mean(x, axis=[1, 2])", "keras.ops.mean(x, axis=[1, 2])"),
        ("tf.reduce_sum(input_tensor=x)", "keras.ops.sum(x=x)"),
        ("tf.clip_by_value(x, 0.0, 1.0)", "keras.ops.clip(x, 0.0, 1.0)"),
        ("tf.nn.gelu(x)", "keras.ops.gelu(x, approximate=False)"),
        ("tf.gather(x, [0])", "keras.ops.take(x, [0], axis=0)"),
        ("tf.cast(x, tf.float32)", 'keras.ops.cast(x, "float32")'),
        ("tf.zeros((tf.shape(x)[0], 2))", "keras.ops.zeros((keras.ops.shape(x)[0], 2))"),
        ("tf.transpose(x, perm=[1, 0])", "keras.ops.transpose(x, axes=[1, 0])"),
        ("tf.concat([x, x], axis=-1)", "keras.ops.concatenate([x, x], axis=-1)"),
    ],
)
def test_operations_that_mean_the_same(code: str, becomes: str) -> None:
    wanted = LAYER.format(becomes).replace("import tensorflow as tf\n", "")
    assert migrated(LAYER.format(code), TARGET) == wanted


@pytest.mark.parametrize(
    "code",
    [
        "tf.matmul(x, x, transpose_b=True)",  # keras.ops.matmul has no such argument
        "tf.argmax(x)",  # along the first axis there, over all here
        "tf.shape(x)[1:] * 2",  # a tuple there would be repeated
        "tf.gather(x, [0], batch_dims=1)",
        "tf.random.normal(tf.shape(x))",
        "tf.strings.length(x)",
        "tf.image.resize(x, (2, 2))",
    ],
)
def test_others_keep_the_program_with_tensorflow(code: str) -> None:
    source = LAYER.format(code) + "\n\nkeras.Sequential([Layer()]).fit(data)\n"
    result = run(source, TARGET, entry=True)
    assert result.source.decode() == source
    assert "KER003" in reported_codes(result)


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("with tf.GradientTape() as tape:\n    loss = model(x)\n", 4),
        ("@tf.function\ndef step(x):\n    return model(x)\n", 4),
        ("sess = tf.compat.v1.Session()\n", 4),
        ("s = tf.distribute.MultiWorkerMirroredStrategy()\n", 4),
        ("s = tf.distribute.MirroredStrategy()\ns.run(step)\n", 4),
        ("tf.saved_model.save(model, 'out')\n", 4),
        ("from tensorflow.keras import backend as K\nK.batch_dot(x, y)\n", 5),
    ],
)
def test_what_only_tensorflow_runs_is_named_and_nothing_changes(source: str, line: int) -> None:
    whole = f"import keras\nimport tensorflow as tf\nmodel = keras.Sequential()\n{source}"
    result = run(whole, TARGET, entry=True)
    assert result.source.decode() == whole
    only = [d for d in result.diagnostics if d.code == "KER003"]
    assert [d.range.line for d in only][:1] == [line]
    stays = [d for d in result.diagnostics if d.code == "KER002"]
    assert all("stays because of line" in d.message for d in stays)


def test_what_prepares_data_stays() -> None:
    data = """import keras
import tensorflow as tf


@tf.function
def scaled(image, label):
    return tf.image.resize(tf.cast(image, tf.float32) / 255.0, (8, 8)), label


data = tf.data.Dataset.from_tensor_slices((x, y)).map(scaled).batch(32)
"""
    assert migrated(data, TARGET) == data


def test_functions_that_losses_call_are_rewritten_with_them() -> None:
    text = migrated(
        """import keras
import tensorflow as tf


def squared(x):
    return tf.square(x)


def loss(y, p):
    return squared(y - p)


def unrelated(x):
    return tf.square(x)


model.compile("sgd", loss=loss)
""",
        TARGET,
    )
    assert text.count("keras.ops.square") == 1 and text.count("tf.square") == 1


@pytest.mark.parametrize(
    ("asked", "becomes"),
    [
        ("if gpus:\n    print(len(gpus))\n", None),
        ("assert len(gpus) > 0\n", None),
        ("tf.config.experimental.set_memory_growth(gpus[0], True)\n", ""),
        ("for g in gpus:\n    tf.config.experimental.set_memory_growth(g, True)\n", ""),
    ],
)
def test_lists_of_gpus(asked: str, becomes: str | None) -> None:
    head = "import keras\nimport tensorflow as tf\ngpus = tf.config.list_physical_devices('GPU')\n"
    text = migrated(head + asked, TARGET)
    if becomes is None:
        assert text == f"import keras\ngpus = keras.distribution.list_devices()\n{asked}"
    else:
        assert text == f"import keras\n{becomes}"


def test_a_gpu_that_is_taken_from_a_list_is_reported() -> None:
    source = (
        "import keras\nimport tensorflow as tf\n"
        "gpus = tf.config.list_physical_devices('GPU')\nuse(gpus[0])\n"
    )
    result = run(source, TARGET)
    assert result.source.decode() == source
    assert ("KER011", "reported", "tf.config.list_physical_devices") in outcomes(result)


def test_a_file_that_is_imported_may_keep_its_program(tmp_path: Path) -> None:
    model = (
        "import keras\nimport tensorflow as tf\n\n\nclass Model(keras.Model):\n"
        "    def train_step(self, data):\n        with tf.GradientTape() as tape:\n"
        "            pass\n"
    )
    train = "from model import Model\nimport keras\n\nm = Model()\nm.fit(x)\n"
    write_tree(tmp_path, {"model.py": model, "train.py": train})
    report = migrate_paths([tmp_path], TARGET)
    made = {file.path.name: file.result for file in report.files}
    assert made["train.py"].source.decode() == train
    said = " ".join(d.message for d in made["train.py"].diagnostics)
    assert "stays because of model.py, line 6: train_step" in said
    assert "tf.GradientTape" in " ".join(d.construct for d in made["model.py"].diagnostics)


def test_a_program_that_only_imports_keras_by_its_own_modules(tmp_path: Path) -> None:
    model = "import keras\n\n\ndef make():\n    return keras.Sequential()\n"
    train = "import model\n\nmodel.make().fit(x)\n"
    write_tree(tmp_path, {"model.py": model, "train.py": train})
    report = migrate_paths([tmp_path], TARGET)
    made = {file.path.name: file.result.source.decode() for file in report.files}
    assert made["model.py"] == model
    assert made["train.py"] == f"import os\n\n{SET_UP}\n{train}"


@pytest.mark.parametrize("rule", rules_of("KER"), ids=lambda rule: rule.code)
def test_a_second_run_changes_nothing(rule: object) -> None:
    for example in getattr(rule, "examples", ()):
        for entry in (False, True):
            options = Options(entry=entry)
            once = migrate_file(Path("a.py"), example.before.encode(), find_target(TARGET), options)
            again = migrate_file(Path("a.py"), once.source, find_target(TARGET), options)
            assert again.source.decode() == once.source.decode()


def test_a_program_for_another_back_end_stays() -> None:
    source = 'import os\n\nos.environ["KERAS_BACKEND"] = "torch"\nimport keras\n\nmodel.fit(x)\n'
    result = run(source, TARGET, entry=True)
    assert result.source.decode() == source
    assert outcomes(result)[0] == ("KER001", "reported", '"KERAS_BACKEND"')


def test_a_loss_that_is_given_by_position_is_one() -> None:
    text = migrated(
        """import keras
import tensorflow as tf


def loss(y, p):
    return tf.reduce_mean(y - p)


model.compile("sgd", loss)
""",
        TARGET,
    )
    assert "keras.ops.mean(y - p)" in text


def test_arrays_of_what_keras_computes() -> None:
    text = migrated(
        """import keras


class Net(keras.Model):
    def call(self, x):
        return x


net = Net()
y = net(x)
for image, label in data:
    print(y.numpy(), net(image).numpy(), label.numpy(), keras.losses.mse(a, b).numpy())
""",
        TARGET,
    )
    assert text.count("keras.ops.convert_to_numpy(") == 3 and "label.numpy()" in text


def test_annotations_compute_nothing() -> None:
    source = LAYER.format("x").replace("(self, x)", "(self, x: tf.Tensor) -> tf.Tensor")
    assert migrated(source, TARGET) == source


@pytest.mark.parametrize(
    ("method", "line"),
    [
        ("def test_step(self, data):\n        return super().test_step(data)", 6),
        ("def call(self, x):\n        self.mean.update_state(x)\n        return x", 7),
        ("def call(self, x):\n        self.conv.kernel.assign(x)\n        return x", 7),
        ("def call(self, x):\n        self.moving.assign(x)\n        return x", 0),
        ("def train_step(self, state, data):\n        return super().train_step(state, data)", 0),
    ],
)
def test_methods_that_each_back_end_has_its_own_way(method: str, line: int) -> None:
    head = "import keras\nfrom tensorflow.keras import layers\n\n\nclass Model(keras.Model):\n"
    source = f"{head}    {method}\n"
    result = run(source, TARGET, entry=True)
    only = [d.range.line for d in result.diagnostics if d.code == "KER003"]
    assert only == ([line] if line else [])
    assert (result.source.decode() == source) is bool(line)
