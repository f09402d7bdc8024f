"""How migrated code for torchax is recognised: nobody writes programs for it by hand."""

from migrator.targets.traces import Traces

TRACES = Traces(modules=("torchax",), devices=("jax",))
