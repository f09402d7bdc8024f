"""Transformer layers as one operator, in evaluation: torch_tpu 0.2.0 multiplies in bfloat16 there.

Of `nn.TransformerEncoderLayer` and `nn.MultiheadAttention`, which torch makes one operator of, its
products have not the precision that was asked for. Those of the layers' own operators have.
"""

import torch

from .device import is_loaded


def install() -> None:
    if is_loaded():
        torch.backends.mha.set_fastpath_enabled(False)
