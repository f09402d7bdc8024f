"""Sixteen small training programs, as one writes them for a GPU: `programs.py NAME … --out DIR`.

Each starts from fixed weights, trains on fixed batches with the optimizers that are asked for, and
writes losses and final parameters. Noise is drawn on the CPU, since generators differ by device.
"""

import argparse
import os
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from loss import SLSIoULoss
from model import MSHNet
from networks import GPT, VAE, Contrastive, Denoiser, Encoder, Recurrent, UNet, ViT
from torch import Tensor, nn

Parameters = Iterator[nn.Parameter]
Optimizer = Callable[[Parameters], torch.optim.Optimizer]
# The losses of the steps, and the modules that were trained.
Trained = tuple[list[float], list[nn.Module]]

STEPS = int(os.environ.get("STEPS", "10"))
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

OPTIMIZERS: dict[str, Optimizer] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-3),
    "adam": lambda p: torch.optim.Adam(p, lr=1e-3, amsgrad=True),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
    "adadelta": lambda p: torch.optim.Adadelta(p),
    "adafactor": lambda p: torch.optim.Adafactor(p),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01),
    "adamax": lambda p: torch.optim.Adamax(p),
    "asgd": lambda p: torch.optim.ASGD(p),
    "lbfgs": lambda p: torch.optim.LBFGS(p, lr=0.1, max_iter=4),
    "muon": lambda p: torch.optim.Muon([q for q in p if q.ndim == 2]),
    "nadam": lambda p: torch.optim.NAdam(p, lr=1e-3),
    "radam": lambda p: torch.optim.RAdam(p, lr=1e-3),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-3, momentum=0.5, centered=True),
    "rprop": lambda p: torch.optim.Rprop(p, lr=1e-3),
}
EVERYWHERE = ("sgd", "adamw")


def seeded(number: int) -> torch.Generator:
    return torch.Generator().manual_seed(number)


def normal(*shape: int, step: int = 0) -> Tensor:
    return torch.randn(*shape, generator=seeded(1000 + step)).to(torch.get_default_dtype())


def classes(count: int, size: int, step: int) -> Tensor:
    return torch.randint(count, (size,), generator=seeded(2000 + step))


Batch = Callable[[int], tuple[Any, ...]]  # of a step


def fit(
    model: nn.Module, optimizer: Optimizer, batch_of: Batch, loss_of: Callable[..., Tensor]
) -> Trained:
    """The usual loop; `loss_of(model, *batch)` is the loss of a batch."""
    model = model.to(device)
    opt = optimizer(model.parameters())
    losses = []
    for number in range(STEPS):
        batch = [x.to(device) if isinstance(x, Tensor) else x for x in batch_of(number)]
        if isinstance(opt, torch.optim.LBFGS):

            def closure(batch: list[Any] = batch) -> Tensor:
                opt.zero_grad()
                loss = loss_of(model, *batch)
                loss.backward()
                return loss

            loss = opt.step(closure)
        else:
            opt.zero_grad()
            loss = loss_of(model, *batch)
            loss.backward()
            opt.step()
        losses.append(loss.item())
    return losses, [model]


def labelled(*shape: int, count: int = 5) -> Batch:
    return lambda step: (normal(16, *shape, step=step), classes(count, 16, step))


def classify(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(net(x), y)


# ---- the programs --------------------------------------------------------------------------------


def mlp(optimizer: Optimizer) -> Trained:
    model = nn.Sequential(
        nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 5)
    )
    return fit(model, optimizer, labelled(12), classify)


def cnn(optimizer: Optimizer) -> Trained:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True),
        nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1, groups=2, bias=False), nn.BatchNorm2d(16),
        nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5),
    )  # fmt: skip
    return fit(model, optimizer, labelled(3, 16, 16), classify)


def unet(optimizer: Optimizer) -> Trained:
    def loss_of(net: nn.Module, x: Tensor) -> Tensor:
        mask = (x > 0.5).to(x.dtype)
        logits = net(x)
        overlap = (torch.sigmoid(logits) * mask).sum()
        dice = 1 - (2 * overlap + 1) / (torch.sigmoid(logits).sum() + mask.sum() + 1)
        return F.binary_cross_entropy_with_logits(logits, mask) + dice

    return fit(UNet(), optimizer, lambda step: (normal(4, 1, 16, 16, step=step),), loss_of)


def sentences(step: int) -> tuple[Tensor, Tensor]:
    return classes(11, 16 * 9, step).view(16, 9), classes(5, 16, step + 50)


def lstm(optimizer: Optimizer) -> Trained:
    return fit(Recurrent(nn.LSTM, 2, False), optimizer, sentences, classify)


def gru(optimizer: Optimizer) -> Trained:
    return fit(Recurrent(nn.GRU, 1, True), optimizer, sentences, classify)


def encoder(optimizer: Optimizer) -> Trained:
    return fit(Encoder(), optimizer, sentences, classify)


def gpt(optimizer: Optimizer) -> Trained:
    def loss_of(net: nn.Module, tokens: Tensor) -> Tensor:
        return F.cross_entropy(net(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())

    return fit(GPT(), optimizer, lambda step: (classes(13, 88, step).view(8, 11),), loss_of)


def vit(optimizer: Optimizer) -> Trained:
    model = ViT()
    return fit(model, optimizer, labelled(3, 16, 16), classify)


def vae(optimizer: Optimizer) -> Trained:
    def batch_of(step: int) -> tuple[Tensor, Tensor]:
        return torch.sigmoid(normal(16, 20, step=step)), normal(16, 4, step=step + 90)

    def loss_of(net: nn.Module, x: Tensor, noise: Tensor) -> Tensor:
        logits, mean, log_variance = net(x, noise)
        divergence = -0.5 * torch.sum(1 + log_variance - mean.pow(2) - log_variance.exp())
        return F.binary_cross_entropy_with_logits(logits, x, reduction="sum") / 16 + divergence / 16

    return fit(VAE(), optimizer, batch_of, loss_of)


def adversaries() -> tuple[nn.Module, nn.Module]:
    generator = nn.Sequential(nn.Linear(6, 16), nn.LeakyReLU(0.2), nn.Linear(16, 10), nn.Tanh())
    critic = nn.Sequential(nn.Linear(10, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
    return generator.to(device), critic.to(device)


def gan(optimizer: Optimizer) -> Trained:
    generator, critic = adversaries()
    opt_g, opt_d = optimizer(generator.parameters()), optimizer(critic.parameters())
    losses = []
    for step in range(STEPS):
        real = torch.tanh(normal(16, 10, step=step)).to(device)
        ones, zeros = torch.ones(16, 1, device=device), torch.zeros(16, 1, device=device)
        noise = normal(16, 6, step=step + 40).to(device)
        opt_g.zero_grad()
        fake = generator(noise)
        g_loss = F.binary_cross_entropy_with_logits(critic(fake), ones)
        g_loss.backward()
        opt_g.step()
        opt_d.zero_grad()
        d_loss = F.binary_cross_entropy_with_logits(critic(real), ones)
        d_loss = (d_loss + F.binary_cross_entropy_with_logits(critic(fake.detach()), zeros)) / 2
        d_loss.backward()
        opt_d.step()
        losses += [g_loss.item(), d_loss.item()]
    return losses, [generator, critic]


def wgan_gp(optimizer: Optimizer) -> Trained:
    generator, critic = adversaries()
    opt_g, opt_d = optimizer(generator.parameters()), optimizer(critic.parameters())
    losses = []
    for step in range(STEPS):
        real = torch.tanh(normal(16, 10, step=step)).to(device)
        noise = normal(16, 6, step=step + 40).to(device)
        share = torch.rand(16, 1, generator=seeded(step)).to(real.dtype).to(device)
        fake = generator(noise)
        opt_d.zero_grad()
        between = (share * real + (1 - share) * fake.detach()).requires_grad_(True)
        scores = critic(between)
        (slope,) = torch.autograd.grad(
            scores, between, grad_outputs=torch.ones_like(scores), create_graph=True
        )
        penalty = ((slope.norm(2, dim=1) - 1) ** 2).mean()
        d_loss = critic(fake.detach()).mean() - critic(real).mean() + 10 * penalty
        d_loss.backward()
        opt_d.step()
        losses.append(d_loss.item())
        if step % 2 == 0:
            opt_g.zero_grad()
            g_loss = -critic(generator(noise)).mean()
            g_loss.backward()
            opt_g.step()
    return losses, [generator, critic]


def ddpm(optimizer: Optimizer) -> Trained:
    betas = torch.linspace(1e-4, 0.02, 50, dtype=torch.get_default_dtype())
    kept = torch.cumprod(1 - betas, 0).to(device)

    def batch_of(step: int) -> tuple[Tensor, Tensor, Tensor]:
        x, noise = normal(8, 1, 8, 8, step=step), normal(8, 1, 8, 8, step=step + 60)
        return x, noise, classes(50, 8, step)

    def loss_of(net: nn.Module, x: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        share = kept[t].view(-1, 1, 1, 1)
        return F.mse_loss(net(share.sqrt() * x + (1 - share).sqrt() * noise, t), noise)

    return fit(Denoiser(), optimizer, batch_of, loss_of)


def mshnet(optimizer: Optimizer) -> Trained:
    criterion = SLSIoULoss(warm_epoch=5)
    down = nn.MaxPool2d(2, 2)

    def batch_of(step: int) -> tuple[Tensor, Tensor, int]:
        mask = torch.zeros(2, 1, 32, 32, dtype=torch.get_default_dtype())
        mask[0, 0, 4 + step : 8 + step, 9:13] = 1
        mask[1, 0, 20:22, 5 : 8 + step] = 1
        return normal(2, 3, 32, 32, step=step) * 0.3 + mask * 2, mask, step

    def loss_of(net: nn.Module, image: Tensor, label: Tensor, epoch: int) -> Tensor:
        masks, output = net(image, epoch >= 5)
        loss = criterion(output, label, epoch)
        for scale, prediction in enumerate(masks):
            if scale > 0:
                label = down(label)
            loss = loss + criterion(prediction, label, epoch)
        return loss / (len(masks) + 1)

    return fit(MSHNet(width=4, blocks=1), optimizer, batch_of, loss_of)


def contrastive(optimizer: Optimizer) -> Trained:
    def batch_of(step: int) -> tuple[Tensor, Tensor]:
        return normal(16, 12, step=step), normal(16, 10, step=step + 30)

    def loss_of(net: nn.Module, images: Tensor, texts: Tensor) -> Tensor:
        logits = net(images, texts)
        labels = torch.arange(16, device=logits.device)
        return (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels)) / 2

    return fit(Contrastive(), optimizer, batch_of, loss_of)


def reinforce(optimizer: Optimizer) -> Trained:
    def batch_of(step: int) -> tuple[Tensor, Tensor, Tensor]:
        states, rewards = normal(20, 6, step=step), normal(20, step=step + 20)
        returns, total = [], 0.0
        for reward in reversed(rewards.tolist()):
            total = reward + 0.9 * total
            returns.insert(0, total)
        gains = torch.tensor(returns, dtype=states.dtype)
        return states, classes(4, 20, step), (gains - gains.mean()) / (gains.std() + 1e-6)

    def loss_of(net: nn.Module, states: Tensor, actions: Tensor, gains: Tensor) -> Tensor:
        log_probability = torch.distributions.Categorical(logits=net(states)).log_prob(actions)
        return -(log_probability * gains).sum()

    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
    return fit(model, optimizer, batch_of, loss_of)


def metric_learning(optimizer: Optimizer) -> Trained:
    def batch_of(step: int) -> tuple[Tensor, Tensor, Tensor]:
        return normal(16, 12, step=step), normal(16, 12, step=step + 70), classes(4, 16, step)

    def loss_of(net: nn.Module, anchors: Tensor, others: Tensor, labels: Tensor) -> Tensor:
        embedded = F.normalize(net(anchors + 0.3 * others), dim=1)
        distances = torch.cdist(embedded, embedded)
        same = labels[:, None] == labels[None, :]
        hardest = (distances * same).max(1).values
        nearest = distances.masked_fill(same, 1e3).min(1).values
        return F.relu(hardest - nearest + 0.5).mean()

    model = nn.Sequential(
        nn.Linear(12, 24, bias=False), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 6)
    )
    return fit(model, optimizer, batch_of, loss_of)


PROGRAMS: dict[str, Callable[[Optimizer], Trained]] = {
    "mlp": mlp, "cnn": cnn, "unet": unet, "lstm": lstm, "gru": gru, "encoder": encoder, "gpt": gpt,
    "vit": vit, "vae": vae, "gan": gan, "wgan_gp": wgan_gp, "ddpm": ddpm, "mshnet": mshnet,
    "contrastive": contrastive, "reinforce": reinforce, "metric_learning": metric_learning,
}  # fmt: skip


def state_of(models: list[nn.Module]) -> dict[str, np.ndarray]:
    return {
        f"{number}.{name}": value.detach().cpu().numpy()
        for number, model in enumerate(models)
        for name, value in model.state_dict().items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="+", choices=PROGRAMS)
    parser.add_argument("--optimizers", nargs="+", choices=OPTIMIZERS, default=EVERYWHERE)
    parser.add_argument("--float64", action="store_true")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    if args.float64:
        torch.set_default_dtype(torch.float64)
    for name in args.names:
        for optimizer in args.optimizers:
            torch.manual_seed(7)
            file = args.out / f"{name}.{optimizer}.{'float64' if args.float64 else 'float32'}"
            try:
                losses, models = PROGRAMS[name](OPTIMIZERS[optimizer])
                np.savez(f"{file}.npz", losses=np.array(losses), **state_of(models))
            except Exception:
                Path(f"{file}.error").write_text(traceback.format_exc())


if __name__ == "__main__":
    main()
