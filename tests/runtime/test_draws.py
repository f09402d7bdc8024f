"""What the device draws: at the ends of its random bits, in halves, for each row, with gradients.

A fault of one draw in ten million is not met by chance: the bits are forced. benchmarks/draws.py
compares 10^8 draws of each distribution.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import tpu_runtime as tpu
from target import TARGET, WORD
from torch import Tensor
from torch import distributions as dist

tpu.setup()
if TARGET == "torchax":
    from tpu_runtime.random_numbers import draws  # type: ignore[attr-defined]
else:
    from tpu_runtime.random_numbers import random_kernels as draws  # type: ignore[attr-defined]

DEVICE = torch.device(WORD)
LOWEST, HIGHEST = "lowest bits", "highest bits"


def _key(is_low: bool) -> Any:
    """Of JAX, whose bits are all 0, or all 1."""
    import jax
    import jax.numpy as jnp
    from jax.extend.random import define_prng_impl

    def bits(key: Any, width: int, shape: Any) -> Any:
        return jnp.full(shape, 0 if is_low else 2**width - 1, f"uint{width}")

    made = define_prng_impl(
        key_shape=(1,),
        seed=lambda seed: jnp.zeros(1, "uint32"),
        split=lambda key, shape: jnp.zeros((*shape, 1), "uint32"),
        random_bits=bits,
        fold_in=lambda key, data: key,
    )
    return jax.random.key(0, impl=made)


@pytest.fixture(params=[LOWEST, HIGHEST])
def rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """All random bits are 0, or 1. On torch_xla and torch_tpu, XLA draws normal numbers, whose bits
    nothing can force. A number of rows that no other test has: programs are kept."""
    is_low = request.param == LOWEST
    if TARGET == "torchax":
        import torchax

        monkeypatch.setattr(torchax.default_env().param, "prng", _key(is_low))
    else:

        def numbers(like: Tensor, generator: Any = None) -> Tensor:
            dtype = torch.float64 if like.dtype == torch.float64 else torch.float32
            return torch.full(like.shape, 0.0 if is_low else 1 - 2**-24, dtype=dtype, device=DEVICE)

        monkeypatch.setattr(draws, "numbers", numbers)
    return 1013 if is_low else 1019


ENDS: dict[str, tuple[Callable[[Tensor], Tensor], float, float]] = {
    "exponential_": (lambda z: z.exponential_(), 2.0**-25, 40),
    "its logarithm": (lambda z: z.exponential_().log(), -40, 40),
    "gumbel_softmax": (lambda z: F.gumbel_softmax(z, dim=0), 0, 1),
    "uniform_": (lambda z: z.uniform_(10, 11), 10, 10.9999),
    "rand": (lambda z: torch.rand_like(z), 0, 1 - 2.0**-24),
    "bernoulli_ of 0": (lambda z: z.bernoulli_(0.0), 0, 0),
    "bernoulli_ of 1": (lambda z: z.bernoulli_(1.0), 1, 1),
    "bernoulli of 0 and 1": (lambda z: torch.bernoulli(z) + torch.bernoulli(z + 1), 1, 1),
    "cauchy_": (lambda z: z.cauchy_(), -1e8, 1e8),
    "geometric_": (lambda z: z.geometric_(0.3), 1, 100),
    "randn": (lambda z: torch.randn_like(z), -9, 9),
    "normal_": (lambda z: z.normal_(1, 2), -18, 18),
    "log_normal_": (lambda z: z.log_normal_(0, 0.5), 1e-3, 100),
    "trunc_normal_": (lambda z: torch.nn.init.trunc_normal_(z), -2, 2),
    "randint": (lambda z: torch.randint(-3, 5, z.shape, device=z.device).float(), -3, 4),
    "randint_like": (lambda z: torch.randint_like(z, -3, 5), -3, 4),
    "random_": (lambda z: z.random_(-3, 5), -3, 4),
    "random_ of bytes": (lambda z: z.to(torch.uint8).random_().float(), 0, 255),
    "poisson": (lambda z: torch.poisson(z + 4), 0, 40),
    "rrelu": (lambda z: F.rrelu(z - 1, training=True), -1 / 3 - 1e-6, -1 / 8 + 1e-6),
    "dropout": (lambda z: F.dropout(z + 1, 0.25), 0, 1.34),
    "alpha_dropout": (lambda z: F.alpha_dropout(z, training=True), -2, 2),
    "multinomial": (lambda z: _chosen(z, 1), 1, 3),
    "multinomial, several": (lambda z: _chosen(z, 4), 1, 3),
    "multinomial, one of each": (lambda z: _chosen(z, 1, replacement=False), 1, 3),
    "multinomial, both": (lambda z: _chosen(z, 2, replacement=False), 1, 3),
    "Gumbel": (lambda z: dist.Gumbel(z, 1.0).sample(), -40, 40),
    "Laplace": (lambda z: dist.Laplace(z, 1.0).sample(), -120, 120),
    "Weibull": (lambda z: dist.Weibull(z + 1, 0.5).sample(), 0, 1e4),
    "Exponential": (lambda z: dist.Exponential(z + 1).sample().log(), -40, 40),
    "HalfCauchy": (lambda z: dist.HalfCauchy(z + 1).sample(), 0, 1e8),
    "HalfNormal": (lambda z: dist.HalfNormal(z + 1).sample(), 0, 9),
    "Pareto": (lambda z: dist.Pareto(z + 1, 2.0).sample(), 1, 1e8),
    "Kumaraswamy": (lambda z: dist.Kumaraswamy(z + 2, 3.0).sample(), 0, 1),
    "ContinuousBernoulli": (lambda z: dist.ContinuousBernoulli(z + 0.3).sample(), 0, 1),
    "StudentT": (lambda z: dist.StudentT(z + 4).sample(), -1e6, 1e6),
    "Categorical": (lambda z: dist.Categorical(_weights(z)).sample().float(), 1, 3),
    "Geometric": (lambda z: dist.Geometric(z + 0.5).sample(), 0, 300),
    "LogisticNormal": (lambda z: dist.RelaxedBernoulli(z + 1, z + 0.5).sample(), 0, 1),
}


def _weights(z: Tensor) -> Tensor:
    return torch.tensor([0.0, 1, 0, 1, 0], device=z.device).expand(z.shape[0], 5)


def _chosen(z: Tensor, count: int, replacement: bool = True) -> Tensor:
    return torch.multinomial(_weights(z), count, replacement).float()


@pytest.mark.parametrize("name", ENDS)
def test_ends(name: str, rows: int) -> None:
    draw, least, most = ENDS[name]
    values = draw(torch.zeros(rows, 1, device=DEVICE)).cpu()
    assert values.isfinite().all() and least <= values.min() and values.max() <= most, values


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_ends_of_halves(dtype: torch.dtype, rows: int) -> None:
    zeros = torch.zeros(rows, 1, device=DEVICE, dtype=dtype)
    assert (torch.rand_like(zeros) < 1).all() and (zeros.clone().uniform_(-3, 2) < 2).all()
    drawn = zeros.clone().exponential_()
    assert (drawn > 0).all() and drawn.isfinite().all()


def test_rows_are_independent() -> None:
    """Each row of a batch chooses by draws of its own."""
    for count, replacement in ((1, False), (3, False), (3, True)):
        chosen = torch.multinomial(torch.ones(8, 1000, device=DEVICE), count, replacement)
        assert chosen[:, 0].unique().numel() > 4
    sample = dist.Categorical(logits=torch.zeros(8, 1000, device=DEVICE)).sample()
    assert sample.unique().numel() > 4


def test_without_replacement_by_weight() -> None:
    weights = torch.tensor([1.0, 2, 0, 5], device=DEVICE).expand(20_000, 4)
    first, second = torch.multinomial(weights, 2).cpu().unbind(1)
    assert (first != second).all()
    shares = first.bincount(minlength=4) / 20_000
    assert torch.allclose(shares, torch.tensor([0.125, 0.25, 0, 0.625]), atol=0.02)
    assert second.bincount(minlength=4)[2] == 0


# With torch's defaults, keywords, and parameters that are integers: the mean and the deviation.
CALLS: dict[str, tuple[Callable[[Tensor], Tensor], float, float]] = {
    "normal": (lambda z: torch.normal(z), 0, 1),
    "normal, std=": (lambda z: torch.normal(z + 1, std=2.0), 1, 2),
    "normal, mean=": (lambda z: torch.normal(mean=z + 1), 1, 1),
    "normal of deviations": (lambda z: torch.normal(1, z + 3), 1, 3),
    "normal of both": (lambda z: torch.normal(mean=z + 1, std=z + 3), 1, 3),
    "normal of a size": (lambda z: torch.normal(1, 2, z.shape, device=z.device), 1, 2),
    "normal of rows": (lambda z: torch.normal(z.view(-1, 4)[:, :1], z[:4] + 2), 0, 2),
    "normal, out=": (lambda z: [torch.normal(z, 2.0, out=z), z][1], 0, 2),
    "normal_": (lambda z: z.normal_(), 0, 1),
    "normal_, std=": (lambda z: z.normal_(std=3), 0, 3),
    "uniform_": (lambda z: z.uniform_(), 0.5, 0.2887),
    "uniform_(-1)": (lambda z: z.uniform_(-1), 0, 0.5774),
    "exponential_": (lambda z: z.exponential_(), 1, 1),
    "exponential_, lambd=": (lambda z: z.exponential_(lambd=2), 0.5, 0.5),
    "bernoulli_": (lambda z: z.bernoulli_(), 0.5, 0.5),
    "bernoulli_(0.5)": (lambda z: (z + 1).bernoulli_(0.5), 0.5, 0.5),
    "bernoulli_, p=": (lambda z: z.bernoulli_(p=0.2), 0.2, 0.4),
    "bernoulli, p": (lambda z: torch.bernoulli(z, 0.2), 0.2, 0.4),
    "bernoulli_ of a tensor": (lambda z: z.bernoulli_(z + 0.2), 0.2, 0.4),
    "log_normal_": (lambda z: z.log_normal_().log(), 1, 2),
    "cauchy_": (lambda z: (z.cauchy_() < 1).float(), 0.75, 0.433),
    "random_": (lambda z: z.random_(4), 1.5, 1.118),
    "random_(2, 4)": (lambda z: z.random_(2, 4), 2.5, 0.5),
    "dropout": (lambda z: F.dropout(z + 1), 1, 1),
    "dropout of channels": (lambda z: F.dropout1d((z + 1).view(1, -1, 1)), 1, 1),
    "alpha_dropout": (lambda z: F.alpha_dropout(z, training=True), 0, 0.779),
    "alpha_dropout of channels": (
        lambda z: F.feature_alpha_dropout(z.view(1, -1, 1), training=True), 0, 0.779,
    ),
    "dropout of attention": (lambda z: _attended(z.view(-1, 40, 1)), 1, 0.1581),
    "rrelu": (lambda z: F.rrelu(z - 1, training=True), -0.2292, 0.0601),
}  # fmt: skip


def _attended(z: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(z, z, z + 1, dropout_p=0.5)


@pytest.mark.parametrize("name", CALLS)
def test_calls(name: str) -> None:
    torch.manual_seed(0)
    draw, mean, deviation = CALLS[name]
    drawn = draw(torch.zeros(40_000, device=DEVICE)).cpu().float()
    assert drawn.numel() == 40_000
    assert abs(drawn.mean() - mean) < 0.03 * deviation
    assert abs(drawn.std() - deviation) < 0.03 * deviation


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_halves_are_drawn_as_floats(dtype: torch.dtype) -> None:
    def zeros() -> Tensor:
        return torch.zeros(50_000, device=DEVICE, dtype=dtype)

    normal = zeros().normal_().cpu().float()
    assert normal.abs().max() > 3.5 and abs(normal.var() - 1) < 0.03
    for drawn in (torch.normal(zeros(), 1.0), torch.normal(0.0, zeros() + 1)):
        assert drawn.dtype == dtype and drawn.abs().max() > 3.5
    uniform = zeros().uniform_().cpu().float()
    assert uniform.unique().numel() > 500 and abs(uniform.mean() - 0.5) < 0.01
    drawn = zeros().exponential_().cpu().float()
    assert drawn.max() > 7 and abs(drawn.mean() - 1) < 0.03 and drawn.min() > 0
    chosen = torch.multinomial(torch.ones(1000, device=DEVICE, dtype=dtype), 1000, True)
    assert abs(chosen.float().mean().item() - 500) < 50  # sums of halves end at 256


def test_dropout_of_halves() -> None:
    """What is kept is multiplied by 1 / (1 - p), not by the bfloat16 that is next to it."""
    x = torch.full((400_000,), 0.9, device=DEVICE, dtype=torch.bfloat16, requires_grad=True)
    out = F.dropout(x, 0.1)
    kept = out.detach().cpu().float()
    wanted = (torch.tensor(0.9, dtype=torch.bfloat16).float() / 0.9).bfloat16()
    assert set(kept.unique().tolist()) == {0.0, wanted.item()}
    assert abs((kept > 0).float().mean() - 0.9) < 0.0025
    out.sum().backward()
    assert torch.equal(x.grad.cpu() > 0, kept > 0)


def test_dropout_in_place() -> None:
    x = torch.ones(1000, device=DEVICE, requires_grad=True)
    out = F.dropout(x * 2, 0.5, inplace=True)
    out.sum().backward()
    assert set(out.tolist()) == {0.0, 4.0} and torch.equal(x.grad, out.detach())
    assert F.dropout(x, 1.0).sum() == 0 and torch.equal(F.dropout(x, 0.3, training=False), x)


def test_gradient_of_random_slopes() -> None:
    x = torch.linspace(-2, 2, 1000, device=DEVICE).requires_grad_()
    out = F.rrelu(x, training=True)
    out.sum().backward()
    assert torch.allclose(x.grad.cpu(), (out / x).detach().cpu())


def test_parts_of_complex_numbers() -> None:
    parts = torch.view_as_real(torch.randn(20_000, dtype=torch.complex64, device=DEVICE).cpu())
    assert (parts.var(0) - 0.5).abs().max() < 0.03
    parts = torch.view_as_real(torch.rand(20_000, dtype=torch.complex64, device=DEVICE).cpu())
    assert (parts.mean(0) - 0.5).abs().max() < 0.02


def test_integers() -> None:
    def drawn(*ends: int, **options: Any) -> Tensor:
        return torch.randint(*ends, (20_000,), device=DEVICE, **options).cpu()

    assert drawn(-2, 3).unique().tolist() == [-2, -1, 0, 1, 2]
    assert drawn(256, dtype=torch.uint8).unique().numel() == 256
    assert drawn(2**31).max() > 2**30 and drawn(2**31).min() >= 0
    assert drawn(-(2**31), 2**31).min() < -(2**30)
    order = torch.randperm(20_000, device=DEVICE).cpu()
    assert torch.equal(order.sort().values, torch.arange(20_000))
    assert torch.corrcoef(torch.stack([order, torch.arange(20_000)]))[0, 1].abs() < 0.05
    whole = torch.zeros(20_000, device=DEVICE, dtype=torch.int32).bernoulli_(0.4)
    assert abs(whole.float().mean().item() - 0.4) < 0.02 and set(whole.tolist()) == {0, 1}


WRONG: dict[str, Callable[[Tensor], Any]] = {
    "randint": lambda z: torch.randint(5, 5, (2,), device=DEVICE),
    "random_": lambda z: z.random_(3, 2),
    "exponential_": lambda z: z.exponential_(0.0),
    "normal_": lambda z: z.normal_(0, -1),
    "uniform_": lambda z: z.uniform_(1, 0),
    "bernoulli_": lambda z: z.bernoulli_(1.5),
    "geometric_": lambda z: z.geometric_(1.0),
    "multinomial": lambda z: torch.multinomial(z + 1, 9),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_torch_refuses(name: str) -> None:
    with pytest.raises(RuntimeError):
        WRONG[name](torch.zeros(4, device=DEVICE))


FAMILIES: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "Normal": dist.Normal,
    "Laplace": dist.Laplace,
    "Cauchy": dist.Cauchy,
    "Gumbel": dist.Gumbel,
    "Uniform": lambda loc, scale: dist.Uniform(loc, loc + scale),
    "Exponential": lambda loc, scale: dist.Exponential(1 / scale),
    "Gamma": lambda loc, scale: dist.Gamma(loc * 0 + 2, 1 / scale),
    "HalfNormal": lambda loc, scale: dist.HalfNormal(scale),
    "Weibull": lambda loc, scale: dist.Weibull(scale, loc * 0 + 2),
    "StudentT": lambda loc, scale: dist.StudentT(loc * 0 + 5, loc, scale),
}
WITHOUT_PLACE = ("Exponential", "Gamma", "HalfNormal", "Weibull")


@pytest.mark.parametrize("name", FAMILIES)
def test_gradients_of_samples(name: str) -> None:
    """A sample is place + scale * noise."""
    place = torch.full((2000,), 1.5, device=DEVICE, requires_grad=True)
    scale = torch.full((2000,), 0.5, device=DEVICE, requires_grad=True)
    sample = FAMILIES[name](place, scale).rsample()
    sample.sum().backward()
    start = torch.zeros(2000) if name in WITHOUT_PLACE else place.detach().cpu()
    noise = (sample.detach().cpu() - start) / 0.5
    assert noise.isfinite().all()
    assert torch.allclose(scale.grad.cpu(), noise, rtol=1e-3, atol=1e-4)
    if name not in WITHOUT_PLACE:
        assert torch.allclose(place.grad.cpu(), torch.ones(2000), rtol=1e-4)


def test_gradients_of_shapes() -> None:
    """Those of gamma and Dirichlet samples are those that the CPU finds for the same samples."""
    shape = torch.linspace(0.5, 4, 500).to(DEVICE).requires_grad_()
    sample = dist.Gamma(shape, torch.ones_like(shape)).rsample()
    sample.sum().backward()
    wanted = torch._standard_gamma_grad(shape.detach().cpu(), sample.detach().cpu())
    assert torch.allclose(shape.grad.cpu(), wanted, rtol=1e-3)
    shape = torch.tensor([[0.5, 2.0, 3.0]], device=DEVICE).expand(100, 3).clone().requires_grad_()
    sample = dist.Dirichlet(shape).rsample()
    assert torch.allclose(sample.sum(-1), torch.ones(100, device=DEVICE), atol=1e-5)
    sample[:, 0].sum().backward()
    assert shape.grad.isfinite().all() and shape.grad[:, 0].mean() > 0
