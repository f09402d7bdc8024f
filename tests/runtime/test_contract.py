"""What the runtimes of both targets promise; run in the environment of each, see conftest.py.

In what the targets differ is said once, by `Target`. What only one of them promises is in its
folder.
"""

import re
import threading
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import tpu_runtime as tpu
from tiers import thorough_between
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.runtime.contract import HERE
from tests.runtime.support import DEVICE, WORD, agrees, on_device, run, small

tpu.setup()

# After setup on purpose: stock torchax makes this import fail.
import torchvision  # noqa: E402
import torchvision.transforms.functional as TF  # noqa: E402
from torchvision.transforms import InterpolationMode  # noqa: E402
from torchvision.transforms.v2 import functional as TF2  # noqa: E402

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


def test_another_thread_that_is_set_up() -> None:
    """Streamlit runs a script in one thread after the other."""
    found: list[float] = []

    def work() -> None:
        tpu.setup()
        tpu.setup()
        found.append((torch.ones(2).to(DEVICE) * weight).sum().item())

    weight = torch.full((2,), 3.0).to(DEVICE)
    for _ in range(2):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert found == [6, 6]


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
        # torch's get_default_device() raises on what that leaves; other tests ask for it.
        del torch._GLOBAL_DEVICE_CONTEXT.device_context  # type: ignore[attr-defined]
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
        "table = {'mm': matmul}\n"
        "class Stopping: compared = {'min': torch.lt, 'max': torch.gt}  # as in Lightning\n"
        "tpu_runtime.setup()\n"
        "assert table['mm'] is torch.matmul\n"
        "assert Stopping.compared == {'min': torch.lt, 'max': torch.gt}\n"
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
