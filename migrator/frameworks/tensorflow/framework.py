"""TensorFlow and Keras, as a framework. No target is for it yet: a run names its files."""

from __future__ import annotations

import re

from migrator.construct import Construct
from migrator.frameworks.by_name import by_name
from migrator.frameworks.framework import Framework

# Words of code for GPUs. Most of TensorFlow's says none, and takes the GPU that there is.
_TOKENS = re.compile(
    rb"/GPU:|\bgpu:\d|[\"']GPU[\"']|set_memory_growth|is_gpu_available|is_built_with_cuda|"
    rb"MirroredStrategy|OneDeviceStrategy|mixed_float16|LossScaleOptimizer|TF_FORCE_GPU|CUDA_VISIBLE"
)


def _has_tokens(source: bytes) -> bool:
    return _TOKENS.search(source) is not None


def _uses_device(construct: Construct) -> bool:
    return construct.kind == "name"


FRAMEWORK = Framework(
    name="tensorflow",
    module="tensorflow",
    packages=("tensorflow", "keras"),
    constructs=by_name,
    has_tokens=_has_tokens,
    uses_device=_uses_device,
)
