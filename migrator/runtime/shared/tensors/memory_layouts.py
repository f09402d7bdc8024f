"""The memory layout of tensors."""

import numpy as np
import torch


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether no two elements share memory, as they do in `expand` and `unfold`."""
    layout = zip(torch.Tensor.stride(tensor), tensor.shape, strict=True)
    reach, apart = 0, True
    steps = sorted((step, n) for step, n in layout if n > 1)
    for step, n in steps:
        apart, reach = apart and step > reach, reach + step * (n - 1)
    if apart or any(step == 0 for step, _ in steps):
        return apart
    places = np.zeros(1, int)
    for step, n in steps:
        places = np.add.outer(places, np.arange(n) * step).reshape(-1)
    return len(np.unique(places)) == len(places)
