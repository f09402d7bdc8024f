"""Data loaders and inference mode, which fail with torchax's tensors."""

import torch
from torch.utils.data import DataLoader
from torchax.tensor import Environment

from .calls import patch
from .without_gradients import inference_mode


def install(env: Environment) -> None:
    """Replace inference mode, and never pin memory.

    Pinning raises, because there is no CUDA; it only makes copies to a GPU faster.
    """
    patch(torch, inference_mode=inference_mode)
    patch(DataLoader, pin_memory=property(lambda self: False, lambda self, value: None))
