"""Seeds, generators and distributions, on both targets."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
import tpu_runtime as tpu
from torch import nn

from tests.runtime.support import DEVICE, WORD

tpu.setup()


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
    generator = torch.Generator(device=WORD).manual_seed(7)
    assert isinstance(generator, torch.Generator) and isinstance(
        torch.default_generator, torch.Generator
    )
    first, second = DRAWS[name](generator, DEVICE), DRAWS[name](generator, DEVICE)
    assert first.device.type == WORD and not torch.equal(first.cpu(), second.cpu())
    expected = DRAWS[name](torch.Generator().manual_seed(7), "cpu")
    assert torch.allclose(first.cpu().double(), expected.double(), rtol=1e-6)


def test_normal_without_generator() -> None:
    drawn = torch.normal(3.0, 0.1, (2000,), device=DEVICE)
    assert abs(drawn.mean().item() - 3) < 0.02 and abs(drawn.std().item() - 0.1) < 0.01


# Mean and deviation of each distribution; 20,000 draws are within 5 % of the larger of both.
DISTRIBUTIONS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], float, float]] = {
    "normal_": (lambda z: z.normal_(3, 2), 3, 2),
    "uniform_": (lambda z: z.uniform_(-2, 4), 1, 1.732),
    "exponential_": (lambda z: z.exponential_(2.0), 0.5, 0.5),
    "random_": (lambda z: z.random_(0, 10), 4.5, 2.872),
    "bernoulli_": (lambda z: z.bernoulli_(0.9), 0.9, 0.3),
    "bernoulli_ of a tensor": (lambda z: z.bernoulli_(z + 0.9), 0.9, 0.3),
    "rand_like": (lambda z: torch.rand_like(z, requires_grad=True).detach(), 0.5, 0.289),
    "randn_like": (lambda z: torch.randn_like(z), 0, 1),
    "randint_like": (lambda z: torch.randint_like(z, 0, 10), 4.5, 2.872),
    "poisson": (lambda z: torch.poisson(z + 4), 4, 2),
    "gumbel_softmax": (lambda z: F.gumbel_softmax(z.view(-1, 2), hard=True), 0.5, 0.5),
    "distributions": (lambda z: torch.distributions.Normal(z, 2.0).sample() + 1, 1, 2),
    "dropout": (lambda z: F.dropout(z + 1, 0.3), 1, 0.655),
    "init": (lambda z: nn.init.trunc_normal_(z, std=1.0), 0, 0.88),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_distributions(name: str) -> None:
    draw, mean, deviation = DISTRIBUTIONS[name]
    drawn = draw(torch.zeros(20_000, device=DEVICE))
    assert drawn.device.type == WORD
    values = drawn.cpu()
    tolerance = 0.05 * max(mean, deviation)
    assert abs(values.mean() - mean) < tolerance and abs(values.std() - deviation) < tolerance


@pytest.mark.parametrize(
    "draw",
    [torch.rand_like, torch.randn_like, lambda x, **on: torch.randint_like(x, 9, **on)],
    ids=["rand_like", "randn_like", "randint_like"],
)
def test_what_is_drawn_on_the_cpu_is_that_of_the_cpu(draw: Callable[..., torch.Tensor]) -> None:
    torch.manual_seed(0)
    expected = draw(torch.ones(3)), torch.rand(1)
    torch.manual_seed(0)
    drawn = draw(torch.ones(3).to(DEVICE), device="cpu"), torch.rand(1)
    assert all(torch.equal(a, b) for a, b in zip(drawn, expected, strict=True))
