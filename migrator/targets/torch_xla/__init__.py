"""torch_xla 2.9: lazy tensors, PJRT."""

from migrator.targets.target import Target, own_runtime

from .api_map import API
from .environment import ENVIRONMENT
from .host import HOST
from .markers import MARKERS

TARGET = Target(
    name="torch_xla",
    summary="PyTorch/XLA lazy tensors (torch_xla 2.9.0)",
    home="https://github.com/pytorch/xla",
    api=API,
    environment=ENVIRONMENT,
    host=HOST,
    markers=MARKERS,
    runtime=own_runtime("torch_xla"),
    good_for="code that uses it already: it has had no commits since April 2026",
)
