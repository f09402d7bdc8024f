"""Random numbers in the range of a GPU's, and as exact.

torch_xla 2.9: `exponential_` gives 0 in one of 8 million draws, and infinity in bfloat16; uniform
numbers reach their upper end; `bernoulli_` of integers is 0 everywhere; what is drawn for bfloat16
is compared in bfloat16, and the scale of dropout is rounded to it.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .kernels import Kernel, replace, stock

NEEDED_BY = "<unusual>"

_HALVES = (torch.float16, torch.bfloat16)
_library = torch.library.Library("aten", "IMPL")  # its registrations live as long as it does


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def numbers(like: Tensor) -> Tensor:
    """Uniform numbers in [0, 1) of a tensor's shape; for halves and integers float32."""
    made = torch.empty(like.shape, dtype=_wide(like.dtype), device=like.device)
    return _stock_uniform(made, 0.0, 1.0, generator=None)  # type: ignore[no-any-return]


def _standard_exponential(like: Tensor) -> Tensor:
    """Never 0 or infinite: two draws, for one alone ends at 16."""
    least = torch.finfo(_wide(like.dtype)).eps / 2
    to_one = (1 - numbers(like)) - numbers(like) * least
    return (-to_one.clamp(min=least**2).log()).clamp(min=least)


def _first_that_rounds_up(end: float, dtype: torch.dtype) -> float:
    """The least number that ``dtype`` has as ``end``, for numbers that are not rounded yet."""
    if dtype not in _HALVES:
        return end
    last = torch.tensor(end, dtype=dtype)
    before = torch.nextafter(last, torch.tensor(-torch.inf, dtype=dtype))
    return (before.double().item() + last.double().item()) / 2


def _uniform(name: str) -> Kernel:
    there = stock(name)

    def kernel(self: Tensor, low: float = 0, high: float = 1, *, generator: Any = None) -> Tensor:
        if generator is not None or self.is_complex() or low > high:
            return there(self, low, high, generator=generator)  # type: ignore[no-any-return]
        drawn = numbers(self) * (high - low) + low
        reached = drawn >= _first_that_rounds_up(high, self.dtype)
        return self.copy_(torch.where(reached, low, drawn))

    return kernel


def _exponential(name: str) -> Kernel:
    there = stock(name)

    def kernel(self: Tensor, lambd: float = 1, *, generator: Any = None) -> Tensor:
        if generator is not None or not self.is_floating_point() or lambd <= 0:
            return there(self, lambd, generator=generator)  # type: ignore[no-any-return]
        return self.copy_(_standard_exponential(self) / lambd)

    return kernel


def _bernoulli(name: str) -> Kernel:
    """Of `x`, or of a tensor or a number beside it, which is written to `x`."""
    there = stock(name)
    in_place = name.startswith("bernoulli_")

    def kernel(self: Tensor, p: Any = None, *, generator: Any = None) -> Tensor:
        if generator is not None:
            return there(self, *(() if p is None else (p,)), generator=generator)  # type: ignore[no-any-return]
        if isinstance(p, float) and not 0 <= p <= 1:
            raise RuntimeError(f"bernoulli_ expects p to be in [0, 1], but got p={p}")
        chance = self if p is None else p
        if isinstance(chance, Tensor):
            chance = chance.to(device=self.device, dtype=_wide(chance.dtype))
        drawn = numbers(self) < chance
        return self.copy_(drawn) if in_place else drawn.to(self.dtype)

    return kernel


def _multinomial(name: str) -> Kernel:
    """Weights of halves are summed as float32. With replacement, stock chooses what has no weight
    when it draws 0; the heaviest takes its place."""
    choose = stock(name)

    def kernel(self: Tensor, n: int, replacement: bool = False, *, generator: Any = None) -> Tensor:
        weights = self.float() if self.dtype in _HALVES else self
        chosen = choose(weights, n, replacement, generator=generator)
        if not replacement:
            return chosen  # type: ignore[no-any-return]
        is_real = weights.gather(-1, chosen) > 0
        return torch.where(is_real, chosen, weights.argmax(-1, keepdim=True))

    return kernel


def dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """`torch.dropout`."""
    if not 0 <= p <= 1:
        raise RuntimeError(f"dropout probability has to be between 0 and 1, but got {p}")
    if not train or p == 0 or not input.numel():
        return input
    if p == 1:
        return input * torch.zeros_like(input)
    with torch.no_grad():
        kept = numbers(input) < 1 - p
    return (input.to(_wide(input.dtype)) * kept * (1 / (1 - p))).to(input.dtype)


def _dropout_in_place(self: Tensor, p: float, train: bool) -> Tensor:
    return self.copy_(dropout(self, p, train)) if train and p else self


_KERNELS: dict[str, Callable[[str], Kernel]] = {
    "uniform_": _uniform,
    "exponential_": _exponential,
    "bernoulli": _bernoulli,
    "bernoulli.p": _bernoulli,
    "bernoulli_.float": _bernoulli,
    "bernoulli_.Tensor": _bernoulli,
    "multinomial": _multinomial,
}

_stock_uniform = stock("uniform_")


def install() -> None:
    """Replace the kernels."""
    for name, make in _KERNELS.items():
        replace(name, make(name))
    for name, function in (("dropout", dropout), ("dropout_", _dropout_in_place)):
        for key in ("XLA", "AutogradXLA"):
            _library.impl(name, function, key)
