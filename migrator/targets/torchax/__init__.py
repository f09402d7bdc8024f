"""torchax 0.0.13: PyTorch on JAX."""

from migrator.targets.target import Target, own_runtime

from .api_map import API
from .environment import ENVIRONMENT
from .host import HOST
from .markers import MARKERS
from .pallas import SKELETON

TARGET = Target(
    name="torchax",
    summary="PyTorch on JAX (torchax 0.0.13, jax 0.10.2)",
    home="https://github.com/google/torchax",
    api=API,
    environment=ENVIRONMENT,
    host=HOST,
    markers=MARKERS,
    runtime=own_runtime("torchax"),
    pallas=SKELETON,
    good_for="a training step as one program, models that are divided without ranks",
)
