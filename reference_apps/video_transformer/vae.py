"""The decoder of a causal 3-D convolution VAE: latents to frames."""

import torch
import torch.nn.functional as F
from torch import nn


class CausalConv3d(nn.Module):
    """A 3-D convolution that sees no later frame: the first one is repeated in front."""

    def __init__(self, inputs: int, outputs: int, kernel: int = 3) -> None:
        super().__init__()
        self.conv = nn.Conv3d(inputs, outputs, kernel, padding=(0, kernel // 2, kernel // 2))
        self.before = kernel - 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(F.pad(x, (0, 0, 0, 0, self.before, 0), mode="replicate"))


class ResidualBlock(nn.Module):
    """Two normalized convolutions beside the identity."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm1 = nn.GroupNorm(4, channels)
        self.conv1 = CausalConv3d(channels, channels)
        self.norm2 = nn.GroupNorm(4, channels)
        self.conv2 = CausalConv3d(channels, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.conv1(F.silu(self.norm1(x)))
        return x + self.conv2(F.silu(self.norm2(h)))


class Upsample(nn.Module):
    """Twice the height and width; twice the frames but for the first, if ``in_time``."""

    def __init__(self, channels: int, in_time: bool) -> None:
        super().__init__()
        self.in_time = in_time
        self.conv = CausalConv3d(channels, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.in_time and x.shape[2] > 1:
            x = torch.cat([x[:, :, :1], x[:, :, 1:].repeat_interleave(2, dim=2)], dim=2)
        x = F.interpolate(x, scale_factor=(1.0, 2.0, 2.0), mode="nearest")
        return self.conv(x)


class Decoder(nn.Module):
    """Latents (B, C, T, H, W) to frames (B, 3, 4·(T − 1) + 1, 8·H, 8·W) in −1..1."""

    def __init__(self, latent_channels: int, channels: int = 16) -> None:
        super().__init__()
        self.conv_in = CausalConv3d(latent_channels, channels)
        self.middle = ResidualBlock(channels)
        self.ups = nn.ModuleList(Upsample(channels, in_time) for in_time in (True, True, False))
        self.blocks = nn.ModuleList(ResidualBlock(channels) for _ in range(3))
        self.norm_out = nn.GroupNorm(4, channels)
        self.conv_out = CausalConv3d(channels, 3)

    def forward(self, latents: torch.Tensor) -> torch.Tensor:
        x = self.middle(self.conv_in(latents))
        for up, block in zip(self.ups, self.blocks, strict=True):
            x = block(up(x))
        return torch.tanh(self.conv_out(F.silu(self.norm_out(x))))
