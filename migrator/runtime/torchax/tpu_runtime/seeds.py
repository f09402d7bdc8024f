"""Seeds of the device's random numbers, as ``torch.cuda`` has them."""

import random
from typing import Any

import torch
import torchax
import torchax.device_module

_initial_seed: int | None = None


def manual_seed(seed: int) -> None:
    """Seed the device only (``torch.manual_seed`` seeds CPU and device once ``setup`` has run)."""
    global _initial_seed
    _initial_seed = int(seed)
    # JAX keys take 63 bits; torch allows 64, and negative seeds.
    torchax.default_env().manual_seed(_initial_seed % 2**63)


def manual_seed_all(seed: int) -> None:
    """The same as ``manual_seed``: torchax has one random state for all devices."""
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


def install(env: Any) -> None:
    """Let ``torch.manual_seed`` and ``torch.seed`` reach the device, as they do on CUDA.

    torchax 0.0.13: torch hands the seed to ``torch.jax.manual_seed_all``, which does nothing, so
    the device's numbers differ from run to run, however the script is seeded.
    """
    before = env.prng_key
    torchax.device_module.manual_seed_all(torch.initial_seed() % 2**63)
    if env.prng_key is not before:
        return  # mended upstream
    torchax.device_module.manual_seed_all = manual_seed_all
