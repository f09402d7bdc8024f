"""Sources for the words: Keras' documentation, and our own runs."""

from migrator.targets.words import Word, Words

WORDS = Words(
    device="tpu",
    keras_backend="jax",
    calls={"list_devices": Word("{keras}.distribution.list_devices()")},
    profiler="jax.profiler.trace",
    float64="float64 becomes float32 on the device",
)
