"""How migrated code for torchax is recognised: programs aren't written for it by hand."""

from migrator.targets.markers import Markers

MARKERS = Markers(modules=("torchax",), devices=("jax",))
