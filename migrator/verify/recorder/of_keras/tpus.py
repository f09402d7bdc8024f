"""A TPU that a program of TensorFlow's asks for, where there may be none.

On so many devices, what a program gets in the place of a TPUStrategy is a MirroredStrategy over
logical CPUs: it divides batches, adds up gradients and keeps variables as one over cores would.
"""

from __future__ import annotations

import os
from types import ModuleType
from typing import Any

COUNT = "TPU_MIGRATE_LOGICAL_DEVICES"


class Tpus:
    """Whether a program has asked for a TPU, and what it gets."""

    def __init__(self) -> None:
        self.asked = False
        self.count = int(os.environ.get(COUNT, "0"))

    def install(self, tensorflow: ModuleType) -> None:
        tf: Any = tensorflow
        resolvers = tf.distribute.cluster_resolver
        found = resolvers.TPUClusterResolver

        def resolver(*args: Any, **kwargs: Any) -> Any:
            self.asked = True
            return object() if self.count else found(*args, **kwargs)

        resolvers.TPUClusterResolver = resolver
        if not self.count:
            return
        (cpu,) = tf.config.list_physical_devices("CPU")
        one = tf.config.LogicalDeviceConfiguration()
        tf.config.set_logical_device_configuration(cpu, [one] * self.count)
        tf.config.experimental_connect_to_cluster = lambda *args, **kwargs: None
        tf.tpu.experimental.initialize_tpu_system = lambda *args, **kwargs: None
        names = [f"CPU:{number}" for number in range(self.count)]
        mirrored = tf.distribute.MirroredStrategy

        class TPUStrategy(mirrored):  # type: ignore[misc, valid-type]
            def __init__(self, *args: Any, **kwargs: Any) -> None:
                super().__init__(names)

        tf.distribute.TPUStrategy = TPUStrategy
