"""Transformer layers as one operator, in evaluation: torch_tpu 0.2.0 multiplies in bfloat16 there.

torch runs `nn.TransformerEncoderLayer` and `nn.MultiheadAttention` as one operator, whose products
ignore the requested precision. Those of the layers' separate operators respect it.
"""

import torch

from ..device import is_loaded


def install() -> None:
    if is_loaded():
        torch.backends.mha.set_fastpath_enabled(False)
