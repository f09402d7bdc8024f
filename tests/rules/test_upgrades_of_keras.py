"""Old names in programs of Keras and TensorFlow: they run with the same NumPy and Python."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import constructs, migrated, run, write_tree

from migrator import migrate_paths

KERAS = ("keras_jax", "tf_tpu")
HEAD = "import numpy as np\nimport keras\nmodel = keras.Sequential([keras.layers.Dense(1)])\n"


@pytest.mark.parametrize("target", KERAS)
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x = np.zeros(3, dtype=np.float)", "x = np.zeros(3, dtype=float)"),
        ("from collections import Set\nSet", "from collections.abc import Set\nSet"),
        ("from PIL import Image\nImage.ANTIALIAS", "from PIL import Image\nImage.LANCZOS"),
        ("import time\ntime.clock()", "import time\ntime.process_time()"),
        ("x = np.array([1], copy=False)", "x = np.asarray([1])"),
        ("d = {}\nlist(d.iteritems())", "d = {}\nlist(d.items())"),
        ("import yaml\nyaml.load('a')", "import yaml\nyaml.load('a', Loader=yaml.FullLoader)"),
    ],
)  # fmt: skip
def test_they_are_upgraded(target: str, old: str, new: str) -> None:
    assert migrated(HEAD + old + "\n", target).endswith(new + "\n")


@pytest.mark.parametrize("target", KERAS)
@pytest.mark.parametrize(
    ("code", "rule"),
    [("from scipy.misc import imread\nimread('a')", "UPG001"), ("np.no_such_name(1)", "UPG006")],
)
def test_what_has_no_successor_is_reported(target: str, code: str, rule: str) -> None:
    result = run(HEAD + code + "\n", target)
    assert rule in [d.code for d in constructs(result) if d.outcome == "reported"]


@pytest.mark.parametrize("target", KERAS)
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("from keras.layers.core import Dense\nDense", "from keras.layers import Dense\nDense"),
        ("from keras.utils import np_utils as u\nu.to_categorical", "keras.utils.to_categorical"),
        ("keras.optimizers.Adam(lr=0.1)", "keras.optimizers.Adam(learning_rate=0.1)"),
        ("model.fit_generator(g, epochs=2, workers=4)", "model.fit(g, epochs=2)"),
        ("model.evaluate_generator(generator=g, steps=3)", "model.evaluate(x=g, steps=3)"),
    ],
)  # fmt: skip
def test_old_names_of_keras_become_those_of_keras_3(target: str, old: str, new: str) -> None:
    assert migrated(f"{HEAD}{old}\n", target).endswith(f"{new}\n")


@pytest.mark.parametrize("target", KERAS)
@pytest.mark.parametrize(
    ("code", "rule"),
    [
        ("from keras.utils import multi_gpu_model\nmodel = multi_gpu_model(model, 2)", "UPG001"),
        ("keras.optimizers.SGD(learning_rate=0.1, decay=1e-6)", "UPG003"),
        ("model.fit_generator(g, 20, 3)", "UPG004"),
        ("model.predict_classes(x)", "UPG004"),
        ("keras.layers.MaxoutDense(2)", "UPG006"),
        ("import tensorflow as tf\ntf.keras.layers.NoSuchLayer(1)", "UPG006"),
        ("import tensorflow as tf\ntf.keras.utils.multi_gpu_model(model, 2)", "UPG001"),
    ],
)  # fmt: skip
def test_what_keras_3_lacks_is_reported(target: str, code: str, rule: str) -> None:
    result = run(f"{HEAD}{code}\n", target)
    assert rule in [d.code for d in constructs(result) if d.outcome == "reported"]


@pytest.mark.parametrize("target", KERAS)
@pytest.mark.parametrize(
    "code",
    [
        "keras.layers.Dense(2)",
        "import tensorflow as tf\ntf.keras.layers.Dense(2)\ntf.nn.relu(x)\ntf.no_such_name",
        "import torch\ntorch.no_such_name(1)",  # not of this target
        "import torch\nweights = torch.load('a.pt')['model']",
        "rows = table.fit_generator",
    ],
)
def test_what_is_there_stays(target: str, code: str) -> None:
    result = run(f"{HEAD}{code}\n", target)
    assert not [d for d in constructs(result) if d.code.startswith("UPG")]


@pytest.mark.parametrize("target", KERAS)
def test_a_module_that_the_program_imports_is_upgraded_and_others_are_not(
    target: str, tmp_path: Path
) -> None:
    data = "import numpy as np\n\n\ndef load():\n    return np.zeros(3, dtype=np.float)\n"
    train = HEAD + "import data\nmodel.compile('sgd', 'mse')\nmodel.fit(data.load(), data.load())\n"
    files = {"train.py": train, "data.py": data, "plot.py": data.replace("load", "plot")}
    report = migrate_paths([write_tree(tmp_path, files)], target)
    changed = {file.path.name for file in report.changed}
    assert "data.py" in changed and "plot.py" not in changed


def test_of_two_targets_each_name_is_counted_once(tmp_path: Path) -> None:
    of_torch = "import numpy as np\nimport torch\nx = torch.ones(3).cuda()\ny = np.float(1)\n"
    files = {"a.py": HEAD + "model.compile('sgd', 'mse')\ny = np.float(1)\n", "b.py": of_torch}
    report = migrate_paths([write_tree(tmp_path, files)], ["torchax", "keras_jax"])
    for file in report.files:
        found = [d.outcome for d in constructs(file.result) if d.code.startswith("UPG")]
        assert found == ["rewritten"], file.path
