"""Models that compute their activations anew, on both targets."""

import pytest
import torch
import tpu_runtime as tpu
from torch import nn
from torch.distributed._composable import checkpoint as composable
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    checkpoint_wrapper,
)
from torch.utils.checkpoint import checkpoint

from tests.runtime.support import DEVICE

tpu.setup()


def _by_a_wrapper(how: str, net: nn.Module) -> nn.Module:
    """A model that computes its activations anew, by what torch.distributed has for it."""
    if how == "composable":
        return composable(net)
    implementation = CheckpointImpl.REENTRANT if how == "reentrant" else CheckpointImpl.NO_REENTRANT
    return checkpoint_wrapper(net, checkpoint_impl=implementation)


@pytest.mark.filterwarnings("ignore:Please specify CheckpointImpl:FutureWarning")
@pytest.mark.parametrize("how", ["composable", "wrapper", "reentrant"])
def test_dropout_in_a_model_that_is_wrapped(how: str) -> None:
    net = _by_a_wrapper(how, nn.Dropout(0.5)).to(DEVICE)
    x = torch.ones(200).to(DEVICE).requires_grad_()
    y = net(x)
    torch.rand(3, device=DEVICE)
    (y * y.detach()).sum().backward()
    assert 0 < (y > 0).sum() < 200
    assert x.grad is not None and torch.equal(x.grad.cpu(), 2 * y.detach().cpu())


class _Seen(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = super().forward(x)
        seen.append(y.dtype)
        return y.sin()  # up to what is kept of the last operation, all is computed anew


seen: list[torch.dtype] = []


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("enabled", [True, False])
def test_what_is_computed_anew_has_the_autocast_of_the_first_pass(
    enabled: bool, reentrant: bool
) -> None:
    seen.clear()
    net = _Seen(4, 4).to(DEVICE)
    x = torch.ones(2, 4).to(DEVICE).requires_grad_()
    with tpu.autocast("cuda", enabled=enabled):
        y = checkpoint(net, x, use_reentrant=reentrant)
    with tpu.autocast("cuda", enabled=not enabled):
        y.float().sum().backward()
    assert len(seen) >= 2 and set(seen) == {torch.bfloat16 if enabled else torch.float32}
    assert net.weight.grad is not None


@pytest.mark.parametrize("reentrant", [True, False])
def test_rows_of_a_table_within_a_checkpoint(reentrant: bool) -> None:
    """Their gradient begins with zeros, which a pass within a pass has to make, too."""
    table = torch.ones(4, 2).to(DEVICE).requires_grad_()
    x = torch.ones(3, 2).to(DEVICE).requires_grad_()
    rows = torch.tensor([0, 2, 2]).to(DEVICE)
    y = checkpoint(lambda x: x * table[rows], x, use_reentrant=reentrant)
    y.pow(2).sum().backward()
    assert table.grad is not None and table.grad.cpu()[:, 0].tolist() == [2, 0, 4, 0]
