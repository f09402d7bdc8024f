"""Files that are read and written, and old tensor types; on both targets."""

import copy
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
import tpu_runtime as tpu
from safetensors.torch import save_file
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.runtime.contract import Net
from tests.runtime.support import DEVICE, WORD, on_device, run, small

tpu.setup()


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


@pytest.mark.parametrize("where", [None, "cpu", {"cpu": "cpu"}])
def test_a_whole_module_comes_back_to_where_it_was_used(tmp_path: Path, where: object) -> None:
    """Without map_location a GPU's file puts it onto the GPU, where its inputs are."""
    path = tmp_path / "rnn.pt"
    rnn, x = nn.LSTM(3, 2).to(DEVICE), torch.ones(4, 1, 3)
    expected = rnn(x.to(DEVICE))[0].detach().cpu()
    tpu.save({"net": rnn, "x": x}, path)
    with torch.serialization.safe_globals([nn.LSTM]):  # nothing of the runtime's is in it
        loaded = tpu.load(path, where)
    there = WORD if where is None else "cpu"
    assert {value.device.type for value in loaded["net"].parameters()} == {there}
    assert loaded["x"].device.type == "cpu"
    assert torch.allclose(loaded["net"](x.to(there))[0].cpu(), expected, atol=1e-6)


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


# Integers.


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_histograms_of_integers_are_a_gpu_s(dtype: torch.dtype) -> None:
    """Areas of classes, as segmentation counts them; CPU torch has none."""
    classes = torch.tensor([0, 1, 1, 2, 4, 4, 4, 9], dtype=dtype)
    for how, expected in (
        ({"bins": 5, "min": 0, "max": 4}, [1, 2, 1, 0, 3]),
        ({"bins": 3}, [4, 3, 1]),
        ({"bins": 2, "min": 20, "max": 30}, [0, 0]),
    ):  # fmt: skip
        there = classes.to(DEVICE)
        counts = torch.histc(there, **how)
        assert (counts.dtype, counts.cpu().tolist()) == (there.dtype, expected)
    assert classes[:1].to(DEVICE).histc(2).cpu().tolist() == [0, 1]


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
    there = on_device()
    assert torch.as_tensor(there) is there
    assert torch.get_default_device() == torch.device("cpu")
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
