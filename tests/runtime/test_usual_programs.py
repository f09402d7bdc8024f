"""A copy of the runtime for a program that only calls models: what `analysis/usual.py` lists."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from target import TARGET, WORD
from tiers import thorough_but

from migrator.analysis.usual import FUNCTIONS, LAYERS, MAKERS, METHODS
from migrator.runs.bundle import USUAL, Needs, bundle
from migrator.targets import targets

if TARGET not in ("torchax", "torch_xla"):
    pytest.skip("needs an environment of a target", allow_module_level=True)

# Expressions of the names; x is float32 of shape (2, 3), image (2, 4, 8, 8), n integers of (2, 3).
CASES = {
    "Linear": "nn.Linear(3, 5)(x)", "Conv1d": "nn.Conv1d(8, 3, 3, padding=1)(image[:, 0])",
    "Conv2d": "nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2)(image)",
    "BatchNorm1d": "nn.BatchNorm1d(3).eval()(x); nn.BatchNorm1d(3)(x)",
    "BatchNorm2d": "nn.BatchNorm2d(4).eval()(image); nn.BatchNorm2d(4)(image)",
    "LayerNorm": "nn.LayerNorm(3)(x)", "GroupNorm": "nn.GroupNorm(2, 4)(image)",
    "ReLU": "nn.ReLU()(x)", "LeakyReLU": "nn.LeakyReLU(0.2)(x)", "GELU": "nn.GELU()(x)",
    "SiLU": "nn.SiLU()(x)", "Sigmoid": "nn.Sigmoid()(x)", "Tanh": "nn.Tanh()(x)",
    "Softmax": "nn.Softmax(1)(x)", "LogSoftmax": "nn.LogSoftmax(dim=-1)(x)",
    "MaxPool2d": "nn.MaxPool2d(3, 2, 1)(image); nn.MaxPool2d(2)(image)",
    "AvgPool2d": "nn.AvgPool2d(2)(image); nn.AvgPool2d(3, 1, 1)(image)",
    "AdaptiveAvgPool2d": "nn.AdaptiveAvgPool2d(1)(image); nn.AdaptiveAvgPool2d((3, 5))(image)",
    "Flatten": "nn.Flatten()(image)", "Dropout": "nn.Dropout(0.5).eval()(x)",
    "Identity": "nn.Identity()(x)", "Embedding": "nn.Embedding(9, 4)(n)",
    "relu": "torch.relu(x); F.relu(x)", "leaky_relu": "F.leaky_relu(x)", "gelu": "F.gelu(x)",
    "silu": "F.silu(x)", "sigmoid": "torch.sigmoid(x); x.sigmoid()", "tanh": "torch.tanh(x)",
    "softmax": "F.softmax(x, dim=0); x.softmax(-1); x[:0].softmax(1)",
    "log_softmax": "F.log_softmax(x, 1); x.log_softmax(0)", "linear": "F.linear(x, x)",
    "max_pool2d": "F.max_pool2d(image, 2)", "avg_pool2d": "F.avg_pool2d(image, 2)",
    "adaptive_avg_pool2d": "F.adaptive_avg_pool2d(image, 1)",
    "cat": "torch.cat([x, x + 1], 1); torch.cat([n, n])", "stack": "torch.stack([x, x], dim=1)",
    "matmul": "torch.matmul(x, x.transpose(0, 1)); x @ x[0]; x.matmul(x[1])",
    "exp": "torch.exp(x); x.exp()",
    "argmax": "x.argmax(); torch.argmax(x, 1); n.argmax(dim=-1); x.argmax(0, keepdim=True)",
    "topk": "x.topk(2).values; x.topk(2)[1]; torch.topk(n, 1, 0)[0]",
    "max": "x.max(); x.max(1)[0]; torch.max(x, 0)[1]; n.max(); x.max(dim=1, keepdim=True).values",
    "min": "x.min(); x.min(1)[1]; torch.min(n)", "mean": "x.mean(); x.mean((0, 1)); image.mean(1)",
    "sum": "x.sum(); n.sum(); (n == 2).sum(); (n > 1).sum(0); torch.sum(x, dim=1, keepdim=True)",
    "flatten": "image.flatten(1); torch.flatten(x)",
    "squeeze": "x[:1].squeeze(); x[:, :1].squeeze(1)",
    "unsqueeze": "x.unsqueeze(0); torch.unsqueeze(n, -1)",
    "permute": "image.permute(0, 2, 3, 1); image[0].permute(1, 2, 0) + 1",
    "transpose": "image.transpose(1, 3); torch.transpose(x, 0, 1) * 2",
    "reshape": "x.reshape(3, 2); x.transpose(0, 1).reshape(-1); torch.reshape(n, (6,))",
    "normalize": "F.normalize(x, dim=1)", "one_hot": "F.one_hot(n, 9)",
    "item": "x[0, 1].item(); n[1][2].item(); x.sum().item(); (x[0, 0] > 9).item()",
    "tolist": "x.tolist(); n[0].tolist(); x[0, 0].tolist()", "numpy": "(x * 2).cpu().numpy()",
    "cpu": "x.cpu() + 1; n.cpu()[0]", "to": "x.to('cpu'); n.to(torch.float32); x.to(x.device) - 1",
    "float": "n.float() / 255; (n == 1).float().mean(); float(x[0, 0])",
    "size": "x.size(); image.size(1)", "shape": "image.shape[-2:]; len(x)", "dim": "image.dim()",
    "numel": "image.numel()", "view": "x.view(3, -1); image.view(2, -1)[:, 1:]",
    "contiguous": "x.transpose(0, 1).contiguous() / 2", "detach": "x.detach() + 1",
    "clone": "x.clone() - n",
    "ones": "torch.ones(2, 3).to(x.device) * x; torch.ones(2, device=x.device)",
    "zeros": "torch.zeros((2, 2), device=x.device); torch.zeros(3).to(x.device) + x",
    "rand": "torch.rand(50, device=x.device).mean() > 0.1; torch.rand(2, 3).to(x.device) < 1",
    "randn": "torch.randn(2, 3, device=x.device).shape; torch.randn(3).to(x.device).size(0)",
    "tensor": "torch.tensor([1.5, 2]).to(x.device); torch.tensor([3, 4], device=x.device) + 1;"
    "torch.tensor(7, device=x.device) / 2; torch.tensor([True, False]).to(x.device)",
    "from_numpy": "torch.from_numpy(np.arange(6.0, dtype='float32')).to(x.device);"
    "torch.from_numpy(np.arange(250, 256, dtype='uint8')).to(x.device).float() / 255",
    "operators": "x + n; x - 1.5; 2 * x / 3; -x; n / 2; n * 3 - 1; x == n; x > 0; n != 2;"
    "x <= n[0]; [v.item() for v in x[0]]; [v.tolist() for v in n];"
    "[a.item() for a, b in zip(x[0], n[0])];"
    "x[1]; x[-1, 0]; x[:, 1:]; x[..., None]; x[:, -9:]; x[0][1:5]; f'{x[0, 1]:.3f}'",
}  # fmt: skip
SCRIPT = """
import json, sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import tpu_runtime

tpu_runtime.setup()
cases, device = json.loads(sys.stdin.read()), sys.argv[1]
generator = np.random.default_rng(0)
values = generator.normal(size=(2, 3)), generator.normal(size=(2, 4, 8, 8))


class There:
    # torch.nn whose layers lie on a device
    def __init__(self, device):
        self.device = device

    def __getattr__(self, name):
        def make(*args, **kwargs):
            torch.manual_seed(0)
            return getattr(torch.nn, name)(*args, **kwargs).to(self.device)

        return make


def plain(value):
    value = value.cpu().detach().numpy() if isinstance(value, torch.Tensor) else value
    return np.asarray(value) if not isinstance(value, str) else value


def evaluated(text, device):
    x, image = (torch.tensor(v, dtype=torch.float32).to(device) for v in values)
    n = torch.tensor([[4, 2, 0], [1, 2, 7]]).to(device)
    here = {"x": x, "image": image, "n": n, "torch": torch, "F": F, "np": np, "nn": There(device)}
    return [plain(eval(part, here)) for part in text.split(";") if part.strip()]


for name, text in cases.items():
    for no_grad in (True, False):
        with torch.set_grad_enabled(not no_grad):
            expected, found = evaluated(text, "cpu"), evaluated(text, device)
        for number, (one, other) in enumerate(zip(expected, found, strict=True)):
            same = one == other if isinstance(one, str) else (
                one.shape == other.shape and one.dtype.kind == other.dtype.kind
                and np.allclose(one, other, rtol=1e-5, atol=1e-6)
            )
            if not same:
                print(name, text.split(";")[number], one, other)
"""
# What somebody may add to such a program later, in front of `print(x)`, without a new copy.
EDITS = """
y = x.view(6); y.mul_(2)
y = x[0]; y.mul_(2)
y = x[0]; x.mul_(2); x = y
y = x.view(6)[1:]; x.mul_(2); x = y
y = x.detach(); y.mul_(2)
y = x.data; y.mul_(2)
x[0] = 5
x[0] += 5
x.view(6)[2] = 9
y = x.transpose(0, 1); x.zero_(); x = y
a, b = x; a.fill_(9)
for row in x.unbind(): row.zero_()
y = x.reshape(6); x.add_(1); x = y
x.requires_grad_(); (x * x).sum().backward(); x = x.grad
x.clamp_(max=2)
x += 1
x.copy_(torch.zeros(2, 3))
m = torch.nn.ReLU().to(x.device); x = m(x - 2)
m = torch.nn.Linear(3, 2); d = m.state_dict(); m.to(x.device).load_state_dict(d); x = m(x) * 0
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the runtime for such programs, and for their layers that say who needs them."""
    folder = tmp_path_factory.mktemp("usual")
    (folder / "tpu_runtime").mkdir()
    words = {USUAL, "torchvision", *LAYERS, *FUNCTIONS, *METHODS}
    for name, content in bundle(targets()[TARGET]).of(Needs(words, set())).items():
        (folder / "tpu_runtime" / name).write_bytes(content)
    return folder


def run(folder: Path, code: str, text: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, WORD], cwd=folder, input=text, capture_output=True,
        text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_name_has_the_numbers_of_torch(copy: Path) -> None:
    assert CASES.keys() == LAYERS | FUNCTIONS | METHODS | MAKERS | {"operators"}
    assert run(copy, SCRIPT, json.dumps(CASES)) == ""


@pytest.mark.parametrize("name", thorough_but(["resnet18"], [
    "resnet18", "resnext50_32x4d", "wide_resnet50_2", "vgg11_bn", "alexnet", "squeezenet1_1",
    "densenet121", "mobilenet_v2", "mobilenet_v3_small", "mnasnet0_5", "shufflenet_v2_x0_5",
    "efficientnet_b0", "efficientnet_v2_s", "regnet_y_400mf", "regnet_x_400mf", "convnext_tiny",
    "googlenet", "inception_v3",
]))  # fmt: skip
def test_models_of_torchvision(copy: Path, name: str) -> None:
    code = f"""
import sys, torch, torchvision, tpu_runtime
torch.manual_seed(0)
model = torchvision.models.{name}(weights=None).eval()
x = torch.randn(2, 3, 96, 96)
with torch.no_grad():
    expected = model(x)
    tpu_runtime.setup()
    found = model.to(sys.argv[1])(x.to(sys.argv[1])).cpu()
print(((found - expected).abs().max() / expected.abs().max()).item())
"""
    assert float(run(copy, code, "")) < 1e-4


def test_an_edit_gives_no_other_numbers(copy: Path) -> None:
    """Views, writes and gradients are right, or refused, in a copy that has no files for them."""
    code = """
import sys, torch, tpu_runtime
tpu_runtime.setup()
for line in sys.stdin.read().strip().splitlines():
    shown = []
    for device in ("cpu", sys.argv[1]):
        torch.manual_seed(0)
        here = {"torch": torch, "x": torch.arange(6.0).reshape(2, 3).to(device)}
        try:
            exec(line, here)
            shown.append(here["x"].tolist())
        except RuntimeError as error:
            shown.append(str(error))
    refused = "run tpu-migrate again" in shown[1]
    print("refused" if refused else "right" if shown[0] == shown[1] else f"wrong: {line} {shown}")
"""
    found = run(copy, code, EDITS).splitlines()
    assert {*found} <= {"refused", "right"}, found
    assert found[-5:] == ["right"] * 5
