"""The cost of missing sparse tensors in XLA: dense ones replace them."""

import warnings

from torch import Tensor


def warn_of(tensor: Tensor) -> None:
    """Warn that a sparse tensor of this shape is dense."""
    shape, mib = " x ".join(map(str, tensor.shape)), tensor.numel() * tensor.element_size() / 2**20
    warnings.warn(f"a sparse tensor of {shape} is dense on a TPU: {mib:.1f} MiB", stacklevel=4)
