"""Autocast is bfloat16, and near to float32; on both targets."""

import pytest
import torch
import torch.nn.functional as F
import tpu_runtime as tpu
from torch import nn

from tests.runtime.contract import FLOAT32, Net
from tests.runtime.support import DEVICE, WORD, small

tpu.setup()


def test_autocast_is_bfloat16_and_near() -> None:
    torch.manual_seed(0)
    net, x = Net().eval(), torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        expected = net(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            lower = net(x)
        net.to(DEVICE)
        with tpu.autocast("cuda", dtype=torch.float16):
            result = net(x.to(DEVICE))
        full = net(x.to(DEVICE))
    assert result.dtype == torch.bfloat16 and full.dtype == torch.float32
    assert torch.allclose(full.cpu(), expected, atol=FLOAT32)
    # bfloat16 keeps 8 bits; three products deep that is some 1e-2 of values of about 1.
    assert torch.allclose(result.cpu().float(), expected, atol=3e-2)
    assert not torch.equal(result.cpu().float(), expected)
    assert torch.allclose(result.cpu().float(), lower.float(), atol=3e-2)


def test_autocast_lists() -> None:
    x = torch.randn(4, 4).to(DEVICE)
    with tpu.autocast(), torch.no_grad():
        low = x @ x
        assert low.dtype == torch.mm(x, x).dtype == F.linear(x, x, x[0]).dtype == torch.bfloat16
        assert torch.einsum("ij,jk->ik", x, x).dtype == torch.bfloat16
        assert low.softmax(-1).dtype == low.log_softmax(-1).dtype == torch.float32
        assert F.layer_norm(low, [4]).dtype == torch.float32
        assert F.mse_loss(low, x).dtype == F.nll_loss(low, x[:, 0].long()).dtype == torch.float32
        assert (low + x).dtype == torch.cat([low, x]).dtype == torch.float32
        for result in (
            low.sum(), low.sum(0), low.exp(), low.abs().log(), low.cumsum(0), low.norm(), 2**low,
            1 / low, low.rsqrt(), F.softplus(low), torch.linalg.vector_norm(low),
        ):  # fmt: skip
            assert result.dtype == torch.float32
        for mode in ("nearest", "bilinear", "bicubic"):
            resized = F.interpolate(low[None, None], scale_factor=2, mode=mode)
            assert resized.dtype == torch.float32
        assert nn.Upsample(scale_factor=2)(low[None, None]).dtype == torch.float32
        assert F.relu(low).dtype == torch.bfloat16
        attention = nn.MultiheadAttention(4, 2, batch_first=True).to(DEVICE).eval()
        assert attention(x[None], x[None], x[None])[0].dtype == torch.bfloat16
        with tpu.autocast(enabled=False):
            assert (x @ x).dtype == torch.float32
        assert (small() @ small().t()).dtype == torch.float32
    assert (x @ x).dtype == torch.float32


def test_autocast_spellings() -> None:
    x = torch.randn(4, 4).to(DEVICE)

    @tpu.autocast()
    def decorated(a: torch.Tensor, depth: int = 1) -> torch.Tensor:
        return decorated(a, 0) if depth else a @ a

    assert decorated(x).dtype == torch.bfloat16 and (x @ x).dtype == torch.float32
    for context, dtype in (
        (tpu.autocast(True), torch.bfloat16),
        (tpu.autocast(False), torch.float32),
        (tpu.autocast(True, torch.float16, False), torch.bfloat16),
        (tpu.autocast("cuda"), torch.bfloat16),
        (tpu.autocast(device_type="cuda", enabled=False), torch.float32),
        (tpu.autocast(WORD, torch.bfloat16, cache_enabled=False), torch.bfloat16),
    ):
        with context:
            assert (x @ x).dtype == dtype
    with tpu.autocast("cpu", dtype=torch.bfloat16):
        assert (small() @ small().t()).dtype == torch.bfloat16
        assert (x @ x).dtype == torch.float32
    with pytest.warns(UserWarning, match="disabled"), tpu.autocast("cuda", dtype=torch.float32):
        assert (x @ x).dtype == torch.float32


def test_autocast_does_not_rewind_random_numbers() -> None:
    torch.manual_seed(0)
    drawn = []
    for _ in range(2):
        with tpu.autocast():
            drawn.append(torch.rand(4, device=DEVICE).tolist())
    assert drawn[0] != drawn[1]


class Asking(torch.autograd.Function):
    """As libraries' own functions do, which compute in the type of autocast."""

    @staticmethod
    def forward(ctx, x):  # type: ignore[no-untyped-def]
        kind = x.device.type
        on = torch.is_autocast_enabled(kind)
        return x.to(torch.get_autocast_dtype(kind) if on else x.dtype) + 1


def test_torch_tells_whether_autocast_is_on() -> None:
    x = torch.randn(4, 4).to(DEVICE)
    assert Asking.apply(x).dtype == torch.float32
    with tpu.autocast():
        assert Asking.apply(x).dtype == torch.bfloat16
        assert not torch.is_autocast_enabled("cpu")
        with tpu.autocast(enabled=False):
            assert Asking.apply(x).dtype == torch.float32
    assert not torch.is_autocast_enabled(WORD)
