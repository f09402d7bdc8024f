"""How code that names TorchTPU is recognised; code migrated to it doesn't need to name it."""

from migrator.targets.markers import Markers

MARKERS = Markers(modules=("torch_tpu",))
