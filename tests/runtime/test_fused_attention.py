"""flash_attn's and xformers' attention by the runtime, against sums written out in float64."""

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import tpu_runtime as tpu
from target import TARGET, WORD
from tiers import thorough_but, thorough_on
from torch import Tensor

from migrator import migrate_paths
from migrator.config import Config
from tests.runtime.library_references import agrees
from tests.runtime.several_devices import execute

tpu.setup()


Sees = Callable[[int, int], bool]


def reference(
    q: Tensor, k: Tensor, v: Tensor, sees: Sees, scale: float | None = None,
    bias: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Attention of (tokens, heads, dim), query by query; query i attends to key j if it sees it."""
    heads, group = q.shape[1], q.shape[1] // k.shape[1]
    factor = 1 / math.sqrt(q.shape[2]) if scale is None else scale
    rows = []
    for i in range(q.shape[0]):
        seen = [j for j in range(k.shape[0]) if sees(i, j)]
        for h in range(heads):
            if not seen:
                rows.append(q.new_zeros(v.shape[2]))
                continue
            scores = [(q[i, h] * k[j, h // group]).sum() * factor for j in seen]
            if bias is not None:
                scores = [s + bias[h, i, j] for s, j in zip(scores, seen, strict=True)]
            powers = torch.stack(scores).exp()
            weights = powers / powers.sum()
            rows.append(sum(w * v[j, h // group] for w, j in zip(weights, seen, strict=True)))
    return torch.stack(rows).unflatten(0, (q.shape[0], heads))


def batched(q: Tensor, k: Tensor, v: Tensor, *rest: Any, **options: Any) -> Tensor:
    bias = options.pop("bias", None)
    biases = [None] * len(q) if bias is None else bias
    samples = zip(q, k, v, biases, strict=True)
    return torch.stack([reference(*s[:3], *rest, bias=s[3], **options) for s in samples])


def made(*shapes: tuple[int, ...]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator) for shape in shapes]


def window(queries: int, keys: int, left: int, right: int) -> Sees:
    """What flash_attn says of windows: places of queries are counted from the last key's."""

    def sees(i: int, j: int) -> bool:
        place = i + keys - queries
        return (left < 0 or j >= place - left) and (right < 0 or j <= place + right)

    return sees


WINDOWS = [(-1, -1), (2, 0), (2, 1), (-1, 1), (1, -1), (0, 0), (100, 100)]


# ---- flash_attn ----------------------------------------------------------------------------------


@thorough_on("torch_xla")
@pytest.mark.parametrize(
    "lengths", thorough_but([(5, 5), (3, 6)], [(5, 5), (3, 6), (6, 3), (1, 4)])
)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size", WINDOWS)
def test_flash_attn(size: tuple[int, int], causal: bool, lengths: tuple[int, int]) -> None:
    queries, keys = lengths
    tensors = made((2, queries, 4, 8), (2, keys, 4, 8), (2, keys, 4, 8))
    sees = window(queries, keys, size[0], 0 if causal else size[1])
    agrees(
        lambda q, k, v: tpu.flash_attn_func(q, k, v, causal=causal, window_size=size),
        lambda q, k, v: batched(q, k, v, sees),
        *tensors,
    )


@pytest.mark.parametrize("kv_heads", [1, 2])
@pytest.mark.parametrize("causal", [False, True])
def test_groups_of_queries_share_keys(kv_heads: int, causal: bool) -> None:
    tensors = made((2, 4, 4, 8), (2, 6, kv_heads, 8), (2, 6, kv_heads, 8))
    sees = window(4, 6, -1, 0 if causal else -1)
    agrees(
        lambda q, k, v: tpu.flash_attn_func(q, k, v, 0.0, 0.3, causal, deterministic=True),
        lambda q, k, v: batched(q, k, v, sees, 0.3),
        *tensors,
    )


def test_packed() -> None:
    (qkv,) = made((2, 5, 3, 4, 8))
    agrees(
        lambda x: tpu.flash_attn_qkvpacked_func(x, causal=True),
        lambda x: batched(*x.unbind(2), window(5, 5, -1, 0)),
        qkv,
    )
    q, kv = made((2, 3, 4, 8), (2, 5, 2, 2, 8))
    agrees(
        lambda q, kv: tpu.flash_attn_kvpacked_func(q, kv, 0.0, 0.5, True),
        lambda q, kv: batched(q, *kv.unbind(2), window(3, 5, -1, 0), 0.5),
        q, kv,
    )  # fmt: skip


QUERIES, KEYS = [3, 0, 4, 1], [5, 2, 2, 1]


def cumulated(lengths: list[int]) -> Tensor:
    return torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size", [(-1, -1), (1, 1)])
def test_sequences_behind_each_other(size: tuple[int, int], causal: bool) -> None:
    tensors = made((sum(QUERIES), 4, 8), (sum(KEYS), 2, 8), (sum(KEYS), 2, 8))
    ends = cumulated(QUERIES).to(WORD), cumulated(KEYS).to(WORD)

    def each_by_itself(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        parts = zip(q.split(QUERIES), k.split(KEYS), v.split(KEYS), strict=True)
        right = 0 if causal else size[1]
        return torch.cat(
            [
                reference(*part, window(len(part[0]), len(part[1]), size[0], right))
                for part in parts
                if len(part[0])
            ]
        )

    agrees(
        lambda q, k, v: tpu.flash_attn_varlen_func(
            q, k, v, *ends, max(QUERIES), max(KEYS), causal=causal, window_size=size
        ),
        each_by_itself,
        *tensors,
    )


def test_packed_sequences_behind_each_other() -> None:
    q, k, v = made(*[(sum(KEYS), 2, 8)] * 3)
    ends = cumulated(KEYS)  # where it lies does not matter
    given = [x.to(WORD) for x in (q, k, v)]
    expected = tpu.flash_attn_varlen_func(*given, ends, ends, 5, 5, causal=True).cpu()
    qkv, kv = torch.stack(given, 1), torch.stack(given[1:], 1)
    packed = tpu.flash_attn_varlen_qkvpacked_func(qkv, ends, max_seqlen=5, causal=True)
    assert torch.equal(packed.cpu(), expected)
    packed = tpu.flash_attn_varlen_kvpacked_func(
        given[0], kv, cu_seqlens_q=ends, cu_seqlens_k=ends, max_seqlen_q=5, max_seqlen_k=5,
        causal=True,
    )  # fmt: skip
    assert torch.equal(packed.cpu(), expected)


def test_dropout_leaves_the_mean() -> None:
    q = torch.zeros(1, 8, 2, 8, device=WORD)
    v = torch.ones(1, 400, 2, 8, device=WORD)
    found = tpu.flash_attn_func(q, v, v, dropout_p=0.5).cpu()
    assert 0.9 < found.mean() < 1.1 and found.std() > 0.01


@pytest.mark.parametrize(
    ("option", "value"),
    [("softcap", 30.0), ("alibi_slopes", torch.zeros(2)), ("return_attn_probs", True)],
)
def test_what_torch_has_not_is_an_error(option: str, value: Any) -> None:
    q = torch.zeros(1, 4, 2, 8, device=WORD)
    with pytest.raises(NotImplementedError, match=f"flash_attn's {option} has no counterpart"):
        tpu.flash_attn_func(q, q, q, **{option: value})


def test_the_result_can_be_viewed_and_keeps_its_type() -> None:
    q = torch.randn(2, 4, 2, 8)
    found = tpu.flash_attn_func(*[q.to(WORD, torch.bfloat16)] * 3)
    assert found.dtype == torch.bfloat16
    on_cpu = tpu.flash_attn_func(q, q, q)  # where a view needs the memory to be in order
    assert (found.view(2, 4, 16).float().cpu() - on_cpu.view(2, 4, 16)).abs().max() < 3e-2


# ---- xformers ------------------------------------------------------------------------------------


@thorough_on("torch_xla")
@pytest.mark.parametrize("lengths", thorough_but([(6, 3)], [(5, 5), (3, 6), (6, 3)]))
@pytest.mark.parametrize("shape", [(), (4,), (2, 3)])
@pytest.mark.parametrize("kind", ["all", "triangle", "bias"])
def test_memory_efficient_attention(
    kind: str, shape: tuple[int, ...], lengths: tuple[int, int]
) -> None:
    queries, keys = lengths
    tensors = made((2, queries, *shape, 8), (2, keys, *shape, 8), (2, keys, *shape, 8))
    heads = math.prod(shape)
    (bias,) = made((2, *shape, queries, keys))
    bias[0, ..., 0] = -math.inf

    def sees(i: int, j: int) -> bool:
        return kind != "triangle" or j <= i

    def expected(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        split = (x.reshape(2, -1, heads, 8) for x in (q, k, v))
        added = bias.double().reshape(2, heads, queries, keys) if kind == "bias" else None
        return batched(*split, sees, bias=added).reshape(2, queries, *shape, 8)

    mask = {"all": None, "triangle": tpu.LowerTriangularMask(), "bias": bias.to(WORD)}[kind]
    agrees(lambda q, k, v: tpu.memory_efficient_attention(q, k, v, mask), expected, *tensors)


def test_scale_and_operator() -> None:
    (q,) = made((2, 5, 2, 8))
    agrees(
        lambda x: tpu.memory_efficient_attention(x, x, x, p=0.0, scale=0.2, op=("a", "b")),
        lambda x: batched(x, x, x, lambda i, j: True, 0.2),
        q,
    )


@pytest.mark.parametrize("bias", [object(), torch.ones(5, 5, dtype=torch.bool)])
def test_other_masks_are_an_error(bias: Any) -> None:
    q = torch.zeros(1, 5, 2, 8, device=WORD)
    with pytest.raises(NotImplementedError, match=r"attn_bias is a (object|tensor of bool)"):
        tpu.memory_efficient_attention(q, q, q, bias)


# ---- migrated programs ---------------------------------------------------------------------------

PROGRAM = """
import torch
import xformers
import xformers.ops as xops
from flash_attn import flash_attn_func, flash_attn_varlen_func
from apex.normalization import FusedLayerNorm, FusedRMSNorm
from apex.optimizers import FusedAdam

device = torch.device("cuda")
torch.manual_seed(0)
net = torch.nn.Sequential(FusedLayerNorm(8), torch.nn.Linear(8, 24), FusedRMSNorm(24)).to(device)
optimizer = FusedAdam(net.parameters(), lr=0.01, weight_decay=0.1)
x = torch.randn(2, 6, 8).to(device)
ends = torch.tensor([0, 4, 12], dtype=torch.int32, device=device)
for _ in range(3):
    q, k, v = net(x).unflatten(-1, (3, 2, 4)).unbind(2)
    out = flash_attn_func(q, k, v, causal=True)
    out = xops.memory_efficient_attention(out, k, v, attn_bias=xops.LowerTriangularMask(), op=None)
    out, k, v = (t.flatten(0, 1) for t in (out, k, v))
    out = flash_attn_varlen_func(out, k, v, ends, ends, 8, 8)
    loss = out.view(12, 8).square().sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
"""
BY_HAND = """
import torch
import torch.nn.functional as F

torch.manual_seed(0)
net = torch.nn.Sequential(
    torch.nn.LayerNorm(8), torch.nn.Linear(8, 24), torch.nn.RMSNorm(24, eps=1e-5)
)
optimizer = torch.optim.AdamW(net.parameters(), lr=0.01, weight_decay=0.1)
x = torch.randn(2, 6, 8)
mask = torch.block_diag(torch.ones(4, 4), torch.ones(8, 8)).bool()
for _ in range(3):
    q, k, v = (t.transpose(1, 2) for t in net(x).unflatten(-1, (3, 2, 4)).unbind(2))
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    out = F.scaled_dot_product_attention(out, k, v, is_causal=True)
    packed = [t.transpose(0, 1).flatten(1, 2)[None] for t in (out, k, v)]
    loss = F.scaled_dot_product_attention(*packed, attn_mask=mask).square().sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
"""


@pytest.fixture(scope="module")
def by_hand(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    script = tmp_path_factory.mktemp("by_hand") / "by_hand.py"
    script.write_text(BY_HAND)
    return [float(line) for line in execute(script).split()]


@thorough_on("torch_xla")
@pytest.mark.parametrize("device", thorough_but(["tpu"], ["tpu", "cpu", ""]))
def test_a_program_of_all_of_them(device: str, by_hand: list[float], tmp_path: Path) -> None:
    """Migrated, or portable on either device, it computes what is written out by hand."""
    (tmp_path / "gpu.py").write_text(PROGRAM)
    report = migrate_paths(
        [tmp_path / "gpu.py"],
        TARGET,
        config=Config(portable=bool(device), runtime="copy"),
        output=tmp_path / "out",
    )
    text = (tmp_path / "out" / "gpu.py").read_text()
    assert report.exit_code == 0 and not re.search("flash_attn import|xops|apex|xformers", text)
    variables = {"TPU_RUNTIME_DEVICE": device} if device else {}
    printed = execute(tmp_path / "out" / "gpu.py", **variables).splitlines()
    assert [float(line) for line in printed[-3:]] == pytest.approx(by_hand, rel=1e-4)
