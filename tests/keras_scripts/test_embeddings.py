"""What Keras itself trains otherwise on TensorFlow than on JAX, as docs/keras.md says."""

import json
import os
import subprocess
import sys

import pytest

PROGRAM = """\
import json
import sys

import keras
import numpy as np

constant = keras.initializers.Constant
model = keras.Sequential([
    keras.layers.Embedding(5, 3, embeddings_initializer=constant(0.5)),
    keras.layers.Flatten(),
    keras.layers.Dense(1, kernel_initializer=constant(0.3)),
])
settings = {"class_name": sys.argv[1], "config": {"learning_rate": 0.1}}
model.compile(keras.optimizers.get(settings), "mse")
words = np.array(json.loads(sys.argv[2]))
for _ in range(3):
    model.train_on_batch(words, np.array([[1.0], [5.0]]))
print(json.dumps(model.get_weights()[0][:, 0].tolist()))
"""


def trained(back_end: str, optimizer: str, words: list[list[int]]) -> list[float]:
    """The first number of each word after three steps."""
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, optimizer, json.dumps(words)],
        env={**os.environ, "KERAS_BACKEND": back_end}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    found: list[float] = json.loads(run.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "rmsprop", "adagrad"])
def test_words_that_occur_more_than_once_in_a_batch(optimizer: str) -> None:
    """TensorFlow squares each of their gradients by itself, JAX the sum."""
    back_ends = ("tensorflow", "jax")
    once, often = [[1, 2], [3, 4]], [[1, 1, 1, 2], [1, 3, 1, 1]]
    assert trained(back_ends[0], optimizer, once) == pytest.approx(
        trained(back_ends[1], optimizer, once), abs=1e-5
    )
    one, other = (trained(back_end, optimizer, often) for back_end in back_ends)
    assert (one == pytest.approx(other, abs=1e-5)) == (optimizer == "sgd")
    if optimizer == "adam":
        assert [round(one[1], 3), round(other[1], 3)] == [0.679, 0.672]
