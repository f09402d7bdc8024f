"""What torchax alone promises of tpu_runtime; the rest is in test_contract.py."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import tpu_runtime as tpu
from PIL import Image
from torch import Tensor, nn

from tests.runtime.support import on_device, run, small

tpu.setup()

# After setup on purpose: stock torchax makes this import fail.
import torchvision  # noqa: E402

# What torch_xla decides otherwise: it asks for `.cpu()` before `.numpy()` and indexing, lets each
# write and sum through, has sums and exponentials of 16 bits, 64 bits for integers, and saves a
# device with a tensor.


def test_numpy_of_a_device_tensor_is_a_copy() -> None:
    x = on_device()
    y = x.numpy()
    y += 1
    assert torch.equal(x.cpu(), small()) and (x.numpy(force=True) == small().numpy()).all()


def test_a_cpu_tensor_is_indexed_by_one_of_the_device_and_not_added_to_one() -> None:
    assert small()[:, on_device()[0] > 0].shape == (2, 2)
    for x, y in ((on_device(), small()), (small(), on_device())):
        for mix in (
            torch.add, torch.Tensor.mul_, F.mse_loss, F.linear, F.embedding,
            lambda x, y: torch.stack([x, y]), lambda x, y: F.layer_norm(x, (3,), y[0]),
        ):  # fmt: skip
            with pytest.raises(RuntimeError, match=r"same device.* jax:0 and cpu"):
                mix(x, y)


def test_data_of_the_other_device() -> None:
    x = nn.Parameter(small())
    x.tag, called, before = "x", [], x.detach()  # type: ignore[assignment]
    x.register_hook(lambda g: called.append(g.device.type))
    x.data = x.data.to("jax")
    (x * on_device()).sum().backward()
    assert (x.tag, called, x.device.type) == ("x", ["jax"], "jax") and x.grad is not None
    older = x.detach()
    x.data = torch.ones(2)
    assert x.tag == "x" and x.device.type == "cpu" and x.tolist() == [1.0, 1.0]
    assert torch.equal(before, small())
    assert torch.equal(older.cpu(), small())


def test_saved_tensors_keep_their_attributes() -> None:
    x, file = on_device().requires_grad_(), io.BytesIO()
    x.tag = "x"  # type: ignore[assignment]
    torch.save({"x": x}, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)["x"]
    assert loaded.tag == "x" and loaded.requires_grad and type(loaded) is torch.Tensor


def test_a_class_with_calls_of_its_own_is_refused() -> None:
    class Logged(nn.Parameter):
        @classmethod
        def __torch_function__(cls, *args: Any, **kwargs: Any) -> Any:
            return super().__torch_function__(*args, **kwargs)

    net = nn.Linear(2, 2)
    net.weight = Logged(torch.ones(2, 2))
    with pytest.raises(RuntimeError, match="its __torch_function__ is not called"):
        net.to("jax")


def test_what_a_subclass_loses_on_the_device_is_said() -> None:
    class Boxes(Tensor):
        def area(self) -> Tensor:
            return self.prod()

    with pytest.warns(UserWarning, match="a Boxes is a plain tensor on the device"):
        torch.ones(4).as_subclass(Boxes).to("jax")
    x = torch.ones(4, device="jax", requires_grad=True)
    (x * 2).as_subclass(Boxes).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [2] * 4


def test_a_trace_is_that_of_a_cpu_copy() -> None:
    """What TensorBoard's add_graph shows; the model itself stays as it is."""
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 2))
    net, x, file = net.to("jax").eval(), torch.randn(2, 3, 8, 8).to("jax"), io.BytesIO()
    net(x).sum().backward()
    parameters, drawn = list(net.parameters()), torch.get_rng_state()
    traced = torch.jit.trace(net, x)
    assert "aten::_convolution" in str(traced.inlined_graph)
    assert all(a is b for a, b in zip(parameters, net.parameters(), strict=True))
    assert all(p.device.type == "jax" and p.grad is not None for p in net.parameters())
    assert torch.equal(torch.get_rng_state(), drawn)
    torch.jit.save(traced, file)
    file.seek(0)
    expected = net(x).detach().cpu()
    torch.testing.assert_close(torch.jit.load(file)(x.cpu()), expected, rtol=1e-5, atol=1e-5)
    with pytest.raises(RuntimeError, match="call the module itself"):
        traced(x)
    with pytest.raises(RuntimeError, match="call the function"):
        torch.jit.trace(lambda x: x * 2, x)
    assert torch.jit.trace(lambda x: x * 2, x.cpu())(x.cpu()).device.type == "cpu"


@pytest.mark.parametrize(
    ("owner", "name", "call"),
    [
        (Tensor, "to", lambda x: torch.ones(2).to("jax")),
        (Tensor, "backward", lambda x: x.requires_grad_().sum().backward()),
        (F, "softmax", lambda x: F.softmax(x, 0)),
    ],
)
def test_a_function_that_a_program_has_replaced(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, call: Callable[[Tensor], Any]
) -> None:
    """It runs once for each call, and torch's own behind it as before."""
    own, calls = getattr(owner, name), []

    def counted(*args: Any, **kwargs: Any) -> Any:
        calls.append(name)
        return own(*args, **kwargs)

    x = torch.ones(2).to("jax")
    monkeypatch.setattr(owner, name, counted)
    call(x)
    assert calls == [name]


def test_writes_to_expanded_tensors_raise() -> None:
    with pytest.raises(RuntimeError, match="elements that are shared"):
        on_device()[0].expand(4, 3).add_(1)


def test_autocast_of_sums_and_exponentials() -> None:
    x = torch.randn(4, 4).to("jax")
    with tpu.autocast():
        low = x @ x
        assert low.exp().dtype == low.sum().dtype == torch.float32


def test_integers_beyond_32_bits_are_refused() -> None:
    with pytest.raises(OverflowError, match="do not fit"):
        torch.tensor([2**40, 5]).to("jax")
    assert torch.tensor([2**31 - 1]).to("jax").item() == 2**31 - 1


def test_plain_save_is_of_the_cpu() -> None:
    net, file = nn.Linear(3, 2).to("jax"), io.BytesIO()
    torch.save(net.state_dict(), file)
    file.seek(0)
    state = torch.load(file)
    assert all(type(v) is torch.Tensor and v.device.type == "cpu" for v in state.values())
    assert torch.equal(state["weight"], net.weight.cpu())


# Images.


def picture(mode: str) -> Image.Image:
    pixels = np.random.default_rng(0).integers(0, 256, (20, 30, 4), dtype=np.uint8)
    image = Image.fromarray(pixels, "RGBA")
    return image.quantize(200) if mode == "P" else image.convert(mode)


@pytest.mark.parametrize("mode", ["L", "LA", "RGB", "RGBA", "P"])
@pytest.mark.parametrize("wanted", ["UNCHANGED", "GRAY", "GRAY_ALPHA", "RGB", "RGB_ALPHA"])
def test_png_as_torchvision_reads_it(tmp_path: Path, mode: str, wanted: str) -> None:
    path = tmp_path / "image.png"
    image = picture(mode)
    image.save(path)
    read_mode = torchvision.io.ImageReadMode[wanted]
    expected = torchvision.io.decode_image(str(path), read_mode)
    encoded = torch.from_numpy(np.fromfile(path, np.uint8))
    for result in (
        tpu.decode_image(path, read_mode),
        tpu.decode_image(encoded, wanted),
        tpu.read_image(str(path), mode=wanted),
    ):
        assert result.dtype == torch.uint8 and result.shape == expected.shape
        # Both weigh red, green and blue alike for gray, and round apart.
        tolerance = 1 if "GRAY" in wanted and mode not in ("L", "LA") else 0
        assert (result.int() - expected.int()).abs().max() <= tolerance


@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
def test_jpeg_as_torchvision_reads_it(tmp_path: Path, orientation: int) -> None:
    path = tmp_path / "image.jpg"
    exif = Image.Exif()
    exif[0x0112] = orientation  # the tag "orientation"
    smooth = Image.fromarray(np.linspace(0, 255, 32 * 48 * 3).reshape(32, 48, 3).astype(np.uint8))
    smooth.save(path, quality=90, exif=exif)
    for apply in (False, True):
        expected = torchvision.io.decode_image(str(path), apply_exif_orientation=apply)
        result = tpu.decode_image(path, apply_exif_orientation=apply)
        assert result.shape == expected.shape
        # Two builds of libjpeg may round apart.
        assert (result.int() - expected.int()).abs().max() <= 2


def test_images_that_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "image.png"
    Image.fromarray(np.zeros((4, 4), np.uint16)).save(path)
    with pytest.raises(RuntimeError, match="16-bit"):
        tpu.decode_image(path)
    path.write_bytes(b"no image")
    with pytest.raises(RuntimeError, match="unsupported image"):
        tpu.read_image(path)
    with pytest.raises(ValueError, match="unknown image mode"):
        tpu.decode_image(path, "CMYK")
    with pytest.raises(FileNotFoundError):
        tpu.read_image(tmp_path / "none.png")


# Processes of their own.


def test_setup_without_a_home(tmp_path: Path) -> None:
    code = (
        "import tpu_runtime as t, jax; t.setup(); t.setup('high'); import torch;"
        "print(torch.ones(2, device='jax').sum().item(), jax.config.jax_compilation_cache_dir,"
        "jax.config.jax_default_matmul_precision)"
    )
    file = tmp_path / "a file"
    file.write_text("")
    done = run(code, HOME=str(file), XDG_CACHE_HOME="")
    assert done.stdout.split() == ["2.0", "None", "high"], done.stderr
    own = tmp_path / "own"
    done = run(code, JAX_COMPILATION_CACHE_DIR=str(own))
    assert done.stdout.split()[1] == str(own) and any(own.iterdir())
    done = run(code, XDG_CACHE_HOME=str(tmp_path / "x"))
    assert done.stdout.split()[1] == str(tmp_path / "x" / "tpu_runtime" / "jax"), done.stderr


def test_a_report_of_the_run_is_written_on_request(tmp_path: Path) -> None:
    code = (
        "import torch, tpu_runtime\n"
        "tpu_runtime.setup()\n"
        "for rows in range(2, 14):\n"
        "    x = torch.ones(rows, 3).to('jax')\n"
        "    (x @ x.T).sum().item()\n"
    )
    done = run(code, TPU_RUNTIME_REPORT=str(tmp_path / "report.json"))
    assert not done.returncode, done.stderr
    figures = json.loads((tmp_path / "report.json").read_text())
    assert figures["programs"] >= 24
    assert figures["text"].startswith(f"{figures['programs']} programs compiled in ")


TRAINING = """
import torch, tpu_runtime
tpu_runtime.setup()
model = torch.nn.Linear(3, 2).to("jax")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(20):
    x = torch.ones(ROWS, 3).to("jax")
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_line_that_compiles_again_and_again_is_named_when_the_program_ends(
    tmp_path: Path,
) -> None:
    def said(rows: str, where: str = "") -> list[str]:
        script = tmp_path / "train.py"
        script.write_text(TRAINING.replace("ROWS", rows))
        code = f"import runpy; runpy.run_path({str(script)!r})"
        done = run(code, TPU_RUNTIME_REPORT=where)
        assert not done.returncode, done.stderr
        return [line for line in done.stderr.splitlines() if line.startswith("tpu_runtime: ")]

    assert not said("4")
    (line,) = said("2 + step")
    assert "times at train.py:11: optimizer.step()" in line
    lines = said("2 + step", "1")
    (costly,) = (n for n, line in enumerate(lines) if "20 runs) at train.py:11: optimizer" in line)
    assert "drop_last=True" in lines[costly + 1]
    assert not any("drop_last" in line for line in said("4", "1"))
    assert not said("2 + step", "0")


def test_the_report_says_why_a_model_was_never_compiled() -> None:
    code = (
        "import torch, tpu_runtime\n"
        "tpu_runtime.setup()\n"
        "class Net(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.first, self.last = torch.nn.Linear(3, 3), torch.nn.Linear(3, 2)\n"
        "    def forward(self, x):\n"
        "        h = self.first(x)\n"
        "        return self.last(h[h[:, 0] > 0])\n"
        "net = Net().to('jax')\n"
        "for rows in range(30, 33):\n"
        "    net(torch.randn(rows, 3).to('jax')).sum().backward()\n"
    )
    (line,) = (
        line
        for line in run(code, TPU_RUNTIME_REPORT="1").stderr.splitlines()
        if line.startswith("tpu_runtime: Net with gradients: 3 calls")
    )
    assert "not compiled" in line


def test_a_model_that_is_never_compiled_is_named_when_the_program_ends(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import torch, tpu_runtime\n"
        "tpu_runtime.setup()\n"
        "class Part(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        return x if x.sum().item() > 0 else -x\n"
        "class Net(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.first, self.last = torch.nn.Linear(3, 3), Part()\n"
        "    def forward(self, x):\n"
        "        return self.last(self.first(x))\n"
        "net = Net().to('jax')\n"
        "for step in range(8):\n"
        "    net(torch.randn(4, 3).to('jax')).sum().backward()\n"
    )
    code = f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')"
    done = run(code, TPU_RUNTIME_REPORT="")
    (line,) = [each for each in done.stderr.splitlines() if each.startswith("tpu_runtime: ")]
    assert line.count("is not compiled as a whole") == 1  # the reason is one
    assert "Net with gradients" in line and "train.py:5: return x if x.sum().item()" in line
    assert "torch.where in place of a condition" in line


def test_what_the_cpu_computes_in_place_is_written_to_lists_of_tensors_too() -> None:
    gradients, found = [torch.ones(2).to("jax"), torch.ones(3).to("jax")], torch.zeros(1).to("jax")
    half = torch.full((1,), 0.5).to("jax")
    torch._amp_foreach_non_finite_check_and_unscale_(gradients, found, half)
    assert [gradient.tolist() for gradient in gradients] == [[0.5] * 2, [0.5] * 3]


def test_a_tensor_that_grows() -> None:
    x = torch.arange(2.0).to("jax")
    assert x.resize_(2, 2).shape == x.shape == (2, 2) and x[0].tolist() == [0, 1]


def test_data_parallel_that_was_left_is_the_model_itself() -> None:
    """It asked CUDA for its devices."""
    torch.manual_seed(0)
    linear, x = nn.Linear(3, 2), torch.randn(4, 3)
    expected = linear(x)
    model = torch.nn.DataParallel(linear, device_ids=[0, 1]).to("jax")
    assert list(model.state_dict()) == ["module.weight", "module.bias"]
    for given in (x, x.to("jax")):  # of the CPU, too: torch's own moves its inputs
        assert torch.allclose(model(given).cpu(), expected, atol=1e-6)
