"""Keras 3 on JAX: one way to run Keras scripts on a TPU."""

from migrator.targets.target import Target

from .api_map import API
from .environment import ENVIRONMENT
from .host import HOST

TARGET = Target(
    name="keras_jax",
    summary="Keras on JAX (keras 3.15.1, jax 0.10.2)",
    home="https://keras.io",
    framework="tensorflow",
    api=API,
    environment=ENVIRONMENT,
    host=HOST,
)
