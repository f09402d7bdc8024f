"""How code that names TorchTPU is recognised; code migrated to it doesn't need to name it."""

from migrator.targets.traces import Traces

TRACES = Traces(modules=("torch_tpu",))
