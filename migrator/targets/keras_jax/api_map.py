"""Sources for the words: Keras' documentation, and our own runs."""

from migrator.targets.api_map import Snippet, TargetApi

API = TargetApi(
    device="tpu",
    keras_backend="jax",
    calls={"list_devices": Snippet("{keras}.distribution.list_devices()")},
    profiler="jax.profiler.trace",
    float64="float64 becomes float32 on the device",
)
