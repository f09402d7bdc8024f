"""Accelerate, libraries built on it (Trainer, TRL), and Lightning: device, ranks, and bfloat16."""

import contextlib
import functools
import os
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import torch
from torch.nn import parallel
from torch.overrides import _get_current_function_mode
from torchax.ops import mappings
from torchax.tensor import Environment, Tensor

from ..compilation.compile_state import inside, is_eager
from ..compilation.guard_skipping import handling_operators, passing_tensors_on
from ..compilation.partial_compilation import hurried, is_outermost, of_model
from ..device import DEVICE_TYPE
from ..dispatch.calls import natively
from ..distributed.ddp import DistributedDataParallel
from ..text import compiled_generate
from ..text.generate_calls import GenerateTarget
from ..training.amp import autocast
from . import lightning_accelerator, lightning_ranks, mixed_targets
from .import_hooks import when_imported


class _Autocast(torch.autocast):
    """`torch.autocast`, which leaves float32 on the device: there the runtime's own is used."""

    def __new__(cls, device_type: str, *args: Any, **kwargs: Any) -> Any:
        if device_type == DEVICE_TYPE:
            return autocast(device_type, *args, **kwargs)
        return torch.amp.autocast_mode.autocast(device_type, *args, **kwargs)


def _choose(state: Any) -> None:
    """Let accelerate choose the device, and form a group of the ranks that a launcher has started.

    accelerate 1.15 does so for accelerators that it knows, and for the CPU: so ranks are set up as
    for the CPU, with another device and group. Without this each rank would train separately.
    """
    partial, several = state.PartialState, state.DistributedType.MULTI_CPU
    prepare, set_device = partial._prepare_backend, partial.set_device

    def backend(self: Any, cpu: bool = False, *args: Any, **kwargs: Any) -> Any:
        if cpu or "LOCAL_RANK" not in os.environ:
            return prepare(self, cpu, *args, **kwargs)
        parallel.DistributedDataParallel = DistributedDataParallel  # type: ignore[misc,assignment]
        return DEVICE_TYPE, several

    def device(self: Any) -> None:
        if self.device is None and not self._cpu:  # the user's explicit choice stays
            self.device = torch.device(DEVICE_TYPE)
        set_device(self)

    partial._prepare_backend, partial.set_device = backend, device


def _follow(arguments: Any) -> None:
    """Let transformers 5.24 use accelerate's device, and know that it supports bfloat16.

    It asks torch for GPUs, and otherwise uses the CPU.
    """
    arguments.is_torch_bf16_gpu_available = lambda: True
    chosen = vars(arguments.TrainingArguments)["_setup_devices"]
    stock = chosen.func

    def device(self: Any) -> torch.device:
        stock(self)
        return self.distributed_state.device  # type: ignore[no-any-return]

    chosen.func = device


def _generation(env: Environment) -> GenerateTarget:
    """How tokens go to the device and logits come back, without the checks of `.to`."""

    def to_device(tensor: torch.Tensor) -> torch.Tensor:
        with natively():
            return Tensor(jnp.asarray(tensor.numpy()), env)

    def to_cpu(tensor: Any) -> torch.Tensor:
        with natively():
            return mappings.j2t(tensor.jax())  # type: ignore[no-any-return]

    @contextlib.contextmanager
    def in_thread() -> Iterator[None]:
        """Turn torchax on in a thread of its own, where it is off: a streamer is read meanwhile."""
        with contextlib.ExitStack() as stack:
            if _get_current_function_mode() is None:
                stack.enter_context(env._dispatch_mode)
                stack.enter_context(env._function_mode)
            yield

    def apart_if_alone() -> contextlib.AbstractContextManager[None]:
        return passing_tensors_on() if is_outermost() else contextlib.nullcontext()

    return GenerateTarget(
        hurried,
        inside,
        in_thread,
        apart_if_alone,
        handling_operators,
        lambda: None,
        of_model,
        to_device,
        to_cpu,
    )


def install(env: Environment) -> None:
    """Teach them about the device, which they don't know."""
    torch.autocast = torch.amp.autocast = _Autocast  # type: ignore[misc]
    when_imported("accelerate.state", _choose)
    when_imported("transformers.training_args", _follow)
    mixed_targets.install()
    compiles = not is_eager()
    lightning_accelerator.install(
        lambda: None, functools.partial(lightning_ranks.of_ranks, compiles)
    )
    compiled_generate.install(_generation(env))
