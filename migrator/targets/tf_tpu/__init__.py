"""TensorFlow with TPUStrategy: one way to run TensorFlow and Keras programs on a TPU."""

from migrator.targets.markers import Markers
from migrator.targets.target import Target

from .api_map import API
from .environment import ENVIRONMENT
from .host import HOST

TARGET = Target(
    name="tf_tpu",
    summary="TensorFlow with TPUStrategy (tensorflow-tpu 2.19.1)",
    home="https://www.tensorflow.org/guide/tpu",
    framework="tensorflow",
    api=API,
    environment=ENVIRONMENT,
    host=HOST,
    markers=Markers(),
)
