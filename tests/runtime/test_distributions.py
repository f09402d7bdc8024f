"""Every class of `torch.distributions` on the device against the CPU: samples, and gradients."""

from collections.abc import Callable

import pytest
import torch
import tpu_runtime as tpu
from target import WORD
from torch import Tensor
from torch import distributions as dist

tpu.setup()

DEVICE = torch.device(WORD)
COUNT = 20_000
FAR = 5.0  # standard errors


def _list(*numbers: Tensor) -> Tensor:
    return torch.stack(numbers, -1)


# By two positive parameters, as a program that learns them has them.
CLASSES: dict[str, Callable[[Tensor, Tensor], dist.Distribution]] = {
    "Bernoulli": lambda a, b: dist.Bernoulli(a / 4),
    "Beta": dist.Beta,
    "Binomial": lambda a, b: dist.Binomial(7, a / 4),
    "Categorical": lambda a, b: dist.Categorical(_list(a * 0, a, b, a * 0)),
    "Cauchy": dist.Cauchy,
    "Chi2": lambda a, b: dist.Chi2(a * 3),
    "ContinuousBernoulli": lambda a, b: dist.ContinuousBernoulli(a / 4),
    "Dirichlet": lambda a, b: dist.Dirichlet(_list(a, b, a + b)),
    "Exponential": lambda a, b: dist.Exponential(a),
    "FisherSnedecor": lambda a, b: dist.FisherSnedecor(a * 6, b * 20),
    "Gamma": dist.Gamma,
    "Geometric": lambda a, b: dist.Geometric(a / 4),
    "Gumbel": dist.Gumbel,
    "HalfCauchy": lambda a, b: dist.HalfCauchy(a),
    "HalfNormal": lambda a, b: dist.HalfNormal(a),
    "InverseGamma": lambda a, b: dist.InverseGamma(a * 6, b),
    "Kumaraswamy": lambda a, b: dist.Kumaraswamy(a, b),
    "LKJCholesky": lambda a, b: dist.LKJCholesky(3, a),
    "Laplace": dist.Laplace,
    "LogNormal": lambda a, b: dist.LogNormal(a, b / 4),
    "LogisticNormal": lambda a, b: dist.LogisticNormal(_list(a, b), _list(b, a)),
    "LowRankMultivariateNormal": lambda a, b: dist.LowRankMultivariateNormal(
        _list(a, b), _list(a, b)[..., None], _list(b, a)
    ),
    "MixtureSameFamily": lambda a, b: dist.MixtureSameFamily(
        dist.Categorical(_list(a, b)), dist.Normal(_list(a, b), _list(b, a))
    ),
    "Multinomial": lambda a, b: dist.Multinomial(5, _list(a * 0, a, b)),
    "MultivariateNormal": lambda a, b: dist.MultivariateNormal(
        _list(a, b), torch.diag_embed(_list(a, b))
    ),
    "NegativeBinomial": lambda a, b: dist.NegativeBinomial(a * 4, b / 2),
    "Normal": dist.Normal,
    "OneHotCategorical": lambda a, b: dist.OneHotCategorical(_list(a * 0, a, b)),
    "Pareto": lambda a, b: dist.Pareto(a, b * 7),
    "Poisson": lambda a, b: dist.Poisson(a * 3),
    "RelaxedBernoulli": lambda a, b: dist.RelaxedBernoulli(b, a / 4),
    "RelaxedOneHotCategorical": lambda a, b: dist.RelaxedOneHotCategorical(
        b[..., None], _list(a, b, a)
    ),
    "StudentT": lambda a, b: dist.StudentT(a * 6, a, b),
    "Uniform": lambda a, b: dist.Uniform(a, a + b),
    "VonMises": dist.VonMises,
    "Weibull": dist.Weibull,
    "Wishart": lambda a, b: dist.Wishart(a * 4, torch.diag_embed(_list(a, b))),
}


def parameters(device: torch.device | str, *shape: int) -> tuple[Tensor, Tensor]:
    first, second = (torch.full(shape, number).to(device) for number in (1.7, 0.8))
    return first.requires_grad_(), second.requires_grad_()


@pytest.mark.parametrize("name", CLASSES)
def test_samples(name: str) -> None:
    """The shares below some levels are those of the CPU's samples."""

    def sample(device: torch.device | str) -> Tensor:
        torch.manual_seed(5)
        with torch.no_grad():
            return CLASSES[name](*parameters(device)).sample((COUNT,))

    known, drawn = sample("cpu"), sample(DEVICE)
    assert drawn.device.type == WORD and drawn.shape == known.shape
    values = drawn.cpu().to(known.dtype)
    assert values.isfinite().all()
    assert CLASSES[name](*parameters("cpu")).support.check(values).all()
    rows = values.reshape(COUNT, -1).T.float(), known.reshape(COUNT, -1).T.float()
    for mine, true in zip(*rows, strict=True):
        for level in true.quantile(torch.tensor([0.02, 0.25, 0.5, 0.75, 0.98])):
            below, wanted = (mine <= level).float().mean(), (true <= level).float().mean()
            error = (2 * wanted * (1 - wanted) / COUNT).sqrt()
            assert abs(below - wanted) <= FAR * error + 1e-3, (level, below, wanted)


SAMPLED = [name for name, make in CLASSES.items() if make(*parameters("cpu")).has_rsample]


@pytest.mark.parametrize("name", SAMPLED)
def test_gradients(name: str) -> None:
    """The mean of the samples' gradients is that of the CPU's samples."""

    def gradients(device: torch.device | str) -> Tensor:
        torch.manual_seed(6)
        rows = parameters(device, COUNT)
        sample = CLASSES[name](*rows).rsample().reshape(COUNT, -1)
        first, last = sample[:, 0], sample[:, -1]
        (torch.asinh(first) + torch.tanh(last)).sum().backward()
        return torch.stack([torch.zeros(COUNT) if p.grad is None else p.grad.cpu() for p in rows])

    known, found = gradients("cpu"), gradients(DEVICE)
    assert found.isfinite().all()
    error = (known.var(1) + found.var(1)).sqrt() / COUNT**0.5
    assert ((found.mean(1) - known.mean(1)).abs() <= FAR * error + 1e-4).all()
