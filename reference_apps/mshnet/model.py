"""MSHNet: a U-Net of residual attention blocks with a prediction head at each of four scales."""

import torch
from torch import nn

LEVELS = 4  # of the encoder and of the decoder; images are divisible by 2 ** LEVELS


class ChannelAttention(nn.Module):
    """A weight for each channel, from its mean and its maximum."""

    def __init__(self, channels: int, reduction: int = 16) -> None:
        super().__init__()
        hidden = max(channels // reduction, 1)
        self.avg_pool = nn.AdaptiveAvgPool2d(1)
        self.max_pool = nn.AdaptiveMaxPool2d(1)
        self.mlp = nn.Sequential(
            nn.Conv2d(channels, hidden, 1, bias=False),
            nn.ReLU(inplace=True),
            nn.Conv2d(hidden, channels, 1, bias=False),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(self.mlp(self.avg_pool(x)) + self.mlp(self.max_pool(x)))


class SpatialAttention(nn.Module):
    """A weight for each pixel, from the mean and the maximum of its channels."""

    def __init__(self, kernel_size: int = 7) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 1, kernel_size, padding=kernel_size // 2, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean = torch.mean(x, dim=1, keepdim=True)
        largest, _ = torch.max(x, dim=1, keepdim=True)
        return torch.sigmoid(self.conv(torch.cat([mean, largest], dim=1)))


class ResidualBlock(nn.Module):
    """Two convolutions, both attentions, and a shortcut."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(out_channels)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(out_channels)
        self.ca = ChannelAttention(out_channels)
        self.sa = SpatialAttention()
        self.shortcut: nn.Module = nn.Identity()
        if in_channels != out_channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(in_channels, out_channels, 1, bias=False), nn.BatchNorm2d(out_channels)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out = self.ca(out) * out
        out = self.sa(out) * out
        out += self.shortcut(x)
        return self.relu(out)


def stage(in_channels: int, out_channels: int, blocks: int = 1) -> nn.Sequential:
    """`blocks` residual blocks; the first one changes the number of channels."""
    rest = (ResidualBlock(out_channels, out_channels) for _ in range(blocks - 1))
    return nn.Sequential(ResidualBlock(in_channels, out_channels), *rest)


class MSHNet(nn.Module):
    """(batch, in_channels, height, width) to logits of one channel.

    While `warm_flag` is False only the finest head works. Then each level of the decoder predicts,
    and a convolution merges the four predictions. `width` is the number of channels of the finest
    level; each coarser one has twice as many.
    """

    def __init__(self, in_channels: int = 3, width: int = 16, blocks: int = 2) -> None:
        super().__init__()
        channels = [width * 2**level for level in range(LEVELS + 1)]
        self.stem = nn.Conv2d(in_channels, width, 1)
        self.pool = nn.MaxPool2d(2, 2)
        self.up = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
        # fine to coarse
        self.encoders = nn.ModuleList(
            stage(channels[max(level - 1, 0)], channels[level], blocks if level else 1)
            for level in range(LEVELS)
        )
        self.middle = stage(channels[LEVELS - 1], channels[LEVELS], blocks)
        self.decoders = nn.ModuleList(
            stage(channels[level] + channels[level + 1], channels[level], blocks if level else 1)
            for level in range(LEVELS)
        )
        self.heads = nn.ModuleList(nn.Conv2d(channels[level], 1, 1) for level in range(LEVELS))
        self.enlarge = nn.ModuleList(
            nn.Upsample(scale_factor=2**level, mode="bilinear", align_corners=True)
            for level in range(1, LEVELS)
        )
        self.final = nn.Conv2d(LEVELS, 1, 3, padding=1)

    def forward(self, x: torch.Tensor, warm_flag: bool) -> tuple[list[torch.Tensor], torch.Tensor]:
        """The predictions of the four scales (none while warming up), and the final one."""
        x = self.stem(x)
        skips = []
        for encoder in self.encoders:
            x = encoder(x)
            skips.append(x)
            x = self.pool(x)
        x = self.middle(x)
        features = []
        for decoder, skip in zip(reversed(self.decoders), reversed(skips), strict=True):
            x = decoder(torch.cat([skip, self.up(x)], dim=1))
            features.insert(0, x)
        if not warm_flag:
            return [], self.heads[0](features[0])
        masks = [head(feature) for head, feature in zip(self.heads, features, strict=True)]
        enlarged = [up(mask) for up, mask in zip(self.enlarge, masks[1:], strict=True)]
        return masks, self.final(torch.cat([masks[0], *enlarged], dim=1))
