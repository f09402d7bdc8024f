"""Seeds of the device's random numbers, with the interface of ``torch.cuda``."""

import functools
import random

import torch
import torch_xla

from .. import device

_initial_seed: int | None = None


def manual_seed(seed: int) -> None:
    """Seed the device only (``torch.manual_seed`` seeds CPU and device once ``setup`` has run)."""
    global _initial_seed
    _initial_seed = int(seed)
    if not device.is_resting():
        # torch allows negative seeds, torch_xla does not
        torch_xla.manual_seed(_initial_seed % 2**64)


def wake() -> None:
    """The device belongs to this process from here on: apply a seed that was set before."""
    if device.wake() and _initial_seed is not None:
        manual_seed(_initial_seed)


def manual_seed_all(seed: int) -> None:
    """The same as ``manual_seed``: a process computes on one XLA device."""
    manual_seed(seed)


def seed() -> None:
    """Seed the device with an unpredictable number."""
    manual_seed(random.SystemRandom().getrandbits(63))


def seed_all() -> None:
    """The same as ``seed``."""
    seed()


def initial_seed() -> int:
    """The seed of the device's random numbers."""
    return torch.initial_seed() if _initial_seed is None else _initial_seed


def install() -> None:
    """Let ``torch.manual_seed`` and ``torch.seed`` reach the device, as they do on CUDA.

    torch_xla 2.9: torch knows no seed function of XLA, so the device's numbers ignore the seed.
    """
    seed_cpu, seed_cpu_at_random = torch.manual_seed, torch.seed

    @functools.wraps(seed_cpu)
    def manual_seed_everywhere(seed: int) -> torch.Generator:
        generator = seed_cpu(seed)
        manual_seed(seed)
        return generator

    @functools.wraps(seed_cpu_at_random)
    def seed_everywhere() -> int:
        number = int(seed_cpu_at_random())
        manual_seed(number)
        return number

    torch.manual_seed = torch.random.manual_seed = manual_seed_everywhere
    torch.seed = torch.random.seed = seed_everywhere
