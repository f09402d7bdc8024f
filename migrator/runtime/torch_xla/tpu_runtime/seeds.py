"""Seeds of the device's random numbers, as ``torch.cuda`` has them."""

import functools
import random

import torch
import torch_xla

from .device import is_started

_initial_seed: int | None = None
_waits = False  # for the device to belong to this process


def manual_seed(seed: int) -> None:
    """Seed the device only (``torch.manual_seed`` seeds CPU and device once ``setup`` has run)."""
    global _initial_seed
    _initial_seed = int(seed)
    if not _waits or is_started():
        # torch allows negative seeds, torch_xla does not
        torch_xla.manual_seed(_initial_seed % 2**64)


def seed_device() -> None:
    """Give the device the seed that it has missed while it belonged to nobody."""
    global _waits
    if _waits:
        _waits = False
        if _initial_seed is not None:
            manual_seed(_initial_seed)


def wait() -> None:
    """Leave the device alone until `seed_device`: a process that touches it can not start ranks."""
    global _waits
    _waits = not is_started()


def manual_seed_all(seed: int) -> None:
    """The same as ``manual_seed``: a process computes on one XLA device."""
    manual_seed(seed)


def seed() -> None:
    """Seed the device with a number that nobody can foretell."""
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
