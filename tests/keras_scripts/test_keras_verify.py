"""Keras scripts, recorded on TensorFlow and on the target: the same draws, weights and metrics."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from helpers import REPOSITORY, write_tree
from target import TARGET

from migrator.frameworks import find_framework
from migrator.targets import find_target
from migrator.verify.command import verify_command
from migrator.verify.recordings import Recording, RecordSettings, record_run
from migrator.verify.run_options import Migration, RunOptions
from migrator.verify.script_result import ScriptResult
from migrator.verify.script_verification import verify_against

SCRIPT = """import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

keras.utils.set_random_seed(1)
generator = np.random.default_rng(0)
x, y = generator.random((96, 8, 8, 1), dtype="float32"), generator.integers(0, 4, 96)


class Noisy(layers.Layer):
    def __init__(self):
        super().__init__()
        self.seeds = keras.random.SeedGenerator(3)

    def call(self, x, training=False):
        if not training:
            return x
        return tf.nn.relu(x + 0.1 * keras.random.normal((12,), seed=self.seeds))


model = keras.Sequential([
    keras.Input((8, 8, 1)),
    layers.Conv2D(4, 3, activation="relu", kernel_initializer="he_normal"),
    layers.BatchNormalization(),
    layers.Flatten(),
    layers.Dense(12, activation=tf.nn.elu, kernel_initializer="orthogonal"),
    Noisy(),
    layers.Dropout(0.3),
    layers.Dense(4, activation="softmax", kernel_initializer="truncated_normal"),
])
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(x, y, batch_size=32, epochs=2, validation_split=0.25, verbose=2)
print("loss: %.4f" % model.evaluate(x, y, verbose=0)[0])
np.save("p.npy", model.predict(x[:8], verbose=0))
"""


def verified(folder: Path, source: str, migrate: Migration | None = None) -> ScriptResult:
    script = write_tree(folder, {"train.py": source}) / "train.py"
    return verify_against(
        script, [], find_target(TARGET), None, RecordSettings(roundings=1),
        RunOptions(python=Path(sys.executable), migrate=migrate),
    )  # fmt: skip


def changed(old: str, new: str) -> Callable[[Path, str, Path], list[str]]:
    """The tool's own migration, and one mistake more."""

    def migrate(source: Path, target: str, to: Path) -> list[str]:
        command = [sys.executable, "-m", "migrator", source, "--target", target, "-o", to]
        subprocess.run(command, check=True, capture_output=True, cwd=REPOSITORY)
        text = (to / "train.py").read_text()
        assert old in text
        (to / "train.py").write_text(text.replace(old, new))
        return []

    return migrate


def test_training_is_the_same_from_the_first_draw_to_the_last_weight(tmp_path: Path) -> None:
    result = verified(tmp_path, SCRIPT)
    assert result.passed, (result.error, result.problems, result.compiled.missing)
    kinds = {finding.kind for finding in result.compiled.findings}
    assert kinds >= {
        "start", "loss", "gradients", "metric", "weights", "end", "output", "file", "printed",
    }  # fmt: skip
    norms = [f for f in result.compiled.findings if f.kind == "gradients"]
    assert len(norms) == 6 * 8 and all(f.is_number and f.want > 0 for f in norms)
    start = [f for f in result.compiled.findings if f.kind == "start"]
    exact = [f for f in start if "dense.kernel" not in f.place]  # each back end has a QR of its own
    assert len(exact) >= 9 and all(f.max_abs == 0 for f in exact)
    assert len(result.losses) == 6 and not result.compiled.missing


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ('model.compile("adam"', 'model.compile("sgd"', "weights"),
        ("layers.Dropout(0.3)", "layers.Dropout(0.4)", "gradients"),
        ('os.environ["KERAS_BACKEND"] = "jax"', "pass", ""),
    ],
)
def test_a_mistake_is_seen(tmp_path: Path, old: str, new: str, kind: str) -> None:
    result = verified(tmp_path, SCRIPT, changed(old, new))
    assert not result.passed
    if kind:
        assert result.compiled.first is not None and result.compiled.first.kind == kind
    else:
        assert any("chose the CPU" in problem for problem in result.problems)


def test_the_reference_app_agrees_with_its_golden() -> None:
    asked = ["fashion_mnist", "--target", TARGET, "--python", sys.executable, "--json"]
    done = CliRunner().invoke(verify_command, asked)
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert (result["passed"], result["error"], result["problems"]) == (True, None, [])
    assert not any("has changed" in note for note in result["notes"])


def test_bisect_says_what_it_is_for(tmp_path: Path) -> None:
    script = write_tree(tmp_path, {"train.py": SCRIPT}) / "train.py"
    result = verify_against(
        script, [], find_target(TARGET), None, RecordSettings(), RunOptions(bisect=True)
    )
    assert result.error is not None and "--bisect" in result.error


def recorded(folder: Path, source: str, **settings: object) -> Recording:
    write_tree(folder, {"train.py": source})
    how = RecordSettings(**settings)  # type: ignore[arg-type]
    _, found = record_run(
        Path(sys.executable), "train.py", [], folder, folder.parent / f"{folder.name}-out", how,
        framework=find_framework("tensorflow"), stand_in=True, original=folder,
        stop=how.steps if how.quick else None,
    )  # fmt: skip
    return found


def test_a_failure_is_told_with_its_line_and_what_was_until_then(tmp_path: Path) -> None:
    found = recorded(tmp_path / "a", SCRIPT.replace("np.save(", "raise ValueError(len)  # "))
    assert re.match(r"train\.py:\d+: ValueError", found.ended)
    assert sum(event["kind"] == "loss" for event in found.events) == 6
    assert json.dumps(found.machine["versions"]).count("keras")


def test_quick_ends_after_some_steps(tmp_path: Path) -> None:
    found = recorded(tmp_path / "a", SCRIPT, quick=True, steps=2)
    assert found.shortened and found.steps == 2 and not found.ended
    assert [e["kind"] for e in found.events][-1] == "end"
