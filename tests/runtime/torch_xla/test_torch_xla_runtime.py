"""tpu_runtime on torch_xla against CPU torch; run as tests/runtime/conftest.py says."""

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import torch_xla
import torch_xla.backends
import torch_xla.core.xla_model as xm
import torchvision
import torchvision.transforms.functional as TF
import tpu_runtime as tpu
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

tpu.setup()

DEVICE = torch.device("xla")
RUNTIME = Path(tpu.__file__).parents[1]
# One float32 rounding per operation on values up to 1.
FLOAT32 = 2e-6


def small() -> torch.Tensor:
    return torch.arange(6.0).reshape(2, 3)


def on_device() -> torch.Tensor:
    return small().to(DEVICE)


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: v for name, v in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**inherited, "PYTHONPATH": str(RUNTIME), "PJRT_DEVICE": "CPU", **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


# Device, timing, memory, precision.


def test_a_tpu_that_is_not_used_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch_xla, "_found_libtpu", False)
    monkeypatch.setattr("torch_xla._internal.tpu.num_available_chips", lambda: 0)
    tpu.device.look_for_libtpu()
    assert capsys.readouterr().err == ""  # there is none
    monkeypatch.setattr("torch_xla._internal.tpu.num_available_chips", lambda: 4)
    tpu.device.look_for_libtpu()
    assert "pip install 'torch==2.9.0' 'torch_xla[tpu]==2.9.0'" in capsys.readouterr().err
    monkeypatch.setattr(torch_xla, "_found_libtpu", True)
    tpu.device._told.clear()
    tpu.device.look_for_libtpu()
    assert capsys.readouterr().err == ""


def test_device() -> None:
    assert tpu.is_available() and tpu.device_count() == torch_xla.device_count()
    assert tpu.current_device() == 0
    assert tpu.get_device_name() == tpu.get_device_name("cuda:0") == xm.xla_device_kind()
    properties = tpu.get_device_properties(DEVICE)
    assert properties.name == tpu.get_device_name() and properties.total_memory >= 0
    tpu.synchronize()
    tpu.synchronize("xla")
    with pytest.raises(ValueError, match="no device 99"):
        tpu.synchronize(99)
    with pytest.raises(ValueError, match="expected an xla device"):
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
    def program() -> str:
        x = torch.ones(4, 4).to(DEVICE)
        return str(torch_xla._XLAC._get_xla_tensors_hlo([x @ x]))

    try:
        assert "operand_precision={highest,highest}" in program()
        tpu.set_matmul_precision(True)
        assert "operand_precision={high,high}" in program()
        tpu.set_matmul_precision("medium")
        assert torch_xla.backends.get_mat_mul_precision() == "default"
    finally:
        tpu.set_matmul_precision(False)
    with pytest.raises(ValueError, match="unknown matmul precision"):
        tpu.set_matmul_precision("best")


# Moving, converting, printing.


def test_to() -> None:
    x = small()
    for moved in (
        x.to("xla", non_blocking=True),
        x.to(DEVICE, torch.float32, True),
        x.to(device="xla", copy=True),
        x.to(on_device()),
        x.to(DEVICE, torch.float32, non_blocking=True, copy=False),
    ):
        assert moved.device.type == "xla" and torch.equal(moved.cpu(), x)
    device = on_device()
    assert device.to(DEVICE) is device and device.to(torch.float32) is device
    assert device.to("xla", copy=True) is not device
    assert device.to(torch.float16).dtype == device.half().dtype == torch.float16
    assert device.to("cpu", torch.int32).dtype == torch.int32
    assert device.type(torch.bfloat16).dtype == torch.bfloat16
    assert x.to(torch.float16).device.type == "cpu" and x.to("cpu") is x
    with pytest.raises(RuntimeError):
        device.to("cuda")


def test_dtypes_survive_the_way_back() -> None:
    for dtype in (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.float16,
                  torch.bfloat16, torch.float32, torch.complex64):  # fmt: skip
        x = torch.tensor([0, 1, 3]).to(dtype)
        assert torch.equal(x.to(DEVICE).cpu(), x), dtype


def test_python_values() -> None:
    x = on_device()
    assert f"{x.sum():.4f} {x[0, 1]:.1f} {x.max():>6.2e}" == "15.0000 1.0 5.00e+00"
    assert str(x) == f"{x}" == "tensor([[0., 1., 2.],\n        [3., 4., 5.]], device='xla:0')"
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
    assert torch.zeros_like(small(), device=DEVICE).device.type == "xla"


def test_default_device() -> None:
    with torch.device("xla"):
        assert torch.zeros(3).device.type == nn.Linear(2, 2).weight.device.type == "xla"
    torch.set_default_device("xla")
    try:
        assert torch.randn(3).device.type == "xla"
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
    "set by index tensors": lambda x: x.__setitem__((indices(x, 0, 1), indices(x, 2, 0)), 9.0),
    "set item adds": lambda x: x.__setitem__((0, 2), x[0, 2] + 3),
    "view": lambda x: x.view(-1).__setitem__(2, 100),
    "reshape of a contiguous": lambda x: x.reshape(3, 2).zero_(),
    "reshape of a transposed is a copy": lambda x: x.t().reshape(-1).zero_(),
    "contiguous is a copy": lambda x: x.t().contiguous().zero_(),
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


# torch_xla 2.9 takes every tensor for contiguous, so these give a view where torch gives a copy,
# and the write reaches x. The runtime does not mend it.
NOT_COPIED = ("reshape of a transposed is a copy", "contiguous is a copy")


@pytest.mark.parametrize("name", NOT_COPIED)
def test_the_known_fault_of_copies_is_still_there(name: str) -> None:
    """When this fails, torch_xla has mended it: take the name out of NOT_COPIED and the docs."""
    expected, result = small(), on_device()
    WRITES[name](expected)
    WRITES[name](result)
    assert not torch.equal(result.cpu(), expected)


@pytest.mark.parametrize("name", [n for n in WRITES if n not in NOT_COPIED])
def test_writes(name: str) -> None:
    expected, result = small(), on_device()
    older = [(x.view(-1), x[1:]) for x in (expected, result)]
    WRITES[name](expected)
    WRITES[name](result)
    assert torch.equal(result.cpu(), expected)
    assert all(torch.equal(y.cpu(), x) for x, y in zip(*older, strict=True))


def test_gradients_survive_indexing_and_casts() -> None:
    x = on_device().requires_grad_()
    y = (x[1, :2] * 2).to(torch.bfloat16).float().sum()
    y.backward()
    assert x.grad is not None and x.grad.tolist() == [[0.0, 0.0, 0.0], [2.0, 2.0, 0.0]]


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
    generator = torch.Generator(device="xla").manual_seed(7)
    assert isinstance(generator, torch.Generator) and isinstance(
        torch.default_generator, torch.Generator
    )
    first, second = DRAWS[name](generator, DEVICE), DRAWS[name](generator, DEVICE)
    assert first.device.type == "xla" and not torch.equal(first.cpu(), second.cpu())
    expected = DRAWS[name](torch.Generator().manual_seed(7), "cpu")
    assert torch.allclose(first.cpu().double(), expected.double(), rtol=1e-6)


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
        (tpu.autocast("xla", torch.bfloat16, cache_enabled=False), torch.bfloat16),
    ):
        with context:
            assert (x @ x).dtype == dtype
    with tpu.autocast("cpu", dtype=torch.bfloat16):
        assert (small() @ small().t()).dtype == torch.bfloat16
        assert (x @ x).dtype == torch.float32
    with pytest.warns(UserWarning, match="disabled"), tpu.autocast("cuda", dtype=torch.float32):
        assert (x @ x).dtype == torch.float32


# Modules.


def test_modules_keep_their_parameters() -> None:
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    net[1].weight = net[0].weight
    before = list(net.parameters())
    net.to(DEVICE)
    assert all(a is b for a, b in zip(before, net.parameters(), strict=True))
    assert net[0].weight is net[1].weight and isinstance(net[0].weight, nn.Parameter)
    assert net.half()(on_device().half()).dtype == torch.float16
    assert net.cpu()[0].weight.device.type == "cpu"


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


@pytest.mark.parametrize("map_location", ["xla", "cuda", "cuda:0", DEVICE, {"cpu": "cuda:0"}])
def test_load_on_the_device(tmp_path: Path, map_location: object) -> None:
    path = tmp_path / "x.pt"
    tpu.save({"a": [on_device()], "n": 3, "t": (small(), "s")}, path)
    loaded = tpu.load(path, map_location=map_location)
    assert loaded["a"][0].device.type == loaded["t"][0].device.type == "xla"
    assert loaded["n"] == 3 and torch.equal(loaded["a"][0].cpu(), small())


@pytest.mark.parametrize(
    "map_location",
    [None, "cpu", torch.device("cpu"), lambda s, place: s, {"cuda:0": "cpu"}, {"cuda:0": "xla"}],
)
def test_load_on_the_cpu(tmp_path: Path, map_location: object) -> None:
    path = tmp_path / "x.pt"
    tpu.save({"a": on_device()}, path)
    assert tpu.load(path, map_location=map_location)["a"].device.type == "cpu"


def test_load_other_things(tmp_path: Path) -> None:
    path = tmp_path / "net.pt"
    net = Net().to(DEVICE)
    tpu.save(net, path)
    with pytest.raises(pickle.UnpicklingError):
        tpu.load(path)  # weights_only stays torch's default
    loaded = tpu.load(path, "cuda", weights_only=False)
    assert loaded.conv.weight.device.type == "xla" and isinstance(loaded.conv.weight, nn.Parameter)


# Old tensor types.


def test_tensor_types() -> None:
    assert tpu.FloatTensor(2, 3).shape == (2, 3)
    made = tpu.FloatTensor(np.ones((2, 2)))
    assert made.dtype == torch.float32 and made.device.type == "xla" and made.sum().item() == 4
    assert tpu.FloatTensor([1, 2]).tolist() == [1.0, 2.0]
    assert tpu.ByteTensor([1, 255]).dtype == torch.uint8
    assert tpu.BoolTensor([True]).dtype == torch.bool
    assert tpu.HalfTensor(3).dtype == torch.float16
    assert tpu.BFloat16Tensor(3).dtype == torch.bfloat16
    assert tpu.LongTensor([1, 2]).tolist() == [1, 2]
    assert tpu.FloatTensor(on_device()).device.type == "xla"
    with pytest.raises(TypeError):
        tpu.IntTensor(on_device())
    assert isinstance(made, tpu.FloatTensor) and not isinstance(made, tpu.IntTensor)
    assert not isinstance(small(), tpu.FloatTensor)
    assert tpu.FloatTensor.dtype == torch.float32 and tpu.FloatTensor.__name__ == "FloatTensor"


def test_cast() -> None:
    for kind, device, dtype in (
        (tpu.HalfTensor, "xla", torch.float16),
        ("torch.cuda.IntTensor", "xla", torch.int32),
        (torch.cuda.ByteTensor, "xla", torch.uint8),
        ("torch.DoubleTensor", "cpu", torch.float64),
        (torch.FloatTensor, "cpu", torch.float32),
    ):
        for x in (small(), on_device()):
            result = tpu.cast(x, kind)
            assert (result.device.type, result.dtype) == (device, dtype)
    assert tpu.cast(small(), torch.int32).device.type == "cpu"
    assert tpu.cast(on_device(), torch.int32).device.type == "xla"
    assert tpu.cast(nn.Linear(2, 2), tpu.FloatTensor).weight.device.type == "xla"
    with pytest.raises(ValueError, match="invalid type"):
        tpu.cast(small(), "torch.cuda.Stream")


# Processes of their own: installation and versions.


def test_import_alone_makes_the_device_valid() -> None:
    done = run("import torch, tpu_runtime; print(torch.device('xla'), tpu_runtime.is_available())")
    assert done.stdout.split() == ["xla", "True"], done.stderr


def test_setup_does_not_start_the_runtime() -> None:
    done = run(
        "import tpu_runtime as t, torch_xla, warnings; warnings.simplefilter('error'); t.setup();"
        "t.setup('high'); t.is_available(); t.Event(); t.autocast();"
        "print(torch_xla._XLAC._xla_runtime_is_initialized(),"
        "torch_xla.backends.get_mat_mul_precision())"
    )
    assert done.stdout.split() == ["False", "high"], done.stderr
    assert "multiple times" not in done.stderr


@pytest.mark.parametrize(
    ("before", "message"),
    [
        ("import torch; torch.__version__ = '2.13.0'", "needs torch 2.9, found 2.13.0"),
        ("import sys; sys.modules['torch_xla'] = None", "cannot import torch_xla"),
    ],
)
def test_wrong_versions_are_named(before: str, message: str) -> None:
    done = run(f"{before}\nimport tpu_runtime")
    assert done.returncode == 1 and message in done.stderr.splitlines()[-1]
    assert "pip install" in done.stderr.splitlines()[-1]


def test_saved_files_need_no_torch_xla(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    net = Net().to(DEVICE)
    tpu.save({"net": net.state_dict(), "x": on_device(), "own": [{"deep": on_device()}]}, path)
    done = run(
        f"import torch; s = torch.load({str(path)!r});"
        "print(s['x'].sum().item(), s['net']['conv.weight'].device, s['own'][0]['deep'].device)",
    )
    assert done.stdout.split() == ["15.0", "cpu", "cpu"], done.stderr


def test_a_report_of_the_run_is_written_on_request(tmp_path: Path) -> None:
    code = (
        "import torch, torch_xla, tpu_runtime\n"
        "tpu_runtime.setup()\n"
        "for rows in range(2, 14):\n"
        "    x = torch.ones(rows, 3).to('xla')\n"
        "    y = torch.nonzero(x @ x.T)\n"
        "    torch_xla.sync()\n"
    )
    folder = Path(tpu.__file__).parents[1]

    def run(where: str) -> str:
        env = {**os.environ, "TPU_RUNTIME_REPORT": where}
        command = [sys.executable, "-c", code]
        return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=env).stderr

    (line,) = (line for line in run("1").splitlines() if line.startswith("tpu_runtime: "))
    assert "the last in step 12 of 12 (shapes" in line
    assert "on the CPU: aten::nonzero 12 times" in line
    assert "tpu_runtime" not in run(str(tmp_path / "report.json"))
    figures = json.loads((tmp_path / "report.json").read_text())
    assert figures["programs"] >= 12 and figures["steps"] == figures["last_compiled"] == 12
