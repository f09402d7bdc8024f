"""A copy of a tensor of the device has a buffer of its own, which no later step gives away."""

import copy
from collections.abc import Callable

import pytest
import torch
import torch_xla
import tpu_runtime as tpu
from torch import Tensor

from tests.runtime.support import DEVICE

tpu.setup()


def written(x: Tensor) -> Tensor:
    made = torch.zeros_like(x)
    made[:] = x
    return made


def together(x: Tensor) -> Tensor:
    made = [torch.zeros_like(x)]
    torch._foreach_copy_(made, [x])
    return made[0]


COPIES: dict[str, Callable[[Tensor], Tensor]] = {
    "copy_": lambda x: torch.zeros_like(x).copy_(x),
    "a slice": written,
    "foreach": together,
    "to": lambda x: x.to(x.device, copy=True),
    "new_tensor": lambda x: x.new_tensor(x),
    "clone": Tensor.clone,
    "deepcopy": copy.deepcopy,
}


@pytest.mark.parametrize("read", [False, True])
@pytest.mark.parametrize("make", COPIES)
@pytest.mark.filterwarnings("ignore:To copy construct")
def test_a_copy_outlives_what_is_written_to_the_other(make: str, read: bool) -> None:
    for which in range(2):
        source = torch.arange(1.0, 7.0).to(DEVICE)
        both = source, COPIES[make](source)
        if read:
            assert both[1].cpu().tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
        torch_xla.sync()
        for _ in range(2):
            both[which].mul_(2.0)
            torch_xla.sync()
        expected = [n * 1.0 for n in range(1, 7)]
        assert both[1 - which].cpu().tolist() == expected
        assert both[which].cpu().tolist() == [n * 4 for n in expected]
