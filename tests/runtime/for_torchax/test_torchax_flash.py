"""The attention kernel, by Pallas's interpreter and lowered for TPUs, against torch's attention."""

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import pytest
import torch
import torch.nn.functional as F
import tpu_runtime as tpu
from tiers import thorough_between
from torch import Tensor, nn
from tpu_runtime.lazy import lazy_graph
from tpu_runtime.operators import flash_attention

from tests.runtime.several_devices import execute

tpu.setup()

# batch, heads, heads of keys, queries, keys, dim, dim of values: none of them as blocks want it.
SHAPES = [
    (2, 4, 4, 300, 300, 64, 64),
    (1, 4, 2, 130, 700, 128, 128),
    (2, 8, 8, 40, 600, 8, 8),
    (1, 2, 2, 520, 100, 200, 64),
]
KINDS = ["all", "causal", "masked", "far", "none"]


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Attention by the interpreted kernel; the calls of it."""
    calls: list[Any] = []
    attend = flash_attention._attend

    def counted(*arrays: Any, **how: Any) -> Any:
        calls.append(how)
        return attend(*arrays, **how)

    monkeypatch.setattr(lazy_graph, "_functions", {})  # a known call is not traced again
    monkeypatch.setattr(flash_attention, "_mode", "interpret")
    monkeypatch.setattr(flash_attention, "_attend", counted)
    yield calls


def options(kind: str, batch: int, keys: int) -> dict[str, Any]:
    if kind == "causal":
        return {"is_causal": True}
    if kind == "all":
        return {}
    mask = torch.rand(batch, 1, 1, keys) > 0.5
    if kind == "far":  # whole blocks of keys are hidden
        mask[..., : keys - 20] = False
    if kind == "none":
        mask[-1] = False
    return {"attn_mask": mask}


def on_device(value: Any) -> Any:
    return value.to("jax") if isinstance(value, Tensor) else value


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", thorough_between(4, SHAPES))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_attention_is_torchs(
    dtype: torch.dtype, shape: tuple[int, ...], kind: str, interpreted: list[Any]
) -> None:
    torch.manual_seed(0)
    batch, heads, kv_heads, queries, keys, dim, value_dim = shape
    given = [
        torch.randn(batch, n, tokens, size).to(dtype)
        for n, tokens, size in (
            (heads, queries, dim), (kv_heads, keys, dim), (kv_heads, keys, value_dim),
        )
    ]  # fmt: skip
    how = options(kind, batch, keys) | ({"enable_gqa": True} if heads != kv_heads else {})
    expected = F.scaled_dot_product_attention(*(x.double() for x in given), **how)
    found = F.scaled_dot_product_attention(
        *map(on_device, given), **{name: on_device(x) for name, x in how.items()}
    ).cpu()
    assert len(interpreted) == 1
    assert found.dtype == dtype and found.shape == expected.shape
    assert (found - expected).abs().max() < (2e-6 if dtype == torch.float32 else 2e-2)


def test_autocast_and_a_scale_of_ones_own(interpreted: list[Any]) -> None:
    q = torch.randn(1, 2, 40, 16)
    expected = F.scaled_dot_product_attention(q, q, q, scale=0.5)
    with tpu.autocast(dtype=torch.bfloat16):
        found = F.scaled_dot_product_attention(*[q.to("jax")] * 3, scale=0.5)
    assert found.dtype == torch.bfloat16
    assert (found.cpu() - expected).abs().max() < 2e-2
    assert [call["factor"] for call in interpreted] == [0.5]


def test_flash_attn_takes_the_kernel(interpreted: list[Any]) -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 130, heads, 16) for heads in (4, 2, 2))
    expected = F.scaled_dot_product_attention(
        *(x.transpose(1, 2).double() for x in (q, k, v)), is_causal=True, enable_gqa=True
    )
    found = tpu.flash_attn_func(*map(on_device, (q, k, v)), causal=True).cpu()
    assert [call["causal"] for call in interpreted] == [True]
    assert (found.transpose(1, 2) - expected).abs().max() < 2e-6


def of_queries() -> dict[str, Any]:
    return {"attn_mask": torch.rand(1, 1, 40, 40) > 0.3}


def of_numbers() -> dict[str, Any]:
    return {"attn_mask": torch.randn(1, 1, 1, 40)}


def of_rows() -> dict[str, Any]:
    return {"attn_mask": torch.rand(40, 40) > 0.3}


@pytest.mark.parametrize("how", [of_queries, of_numbers, of_rows, dict])
def test_what_does_not_fit_is_written_out(how: Any, interpreted: list[Any]) -> None:
    torch.manual_seed(0)
    q, options = torch.randn(1, 2, 40, 16), how()
    expected = F.scaled_dot_product_attention(q, q, q, **options)
    x = q.to("jax").requires_grad_(not options)  # a gradient does not fit
    found = F.scaled_dot_product_attention(x, x, x, **{n: on_device(v) for n, v in options.items()})
    assert torch.allclose(found.detach().cpu(), expected, atol=1e-6)
    if not options:
        found.sum().backward()
        q.requires_grad_()
        F.scaled_dot_product_attention(q, q, q).sum().backward()
        assert torch.allclose(x.grad.cpu(), q.grad, atol=1e-5)
    assert interpreted == []


class Net(nn.Module):
    """A frozen encoder, and a layer that learns."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.last = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        with torch.no_grad():
            q, k, v = (p.unflatten(-1, (2, 8)).transpose(1, 2) for p in self.qkv(x).chunk(3, -1))
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.last(mixed.transpose(1, 2).flatten(2))


@pytest.mark.thorough
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_programs_have_the_kernel_on_tpus_alone(
    dtype: torch.dtype, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TPU_RUNTIME_PROGRAMS", str(tmp_path))
    torch.manual_seed(0)
    net, mask = Net().to(dtype), torch.rand(1, 1, 1, flash_attention.SHORTEST) > 0.5
    long, short = (torch.randn(1, n, 16).to(dtype) for n in (flash_attention.SHORTEST, 40))
    expected = net(long, mask)
    expected.float().square().mean().backward()
    gradient = net.last.weight.grad.clone()
    net = net.to("jax")
    net.zero_grad()
    for _ in range(3):  # at first operator by operator; what is read ends a program
        found = net(long.to("jax"), mask.to("jax"))
        found.detach().sum().item()
        with torch.no_grad():
            net(short.to("jax"), mask[..., :40].to("jax")).sum().item()
    found.float().square().mean().backward()
    close = 1e-6 if dtype == torch.float32 else 1e-2
    assert (found.detach().cpu() - expected).abs().max() < close
    assert (net.last.weight.grad.cpu() - gradient).abs().max() < close
    programs = [path.read_text() for path in sorted(tmp_path.glob("*_jit_Net_compile.mlir"))]
    kernels = ["splash_mha" in text and "tpu_custom_call" in text for text in programs]
    assert {*kernels} == {False, True}  # of 40 keys, and of as many as make it worth it


@pytest.mark.parametrize(
    ("dtype", "asked", "precision"),
    [
        (torch.float32, "highest", jax.lax.Precision.HIGHEST),
        (torch.float32, "high", jax.lax.Precision.HIGHEST),
        (torch.float32, "medium", jax.lax.Precision.DEFAULT),
        (torch.bfloat16, "highest", jax.lax.Precision.DEFAULT),
    ],
)
def test_products_of_the_kernel_have_the_precision_that_was_asked_for(
    dtype: torch.dtype, asked: str, precision: Any
) -> None:
    array = torch.ones(1, 2, 128, 64, dtype=dtype).to("jax").jax()
    attend = functools.partial(
        flash_attention._attend, causal=False, factor=1.0, interpret=False, devices=None
    )
    tpu.set_matmul_precision(asked)
    try:
        text = str(jax.make_jaxpr(attend)(array, array, array))
    finally:
        tpu.set_matmul_precision("highest")
    asked_for = [line for line in text.splitlines() if "precision=" in line]
    assert len(asked_for) == 2
    assert all(f"Precision.{precision.name}" in line for line in asked_for)


DIVIDED = """
import sys
import torch
import torch.nn.functional as F
import tpu_runtime
from tpu_runtime.distributed import mesh

tpu_runtime.setup()
mesh.start(sys.argv[1])
torch.manual_seed(0)
for batch, heads in ((8, 8), (3, 16), (8, 2)):
    q, mask = torch.randn(batch, heads, 40, 16), torch.rand(batch, 1, 1, 40) > 0.5
    expected = F.scaled_dot_product_attention(q, q, q, attn_mask=mask)
    x = q.to("jax")
    found = F.scaled_dot_product_attention(x, x, x, attn_mask=mask.to("jax"))
    spec = tuple(getattr(found.jax().sharding, "spec", "?"))
    print(spec, (found.cpu() - expected).abs().max().item() < 4e-6)
"""
EXPECTED = {
    "model": ["(None, 'model') True", "(None, 'model') True", "() True"],
    "data": ["('data',) True", "() True", "('data',) True"],
}


@pytest.mark.thorough
@pytest.mark.parametrize("axis", ["model", "data"])
def test_each_device_has_its_heads_or_its_samples(axis: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(DIVIDED)
    printed = execute(
        script, axis, JAX_PLATFORMS="cpu", TPU_RUNTIME_FLASH="interpret",
        XLA_FLAGS="--xla_force_host_platform_device_count=8",
        PYTHONPATH=str(Path(flash_attention.__file__).parents[2]),
    )  # fmt: skip
    assert printed.splitlines()[-3:] == EXPECTED[axis]


def test_attention_to_constants_is_a_number() -> None:
    """Zeros and ones are constants of a program, whose fusions gave NaN on a CPU."""
    for number in range(3):
        torch.manual_seed(number)
        query = torch.zeros(1, 2, 8, 8, device="jax")
        keys = torch.ones(1, 2, 400 + number, 8, device="jax")
        found = F.dropout((query @ keys.mT).softmax(-1), 0.5) @ keys
        assert 0.9 < found.mean().item() < 1.1
