"""The extensions `upfirdn2d` and `fused` of StyleGAN2 in PyTorch: their kernels need CUDA.

https://github.com/rosinality/stylegan2-pytorch
"""

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["fused_bias_act", "upfirdn2d"]


def upfirdn2d(
    input: Tensor, kernel: Tensor, up_x: int, up_y: int, down_x: int, down_y: int, pad_x0: int,
    pad_x1: int, pad_y0: int, pad_y1: int,
) -> Tensor:  # fmt: skip
    """Images (major, height, width, minor) with zeros between and around, filtered and thinned.

    Negative padding cuts off. The filter is a convolution: the kernel is flipped.
    """
    major, height, width, minor = input.shape
    x = input.permute(0, 3, 1, 2).reshape(major * minor, 1, height, 1, width, 1)
    x = F.pad(x, (0, up_x - 1, 0, 0, 0, up_y - 1)).reshape(-1, 1, height * up_y, width * up_x)
    x = F.pad(x, (pad_x0, pad_x1, pad_y0, pad_y1))
    x = F.conv2d(x, kernel.flip(0, 1)[None, None].to(x.dtype), stride=(down_y, down_x))
    return x.reshape(major, minor, *x.shape[2:]).permute(0, 2, 3, 1)


def fused_bias_act(
    input: Tensor, bias: Tensor, refer: Tensor, act: int, grad: int, alpha: float, scale: float
) -> Tensor:
    """A bias along dimension 1 and an activation, or its derivatives; what is empty isn't used.

    ``act``: 1 for none, 3 for a leaky ReLU of slope ``alpha``; ``grad``: 0 for the activation, 1
    for its derivative at ``refer`` times the input, 2 for the second one, which is 0.
    """
    if act not in (1, 3) or grad not in (0, 1, 2):
        raise NotImplementedError(f"fused_bias_act: act is {act}, grad {grad}; see its docstring")
    x = input
    if bias.numel():
        x = x + bias.reshape(-1, *(1,) * (x.dim() - 2))
    if grad == 2:
        return torch.zeros_like(x)
    if act == 3:
        side = refer if grad == 1 else x
        x = torch.where(side > 0, x, x * alpha) if side.numel() else x * alpha
    return x * scale
