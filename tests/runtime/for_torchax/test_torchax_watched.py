"""Modes that look at operators see them, as FlopCounterMode does for Lightning's summary."""

from typing import Any

import pytest
import torch
import tpu_runtime as tpu
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from tests.runtime.support import batch

tpu.setup()


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.linear = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8, 16)
        self.attend = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, images: Tensor) -> Tensor:
        x = self.linear(self.conv(images).relu().flatten(2).transpose(1, 2))
        x = nn.functional.scaled_dot_product_attention(x, x, x)
        return torch.einsum("bij,bkj->bik", self.attend(x, x, x)[0], x).mean()  # type: ignore[no-any-return]


def counted(device: str, backward: bool) -> dict[Any, int]:
    torch.manual_seed(0)
    model, images = Attention().to(device), batch(0, 2, 3, 4, 4).to(device)
    with FlopCounterMode(display=False) as counter, torch.set_grad_enabled(backward):
        loss = model(images)
        if backward:
            loss.backward()
    return counter.get_flop_counts()["Global"]


@pytest.mark.parametrize("backward", [False, True])
def test_flops_are_those_of_the_cpu(backward: bool) -> None:
    on_cpu = counted("cpu", backward)
    assert backward or on_cpu[torch.ops.aten.mm] == 2 * (2 * 16) * (8 * 16 + 16 * 48)
    assert counted("jax", backward) == on_cpu


def test_a_mode_of_the_programs_own_sees_operators_and_results_stay() -> None:
    class Names(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None):
            seen.append(func.overloadpacket.__name__)
            return func(*args, **(kwargs or {}))

    seen: list[str] = []
    model, x = nn.Sequential(nn.Linear(3, 4), nn.GELU()).to("jax"), batch(1, 2, 3)
    expected = model(x.to("jax")).detach().cpu()
    with Names():
        found = model(x.to("jax"))
    assert {"addmm", "gelu"} <= set(seen)
    assert found.device.type == "jax" and torch.allclose(found.detach().cpu(), expected)


def test_what_torch_computes_sizes_with_is_no_code_of_a_program() -> None:
    """torch imports sympy in the first call that needs it: thousands of values were looked at."""
    import sympy
    from tpu_runtime.compilation.program_code import CodeWatch

    assert sympy.Symbol("m", integer=True) + 1  # whatever it imports, pytest looks at
    watch = CodeWatch()
    with watch.running():
        assert sympy.Symbol("n", integer=True) + 1
    assert not watch.codes and not watch.functions
