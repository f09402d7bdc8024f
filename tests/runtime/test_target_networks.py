"""A network that follows another one, in the loops of DQN and TD3, as they are migrated.

Where it becomes a copy (tau 1), both must not come to share what a later step gives away.
"""

import runpy
from pathlib import Path

import pytest
import torch
import tpu_runtime as tpu

from migrator import migrate_source
from tests.runtime.support import TARGET, agree

tpu.setup()

LOOP = """
import torch
from torch import nn

def network():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).cuda()

torch.manual_seed(0)
net, target = network(), network()
target.load_state_dict(net.state_dict())
optimizer = torch.optim.Adam(net.parameters(), lr=0.05)
batches = [(torch.randn(5, 4), torch.randn(5)) for _ in range(6)]
tau, losses = 1.0, []
for i, (x, y) in enumerate(batches):
    x, y = x.cuda(), y.cuda()
    with torch.no_grad():
        wanted = y + 0.9 * target(x).max(dim=1)[0]
    loss = (net(x).mean(dim=1) - wanted).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if i % 2 == 0:
        for t, p in zip(target.parameters(), net.parameters()):
            FOLLOW
    losses.append(loss.item())
"""
FOLLOWS = {
    "arithmetic": "t.data.copy_(tau * p.data + (1.0 - tau) * t.data)",
    "a copy": "t.data.copy_(p.data)",
    "in place": "t.data.mul_(1.0 - tau).add_(tau * p.data)",
    "lerp": "t.data.lerp_(p.data, tau)",
    "other data": "t.data = tau * p.data + (1.0 - tau) * t.data",
    "a view": "t.data.view(-1).copy_(p.data.view(-1))",
    "its state": "target.load_state_dict(net.state_dict())",
}


@pytest.mark.parametrize("follow", FOLLOWS)
def test_a_target_network_that_is_a_copy(follow: str, tmp_path: Path) -> None:
    source = LOOP.replace("FOLLOW", FOLLOWS[follow])
    expected = runpy.run_path(_written(tmp_path / "cpu.py", source.replace(".cuda()", "")))
    migrated = migrate_source(source, TARGET).source.decode()
    assert "cuda" not in migrated
    found = runpy.run_path(_written(tmp_path / "device.py", migrated))
    agree(torch.tensor(found["losses"]), torch.tensor(expected["losses"]), 1e-4)
    for name in ("net", "target"):
        for one, other in zip(found[name].parameters(), expected[name].parameters(), strict=True):
            agree(one, other, 1e-4)


def _written(path: Path, source: str) -> str:
    path.write_text(source)
    return str(path)
