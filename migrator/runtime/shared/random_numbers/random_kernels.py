"""Random numbers in the range of a GPU's, and as exact.

torch_xla 2.9: `exponential_` gives 0 in one of 8 million draws, and infinity in bfloat16; uniform
numbers reach their upper end; `bernoulli_` of integers is 0 everywhere; what is drawn for bfloat16
is compared in bfloat16.

torch_tpu 0.2.0: what is drawn for halves has as many bits as they have: 128 normal numbers, none
beyond 2.9, and exponential ones of 0, by which `gumbel_softmax` is NaN.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..dispatch.replaced_kernels import KEY, Kernel, replace, stock

_HALVES = (torch.float16, torch.bfloat16)
_stock_uniform: Kernel


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def _is_stocks(generator: Any) -> bool:
    """torch_xla draws on the CPU for a generator, which is right."""
    return generator is not None and KEY == "XLA"


def numbers(like: Tensor, generator: Any = None) -> Tensor:
    """Uniform numbers in [0, 1) of a tensor's shape; for halves and integers float32."""
    made = torch.empty(like.shape, dtype=_wide(like.dtype), device=like.device)
    return _stock_uniform(made, 0.0, 1.0, generator=generator)  # type: ignore[no-any-return]


def _standard_exponential(like: Tensor, generator: Any) -> Tensor:
    """Never 0 or infinite: two draws, for one alone ends at 16."""
    least = torch.finfo(_wide(like.dtype)).eps / 2
    to_one = (1 - numbers(like, generator)) - numbers(like, generator) * least
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
        if low > high:
            raise RuntimeError(f"uniform_ expects from <= to, but found {low} > {high}")
        if _is_stocks(generator) or self.is_complex():
            return there(self, low, high, generator=generator)  # type: ignore[no-any-return]
        drawn = numbers(self, generator) * (high - low) + low
        reached = drawn >= _first_that_rounds_up(high, self.dtype)
        return self.copy_(torch.where(reached, low, drawn))

    return kernel


def _exponential(name: str) -> Kernel:
    there = stock(name)

    def kernel(self: Tensor, lambd: float = 1, *, generator: Any = None) -> Tensor:
        if lambd <= 0:
            raise RuntimeError(f"exponential_ expects lambda > 0, but found {lambd}")
        if _is_stocks(generator) or not self.is_floating_point():
            return there(self, lambd, generator=generator)  # type: ignore[no-any-return]
        return self.copy_(_standard_exponential(self, generator) / lambd)

    return kernel


def _normal(name: str) -> Kernel:
    """Of halves."""
    there = stock(name)

    def kernel(self: Tensor, *args: Any, generator: Any = None, **kwargs: Any) -> Tensor:
        if _is_stocks(generator) or self.dtype not in _HALVES:
            return there(self, *args, generator=generator, **kwargs)  # type: ignore[no-any-return]
        return self.copy_(there(self.float(), *args, generator=generator, **kwargs))

    return kernel


def _normal_of_tensors(name: str) -> Kernel:
    """Of halves; and of tensors of different shapes, which torch_xla refuses."""
    there = stock(name)

    def kernel(mean: Any, std: Any = 1.0, *, generator: Any = None) -> Tensor:
        if isinstance(mean, Tensor) and isinstance(std, Tensor):
            mean, std = torch.broadcast_tensors(mean, std)
        like = mean if isinstance(mean, Tensor) else std
        if _is_stocks(generator) or like.dtype not in _HALVES:
            return there(mean, std, generator=generator)  # type: ignore[no-any-return]
        mean, std = (x.float() if isinstance(x, Tensor) else x for x in (mean, std))
        return there(mean, std, generator=generator).to(like.dtype)  # type: ignore[no-any-return]

    return kernel


def _bernoulli(name: str) -> Kernel:
    """Of `x`, or of a tensor or a number beside it, which is written to `x`."""
    there = stock(name)
    in_place = name.startswith("bernoulli_")
    default = 0.5 if name == "bernoulli_.float" else None  # torch omits what is the default

    def kernel(self: Tensor, p: Any = default, *, generator: Any = None) -> Tensor:
        if _is_stocks(generator):
            return there(self, *(() if p is None else (p,)), generator=generator)  # type: ignore[no-any-return]
        if isinstance(p, float) and not 0 <= p <= 1:
            raise RuntimeError(f"bernoulli_ expects p to be in [0, 1], but got p={p}")
        chance = self if p is None else p
        if isinstance(chance, Tensor):
            chance = chance.to(device=self.device, dtype=_wide(chance.dtype))
        drawn = numbers(self, generator) < chance
        return self.copy_(drawn) if in_place else drawn.to(self.dtype)

    return kernel


def _multinomial(name: str) -> Kernel:
    """Weights of halves are summed as float32. With replacement, stock chooses what has no weight
    when it draws 0; the heaviest takes its place. Without, torch_xla does so, too: the largest
    quotients by exponential numbers are chosen, as on a GPU."""
    choose = stock(name)

    def kernel(self: Tensor, n: int, replacement: bool = False, *, generator: Any = None) -> Tensor:
        weights = self.float() if self.dtype in _HALVES else self
        if not replacement and 0 < n <= self.size(-1) and not _is_stocks(generator):
            return (weights / _standard_exponential(weights, generator)).topk(n).indices
        chosen = choose(weights, n, replacement, generator=generator)
        if not replacement:
            return chosen  # type: ignore[no-any-return]
        is_real = weights.gather(-1, chosen) > 0
        return torch.where(is_real, chosen, weights.argmax(-1, keepdim=True))

    return kernel


def scaled(input: Tensor, kept: Tensor, scale: float) -> Tensor:
    """What dropout keeps, multiplied as float32 for halves."""
    return (input.to(_wide(input.dtype)) * kept * scale).to(input.dtype)


_KERNELS: dict[str, Callable[[str], Kernel]] = {
    "uniform_": _uniform,
    "exponential_": _exponential,
    "normal_": _normal,
    "normal.Tensor_float": _normal_of_tensors,
    "normal.float_Tensor": _normal_of_tensors,
    "normal.Tensor_Tensor": _normal_of_tensors,
    "bernoulli": _bernoulli,
    "bernoulli.p": _bernoulli,
    "bernoulli_.float": _bernoulli,
    "bernoulli_.Tensor": _bernoulli,
    "multinomial": _multinomial,
}


def install() -> None:
    """Replace the kernels."""
    global _stock_uniform
    _stock_uniform = stock("uniform_")
    for name, make in _KERNELS.items():
        replace(name, make(name))
