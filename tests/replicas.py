"""TensorFlow programs, verified on their fallback or on several replicas of logical CPUs."""

from __future__ import annotations

import sys
from pathlib import Path

from helpers import write_tree

from migrator.targets import find_target
from migrator.verify.recordings import RecordSettings
from migrator.verify.run_options import RunOptions
from migrator.verify.script_result import ScriptResult
from migrator.verify.script_verification import verify_against

HEAD = """import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

keras.utils.set_random_seed(1)
generator = np.random.default_rng(0)
x, y = generator.random((96, 6), dtype="float32"), generator.integers(0, 4, 96)
data = tf.data.Dataset.from_tensor_slices((x, y)).batch(32, drop_remainder=True)
"""


def verified(folder: Path, source: str, devices: int | None) -> ScriptResult:
    script = write_tree(folder, {"train.py": source}) / "train.py"
    return verify_against(
        script, [], find_target("tf_tpu"), None, RecordSettings(roundings=1),
        RunOptions(python=Path(sys.executable), devices=devices),
    )  # fmt: skip
