"""Random small trainings with BatchNorm and Adam, on a target and on the CPU.

Each seed makes a model, an optimizer and batches, and trains in float64 and in float32. What a bias
in front of BatchNorm becomes is rounding alone, which Adam blows up in float32: float64 tells
rounding from a fault. Prints the largest difference of a loss, and of a parameter or buffer,
relative to the largest value in it; and that of the CPU from itself, where each parameter begins
one rounding larger: what is no more than that is rounding. Run in the environment of the target:

    PYTHON benchmarks/normalised_training.py --target torch_xla --count 100
"""

import importlib
import random
from collections.abc import Callable

import torch
from random_programs import asked
from torch import Tensor, nn

WHAT = "losses", "parameters and buffers"


def model_of(rng: random.Random) -> tuple[nn.Module, tuple[int, ...]]:
    """A model, and the shape of what it takes."""
    dims = rng.choice((0, 1, 2))
    make = (nn.Linear, nn.Conv1d, nn.Conv2d)[dims]
    norm = (nn.BatchNorm1d, nn.BatchNorm1d, nn.BatchNorm2d)[dims]
    width = given = rng.randint(2, 5)
    layers: list[nn.Module] = []
    for _ in range(rng.randint(1, 3)):
        wider = rng.randint(2, 6)
        layers.append(make(width, wider, *([3] if dims else [])))  # type: ignore[arg-type]
        layers.append(norm(
            wider, momentum=rng.choice((0.1, 0.5, None)), affine=rng.random() < 0.8,
            track_running_stats=rng.random() < 0.8,
        ))  # fmt: skip
        layers.append(rng.choice((nn.ReLU, nn.SiLU, nn.Tanh))())
        width = wider
    layers.append(nn.Flatten())
    shape = (given, *[9] * dims)
    with torch.no_grad():
        features = nn.Sequential(*layers).eval()(torch.zeros(2, *shape)).shape[1]
    return nn.Sequential(*layers, nn.Linear(features, 3)), shape


def train(
    seed: int, dtype: torch.dtype, device: str, end: Callable[[], None], *, nudged: bool = False
) -> list[Tensor]:
    """The losses, and what the model and the optimizer hold in the end."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    model, shape = model_of(rng)
    size = (rng.randint(3, 8), *shape)
    batches = [(torch.randn(size), torch.rand(3)) for _ in range(rng.randint(4, 10))]
    model.to(device=device, dtype=dtype).train()
    if nudged:
        for parameter in model.parameters():
            parameter.data.mul_(1 + torch.finfo(dtype).eps)
    kind = rng.choice((torch.optim.Adam, torch.optim.AdamW))
    optimizer = kind(
        model.parameters(), lr=rng.choice((1e-3, 1e-2)), amsgrad=rng.random() < 0.3,
        betas=rng.choice(((0.9, 0.999), (0.5, 0.9))), weight_decay=rng.choice((0.0, 0.1)),
    )  # fmt: skip
    losses = []
    for x, weights in batches:
        out = model(x.to(device, dtype)).log_softmax(1)
        loss = -(out * weights.to(device, dtype)).sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        end()
        losses.append(loss.detach())
    model.eval()
    with torch.no_grad():
        losses.append(model(batches[0][0].to(device, dtype)).sum())
    return [t.detach().cpu() for t in (torch.stack(losses), *model.state_dict().values())]


def difference(expected: Tensor, found: Tensor) -> float:
    largest = expected.abs().max().item()
    return (expected - found).abs().max().item() / (largest or 1.0)


def differences(expected: list[Tensor], found: list[Tensor]) -> tuple[float, float]:
    """Of the losses, and the largest of what is held in the end."""
    losses, *state = map(difference, expected, found)
    return losses, max(state)


def main() -> None:
    device, seeds = asked(__doc__, count=100)

    def end() -> None:
        if device == "xla":
            importlib.import_module("torch_xla").sync()

    for dtype in (torch.float64, torch.float32):
        most = [(0.0, 0.0, -1)] * 2
        for seed in seeds:
            here, there = (train(seed, dtype, word, end) for word in ("cpu", device))
            nudged = train(seed, dtype, "cpu", end, nudged=True)
            apart, alone = differences(here, there), differences(here, nudged)
            found = [(one, other, seed) for one, other in zip(apart, alone, strict=True)]
            most = [max(pair) for pair in zip(most, found, strict=True)]
        print(f"{dtype}, {len(seeds)} programs")
        for what, (by_target, by_rounding, seed) in zip(WHAT, most, strict=True):
            rounding = f"by a rounding of the CPU {by_rounding:.1e}"
            print(f"  {what}: to {by_target:.1e} (seed {seed}; {rounding})")


if __name__ == "__main__":
    main()
