"""How migrated code for torchax is recognised: programs aren't written for it by hand."""

from migrator.targets.traces import Traces

TRACES = Traces(modules=("torchax",), devices=("jax",))
