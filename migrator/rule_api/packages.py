# ruff: noqa: F401  what it imports is for rules
"""Requirements: what is asked for, what was tested, and lines that take their place."""

import ast

from migrator.analysis.python_requirements import (
    CPU_WHEELS,
    CUDA_WHEELS,
    ONLY_TORCH,
    alike,
    asked_of,
    clash,
    cloned,
    companions,
    constraint,
    entry,
    excludes,
    extras_of,
    in_a_range,
    in_place_of,
    is_far_below,
    name_of,
    normal,
    older_library,
    on_tpu,
    pinned,
    pythons,
    ranges,
    repository_of,
    shut_out,
    tested,
    wheel_of,
    without_driver,
)
from migrator.analysis.setup_py import SETUP
from migrator.formats.file_kinds import lists_packages

GPU_PROVIDERS = {
    f"{name}ExecutionProvider" for name in ("CUDA", "Tensorrt", "NvTensorRtRtx", "ROCM", "MIGraphX")
}
