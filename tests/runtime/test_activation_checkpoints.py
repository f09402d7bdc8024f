"""Models that compute their activations anew: by wrappers of torch.distributed, on both targets."""

import pytest
import torch
import tpu_runtime as tpu
from torch import nn
from torch.distributed._composable import checkpoint as composable
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    checkpoint_wrapper,
)

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
        y = torch.utils.checkpoint.checkpoint(net, x, use_reentrant=reentrant)
    with tpu.autocast("cuda", enabled=not enabled):
        y.float().sum().backward()
    assert len(seen) >= 2 and set(seen) == {torch.bfloat16 if enabled else torch.float32}
    assert net.weight.grad is not None
