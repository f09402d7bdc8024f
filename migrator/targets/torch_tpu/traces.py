"""How code is recognised that names TorchTPU; what is migrated to it does not need to."""

from migrator.targets.traces import Traces

TRACES = Traces(modules=("torch_tpu",))
