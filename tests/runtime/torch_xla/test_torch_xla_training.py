"""Training on torch_xla gives the losses and parameters of CPU torch, program by program.

Each program trains from the same weights on the same batches, on the CPU and on the device, in the
loop that tpu-migrate writes: `loss.backward(); optimizer.step(); torch_xla.sync()`, and values read
after that.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
import torch_xla
import tpu_runtime as tpu
from torch import Tensor, nn, optim

tpu.setup()

DEVICE = torch.device("xla")
STEPS = 6
# Rounding in another order; measured: at most 1e-12.
FLOAT64 = 1e-11
# XLA computes GELU of float64 values to 5e-9 only (GPT); ASGD keeps its step size in float32.
FLOAT64_OTHER = 2e-7
# Some hundred float32 roundings (6e-8 each) in another order; measured: at most 4e-6.
FLOAT32 = 2e-5


class Bilinear(nn.Module):
    """A U-Net of one level: down, bilinear up, skip; no bias in front of BatchNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(
            nn.Conv2d(2, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.SiLU()
        )
        self.deep = nn.Sequential(nn.AvgPool2d(2), nn.Conv2d(4, 4, 3, padding=1), nn.SiLU())
        self.head = nn.Conv2d(8, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        first = self.first(x)
        deep = F.interpolate(self.deep(first), scale_factor=2, mode="bilinear", align_corners=True)
        return self.head(torch.cat([first, deep], 1)).flatten(1)  # type: ignore[no-any-return]


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.LSTM | nn.GRU]) -> None:
        super().__init__()
        self.body = kind(3, 4, batch_first=True)
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x)[0][:, -1])  # type: ignore[no-any-return]


class Tied(nn.Module):
    """A small GPT: the output layer's weight is the embedding's."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.place = nn.Parameter(torch.zeros(5, 8))
        self.norm = nn.LayerNorm(8)
        self.qkv = nn.Linear(8, 24)
        self.mlp = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens) + self.place
        heads = self.qkv(self.norm(x)).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(*heads.unbind(0), is_causal=True)
        x = x + attended.transpose(1, 2).reshape(x.shape)
        return self.head(x + self.mlp(x))  # type: ignore[no-any-return]


class VAE(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encode, self.decode = nn.Linear(6, 8), nn.Linear(4, 6)

    def forward(self, x: Tensor, noise: Tensor) -> Tensor:
        mean, log_variance = self.encode(x).chunk(2, -1)
        again = self.decode(mean + noise * (log_variance / 2).exp())
        divergence = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum(-1).mean()
        return F.mse_loss(again, x, reduction="sum") / len(x) + divergence


@dataclass(frozen=True)
class Program:
    net: Callable[[], nn.Module]
    shapes: tuple[tuple[int, ...], ...]
    loss: Callable[..., Tensor]
    optimizer: Callable[..., optim.Optimizer]
    float64: float = FLOAT64
    # a part of a parameter that changes no output: its true gradient is 0, see the last test
    idle: tuple[str, slice] | None = None


def mse(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.mse_loss(net(x), y)


def next_token(net: nn.Module, x: Tensor) -> Tensor:
    tokens = (x.abs() * 1000).long() % 11
    return F.cross_entropy(net(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 2))


def conv_net(bias: bool = False) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, bias=bias), nn.BatchNorm2d(4), nn.SiLU(), nn.Flatten(), nn.Linear(64, 2)
    )


def encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    return nn.Sequential(nn.TransformerEncoder(layer, 1, enable_nested_tensor=False))


MOMENTUM = lambda p: optim.SGD(p, 0.1, momentum=0.9)  # noqa: E731
IMAGES = (4, 2, 6, 6)
PROGRAMS = {
    "mlp": Program(mlp, ((8, 5), (8, 2)), mse, MOMENTUM),
    "conv net": Program(conv_net, (IMAGES, (4, 2)), mse, lambda p: optim.Adam(p, 1e-2)),
    "u-net": Program(Bilinear, (IMAGES, (4, 36)), mse, lambda p: optim.Adagrad(p, 0.05)),
    "lstm": Program(lambda: Recurrent(nn.LSTM), ((4, 3, 3), (4, 2)), mse, optim.RMSprop),
    "gru": Program(lambda: Recurrent(nn.GRU), ((4, 3, 3), (4, 2)), mse, MOMENTUM),
    "encoder": Program(encoder, ((2, 5, 8), (2, 5, 8)), mse, MOMENTUM),
    "gpt": Program(
        Tied,
        ((2, 6),),
        next_token,
        lambda p: optim.AdamW(p, 1e-2),
        FLOAT64_OTHER,
        ("qkv.bias", slice(8, 16)),  # what all keys share changes no attention weight
    ),
    "vae": Program(VAE, ((4, 6), (4, 4)), lambda net, x, e: net(x, e), optim.Adam),
}
OPTIMIZERS: dict[str, Callable[..., optim.Optimizer]] = {
    "sgd": lambda p: optim.SGD(p, 0.1, momentum=0.9, nesterov=True, weight_decay=1e-2),
    "adam": lambda p: optim.Adam(p, 1e-2, amsgrad=True),
    "fused adamw": lambda p: optim.AdamW(p, 1e-2, fused=torch.device(DEVICE).type == "xla"),
    "adagrad": lambda p: optim.Adagrad(p, 0.05),
    "rmsprop": lambda p: optim.RMSprop(p, 1e-2, centered=True, momentum=0.9),
    "rprop": optim.Rprop,
    "asgd": optim.ASGD,
}


def batches(program: Program, dtype: torch.dtype) -> Iterator[list[Tensor]]:
    generator = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        yield [torch.randn(s, generator=generator, dtype=dtype) for s in program.shapes]


def train(
    program: Program, device: torch.device | str, dtype: torch.dtype
) -> tuple[list[float], dict[str, Tensor]]:
    """Losses, and everything that the module holds after the last step, on the CPU."""
    torch.manual_seed(0)
    net = program.net().to(dtype)
    # Before .to, as many scripts do; not Adagrad, which makes its state at once (CUDA refuses too).
    optimizer = program.optimizer(net.parameters())
    net.to(device)
    if isinstance(optimizer, optim.Adagrad):
        optimizer = program.optimizer(net.parameters())
    losses = []
    for batch in batches(program, dtype):
        batch = [x.to(device) for x in batch]
        optimizer.zero_grad()
        loss = program.loss(net, *batch)
        loss.backward()
        optimizer.step()
        torch_xla.sync()
        losses.append(loss.item())
    return losses, {name: x.detach().cpu() for name, x in net.state_dict().items()}


def difference(result: Tensor, expected: Tensor) -> float:
    """The largest difference, relative to the largest value; integers must be equal."""
    scale = expected.double().abs().max().clamp(min=1e-3)
    return float((result.double() - expected.double()).abs().max() / scale)


def differences(program: Program, dtype: torch.dtype) -> dict[str, float]:
    """Of the losses, and of everything that the module holds in the end."""
    losses, state = train(program, DEVICE, dtype)
    expected_losses, expected = train(program, "cpu", dtype)
    assert expected_losses[-1] != expected_losses[0]
    state["losses"], expected["losses"] = (
        torch.tensor(x, dtype=torch.float64) for x in (losses, expected_losses)
    )
    if program.idle:
        name, part = program.idle
        state[name][part] = expected[name][part] = 0
    return {name: difference(state[name], expected[name]) for name in expected}


def compare(program: Program, dtype: torch.dtype) -> None:
    tolerance = program.float64 if dtype == torch.float64 else FLOAT32
    wrong = differences(program, dtype)
    assert {name: d for name, d in wrong.items() if not d <= tolerance} == {}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str, dtype: torch.dtype) -> None:
    compare(PROGRAMS[name], dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer(name: str, dtype: torch.dtype) -> None:
    float64 = FLOAT64_OTHER if name == "asgd" else FLOAT64
    compare(Program(mlp, ((8, 5), (8, 2)), mse, OPTIMIZERS[name], float64), dtype)


def test_a_bias_in_front_of_batch_norm_follows_rounding_alone() -> None:
    """Why MSHNet's parameters under Adagrad seem to part from CPU torch's: they do not.

    BatchNorm takes the bias of the convolution in front of it away again: its true gradient is 0,
    and what is computed is rounding noise. Adagrad divides that noise by its own size, so in
    float32 the bias takes steps of the learning rate in the noise's direction, which differs. In
    float64 the noise (1e-17) is far below Adagrad's eps (1e-10), and the bias agrees to 1e-6. None
    of the other parameters, and no loss, sees it; `running_mean` contains it.
    """
    program = Program(
        lambda: conv_net(bias=True), (IMAGES, (4, 2)), mse, lambda p: optim.Adagrad(p, 0.05)
    )
    for dtype, tolerance in ((torch.float32, FLOAT32), (torch.float64, FLOAT64)):
        wrong = differences(program, dtype)
        noise = {name: wrong.pop(name) for name in ("0.bias", "1.running_mean")}
        assert max(wrong.values()) <= tolerance
        if dtype == torch.float64:
            assert max(noise.values()) < 1e-5
        else:
            assert min(noise.values()) > 100 * tolerance


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_gan(dtype: torch.dtype) -> None:
    """Two optimizers: one sync a step is enough, after the last of them."""

    def run(device: torch.device | str) -> list[Tensor]:
        torch.manual_seed(0)
        generator, critic = (
            nn.Sequential(nn.Linear(3, 8), nn.LeakyReLU(0.2), nn.Linear(8, n)).to(dtype).to(device)
            for n in (3, 1)
        )
        optimizers = [optim.Adam(net.parameters(), 1e-2) for net in (critic, generator)]
        program = Program(mlp, ((4, 3), (4, 3)), mse, optim.Adam)
        losses = []
        for batch in batches(program, dtype):
            real, noise = (x.to(device) for x in batch)
            fake = generator(noise)
            critic_loss = (F.softplus(-critic(real)) + F.softplus(critic(fake.detach()))).mean()
            optimizers[0].zero_grad()
            critic_loss.backward()
            optimizers[0].step()
            generator_loss = F.softplus(-critic(fake)).mean()
            optimizers[1].zero_grad()
            generator_loss.backward()
            optimizers[1].step()
            torch_xla.sync()
            losses.append(critic_loss.item() + generator_loss.item())
        state = [*generator.state_dict().values(), *critic.state_dict().values()]
        return [torch.tensor(losses, dtype=torch.float64), *(x.cpu() for x in state)]

    tolerance = FLOAT64 if dtype == torch.float64 else FLOAT32
    for result, expected in zip(run(DEVICE), run("cpu"), strict=True):
        assert difference(result, expected) <= tolerance
