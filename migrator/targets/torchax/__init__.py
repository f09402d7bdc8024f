"""torchax 0.0.13: PyTorch on JAX."""

from migrator.targets.target import Target, own_runtime

from .environment import ENVIRONMENT
from .host import HOST
from .markers import MARKERS
from .pallas import SKELETON
from .words import WORDS

TARGET = Target(
    name="torchax",
    summary="PyTorch on JAX (torchax 0.0.13, jax 0.10.2)",
    home="https://github.com/google/torchax",
    words=WORDS,
    environment=ENVIRONMENT,
    host=HOST,
    markers=MARKERS,
    runtime=own_runtime("torchax"),
    pallas=SKELETON,
)
