"""Random numbers that are the same on every back end.

Each call that samples is counted, by its name and the shape of its result. Its numbers are drawn on
the CPU, from a generator seeded by the program's seed and this count. So two runs of a program, one
on a GPU and one on a TPU, have the same weights, batches and noise, although each back end has its
own generator. Dropout is off, or its masks are drawn in the same way.

While JAX traces a step, this is not possible: the numbers would become constants of the compiled
program. They come from the back end then, and `Randomness.traced` says so.

In float64, a program draws the numbers of float32, so that both start from the same values.

`leave` replaces nothing, for a run of what the device itself draws.
"""

from __future__ import annotations

import functools
import itertools
import random
import sys
import zlib
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
import torch.nn.functional as functional

# Functions of torch that give a new tensor; the shape is that of what they give.
_DRAWING = ("rand", "randn", "randint", "randperm", "normal", "bernoulli", "multinomial", "poisson")
_FLOATS = ("rand", "randn", "normal")  # of the default type
_LIKE = ("rand_like", "randn_like", "randint_like")
_FILLING = ("normal_", "uniform_", "random_", "bernoulli_", "exponential_", "cauchy_", "geometric_",
            "log_normal_")  # fmt: skip
_DROPPING = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout",
             "feature_alpha_dropout")  # fmt: skip
_Generator = torch._C.Generator  # the CPU's, whatever replaces torch.Generator
_MIXED = 2**31 - 1  # a prime, so that nearby seeds give different sequences


class Randomness:
    """The state of the replaced random numbers, and what was seen of them."""

    def __init__(self, seed: int, dropout: bool, float64: bool = False) -> None:
        self.seed, self.dropout, self.float64 = seed, dropout, float64
        self.counts: Counter[str] = Counter()
        self.states: dict[int, tuple[int, Counter[str]]] = {}
        self.shadows: dict[int, Any] = {}  # of generators of the device
        self.natively: dict[str, Callable[..., Any]] = {"rand": torch.rand}
        self.drawn = 0  # number of replaced calls
        self.before = 0  # of these, before the first number of the device
        # Calls of dropout that were switched off or drawn here, and calls whose numbers come from
        # the back end. No numbers: a compiled step must not seem to remember something.
        self.dropped, self.traced = itertools.count(), itertools.count()
        self.elsewhere = itertools.count()  # calls whose numbers are for another device

    def generator(self, name: str, shape: Any, named: torch.Generator | None) -> torch.Generator:
        """A CPU generator for one call; `named` is the generator that the call names."""
        self.drawn += 1
        of_device = (self.dropped, self.traced, self.elsewhere)
        self.before += not any(next_count(count) for count in of_device)
        if named is not None and named is not torch.default_generator:
            return named if named.device.type == "cpu" else self._on_cpu(named)
        key = f"{name} {shape}"
        self.counts[key] += 1
        mixed = zlib.crc32(f"{key} {self.counts[key]}".encode()) * _MIXED + self.seed
        return _Generator().manual_seed(mixed % 2**63)

    def _on_cpu(self, generator: torch.Generator) -> torch.Generator:
        """The CPU counterpart of a generator of the device, with the same seed."""
        known = self.shadows.get(id(generator))
        if known is None or not torch.equal(known[2], generator.get_state()):  # seeded again
            known = (generator, _Generator().manual_seed(generator.initial_seed()), None)
        generator, shadow, _ = known
        self.natively["rand"](1, device=generator.device, generator=generator)  # to advance it
        self.shadows[id(generator)] = (generator, shadow, generator.get_state())
        return shadow  # type: ignore[no-any-return]

    def reseed(self, seed: int) -> None:
        self.seed = int(seed) % 2**63
        self.counts.clear()

    def state(self) -> torch.Tensor:
        number = len(self.states) + 1
        self.states[number] = (self.seed, self.counts.copy())
        return torch.tensor([*b"replayed", *number.to_bytes(8, "little")], dtype=torch.uint8)

    def restore(self, state: Any) -> bool:
        """Return to a `state`; False for the state of something else."""
        if not isinstance(state, torch.Tensor) or state.numel() != 16:
            return False
        content = bytes(state.cpu().tolist())
        if content[:8] != b"replayed":
            return False
        seed, counts = self.states[int.from_bytes(content[8:], "little")]
        self.seed, self.counts = seed, counts.copy()
        return True


def next_count(count: itertools.count[int]) -> int:
    """The number of earlier calls of `next`."""
    return int(repr(count)[6:-1])


def is_traced() -> bool:
    """Whether JAX is tracing, so that tensors have no values."""
    core = sys.modules.get("jax._src.core")
    return core is not None and not core.trace_state_clean()


def seed_all(seed: int) -> None:
    """Seed Python, NumPy and torch."""
    random.seed(seed)
    if "numpy" in sys.modules or _has_numpy():
        import numpy

        numpy.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def leave(seed: int, more: int, before: int) -> None:
    """Seed this process, and replace nothing.

    After ``before`` calls that sample, the program's own seeds become those that are ``more``.
    Until then, nothing of the device was drawn: initial weights are the same with all seeds.
    """
    seed_all(seed if before else seed + more)
    if not more:
        return
    seeding, calls = torch.manual_seed, itertools.count(1)

    @functools.wraps(seeding)
    def manual_seed(seed: int) -> Any:
        return seeding(int(seed) + (more if next_count(calls) > before else 0))

    def counting(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def draw(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            if kwargs.get("out") is None and next(calls) == before:
                seeding(torch.initial_seed() + more)
            return result

        return draw

    for module in (torch, torch.random):
        module.manual_seed = manual_seed  # type: ignore[assignment]
    for home, names in (
        (torch, (*_DRAWING, *_LIKE)), (torch.Tensor, (*_FILLING, "bernoulli", "multinomial")),
    ):  # fmt: skip
        for name in names:
            setattr(home, name, counting(getattr(home, name)))
    torch.utils.data.dataset.randperm = torch.randperm


def install(found: Any) -> None:
    """Replace the sampling functions of this process by a `Randomness`, or a stand-in; and seed."""
    seed_all(found.seed)
    for name in _DRAWING:
        setattr(torch, name, _drawing(found, name, getattr(torch, name)))
    torch.utils.data.dataset.randperm = torch.randperm  # random_split has its own reference to it
    for name in ("bernoulli", "multinomial"):
        setattr(torch.Tensor, name, _drawing(found, name, getattr(torch.Tensor, name)))
    for name in _LIKE:
        setattr(torch, name, _like(found, name, getattr(torch, name)))
    for name in _FILLING:
        setattr(torch.Tensor, name, _filling(found, name, getattr(torch.Tensor, name)))
    for name in _DROPPING:
        setattr(functional, name, _dropping(found, getattr(functional, name)))
    _seeds(found)
    _attention(found)
    _recurrent(found)


def _has_numpy() -> bool:
    import importlib.util

    return importlib.util.find_spec("numpy") is not None


def _drawing(found: Randomness, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that returns a new tensor: drawn on the CPU, then moved to its device."""

    @functools.wraps(function)
    def draw(*args: Any, **kwargs: Any) -> Any:
        generator = kwargs.get("generator")
        if is_traced():
            next(found.traced)
            return function(*args, **kwargs)
        if kwargs.get("out") is not None or kwargs.get("names") is not None:
            return function(*args, **kwargs)
        device = kwargs.get("device")
        tensors = [a for a in (*args, *kwargs.values()) if isinstance(a, torch.Tensor)]
        if device is None and tensors:
            device = tensors[0].device
        if device is None:
            device = torch.get_default_device()
        if torch.device(device).type != "cpu":
            next(found.elsewhere)
        wanted = kwargs.get("requires_grad", False)
        there = {k: v for k, v in kwargs.items()
                 if k not in ("device", "generator", "requires_grad", "pin_memory")}  # fmt: skip
        there = {k: _to_host(v) for k, v in there.items()}
        host = [_to_host(a) for a in args]
        shape = _shape(name, host, there)
        there["generator"] = found.generator(name, shape, generator)
        if not tensors:
            there["device"] = "cpu"
        with torch.no_grad():
            result = _draw_on_host(found, name, function, host, there).to(device)
        return result.requires_grad_() if wanted else result

    return draw


def _draw_on_host(
    found: Randomness, name: str, function: Callable[..., Any], args: list[Any],
    kwargs: dict[str, Any],
) -> torch.Tensor:  # fmt: skip
    """Call a function that draws; in float64 as in float32, so that both have the same numbers."""
    if not found.float64:
        return function(*args, **kwargs)  # type: ignore[no-any-return]
    args, kwargs = [_in_float32(a) for a in args], {k: _in_float32(v) for k, v in kwargs.items()}
    if name in _FLOATS and not any(isinstance(a, torch.Tensor) for a in (*args, *kwargs.values())):
        kwargs.setdefault("dtype", torch.float32)
    with torch._C.DisableTorchFunction():
        drawn: torch.Tensor = function(*args, **kwargs)
        return drawn.double() if drawn.is_floating_point() else drawn


def _in_float32(value: Any) -> Any:
    """A tensor or type of floats in float32; anything else as it is."""
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        with torch._C.DisableTorchFunction():
            return value.float()
    return torch.float32 if isinstance(value, torch.dtype) and value.is_floating_point else value


def _shape(name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Distinguishes calls of one function: the sizes in their arguments."""
    named = [a for a in (*args, *kwargs.values())
             if isinstance(a, (int, tuple, list, torch.Size, torch.Tensor))]  # fmt: skip
    return [tuple(a.shape) if isinstance(a, torch.Tensor) else a for a in named]


def _to_host(value: Any) -> Any:
    return value.detach().cpu() if isinstance(value, torch.Tensor) else value


def _like(found: Randomness, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def draw(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if is_traced():
            next(found.traced)
            return function(tensor, *args, **kwargs)
        plain = getattr(torch, name.removesuffix("_like"))
        kwargs.pop("memory_format", None)
        kwargs.setdefault("dtype", tensor.dtype)
        kwargs.setdefault("device", tensor.device)
        return plain(*args, tuple(tensor.shape), **kwargs)

    return draw


def _filling(found: Randomness, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def fill(self: torch.Tensor, *args: Any, generator: Any = None, **kwargs: Any) -> Any:
        if is_traced():
            next(found.traced)
            return function(self, *args, generator=generator, **kwargs)
        if self.device.type != "cpu":
            next(found.elsewhere)
        drawing = found.generator(name, self.shape, generator)
        host = [_to_host(a) for a in args]
        dtype = _in_float32(self.dtype) if found.float64 else self.dtype
        plainly = torch._C.DisableTorchFunction() if found.float64 else nullcontext()
        with torch.no_grad(), plainly:
            numbers = torch.empty(self.shape, dtype=dtype, device="cpu")
            function(numbers, *host, generator=drawing, **kwargs)
        if self.requires_grad and self.is_leaf and torch.is_grad_enabled():
            return function(self, *args, generator=generator, **kwargs)  # torch reports the error
        return self.copy_(numbers.to(self.device))

    return fill


def _dropping(found: Randomness, function: Callable[..., Any]) -> Callable[..., Any]:
    """Dropout: off, or with a mask drawn here."""

    @functools.wraps(function)
    def drop(
        input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> Any:
        if not training or p == 0:
            return function(input, p, training, inplace)
        next(found.dropped)
        plain = function.__name__ == "dropout"
        if not found.dropout or not plain:
            return function(input, 0.0, False, inplace)
        if is_traced():
            next(found.traced)
            return function(input, p, training, inplace)
        mask = torch.bernoulli(torch.full(input.shape, 1 - p, device="cpu")).to(input.device)
        return input * mask.to(input.dtype) / (1 - p)

    return drop


def _seeds(found: Randomness) -> None:
    seeding, state, restoring = torch.manual_seed, torch.get_rng_state, torch.set_rng_state

    @functools.wraps(seeding)
    def manual_seed(seed: int) -> Any:
        found.reseed(seed)
        return seeding(seed)

    @functools.wraps(torch.seed)
    def some_seed() -> int:
        manual_seed(found.seed + 1)
        return found.seed

    @functools.wraps(state)
    def get_rng_state() -> torch.Tensor:
        return found.state()

    @functools.wraps(restoring)
    def set_rng_state(new_state: torch.Tensor) -> None:
        if not found.restore(new_state):
            restoring(new_state)

    for module in (torch, torch.random):
        module.manual_seed = manual_seed  # type: ignore[assignment]
        module.seed = some_seed
        module.get_rng_state = get_rng_state
        module.set_rng_state = set_rng_state


def _attention(found: Randomness) -> None:
    """Dropout inside of attention is off in both runs."""
    attention = functional.scaled_dot_product_attention

    @functools.wraps(attention)
    def attend(*args: Any, **kwargs: Any) -> Any:
        if len(args) > 4 and args[4]:
            args = (*args[:4], 0.0, *args[5:])
            next(found.dropped)
        if kwargs.get("dropout_p"):
            kwargs["dropout_p"] = 0.0
            next(found.dropped)
        return attention(*args, **kwargs)

    functional.scaled_dot_product_attention = attend


def _recurrent(found: Randomness) -> None:
    """Dropout between the layers of a recurrent network is off in both runs."""
    forward = torch.nn.RNNBase.__setattr__

    def set_attribute(self: Any, name: str, value: Any) -> None:
        if name == "dropout" and value:
            next(found.dropped)
            value = 0.0
        forward(self, name, value)

    torch.nn.RNNBase.__setattr__ = set_attribute  # type: ignore[assignment]
