"""Seeds of the device's random numbers, with the interface of ``torch.cuda``."""

import contextlib
import functools
import random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
import torchax
import torchax.device_module
import torchax.tensor
from torchax.tensor import Tensor

from ..dispatch.calls import is_device_tensor, native, patch

_initial_seed: int | None = None


def manual_seed(seed: int) -> None:
    """Seed the device only (``torch.manual_seed`` seeds CPU and device once ``setup`` has run)."""
    global _initial_seed
    _initial_seed = int(seed)
    holder = torchax.default_env()._property
    if "content" in vars(holder):
        _seed(holder.content)


def _seed(state: Any) -> Any:
    # JAX keys take 63 bits; torch allows 64, and negative seeds.
    if _initial_seed is not None:
        state.prng = jax.random.key(_initial_seed % 2**63)
    return state


def manual_seed_all(seed: int) -> None:
    """The same as ``manual_seed``: torchax has one random state for all devices."""
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


def get_rng_state(device: Any = None) -> torch.Tensor:
    """The state of the device's random numbers, a CPU tensor of bytes.

    In a compiled step it is a device tensor: `torch.utils.checkpoint` asks for it there.
    """
    env = torchax.default_env()
    key = env.prng_key
    words = jax.random.key_data(key) if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else key
    if isinstance(words, jax.core.Tracer):
        return Tensor(jax.lax.bitcast_convert_type(words, jnp.uint8).reshape(-1), env)
    state = np.array(words).view(np.uint8)
    return native(torch.from_numpy, (state,), {})  # type: ignore[no-any-return]


def set_rng_state(new_state: torch.Tensor, device: Any = None) -> None:
    """Restore a state from ``get_rng_state``."""
    if is_device_tensor(new_state):
        array = new_state.jax()  # type: ignore[attr-defined]
        words = jax.lax.bitcast_convert_type(array.reshape(-1, 4), jnp.uint32)
    else:
        words = jnp.asarray(new_state.cpu().numpy().copy().view(np.uint32))
    torchax.default_env().param.prng = jax.random.wrap_key_data(words)


class _Later:
    """All threads' random state, as on CUDA: created at first use, because it uses a device."""

    def __init__(self, content_factory: Any) -> None:
        self._make = content_factory

    @functools.cached_property
    def content(self) -> Any:
        return _seed(self._make())


def wait_for_the_device() -> None:
    """Create the random state at first use, not together with the environment."""
    patch(torchax.tensor, _PropertyHolder=_Later)


def install(env: Any) -> None:
    """Let ``torch.manual_seed`` and ``torch.seed`` reach the device, as they do on CUDA.

    torchax 0.0.13: torch passes the seed to ``torch.jax.manual_seed_all``, which does nothing, so
    the device's numbers differ from run to run, even if the script sets a seed. The state that
    `torch.utils.checkpoint` saves is an empty list: dropout inside it would draw another mask for
    the gradient.
    """
    patch(
        torchax.device_module,
        get_rng_state=get_rng_state,
        set_rng_state=set_rng_state,
        manual_seed_all=manual_seed_all,
        device=lambda index: contextlib.nullcontext(),
        _initialized=True,
    )
