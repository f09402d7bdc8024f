"""Training by tpu_runtime on torchax against CPU torch; run as tests/runtime/conftest.py says."""

import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import tpu_runtime as tpu
from torch import Tensor, nn

tpu.setup()

RUNTIME = Path(tpu.__file__).parents[1]
# float32 has 1.2e-7; five steps of some hundred operations each, whose sums two back ends take in
# another order, leave the losses equal to 1e-4 and the parameters to 1e-3 of their norm.
LOSS, PARAMETERS = 1e-4, 1e-3
STEPS = 5

Make = Callable[[], nn.Module]
Loss = Callable[..., Tensor]
MakeOptimizer = Callable[[Iterable[Tensor]], torch.optim.Optimizer]


class ConvNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        # No bias in front of the norm: its gradient is 0 but for rounding, which Adam blows up.
        self.conv = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 8, 3, stride=2, groups=2)
        self.head = nn.Linear(8 * 9, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.norm(self.conv(x))), 2)
        return self.head(F.relu(self.conv2(x)).flatten(1))  # type: ignore[no-any-return]


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(3, 8, 3, padding=1)
        self.middle = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.SiLU())
        self.up = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
        self.join = nn.Conv2d(16, 8, 3, padding=1, padding_mode="reflect")
        self.out = nn.ConvTranspose2d(8, 1, 2, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        first = F.relu(self.down(x))
        joined = torch.cat([first, self.up(self.middle(F.avg_pool2d(first, 2)))], 1)
        return self.out(F.leaky_relu(self.join(joined)))  # type: ignore[no-any-return]


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.LSTM] | type[nn.GRU]) -> None:
        super().__init__()
        self.cells = kind(5, 6, batch_first=True, bidirectional=True)
        self.head = nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.cells(x)[0][:, -1])  # type: ignore[no-any-return]


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 1)
        self.head = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layers(x).mean(1))  # type: ignore[no-any-return]


class GPT(nn.Module):
    """One block, with the embedding and the last layer tied."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(20, 16), nn.Parameter(torch.zeros(8, 16))
        self.norm, self.norm2 = nn.LayerNorm(16), nn.LayerNorm(16)
        # No bias: a bias of all keys moves no attention weight, its gradient is rounding.
        self.qkv, self.merge = nn.Linear(16, 48, bias=False), nn.Linear(16, 16)
        self.mlp = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
        self.head = nn.Linear(16, 20, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, x: Tensor) -> Tensor:
        batch, length = x.shape
        h = self.tokens(x) + self.places[:length]
        q, k, v = (
            part.view(batch, length, 2, 8).transpose(1, 2)
            for part in self.qkv(self.norm(h)).chunk(3, -1)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        h = h + self.merge(mixed.transpose(1, 2).reshape(batch, length, 16))
        return self.head(h + self.mlp(self.norm2(h))).flatten(0, 1)  # type: ignore[no-any-return]


class VAE(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encode, self.decode = nn.Linear(12, 8), nn.Linear(4, 12)

    def loss(self, x: Tensor, noise: Tensor) -> Tensor:
        mean, logarithm = self.encode(x).chunk(2, -1)
        made = self.decode(mean + noise * (logarithm / 2).exp())
        divergence = -0.5 * (1 + logarithm - mean**2 - logarithm.exp()).sum()
        return (F.mse_loss(made, x, reduction="sum") + divergence) / x.numel()


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))


def classify(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(net(x), y.flatten())


def images() -> tuple[Tensor, ...]:
    return torch.randn(8, 3, 16, 16), torch.randint(0, 4, (8,))


def vectors() -> tuple[Tensor, ...]:
    return torch.randn(16, 6), torch.randint(0, 3, (16,))


def sequences(size: int) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: (torch.randn(4, 3, size), torch.randint(0, 3, (4,)))


MODELS: dict[str, tuple[Make, Callable[[], tuple[Tensor, ...]], Loss]] = {
    "mlp": (mlp, vectors, classify),
    "convnet": (ConvNet, images, classify),
    "unet": (
        UNet,
        lambda: (torch.randn(2, 3, 8, 8), torch.rand(2, 1, 16, 16)),
        lambda net, x, y: F.binary_cross_entropy_with_logits(net(x), y),
    ),
    "lstm": (lambda: Recurrent(nn.LSTM), sequences(5), classify),
    "gru": (lambda: Recurrent(nn.GRU), sequences(5), classify),
    "encoder": (Encoder, sequences(16), classify),
    "gpt": (
        GPT,
        lambda: (torch.randint(0, 20, (2, 8)), torch.randint(0, 20, (2, 8))),
        classify,
    ),
    "vae": (
        VAE,
        lambda: (torch.rand(8, 12), torch.randn(8, 4)),
        lambda net, x, noise: net.loss(x, noise),
    ),
}
OPTIMIZERS: dict[str, MakeOptimizer] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=1e-2),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-2, amsgrad=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.05),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-3, momentum=0.5, centered=True),
}
OTHER_OPTIMIZERS: dict[str, MakeOptimizer] = {
    "adadelta": lambda p: torch.optim.Adadelta(p),
    "nadam": lambda p: torch.optim.NAdam(p),
    "radam": lambda p: torch.optim.RAdam(p),
    "asgd": lambda p: torch.optim.ASGD(p),
    "rprop": lambda p: torch.optim.Rprop(p),
    "adamax": lambda p: torch.optim.Adamax(p),
    "adafactor": lambda p: torch.optim.Adafactor(p),
    "sgd foreach": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, foreach=True),
    "adamw foreach": lambda p: torch.optim.AdamW(p, amsgrad=True, foreach=True),
    "adagrad foreach": lambda p: torch.optim.Adagrad(p, foreach=True),
    "rmsprop foreach": lambda p: torch.optim.RMSprop(p, foreach=True),
    "rate in a tensor": lambda p: torch.optim.Adam(p, lr=torch.tensor(0.01)),
}


def difference(result: Tensor, expected: Tensor) -> float:
    """Relative to the norm of what is expected."""
    result, expected = result.detach().cpu().double(), expected.detach().cpu().double()
    assert result.shape == expected.shape
    return float((result - expected).norm() / expected.norm().clamp_min(1e-12))


def run(name: str, optimizer: MakeOptimizer, device: str, double: bool = False) -> Any:
    """Losses and state after some steps."""
    make, batch, loss = MODELS[name]
    torch.manual_seed(0)
    data = batch()
    net = make()
    if double:
        net, data = net.double(), tuple(t.double() if t.is_floating_point() else t for t in data)
    steps = optimizer(net.parameters())  # before .to(): it must keep the parameters
    net.to(device)
    data = tuple(t.to(device) for t in data)
    losses = []
    for _ in range(STEPS):
        steps.zero_grad()
        value = loss(net, *data)
        value.backward()
        steps.step()
        losses.append(value.item())
    return torch.tensor(losses, dtype=torch.float64), net.state_dict()


def differences(name: str, optimizer: MakeOptimizer, double: bool = False) -> tuple[float, float]:
    losses, state = run(name, optimizer, "cpu", double)
    device_losses, device_state = run(name, optimizer, "jax", double)
    assert all(v.device.type == "jax" for v in device_state.values())
    worst = max(difference(device_state[key], state[key]) for key in state)
    return difference(device_losses, losses), worst


@pytest.mark.parametrize("name", MODELS)
def test_models(name: str) -> None:
    loss, parameters = differences(name, OPTIMIZERS["sgd"])
    assert loss < LOSS and parameters < PARAMETERS, (loss, parameters)


@pytest.mark.parametrize("optimizer", [name for name in OPTIMIZERS if name != "sgd"])
def test_optimizers(optimizer: str) -> None:
    for name in ("mlp", "convnet"):
        loss, parameters = differences(name, OPTIMIZERS[optimizer])
        assert loss < LOSS and parameters < PARAMETERS, (name, loss, parameters)


@pytest.mark.parametrize("optimizer", OTHER_OPTIMIZERS)
def test_other_optimizers(optimizer: str) -> None:
    loss, parameters = differences("mlp", OTHER_OPTIMIZERS[optimizer])
    assert loss < LOSS and parameters < PARAMETERS, (loss, parameters)


def test_cuda_options_are_dropped() -> None:
    weight = nn.Parameter(torch.ones(3).to("jax"))
    optimizer = torch.optim.AdamW([weight], fused=True)
    (weight**2).sum().backward()
    with pytest.warns(UserWarning, match="fused=True is for CUDA"):
        optimizer.step()
    assert weight.detach().cpu().max() < 1


def test_float64() -> None:
    """Where float32 stops at 1e-4 for rounding, float64 goes on to 1e-9: nothing else differs."""
    code = (
        "import test_torchax_training as t\n"
        "for name in ('convnet', 'gpt'):\n"
        "    print(*t.differences(name, t.OPTIMIZERS['adam'], double=True))"
    )
    paths = os.pathsep.join([str(RUNTIME), str(Path(__file__).parent)])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": paths, "JAX_ENABLE_X64": "1"},
        capture_output=True,
        text=True,
    )
    found = [float(word) for word in done.stdout.split()]
    assert len(found) == 4 and max(found) < 1e-9, (found, done.stderr[-2000:])


def gan(device: str, penalty: bool) -> Tensor:
    """Two nets with an optimizer each; with ``penalty`` the WGAN-GP loss (double backward)."""
    torch.manual_seed(0)
    maker = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 6)).to(device)
    judge = nn.Sequential(nn.Linear(6, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1)).to(device)
    of_maker = torch.optim.SGD(maker.parameters(), lr=0.1, momentum=0.5)
    of_judge = torch.optim.SGD(judge.parameters(), lr=0.1)
    real, noise, mix = (
        t.to(device) for t in (torch.randn(5, 6), torch.randn(5, 4), torch.rand(5, 1))
    )
    losses = []
    for _ in range(STEPS):
        of_judge.zero_grad()
        fake = maker(noise)
        if penalty:
            between = (mix * real + (1 - mix) * fake.detach()).requires_grad_()
            slope = torch.autograd.grad(judge(between).sum(), between, create_graph=True)[0]
            loss = judge(fake.detach()).mean() - judge(real).mean()
            loss = loss + 10 * ((slope.norm(2, dim=1) - 1) ** 2).mean()
        else:
            ones, zeros = torch.ones_like(mix), torch.zeros_like(mix)
            loss = F.binary_cross_entropy_with_logits(judge(real), ones)
            loss = loss + F.binary_cross_entropy_with_logits(judge(fake.detach()), zeros)
        loss.backward()
        of_judge.step()
        of_maker.zero_grad()
        (-judge(maker(noise)).mean()).backward()
        of_maker.step()
        losses.append(loss.item())
    parameters = [p.detach().cpu().flatten() for net in (maker, judge) for p in net.parameters()]
    return torch.cat([torch.tensor(losses), *parameters])


@pytest.mark.parametrize("penalty", [False, True], ids=["gan", "wgan-gp"])
def test_two_optimizers(penalty: bool) -> None:
    assert difference(gan("jax", penalty), gan("cpu", penalty)) < LOSS


def steps(net: nn.Module, optimizer: Any, scheduler: Any, device: str) -> Iterator[float]:
    torch.manual_seed(1)
    x, y = (t.to(device) for t in images())
    while True:
        optimizer.zero_grad()
        loss = classify(net, x, y)
        loss.backward()
        optimizer.step()
        scheduler.step()
        yield loss.item()


@pytest.mark.parametrize(("first", "second"), [("jax", "cpu"), ("cpu", "jax"), ("jax", "jax")])
def test_resume(first: str, second: str) -> None:
    def build(device: str) -> tuple[nn.Module, Any, Any]:
        torch.manual_seed(0)
        net = ConvNet().to(device)
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
        return net, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)

    parts = build("cpu")
    run_through = steps(*parts, "cpu")
    expected = [next(run_through) for _ in range(5)]
    net, optimizer, scheduler = build(first)
    before = steps(net, optimizer, scheduler, first)
    losses = [next(before) for _ in range(3)]
    file = io.BytesIO()
    torch.save([net.state_dict(), optimizer.state_dict(), scheduler.state_dict()], file)
    file.seek(0)
    saved = tpu.load(file, map_location=second)
    resumed = build(second)
    for part, state in zip(resumed, saved, strict=True):
        part.load_state_dict(state)
    after = steps(*resumed, second)
    losses += [next(after) for _ in range(2)]
    assert difference(torch.tensor(losses), torch.tensor(expected)) < LOSS
    assert difference(resumed[0].norm.running_var, parts[0].norm.running_var) < LOSS  # type: ignore[union-attr,arg-type]
