"""TorchTPU 0.2.0: the TPU as a device of PyTorch itself."""

from migrator.targets.target import Target, own_runtime

from .api_map import API
from .environment import ENVIRONMENT
from .host import HOST
from .markers import MARKERS

TARGET = Target(
    name="torch_tpu",
    summary="PyTorch's own TPU device (torch_tpu 0.2.0, torch 2.15)",
    home="https://github.com/google-pytorch/torch_tpu",
    api=API,
    environment=ENVIRONMENT,
    host=HOST,
    markers=MARKERS,
    runtime=own_runtime("torch_tpu"),
    portable=True,
    good_for="code that must keep running on GPUs, torch 2.13 and later, PyTorch's own parallelism",
)
