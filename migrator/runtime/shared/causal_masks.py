"""`nn.TransformerEncoder` and `nn.TransformerDecoder` with a mask.

In each call torch compares the mask with the causal one, to tell its kernels. That reads a value of
the device, which a compiled step has not. The mask itself says the same to the scores.
"""

from torch.nn.modules import transformer

NEEDED_BY = "*Transformer*"


def _is_causal(mask: object, is_causal: bool | None = None, size: int | None = None) -> bool:
    return is_causal is True


def install(*_: object) -> None:
    """Take what the caller says, and look at no mask."""
    transformer._detect_is_causal_mask = _is_causal
