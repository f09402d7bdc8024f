"""Training by the runtimes of both targets gives the losses and parameters of CPU torch.

Each model trains from the same weights on the same batches on the CPU and on the device; run in the
environment of each target, see conftest.py.
"""

import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import tpu_runtime as tpu
from tiers import thorough_but
from torch import Tensor, nn, optim

from tests.runtime.support import TARGET, WORD, difference

tpu.setup()

STEPS = 6
Batch = tuple[Tensor, ...]
Model = tuple[Callable[[], nn.Module], Callable[[], Batch], Callable[..., Tensor]]
MakeOptimizer = Callable[[Iterable[Tensor]], optim.Optimizer]


@dataclass(frozen=True)
class Target:
    """In what the targets differ."""

    sync: Callable[[], object]  # what the tool writes behind the last optimizer of a step
    # How far losses and state may be apart, by type. float32 has 1.2e-7; what some hundred
    # operations add up in another order.
    tolerances: dict[torch.dtype, tuple[float, float]]
    moves_state: bool  # that an optimizer makes before its module moves: Adagrad (CUDA refuses too)


def torchax() -> Target:
    # float64 needs a process of its own: test_torchax_training.py.
    return Target(lambda: None, {torch.float32: (1e-4, 1e-3)}, moves_state=True)


def torch_xla() -> Target:
    import torch_xla

    # Measured: at most 4e-6 and 1e-12.
    tolerances = {torch.float32: (2e-5, 2e-5), torch.float64: (1e-11, 1e-11)}
    return Target(torch_xla.sync, tolerances, moves_state=False)


HERE = {"torchax": torchax, "torch_xla": torch_xla}[TARGET]()
# XLA computes GELU of float64 values to 5e-9 only (GPT); ASGD keeps its step size in float32.
LESS_THAN_FLOAT64 = {"gpt", "asgd"}
# The widest type shows most.
TYPES = pytest.mark.parametrize(
    "dtype", thorough_but([*HERE.tolerances][-1:], HERE.tolerances), ids=str
)


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


MODELS: dict[str, Model] = {
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
    "sgd": lambda p: optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
    "sgd with decay": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-2),
    "adam": lambda p: optim.Adam(p, lr=1e-2),
    "adam amsgrad": lambda p: optim.Adam(p, lr=1e-2, amsgrad=True),
    "adamw": lambda p: optim.AdamW(p, lr=1e-2, amsgrad=True),
    "adamw fused": lambda p: optim.AdamW(p, 1e-2, fused=True),
    "adagrad": lambda p: optim.Adagrad(p, lr=0.05),
    "rmsprop": lambda p: optim.RMSprop(p, lr=1e-3, momentum=0.5, centered=True),
    "adadelta": lambda p: optim.Adadelta(p),
    "nadam": lambda p: optim.NAdam(p),
    "radam": lambda p: optim.RAdam(p),
    "asgd": lambda p: optim.ASGD(p),
    "rprop": lambda p: optim.Rprop(p),
    "adamax": lambda p: optim.Adamax(p),
    "adafactor": lambda p: optim.Adafactor(p),
    "sgd foreach": lambda p: optim.SGD(p, lr=0.05, momentum=0.9, foreach=True),
    "adamw foreach": lambda p: optim.AdamW(p, amsgrad=True, foreach=True),
    "adagrad foreach": lambda p: optim.Adagrad(p, foreach=True),
    "rmsprop foreach": lambda p: optim.RMSprop(p, foreach=True),
    "rate in a tensor": lambda p: optim.Adam(p, lr=torch.tensor(0.01)),
}
COMMON = ("sgd", "adam", "adamw", "adagrad", "rmsprop", "adamw foreach", "rate in a tensor")


def train(
    model: Model, optimizer: MakeOptimizer, device: str, dtype: torch.dtype
) -> dict[str, Tensor]:
    """Losses, and everything that the module holds after the last step."""
    make, batch, loss = model
    torch.manual_seed(0)
    batches = [batch() for _ in range(STEPS)]
    net = make().to(dtype)
    steps = optimizer(net.parameters())  # before .to(): it must keep the parameters
    net.to(device)
    if isinstance(steps, optim.Adagrad) and not HERE.moves_state:
        steps = optimizer(net.parameters())
    losses = []
    for data in batches:
        data = tuple(t.to(device, dtype if t.is_floating_point() else None) for t in data)
        steps.zero_grad()
        value = loss(net, *data)
        value.backward()
        steps.step()
        HERE.sync()
        losses.append(value.item())
    assert losses[0] != losses[-1]
    assert all(value.device.type == device for value in net.state_dict().values())
    return {"losses": torch.tensor(losses, dtype=torch.float64), **net.state_dict()}


def differences(
    model: Model, optimizer: MakeOptimizer, dtype: torch.dtype = torch.float32
) -> dict[str, float]:
    found, expected = (train(model, optimizer, device, dtype) for device in (WORD, "cpu"))
    return {name: difference(found[name], value) for name, value in expected.items()}


def compare(name: str, make: str, dtype: torch.dtype) -> None:
    of_losses, of_state = HERE.tolerances[dtype]
    if dtype == torch.float64 and {name, make} & LESS_THAN_FLOAT64:
        of_losses = of_state = 2e-7
    found = differences(MODELS[name], OPTIMIZERS[make], dtype)
    assert found.pop("losses") <= of_losses
    assert {key: d for key, d in found.items() if not d <= of_state} == {}


@TYPES
@pytest.mark.parametrize("name", thorough_but(("convnet", "gpt"), MODELS))
def test_models(name: str, dtype: torch.dtype) -> None:
    compare(name, "sgd", dtype)


@TYPES
@pytest.mark.parametrize("make", thorough_but(COMMON, OPTIMIZERS))
def test_optimizers(make: str, dtype: torch.dtype) -> None:
    compare("mlp", make, dtype)


@pytest.mark.thorough
@pytest.mark.parametrize("make", ["adam", "adamw", "adagrad", "rmsprop"])
def test_optimizers_of_a_convolutional_net(make: str) -> None:
    compare("convnet", make, torch.float32)


@pytest.mark.parametrize("dtype", HERE.tolerances, ids=str)
def test_a_bias_in_front_of_batch_norm_follows_rounding_alone(dtype: torch.dtype) -> None:
    """Why parameters under Adagrad may seem to part from CPU torch's: they do not.

    BatchNorm takes the bias of the convolution in front of it away again: its true gradient is 0,
    and what is computed is rounding noise. Adagrad divides that noise by its own size, so in
    float32 the bias takes steps of the learning rate in the noise's direction, which differs. In
    float64 the noise (1e-17) is far below Adagrad's eps (1e-10), and the bias agrees to 1e-6. None
    of the other parameters, and no loss, sees it; `running_mean` contains it.
    """

    def with_bias() -> nn.Module:
        convolution = nn.Conv2d(2, 4, 3)
        return nn.Sequential(
            convolution, nn.BatchNorm2d(4), nn.SiLU(), nn.Flatten(), nn.Linear(64, 2)
        )

    batch = lambda: (torch.randn(4, 2, 6, 6), torch.randn(4, 2))  # noqa: E731
    model = (with_bias, batch, lambda net, x, y: F.mse_loss(net(x), y))
    wrong = differences(model, OPTIMIZERS["adagrad"], dtype)
    noise = {name: wrong.pop(name) for name in ("0.bias", "1.running_mean")}
    tolerance = HERE.tolerances[dtype][0]
    assert max(wrong.values()) <= tolerance
    if dtype == torch.float64:
        assert max(noise.values()) < 1e-5
    else:
        assert min(noise.values()) > 100 * tolerance


def gan(device: str, dtype: torch.dtype, penalty: bool) -> Tensor:
    """Two nets with an optimizer each; with ``penalty`` the WGAN-GP loss (double backward)."""
    torch.manual_seed(0)
    maker = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 6))
    judge = nn.Sequential(nn.Linear(6, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
    maker, judge = maker.to(dtype).to(device), judge.to(dtype).to(device)
    of_maker = optim.SGD(maker.parameters(), lr=0.1, momentum=0.5)
    of_judge = optim.Adam(judge.parameters(), lr=1e-2)
    losses = []
    for _ in range(STEPS):
        real, noise, mix = (
            t.to(device, dtype) for t in (torch.randn(5, 6), torch.randn(5, 4), torch.rand(5, 1))
        )
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
        (-judge(fake).mean()).backward()
        of_maker.step()
        HERE.sync()  # one is enough
        losses.append(loss.item())
    parameters = [p.detach().cpu().flatten() for net in (maker, judge) for p in net.parameters()]
    return torch.cat([torch.tensor(losses), *parameters])


@TYPES
@pytest.mark.parametrize("penalty", thorough_but([True], [False, True]), ids=["gan", "wgan-gp"])
def test_two_optimizers(penalty: bool, dtype: torch.dtype) -> None:
    found = difference(gan(WORD, dtype, penalty), gan("cpu", dtype, penalty))
    assert found <= HERE.tolerances[dtype][0]


def steps(net: nn.Module, optimizer: Any, scheduler: Any, device: str) -> Iterator[float]:
    torch.manual_seed(1)
    x, y = (t.to(device) for t in images())
    while True:
        optimizer.zero_grad()
        loss = classify(net, x, y)
        loss.backward()
        optimizer.step()
        HERE.sync()
        scheduler.step()
        yield loss.item()


@pytest.mark.parametrize(
    ("first", "second"),
    [(WORD, "cpu"), ("cpu", WORD), pytest.param(WORD, WORD, marks=pytest.mark.thorough)],
)
def test_resume(first: str, second: str) -> None:
    def build(device: str) -> tuple[nn.Module, Any, Any]:
        torch.manual_seed(0)
        net = ConvNet().to(device)
        optimizer = optim.AdamW(net.parameters(), lr=1e-2)
        return net, optimizer, optim.lr_scheduler.StepLR(optimizer, 2, 0.5)

    parts = build("cpu")
    run_through = steps(*parts, "cpu")
    expected = [next(run_through) for _ in range(5)]
    begun = build(first)
    before = steps(*begun, first)
    losses = [next(before) for _ in range(3)]
    file = io.BytesIO()
    tpu.save([part.state_dict() for part in begun], file)
    file.seek(0)
    saved = tpu.load(file, map_location=second)
    resumed = build(second)
    for part, state in zip(resumed, saved, strict=True):
        part.load_state_dict(state)
    after = steps(*resumed, second)
    losses += [next(after) for _ in range(2)]
    assert difference(torch.tensor(losses), torch.tensor(expected)) < 1e-4
    assert difference(resumed[0].norm.running_var, parts[0].norm.running_var) < 1e-4  # type: ignore[union-attr,arg-type]
