"""What a backward pass computes again, instead of keeping it."""

from pathlib import Path

import pytest
import torch
import tpu_runtime as tpu
from torch import nn
from torch.utils.checkpoint import checkpoint

tpu.setup()

WIDE, ROWS, BLOCKS = 96, 24, 3


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, WIDE), nn.Linear(WIDE, 8)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(self.dropout(nn.functional.gelu(self.up(x))))


class Net(nn.Module):
    def __init__(self, asked: bool | None) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.asked = asked

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            if self.asked is None:
                x = block(x)
            else:
                x = checkpoint(block, x, use_reentrant=self.asked)
        return x.square().mean()


def train(asked: bool | None) -> list[float]:
    """Losses of three steps, with dropout."""
    torch.manual_seed(0)
    net = Net(asked)
    with torch.no_grad():
        for number, parameter in enumerate(net.parameters()):
            values = torch.linspace(-0.2, 0.2, parameter.numel()) / (1 + number)
            parameter.copy_(values.view_as(parameter))
    net.to("jax")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    x, found = torch.linspace(-1, 1, ROWS * 8).view(ROWS, 8).to("jax"), []
    for _ in range(3):
        loss = net(x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def products(programs: Path) -> int:
    """Of the largest program."""
    return max((file.read_text() for file in programs.glob("*.mlir")), key=len).count("dot_general")


@pytest.mark.parametrize("way", ["checkpoint", "reentrant checkpoint", "variable"])
def test_blocks_are_computed_again_in_the_backward_pass_with_the_same_result(
    way: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TPU_RUNTIME_PROGRAMS", str(tmp_path / "kept"))
    kept = train(None)
    monkeypatch.setenv("TPU_RUNTIME_PROGRAMS", str(tmp_path / "again"))
    if way == "variable":
        monkeypatch.setenv("TPU_RUNTIME_RECOMPUTE", "on")
    again = train({"checkpoint": False, "reentrant checkpoint": True}.get(way))
    assert again == pytest.approx(kept, rel=1e-6) and kept[0] != kept[-1]
    # Each block's first product; nothing needs the second again.
    assert products(tmp_path / "again") == products(tmp_path / "kept") + BLOCKS
