"""uint8 tensors as an index: torch takes them for masks, JAX for positions."""

import pytest
import torch
import tpu_runtime as tpu

from tests.runtime.support import DEVICE

tpu.setup()

X = torch.arange(6.0)
Y = torch.arange(12.0).reshape(3, 4)
MASK = torch.tensor([0, 1, 0, 1, 1, 0], dtype=torch.uint8)
ROWS = torch.tensor([1, 0, 1], dtype=torch.uint8)
COLUMNS = torch.tensor([1, 0, 1, 1], dtype=torch.uint8)

pytestmark = pytest.mark.filterwarnings("ignore:indexing with dtype torch.uint8")


@pytest.mark.parametrize(
    ("tensor", "key"),
    [(X, (MASK,)), (Y, (ROWS,)), (Y, (slice(None), COLUMNS)), (Y, (ROWS, 1)), (X, (1 - MASK,))],
)
def test_a_byte_mask_chooses(tensor: torch.Tensor, key: tuple[object, ...]) -> None:
    there = tuple(k.to(DEVICE) if isinstance(k, torch.Tensor) else k for k in key)
    assert torch.equal(tensor.to(DEVICE)[there].cpu(), tensor[key])


def test_gradients_of_what_a_byte_mask_chooses() -> None:
    found = []
    for device in ("cpu", DEVICE):
        x = X.clone().to(device).requires_grad_()
        (x[MASK.to(device)] * 2).sum().backward()
        assert x.grad is not None
        found.append(x.grad.cpu())
    assert torch.equal(*found)
