"""What the runtimes of both targets promise; run in the environment of each, see conftest.py.

In what the targets differ is said once, by `Target`. What only one of them promises is in its
folder.
"""

import copy
import pickle
import re
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import tpu_runtime as tpu
from safetensors.torch import save_file
from tiers import thorough_between, thorough_but
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from tests.runtime.support import DEVICE, TARGET, WORD, agrees, on_device, run, small

tpu.setup()

# After setup on purpose: stock torchax makes this import fail.
import torchvision  # noqa: E402
import torchvision.transforms.functional as TF  # noqa: E402
from torchvision.transforms import InterpolationMode  # noqa: E402
from torchvision.transforms.v2 import functional as TF2  # noqa: E402

# One float32 rounding per operation on values up to 1.
FLOAT32 = 2e-6


@dataclass(frozen=True)
class Target:
    """In what the targets differ."""

    count: Callable[[], int]
    kind: Callable[[], str]
    program: Callable[[], str]  # that of a matrix product, as text
    integers: torch.dtype  # of sums
    faults: tuple[tuple[str, str], ...]  # in the environment, and what is said
    # Names in WRITES of known faults of a target, which the runtime does not mend.
    older_views_differ: frozenset[str] = frozenset()


def torchax() -> Target:
    import jax

    return Target(
        count=jax.local_device_count,
        kind=lambda: jax.devices()[0].device_kind,
        program=lambda: jax.jit(lambda x: x @ x).lower(jax.numpy.ones((4, 4))).as_text(),
        integers=torch.int32,
        faults=(
            ("import torchax; torchax.__version__ = '0.0.6'", "torchax is damaged"),
            ("import torch; torch.__version__ = '2.13.0'", "needs torch 2.9 to 2.12"),
            ("import sys; sys.modules['torchax'] = None", "cannot import torchax"),
            (
                "import torchax, importlib.metadata as m; torchax.__version__ = '0.0.99';"
                "m.version = lambda name: '0.0.99'",
                "supports torchax 0.0.13, found 0.0.99",
            ),
        ),
        # An older view follows `x.data = y` (torch: it keeps the old values), and raises after a
        # change of shape in place.
        older_views_differ=frozenset({"data set", "transpose in place"}),
    )


def torch_xla() -> Target:
    import torch_xla
    import torch_xla.core.xla_model as xm

    def program() -> str:
        x = torch.ones(4, 4).to(DEVICE)
        return str(torch_xla._XLAC._get_xla_tensors_hlo([x @ x]))

    return Target(
        count=torch_xla.device_count,
        kind=xm.xla_device_kind,
        program=program,
        integers=torch.int64,
        faults=(
            ("import torch; torch.__version__ = '2.13.0'", "needs torch 2.9, found 2.13.0"),
            ("import sys; sys.modules['torch_xla'] = None", "cannot import torch_xla"),
        ),
    )


HERE = {"torchax": torchax, "torch_xla": torch_xla}[TARGET]()


# Device, timing, memory, precision.


def test_device() -> None:
    assert tpu.is_available() and tpu.device_count() == HERE.count()
    assert tpu.current_device() == 0
    assert tpu.get_device_name() == tpu.get_device_name("cuda:0") == HERE.kind()
    properties = tpu.get_device_properties(DEVICE)
    assert properties.name == tpu.get_device_name() and properties.total_memory >= 0
    tpu.synchronize()
    tpu.synchronize(WORD)
    with pytest.raises(ValueError, match="no device 99"):
        tpu.synchronize(99)
    with pytest.raises(ValueError, match=f"expected an? {WORD} device"):
        tpu.get_device_name("cpu")


def test_event() -> None:
    start, end = tpu.Event(enable_timing=True), tpu.Event(enable_timing=True)
    with pytest.raises(RuntimeError, match="recorded"):
        start.elapsed_time(end)
    start.record()
    on_device().sum()
    end.record(None)
    end.synchronize()
    end.wait()
    assert end.query() and 0 < start.elapsed_time(end) < 60_000
    with pytest.raises(RuntimeError, match="enable_timing"):
        start.elapsed_time(tpu.Event())


def test_memory() -> None:
    figures = (
        tpu.memory_allocated(),
        tpu.max_memory_allocated(0),
        tpu.memory_reserved(DEVICE),
        tpu.max_memory_reserved(),
        *tpu.mem_get_info(),
    )
    assert all(isinstance(figure, int) and figure >= 0 for figure in figures)
    assert isinstance(tpu.memory_stats(), dict) and isinstance(tpu.memory_summary(), str)
    tpu.reset_peak_memory_stats()
    tpu.reset_max_memory_allocated()


def test_precision_reaches_the_program() -> None:
    def precision() -> str:
        found = re.search(r"precision ?= ?[{[](\w+), ?\1[]}]", HERE.program())
        return found[1].lower() if found else "default"

    try:
        assert precision() == "highest"
        tpu.set_matmul_precision(True)
        assert precision() == "high"
        tpu.set_matmul_precision("medium")
        assert precision() == "default"
    finally:
        tpu.set_matmul_precision(False)
    assert precision() == "highest"
    with pytest.raises(ValueError, match="unknown matmul precision"):
        tpu.set_matmul_precision("best")


# Moving, converting, printing.


def test_to() -> None:
    x = small()
    for moved in (
        x.to(WORD, non_blocking=True),
        x.to(DEVICE, torch.float32, True),
        x.to(device=WORD, copy=True),
        x.to(on_device()),
        x.to(DEVICE, torch.float32, non_blocking=True, copy=False),
    ):
        assert moved.device.type == WORD and torch.equal(moved.cpu(), x)
    device = on_device()
    assert device.to(DEVICE) is device and device.to(torch.float32) is device
    assert device.to(WORD, copy=True) is not device
    assert device.to(torch.float16).dtype == device.half().dtype == torch.float16
    assert device.to("cpu", torch.int32).dtype == torch.int32
    assert device.type(torch.bfloat16).dtype == torch.bfloat16
    assert x.to(torch.float16).device.type == "cpu" and x.to("cpu") is x
    with pytest.raises(RuntimeError):
        device.to("cuda")


def test_cpu_copies_are_independent() -> None:
    x = on_device()
    y, z = x.cpu(), x.cpu().numpy()
    y += 1
    z += 1
    assert torch.equal(x.cpu(), small())
    source = torch.zeros(1024)
    moved = source.to(DEVICE)
    source += 1
    assert moved.sum().item() == 0


def test_dtypes_survive_the_way_back() -> None:
    for dtype in (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.float16,
                  torch.bfloat16, torch.float32, torch.complex64):  # fmt: skip
        x = torch.tensor([0, 1, 3]).to(dtype)
        assert torch.equal(x.to(DEVICE).cpu(), x), dtype


def test_python_values() -> None:
    x = on_device()
    assert f"{x.sum():.4f} {x[0, 1]:.1f} {x.max():>6.2e}" == "15.0000 1.0 5.00e+00"
    assert "{} {}".format(x.sum(), x[1, 2]) == "15.0 5.0"  # noqa: UP032
    assert str(x) == f"{x}" == f"tensor([[0., 1., 2.],\n        [3., 4., 5.]], device='{WORD}:0')"
    assert x.tolist() == small().tolist() and x[0].tolist() == [0.0, 1.0, 2.0]
    assert (x[1, 1].item(), int(x[1, 1]), float(x[1, 1]), bool(x[1, 1] > 1)) == (4.0, 4, 4.0, True)
    assert np.array_equal(x.cpu().numpy(), small().numpy())
    assert x.get_device() == 0 and x.pin_memory() is x and not x.is_pinned()


def test_tensors_of_tensors() -> None:
    x = on_device()
    assert torch.tensor(x[0, 1]).item() == 1.0
    assert torch.tensor([x[0, 1], x[0, 2]]).tolist() == [1.0, 2.0]
    assert torch.as_tensor(x) is x
    assert x.new_tensor([1, 2]).dtype == torch.float32
    assert x.new_zeros(2).device == x.device
    assert torch.zeros_like(x, device="cpu").device.type == "cpu"
    assert torch.zeros_like(small(), device=DEVICE).device.type == WORD


def test_factories_have_the_types_of_torch() -> None:
    makers: list[Callable[[object], torch.Tensor]] = [
        lambda d: torch.tensor([1, 2.5], device=d),
        lambda d: torch.tensor(np.array([1.5, 2.5], np.float32), device=d),
        lambda d: torch.tensor([True, False], device=d),
        lambda d: torch.arange(0, 1, 0.25, device=d),
        lambda d: torch.linspace(0, 1, 5, device=d),
        lambda d: torch.full((2,), 1.5, device=d),
        lambda d: torch.full((2,), True, device=d),
        lambda d: torch.eye(3, device=d),
        lambda d: torch.hann_window(8, device=d),
        lambda d: torch.as_tensor(np.arange(3, dtype=np.uint8), device=d),
        lambda d: torch.ones(2, 3, dtype=torch.bfloat16, device=d),
    ]
    for make in makers:
        expected, result = make("cpu"), make(DEVICE)
        assert result.device.type == WORD and result.dtype == expected.dtype
        assert torch.equal(result.cpu(), expected)


def test_default_device() -> None:
    with torch.device(WORD):
        assert torch.zeros(3).device.type == nn.Linear(2, 2).weight.device.type == WORD
    torch.set_default_device(WORD)
    try:
        assert torch.randn(3).device.type == WORD
    finally:
        torch.set_default_device(None)
    assert torch.zeros(3).device.type == "cpu"


# CPU code stays CPU code.


def test_cpu_code() -> None:
    x = small()
    made = [torch.zeros(2), torch.randn(2), torch.hann_window(4), torch.randperm(3), torch.empty(1)]
    made += [torch.normal(0.0, 1.0, (2,)), torch.full((2,), 3), torch.from_numpy(np.zeros(2))]
    made += [F.one_hot(torch.tensor([0, 1])), torch.where(x > 1, x, 0.0), torch.quantile(x, 0.5)]
    made += [torch.rand_like(x), torch.Tensor(2, 3), torch.FloatTensor([1.0]), torch.stft(
        torch.randn(64), 16, window=torch.hann_window(16), return_complex=True)]  # fmt: skip
    made += [TF.resize(torch.rand(3, 8, 8), [4, 4]), torchvision.ops.nms(
        torch.tensor([[0.0, 0, 1, 1]]), torch.tensor([1.0]), 0.5)]  # fmt: skip
    assert all(type(value) is torch.Tensor and value.device.type == "cpu" for value in made)
    assert np.asarray(x).sum() == x.numpy().sum() == 15
    assert (
        torch.tensor([1, 2]).dtype == torch.int64 and torch.zeros(1).double().dtype == torch.float64
    )
    weight = nn.Parameter(torch.ones(3))
    (weight * x).sum().backward()
    assert weight.grad is not None and weight.grad.tolist() == [3.0, 5.0, 7.0]


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("workers", [0, 2])
def test_data_loader(workers: int) -> None:
    data = TensorDataset(torch.arange(8.0))
    loader = DataLoader(data, batch_size=4, num_workers=workers, pin_memory=True)
    batches = [batch for (batch,) in loader]
    assert all(batch.device.type == "cpu" for batch in batches)
    assert torch.cat([b.to(DEVICE, non_blocking=True) for b in batches]).sum().item() == 28


def test_mixing_devices() -> None:
    x = on_device()
    assert (x * torch.tensor(2.0)).sum().item() == 30
    assert x[torch.tensor([1, 0])].tolist() == [[3.0, 4.0, 5.0], [0.0, 1.0, 2.0]]
    assert small().copy_(x * 2)[1, 2] == 10


# Views and writes: each function must do to a device tensor what it does to a CPU tensor.


def indices(x: torch.Tensor, *numbers: int) -> torch.Tensor:
    return torch.tensor(numbers).to(x.device)


WRITES: dict[str, Callable[[torch.Tensor], object]] = {
    "index": lambda x: x[0].add_(10),
    "slice": lambda x: x[:, 1:].mul_(0),
    "set item": lambda x: x.__setitem__((slice(None), 1), 5),
    "set row of a CPU tensor": lambda x: x.__setitem__(0, torch.ones(3)),
    "set by mask": lambda x: x.__setitem__(x > 2, 0),
    "set by mask values": lambda x: x.__setitem__(x > 2, x[x > 2] * 2),
    "set by row mask": lambda x: x.__setitem__(torch.tensor([True, False]), 7.0),
    "set by list": lambda x: x.__setitem__([1], 7.0),
    "set by a range": lambda x: x.__setitem__((range(2), indices(x, 2, 0)), x.max()),
    "set by index tensors": lambda x: x.__setitem__((indices(x, 0, 1), indices(x, 2, 0)), 9.0),
    "set row with a dimension more": lambda x: x.__setitem__(0, x[1:] * 2),
    "set by mask with a dimension more": lambda x: x.__setitem__(x > 2, x[x > 2][None] * 2),
    "set item adds": lambda x: x.__setitem__((0, 2), x[0, 2] + 3),
    "view": lambda x: x.view(-1).__setitem__(2, 100),
    "reshape of a contiguous": lambda x: x.reshape(3, 2).zero_(),
    "reshape of a transposed is a copy": lambda x: x.t().reshape(-1).zero_(),
    "contiguous is a copy": lambda x: x.t().contiguous().zero_(),
    "contiguous of a row is no copy": lambda x: x[1:].contiguous().zero_(),
    "contiguous columns are a copy": lambda x: x[:, 1:].contiguous().zero_(),
    "flatten of columns is a copy": lambda x: x[:, ::2].flatten().zero_(),
    "contiguous of a detached is a copy": lambda x: x.t().detach().contiguous().zero_(),
    "contiguous of an expanded is a copy": lambda x: x[:1].expand(2, 3).contiguous().zero_(),
    "t": lambda x: x.t()[0].add_(1),
    "permute": lambda x: x.permute(1, 0)[1:, 0].mul_(3),
    "select": lambda x: x.select(0, 1).zero_(),
    "narrow": lambda x: x.narrow(1, 1, 2).fill_(4),
    "unsqueeze": lambda x: x.unsqueeze(0).squeeze(0)[1].zero_(),
    "chunk": lambda x: x.chunk(3, 1)[2].neg_(),
    "split": lambda x: x.split([1, 2], 1)[1].copy_(torch.ones(2)),
    "unbind": lambda x: x.unbind(1)[1].zero_(),
    "iteration": lambda x: [row.add_(1) for row in x],
    "diagonal": lambda x: x.diagonal().fill_(8),
    "flatten": lambda x: x.flatten().add_(1),
    "flatten of a negative start": lambda x: x.flatten(-2, -1).add_(1),
    "view of a view": lambda x: x[:, 1:].t()[0].view(-1).add_(5),
    "detach": lambda x: x.detach().zero_(),
    "data": lambda x: x.data.fill_(3),
    "data set": lambda x: setattr(x, "data", torch.ones(2, 3).to(x.device)),
    "copy broadcasts": lambda x: x.copy_(torch.ones(3)),
    "missing in-place": lambda x: x.mul_(0.3).round_(),
    "clamp": lambda x: x.clamp_(1, 4),
    "out": lambda x: torch.add(x[0], 1, out=x[1]),
    "expand clone": lambda x: x[0].expand(2, 3).clone().zero_(),
    "unsqueeze in place": lambda x: x[0].unsqueeze_(0).zero_(),
    "transpose in place": lambda x: x.t_()[0].zero_(),
    "index add": lambda x: x.index_add_(0, indices(x, 1), torch.ones_like(x[:1])),
    "scatter": lambda x: x.scatter_(1, torch.tensor([[0], [1]]).to(x.device), 9.0),
    "masked fill": lambda x: x[1].masked_fill_(x[1] > 3, -1.0),
}  # fmt: skip


@pytest.mark.parametrize("name", WRITES)
def test_writes(name: str) -> None:
    expected, result = small(), on_device()
    older = [(x.view(-1), x[1:]) for x in (expected, result)]
    WRITES[name](expected)
    WRITES[name](result)
    assert result.stride() == expected.stride()
    assert torch.equal(result.cpu(), expected)
    if name not in HERE.older_views_differ:
        assert all(torch.equal(y.cpu(), x) for x, y in zip(*older, strict=True))


STRIDED: dict[str, Callable[[Tensor], Tensor]] = {
    "of a leaf": lambda x: x.as_strided((2, 2), (1, 2), 1),
    "of what is transposed": lambda x: x.t().as_strided((2, 2), (1, 3)),
    "of rows": lambda x: x[1:].as_strided((2, 2), (1, 2), 4),
    "of columns that are transposed": lambda x: x[:, 1:].t().as_strided((2, 2), (3, 1), 1),
    "of columns, where they begin": lambda x: torch.as_strided(x[:, 1:], (2, 2), (3, 1)),
    "places that overlap": lambda x: x.t().as_strided((3, 3), (1, 1)),
    "of what is permuted": lambda x: x.view(2, 2, 3).permute(2, 0, 1).as_strided((2, 3), (3, 1)),
}


@pytest.mark.parametrize("name", STRIDED)
def test_as_strided_counts_places_in_memory(name: str) -> None:
    """On stock torchax those of the view, silently."""
    results = []
    for word in ("cpu", WORD):
        x = torch.arange(12.0).reshape(4, 3).to(word).requires_grad_()
        made = STRIDED[name](x)
        weights = torch.arange(1.0, made.numel() + 1).reshape(made.shape).to(word)
        (gradient,) = torch.autograd.grad((made * weights).sum(), x)
        with torch.no_grad():
            written = x.detach().clone()
            if name != "places that overlap":
                STRIDED[name](written).mul_(2)
        results.append([tensor.detach().cpu() for tensor in (made, gradient, written)])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


REPEATS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "of a number, with the size": lambda x, r: x.repeat_interleave(2, 0, output_size=8),
    "of a tensor, with the size": lambda x, r: x.repeat_interleave(r, 0, output_size=7),
    "a function": lambda x, r: torch.repeat_interleave(x, r, dim=-2, output_size=7),
    "flat": lambda x, r: torch.repeat_interleave(x, 2),
    "places": lambda x, r: torch.repeat_interleave(r, output_size=7),
}


@pytest.mark.parametrize("name", REPEATS)
def test_repeat_interleave(name: str) -> None:
    results = []
    for word in ("cpu", WORD):
        x = torch.arange(12.0).reshape(4, 3).to(word).requires_grad_()
        made = REPEATS[name](x, torch.tensor([1, 2, 0, 4]).to(word))
        results.append([made.detach().cpu().long()])
        if made.requires_grad:
            results[-1].append(torch.autograd.grad((made * made).sum(), x)[0].cpu())
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_a_size_that_is_not_that_of_the_repeats_is_refused() -> None:
    with pytest.raises(RuntimeError):
        made = on_device().repeat_interleave(torch.tensor([1, 2]).to(WORD), 0, output_size=7)
        made.tolist()


def test_gradients_survive_indexing_and_casts() -> None:
    x = on_device().requires_grad_()
    y = (x[1, :2] * 2).to(torch.bfloat16).float().sum()
    y.backward()
    assert x.grad is not None and x.grad.tolist() == [[0.0, 0.0, 0.0], [2.0, 2.0, 0.0]]


BEYOND = [
    slice(-16, None), slice(None, -16), slice(-16, 2), slice(-16, -1), slice(-16, -20),
    slice(-16, None, 2), slice(1, 16), slice(16, None), slice(-3, None), slice(None, -3),
]  # fmt: skip


@pytest.mark.parametrize("places", BEYOND, ids=str)
@pytest.mark.parametrize("shape", [(3, 2), (2, 20), (3, 0)])
def test_slices_beyond_the_ends(places: slice, shape: tuple[int, ...]) -> None:
    """As `x[:, -16:]` of the last tokens, where there are fewer yet."""
    results = []
    for device in (DEVICE, "cpu"):
        x = torch.arange(float(shape[0] * shape[1])).reshape(shape).to(device).requires_grad_()
        y = x[:, places]
        (y * y).sum().backward()
        written = x.detach().clone()
        written[:, places] = -1
        written[:, places] += x.detach()[:, places]
        assert x.grad is not None
        results.append([t.detach().cpu() for t in (y, x.grad, written)])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


# Random numbers.


def test_seeds() -> None:
    def numbers() -> list[float]:
        return torch.rand(3, device=DEVICE).tolist()  # type: ignore[no-any-return]

    torch.manual_seed(4)
    first, cpu = numbers(), torch.rand(2)
    torch.manual_seed(4)
    assert numbers() == first and torch.equal(torch.rand(2), cpu)
    state = torch.get_rng_state()
    tpu.manual_seed(4)
    assert numbers() == first and tpu.initial_seed() == 4
    tpu.manual_seed_all(-5)
    assert numbers() != first and torch.equal(torch.get_rng_state(), state)
    tpu.seed()
    assert numbers() != numbers()
    tpu.seed_all()


DRAWS: dict[str, Callable[[torch.Generator, object], torch.Tensor]] = {
    "randn": lambda g, d: torch.randn(4, generator=g, device=d),
    "rand": lambda g, d: torch.rand(4, generator=g, device=d),
    "randint": lambda g, d: torch.randint(0, 99, (4,), generator=g, device=d),
    "randperm": lambda g, d: torch.randperm(9, generator=g, device=d),
    "normal": lambda g, d: torch.normal(1.0, 2.0, (4,), generator=g, device=d),
    "normal of tensors": lambda g, d: torch.normal(torch.ones(4, device=d), 2.0, generator=g),
    "normal_": lambda g, d: torch.zeros(4, device=d).normal_(generator=g),
    "uniform_ of a view": lambda g, d: torch.zeros(4, 2, device=d)[:, 1].uniform_(generator=g),
    "bernoulli": lambda g, d: torch.bernoulli(torch.full((32,), 0.5, device=d), generator=g),
    "multinomial": lambda g, d: torch.multinomial(torch.ones(30, device=d), 5, generator=g),
}  # fmt: skip


@pytest.mark.parametrize("name", DRAWS)
def test_generator(name: str) -> None:
    generator = torch.Generator(device=WORD).manual_seed(7)
    assert isinstance(generator, torch.Generator) and isinstance(
        torch.default_generator, torch.Generator
    )
    first, second = DRAWS[name](generator, DEVICE), DRAWS[name](generator, DEVICE)
    assert first.device.type == WORD and not torch.equal(first.cpu(), second.cpu())
    expected = DRAWS[name](torch.Generator().manual_seed(7), "cpu")
    assert torch.allclose(first.cpu().double(), expected.double(), rtol=1e-6)


def test_normal_without_generator() -> None:
    drawn = torch.normal(3.0, 0.1, (2000,), device=DEVICE)
    assert abs(drawn.mean().item() - 3) < 0.02 and abs(drawn.std().item() - 0.1) < 0.01


# Mean and deviation of each distribution; 20,000 draws are within 5 % of the larger of both.
DISTRIBUTIONS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], float, float]] = {
    "normal_": (lambda z: z.normal_(3, 2), 3, 2),
    "uniform_": (lambda z: z.uniform_(-2, 4), 1, 1.732),
    "exponential_": (lambda z: z.exponential_(2.0), 0.5, 0.5),
    "random_": (lambda z: z.random_(0, 10), 4.5, 2.872),
    "bernoulli_": (lambda z: z.bernoulli_(0.9), 0.9, 0.3),
    "bernoulli_ of a tensor": (lambda z: z.bernoulli_(z + 0.9), 0.9, 0.3),
    "poisson": (lambda z: torch.poisson(z + 4), 4, 2),
    "gumbel_softmax": (lambda z: F.gumbel_softmax(z.view(-1, 2), hard=True), 0.5, 0.5),
    "distributions": (lambda z: torch.distributions.Normal(z, 2.0).sample() + 1, 1, 2),
    "dropout": (lambda z: F.dropout(z + 1, 0.3), 1, 0.655),
    "init": (lambda z: nn.init.trunc_normal_(z, std=1.0), 0, 0.88),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_distributions(name: str) -> None:
    draw, mean, deviation = DISTRIBUTIONS[name]
    drawn = draw(torch.zeros(20_000, device=DEVICE))
    assert drawn.device.type == WORD
    values = drawn.cpu()
    tolerance = 0.05 * max(mean, deviation)
    assert abs(values.mean() - mean) < tolerance and abs(values.std() - deviation) < tolerance


# Autocast.


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 4, 3)
        self.head = nn.Linear(4 * 36, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.conv2(F.relu(self.norm(self.conv(x))))
        return self.head(torch.cat([x, x * 1.0]).flatten(1)[: x.shape[0]])  # type: ignore[no-any-return]


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


# Modules.


class Scaled(nn.Parameter):
    scale = 1.0

    def scaled(self) -> torch.Tensor:
        return self * self.scale


def square() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(3, 3)


def test_ties_optimizer_ema_and_copies_survive_the_move() -> None:
    first, second = square(), square()
    second.weight = first.weight
    net = nn.Sequential(first, second)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    average = torch.optim.swa_utils.AveragedModel(net)
    net.to(DEVICE)
    average.to(DEVICE)
    assert first.weight is second.weight and len(list(net.parameters())) == 3
    before = first.weight.detach().cpu()
    net(torch.ones(2, 3).to(DEVICE)).sum().backward()
    optimizer.step()
    assert not torch.equal(first.weight.detach().cpu(), before)
    average.update_parameters(net)
    copied = copy.deepcopy(net)
    assert copied[0].weight is copied[1].weight and copied[0].weight is not first.weight
    copied.load_state_dict({name: x.cpu() + 1 for name, x in net.state_dict().items()})
    assert torch.allclose(copied[0].weight.cpu(), first.weight.cpu() + 1)
    assert net.half()(on_device().half()).dtype == torch.float16
    assert net.cpu()[0].weight.device.type == "cpu" and first.weight is second.weight


def test_hooks_attributes_gradients_and_weak_references_survive() -> None:
    net, called = square(), []
    net(torch.ones(1, 3)).sum().backward()
    net.weight.no_decay = True  # type: ignore[assignment]
    handle = net.weight.register_hook(lambda g: called.append("hook"))
    net.weight.register_post_accumulate_grad_hook(lambda p: called.append("after"))
    reference = weakref.ref(net.weight)
    gradient = net.weight.grad
    net.to(DEVICE)
    assert reference() is net.weight and net.weight.no_decay and net.weight.grad is gradient
    assert gradient is not None and gradient.device.type == WORD and gradient.sum().item() == 9
    net(torch.ones(1, 3).to(DEVICE)).sum().backward()
    assert called == ["hook", "after"] and net.weight.grad.sum().item() == 18
    handle.remove()
    net(torch.ones(1, 3).to(DEVICE)).sum().backward()
    assert called == ["hook", "after", "after"]


def test_a_graph_from_before_the_move_is_refused() -> None:
    net = square()
    loss = net(torch.ones(1, 3)).pow(2).sum()
    net.to(DEVICE)
    with pytest.raises(RuntimeError, match="before its module moved"):
        loss.backward()


def test_lazy_modules_and_loading_recurrent_ones() -> None:
    lazy = nn.LazyLinear(3).to(DEVICE)
    assert lazy(torch.ones(1, 2).to(DEVICE)).shape == (1, 3) and lazy.weight.device.type == WORD
    net = nn.LSTM(2, 2)
    net.load_state_dict(nn.LSTM(2, 2).state_dict())


def test_parameters_of_another_class_and_their_copies() -> None:
    """As torch has it: a pickle keeps the attributes of a Parameter, a deepcopy does not."""

    net = square()
    net.weight, net.bias.decay = Scaled(torch.ones(3, 3)), 0.5  # type: ignore[attr-defined]
    net.weight.scale = 2.0
    net.to(DEVICE)
    assert type(net.weight).__name__ == "Scaled" and isinstance(net.weight, Scaled)
    assert net.weight.scaled().device.type == WORD and net.weight.scaled().sum().item() == 18
    net(on_device()).sum().backward()
    copied, loaded = copy.deepcopy(net), pickle.loads(pickle.dumps(net))
    assert isinstance(copied.weight, Scaled) and copied.weight.grad is None
    assert copied.weight.scale == 1.0 and not hasattr(copied.bias, "decay")
    assert loaded.weight.scale == 2.0 and loaded.bias.decay == 0.5
    assert copied.weight.device.type == WORD and repr(net.bias).startswith("Parameter containing:")
    net.cpu()
    assert type(net.weight) is Scaled and type(net.bias) is nn.Parameter
    assert vars(net.weight) == {"scale": 2.0} and vars(net.bias) == {"decay": 0.5}


class WeightDrop(nn.Module):
    """Drops weights of an LSTM, which are computed anew at each call (AWD-LSTM)."""

    def __init__(self, module: nn.Module, name: str) -> None:
        super().__init__()
        self.module, self.name = module, name
        weight = module._parameters.pop(name)
        assert weight is not None
        module.register_parameter(f"{name}_raw", nn.Parameter(weight.data))

    def forward(self, x: Tensor) -> Tensor:
        raw = getattr(self.module, f"{self.name}_raw")
        setattr(self.module, self.name, F.dropout(raw, p=0.0, training=self.training))
        return self.module(x)[0]  # type: ignore[no-any-return]


def test_weight_drop() -> None:
    torch.manual_seed(0)
    net = WeightDrop(nn.LSTM(3, 4), "weight_hh_l0")
    found = copy.deepcopy(net)
    found.to(DEVICE)
    optimizers = [torch.optim.SGD(module.parameters(), 0.1) for module in (net, found)]
    for number in range(3):
        x = torch.randn(5, 2, 3, generator=torch.Generator().manual_seed(number))
        given = x, x.to(DEVICE)
        for module, optimizer, here in zip((net, found), optimizers, given, strict=True):
            optimizer.zero_grad()
            module(here).square().sum().backward()
            optimizer.step()
    for parameter, expected in zip(found.parameters(), net.parameters(), strict=True):
        assert parameter.grad is not None and expected.grad is not None
        torch.testing.assert_close(parameter.grad.cpu(), expected.grad, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(parameter.cpu(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("device", [WORD, torch.device(WORD)])
def test_a_module_is_moved_by_keyword_too(device: str | torch.device) -> None:
    module = torch.nn.Linear(3, 2)
    expected = module(torch.ones(1, 3))
    moved = module.to(device=device)
    result = moved(torch.ones(1, 3).to(device=device))
    assert result.device.type == WORD
    torch.testing.assert_close(result.detach().cpu(), expected.detach())


def everything(module: nn.Module, x: Tensor) -> list[Tensor]:
    """Outputs, states and gradients of a recurrent module."""
    with torch.no_grad():  # traced without gradients first
        alone = module(x)[0]
    x = x.requires_grad_()
    output, last = module(x)
    states = last if isinstance(last, tuple) else (last,)
    weight = torch.arange(output.numel()).view_as(output).cos().to(x.device)
    ((output * weight).sum() + sum((1.7 * state).sin().sum() for state in states)).backward()
    gradients = [x.grad, *(parameter.grad for parameter in module.parameters())]
    return [t.detach().cpu() for t in (alone, output, *states, *gradients) if t is not None]


RECURRENT: list[tuple[Any, dict[str, Any]]] = [
    (kind, how)
    for kind in (nn.LSTM, nn.GRU, nn.RNN)
    for how in (
        {},
        {"num_layers": 2, "bidirectional": True, "batch_first": True},
        {"bidirectional": True, "bias": False},
    )
]
RECURRENT += [
    (nn.LSTM, {"proj_size": 3, "bias": False}),
    (nn.RNN, {"nonlinearity": "relu", "num_layers": 2}),
]


@pytest.mark.parametrize("module", thorough_but([RECURRENT[1], RECURRENT[-1]], RECURRENT))
def test_recurrent_modules(module: tuple[Any, dict[str, Any]]) -> None:
    kind, how = module
    torch.manual_seed(0)
    module = kind(5, 7, **how)
    x = torch.randn(6, 4, 5)
    expected = everything(copy.deepcopy(module), x.clone())
    assert len(expected) > len(list(module.parameters())) + 3
    found = everything(module.to(DEVICE), x.to(DEVICE))
    for value, wanted in zip(found, expected, strict=True):
        assert value.shape == wanted.shape
        assert (value - wanted).abs().max() <= 2e-6 * (1e-3 + wanted.abs().max())


def test_a_recurrent_module_is_not_differentiated_twice() -> None:
    """It raises, instead of losing a derivative."""
    module = nn.GRU(3, 4).to(DEVICE)
    x = torch.randn(3, 2, 3).to(DEVICE).requires_grad_(True)
    (slope,) = torch.autograd.grad(module(x)[0].sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="can not be differentiated again"):
        slope.square().sum().backward()


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize(
    "wrap",
    [nn.utils.weight_norm, nn.utils.parametrizations.weight_norm, nn.utils.spectral_norm],
)
def test_reparametrized(wrap: Callable[[nn.Module], nn.Module]) -> None:
    net, x = wrap(nn.Linear(8, 3)).eval(), torch.randn(2, 8)
    with torch.no_grad():
        expected = net(x)
        result = net.to(DEVICE)(x.to(DEVICE))
    torch.testing.assert_close(result.cpu(), expected, rtol=1e-5, atol=1e-6)


def test_inference_mode() -> None:
    net = Net().to(DEVICE).eval()
    x = torch.randn(2, 3, 8, 8).to(DEVICE)
    with torch.inference_mode():
        inside = net(x).t().view(-1)
    assert not inside.requires_grad

    @torch.inference_mode()
    def called(a: torch.Tensor) -> torch.Tensor:
        return net(a)  # type: ignore[no-any-return]

    @torch.inference_mode
    def bare(a: torch.Tensor) -> torch.Tensor:
        return net(a)  # type: ignore[no-any-return]

    assert not called(x).requires_grad and not bare(x).requires_grad
    with torch.inference_mode(mode=False):
        assert torch.is_grad_enabled()


# Files.


def test_pickle_deepcopy_and_loading_of_a_state() -> None:
    net, other = Net().to(DEVICE), Net()
    twin = copy.deepcopy(net)
    with torch.no_grad():
        twin.conv.weight.zero_()
    assert isinstance(twin.conv.weight, nn.Parameter) and net.conv.weight.abs().sum() > 0
    net.load_state_dict(other.state_dict())  # from the CPU
    twin.cpu().load_state_dict(net.state_dict())  # and to it
    assert net.conv.weight.device.type == WORD and twin.conv.weight.device.type == "cpu"
    assert torch.equal(twin.conv.weight, other.conv.weight)
    loaded = pickle.loads(pickle.dumps({"x": on_device(), "p": net.conv.bias}))
    assert torch.equal(loaded["x"].cpu(), small()) and isinstance(loaded["p"], nn.Parameter)


@pytest.mark.parametrize("map_location", [WORD, "cuda", "cuda:0", DEVICE, {"cpu": "cuda:0"}])
def test_load_on_the_device(tmp_path: Path, map_location: object) -> None:
    path = tmp_path / "x.pt"
    tpu.save({"a": [on_device()], "n": 3, "t": (small(), "s")}, path)
    loaded = tpu.load(path, map_location=map_location)
    assert loaded["a"][0].device.type == loaded["t"][0].device.type == WORD
    assert loaded["n"] == 3 and torch.equal(loaded["a"][0].cpu(), small())


@pytest.mark.parametrize(
    "map_location",
    [None, "cpu", torch.device("cpu"), lambda s, place: s, {"cuda:0": "cpu"}, {"cuda:0": WORD}],
)
def test_load_on_the_cpu(tmp_path: Path, map_location: object) -> None:
    path = tmp_path / "x.pt"
    tpu.save({"a": on_device()}, path)
    assert tpu.load(path, map_location=map_location)["a"].device.type == "cpu"


def test_load_to_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file from a machine with GPUs, which says of each tensor where it was."""
    path = tmp_path / "x.pt"
    places = iter(["cuda:1", "cpu", "cuda:0"])
    monkeypatch.setattr(torch.serialization, "location_tag", lambda storage: next(places))
    torch.save({"a": small(), "b": small(), "c": [small()]}, path)
    with pytest.raises(RuntimeError, match="CUDA"):
        torch.load(path)
    for where, expected in ((None, (WORD, "cpu", WORD)), ({"cuda:1": "cpu"}, ("cpu", "cpu", WORD))):
        loaded = tpu.load(path, where)
        devices = [t.device.type for t in (loaded["a"], loaded["b"], *loaded["c"])]
        assert devices == [*expected]
        assert torch.equal(loaded["c"][0].cpu(), small())


def test_load_other_things(tmp_path: Path) -> None:
    path = tmp_path / "net.pt"
    net = Net().to(DEVICE)
    tpu.save(net, path)
    with pytest.raises(pickle.UnpicklingError):
        tpu.load(path)  # weights_only stays torch's default
    loaded = tpu.load(path, "cuda", weights_only=False)
    assert loaded.conv.weight.device.type == WORD and isinstance(loaded.conv.weight, nn.Parameter)


def test_load_safetensors(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    save_file({"a": small()}, path)
    loaded = tpu.load_file(path, device=WORD)["a"]
    assert loaded.device.type == WORD and torch.equal(loaded.cpu(), small())
    assert tpu.load_file(path)["a"].device.type == "cpu"


def test_saved_files_need_no_runtime(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    net = Net().to(DEVICE)
    tpu.save({"net": net.state_dict(), "x": on_device(), "own": [{"deep": on_device()}]}, path)
    done = run(
        f"import torch; s = torch.load({str(path)!r});"
        "print(s['x'].sum().item(), s['net']['conv.weight'].device, s['own'][0]['deep'].device)",
    )
    assert done.stdout.split() == ["15.0", "cpu", "cpu"], done.stderr


# Old tensor types.


def test_tensor_types() -> None:
    assert tpu.FloatTensor(2, 3).shape == (2, 3)
    made = tpu.FloatTensor(np.ones((2, 2)))
    assert made.dtype == torch.float32 and made.device.type == WORD and made.sum().item() == 4
    assert tpu.FloatTensor([1, 2]).tolist() == [1.0, 2.0]
    assert tpu.ByteTensor([1, 255]).dtype == torch.uint8
    assert tpu.BoolTensor([True]).dtype == torch.bool
    assert tpu.HalfTensor(3).dtype == torch.float16
    assert tpu.BFloat16Tensor(3).dtype == torch.bfloat16
    assert tpu.LongTensor([1, 2]).tolist() == [1, 2]
    assert tpu.FloatTensor(on_device()).device.type == WORD
    with pytest.raises(TypeError):
        tpu.IntTensor(on_device())
    assert isinstance(made, tpu.FloatTensor) and not isinstance(made, tpu.IntTensor)
    assert not isinstance(small(), tpu.FloatTensor)
    assert tpu.FloatTensor.dtype == torch.float32 and tpu.FloatTensor.__name__ == "FloatTensor"


def test_cast() -> None:
    for kind, device, dtype in (
        (tpu.HalfTensor, WORD, torch.float16),
        ("torch.cuda.IntTensor", WORD, torch.int32),
        (torch.cuda.ByteTensor, WORD, torch.uint8),
        ("torch.DoubleTensor", "cpu", torch.float64),
        (torch.FloatTensor, "cpu", torch.float32),
    ):
        for x in (small(), on_device()):
            result = tpu.cast(x, kind)
            assert (result.device.type, result.dtype) == (device, dtype)
    assert tpu.cast(small(), torch.int32).device.type == "cpu"
    assert tpu.cast(on_device(), torch.int32).device.type == WORD
    assert tpu.cast(nn.Linear(2, 2), tpu.FloatTensor).weight.device.type == WORD
    with pytest.raises(ValueError, match="invalid type"):
        tpu.cast(small(), "torch.cuda.Stream")


@pytest.mark.parametrize("kind", [tpu.FloatTensor, "torch.cuda.FloatTensor"])
def test_default_tensor_type(kind: object) -> None:
    x = small()
    tpu.set_default_tensor_type(kind)
    try:
        made = [torch.Tensor(2, 3), torch.Tensor([1e10]), torch.Tensor(np.ones(3)), torch.Tensor()]
        made += [torch.Tensor(torch.Size([2])), nn.Parameter(torch.Tensor(2)), torch.zeros(2)]
        made += [torch.tensor([1.0]), nn.Linear(2, 2).weight, torch.linspace(0.0, 1.0, 3)]
        assert all(t.device.type == WORD and t.dtype == torch.float32 for t in made)
        apart = torch.cat([torch.ones(2, 1), torch.Tensor([1e10]).expand(2, 1)], -1)
        assert apart.cpu().tolist() == [[1.0, 1e10], [1.0, 1e10]]
        assert apart.type() == f"torch.{WORD}.FloatTensor"
        assert torch.Tensor(apart).device.type == WORD and torch.Tensor(x.int()).sum() == 15
        assert torch.FloatTensor([1.0]).device.type == torch.from_numpy(np.ones(2)).device.type
        assert torch.Tensor([apart[0, 0], apart[1, 0]]).tolist() == [1.0, 1.0]
        torch.set_default_dtype(torch.float16)
        assert torch.Tensor(2).dtype == torch.float16
        batches = DataLoader(TensorDataset(x), shuffle=True, generator=torch.Generator("cpu"))
        assert all(batch.device.type == "cpu" for (batch,) in batches)
    finally:
        tpu.set_default_tensor_type(torch.FloatTensor)
    assert torch.Tensor(2).device.type == torch.zeros(2).device.type == "cpu"
    assert torch.Tensor(2).dtype == torch.float32
    with pytest.raises(TypeError):
        tpu.set_default_tensor_type(tpu.IntTensor)


def test_old_constructors() -> None:
    x, numbers = on_device(), torch.tensor([2, 0]).to(DEVICE)
    for made in (
        x.new(2, 3),
        x.new(x.size()),
        x.new(),
        x.new([[1.0, 2.0]]),
        x.new(np.ones(2)),
        x.new(x),
    ):
        assert made.device.type == WORD and made.dtype == torch.float32
    assert x.new([1, 2]).tolist() == [1.0, 2.0] and numbers.new((1, 2)).tolist() == [1, 2]
    assert x.new([x[0, 1], x[0, 2]]).tolist() == [1.0, 2.0] and x.new(3).zero_().sum() == 0
    assert torch.Tensor([x[0, 1], 2]).tolist() == [1.0, 2.0]
    same = torch.Tensor(x)
    same[0, 0] = 7
    assert x[0, 0].item() == 7 and same.device.type == WORD
    assert small().new([1.0]).device.type == torch.Tensor(2, 3).device.type == "cpu"
    weight = torch.ones(2, requires_grad=True, device=DEVICE)
    torch.Tensor(weight).sum().backward()
    assert weight.grad is not None and weight.grad.tolist() == [1.0, 1.0]


FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "resize": lambda t: TF.resize(t, [20, 30], antialias=False),
    "enlarge": lambda t: TF.resize(t, [50, 90], antialias=False),
    "resize antialias": lambda t: TF.resize(t, [20, 30]),
    "resize bicubic antialias": lambda t: TF.resize(t, [20, 30], InterpolationMode.BICUBIC),
    "resize nearest": lambda t: TF.resize(t, [20, 30], InterpolationMode.NEAREST),
    "crop": lambda t: TF.crop(t, 3, 4, 10, 12),
    "crop beyond": lambda t: TF.crop(t, -3, -4, 50, 60),
    "gaussian_blur": lambda t: TF.gaussian_blur(t, [7, 7], [1.5, 1.5]),
    "gaussian_blur of numbers": lambda t: TF.gaussian_blur(t, 7, 1.5),
    "hflip": TF.hflip,
    "rotate": lambda t: TF.rotate(t, 30.0),
    "v2 resize": lambda t: TF2.resize(t, [20, 30], antialias=False),
    "v2 gaussian_blur": lambda t: TF2.gaussian_blur(t, [7, 7], [1.5, 1.5]),
}


@pytest.mark.parametrize("name", thorough_between(3, FUNCTIONS))
def test_torchvision(name: str) -> None:
    torch.manual_seed(0)
    x = torch.rand(2, 3, 33, 47)
    # bicubic sums 16 terms; the others 1 to 49 terms of at most 1.
    agrees(FUNCTIONS[name], x, 3e-6)
    # A value that falls on one half may round either way.
    agrees(FUNCTIONS[name], (x * 255).to(torch.uint8), 1)


@pytest.mark.parametrize(
    "arguments",
    thorough_between(
        3,
        [
            {"size": (20, 30), "mode": "bilinear"},
            {"size": (50, 30), "mode": "bilinear", "align_corners": True},
            {"size": (20, 30), "mode": "bilinear", "antialias": True},
            {"size": (50, 70), "mode": "bicubic", "antialias": True},
            {"scale_factor": 0.5, "mode": "bilinear"},
            {"size": (20, 30), "mode": "bicubic"},
            {"size": (11, 12), "mode": "area"},
        ],
    ),
    ids=str,
)
def test_interpolate(arguments: dict[str, object]) -> None:
    torch.manual_seed(0)
    agrees(lambda t: F.interpolate(t, **arguments), torch.rand(2, 3, 33, 47), 3e-6)  # type: ignore[arg-type]


@pytest.mark.parametrize("scale", [1.7, 0.6, 2.0])
def test_nearest_resizing_follows_the_scale_factor(scale: float) -> None:
    image = torch.rand(1, 2, 16, 20, generator=torch.Generator().manual_seed(0))
    moved = image.to(DEVICE).requires_grad_()
    expected = F.interpolate(image, scale_factor=scale)
    result = F.interpolate(moved, scale_factor=scale)
    result.sum().backward()
    assert torch.equal(result.detach().cpu(), expected)
    assert moved.grad is not None and moved.grad.sum().item() == expected.numel()


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int32])
def test_sums_of_small_integers_do_not_wrap(dtype: torch.dtype) -> None:
    values = torch.full((300,), 200).to(dtype)
    for total in (values.to(DEVICE).cumsum(0), torch.cumsum(values.to(DEVICE), dim=0)):
        assert torch.equal(total.cpu(), values.cumsum(0).to(HERE.integers))


# Processes of their own: installation and versions.


def test_import_alone_makes_the_device_valid() -> None:
    done = run(f"import torch, tpu_runtime as t; print(torch.device({WORD!r}), t.is_available())")
    assert done.stdout.split() == [WORD, "True"], done.stderr


def test_random_numbers_of_the_program_are_not_drawn() -> None:
    done = run(
        "import random, numpy, torch\n"
        "for seed in (random.seed, numpy.random.seed, torch.manual_seed): seed(0)\n"
        "states = []\n"
        "def look(): states.append(repr((random.getstate(), numpy.random.get_state()[1:],"
        " torch.get_rng_state().tolist())))\n"
        "look(); import tpu_runtime; look(); tpu_runtime.setup(); look()\n"
        f"torch.nn.Linear(3, 2).requires_grad_(False).to({WORD!r}); torch.manual_seed(0); look()\n"
        "print(len(set(states)))"
    )
    assert done.stdout.split() == ["1"], done.stderr


def test_names_that_were_imported_above_set_up_are_those_behind_it() -> None:
    done = run(
        "import torch, tpu_runtime\n"
        "from torch import manual_seed, matmul\n"
        "from torch.nn.functional import scaled_dot_product_attention as attention\n"
        "from torch.nn.utils import clip_grad_norm_ as clip\n"
        "tpu_runtime.setup()\n"
        "assert manual_seed is torch.manual_seed and matmul is torch.matmul\n"
        "assert clip is torch.nn.utils.clip_grad_norm_\n"
        "assert attention is torch.nn.functional.scaled_dot_product_attention\n"
        f"draw = lambda: (manual_seed(3), torch.randn(3, device={WORD!r}).tolist())[1]\n"
        "print(draw() == draw())"
    )
    assert done.stdout.split() == ["True"], done.stderr


@pytest.mark.parametrize(("before", "message"), HERE.faults)
def test_wrong_versions_are_named(before: str, message: str) -> None:
    done = run(f"{before}\nimport tpu_runtime")
    assert done.returncode == 1 and message in done.stderr.splitlines()[-1]
    assert "pip install" in done.stderr.splitlines()[-1]
