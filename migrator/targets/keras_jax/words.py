"""Facts behind the words: Keras' documentation, and runs of our own."""

from migrator.targets.words import Word, Words

WORDS = Words(
    device="tpu",
    keras_backend="jax",
    calls={"list_devices": Word("{keras}.distribution.list_devices()")},
    profiler="jax.profiler.trace",
    float64="float64 becomes float32 on the device",
)
