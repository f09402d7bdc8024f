"""Rotary position embedding over time, height and width."""

import torch


def rotary_tables(
    grid: tuple[int, int, int],
    dims: tuple[int, int, int],
    device: torch.device,
    theta: float = 256.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines for the tokens of ``grid`` (T, H, W): (T·H·W, sum of ``dims``), float32."""
    axes = torch.meshgrid(
        *(torch.arange(n, dtype=torch.float32, device=device) for n in grid), indexing="ij"
    )
    angles = []
    for axis, dim in zip(axes, dims, strict=True):
        exponents = torch.arange(0, dim, 2, dtype=torch.float32, device=device) / dim
        angles.append(axis.reshape(-1)[:, None] * (theta**-exponents)[None])
    table = torch.cat(angles, dim=1).repeat_interleave(2, dim=1)
    return table.cos(), table.sin()


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """``x`` (B, heads, tokens, head_dim) turned by its tokens' angles, in float32."""
    pairs = x.float().unflatten(-1, (-1, 2))
    turned = torch.stack([-pairs[..., 1], pairs[..., 0]], dim=-1).flatten(-2)
    return (x.float() * cos + turned * sin).type_as(x)
