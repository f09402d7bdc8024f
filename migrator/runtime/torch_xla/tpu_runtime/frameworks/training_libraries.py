"""Accelerate, Lightning and safetensors: fixes for their use of torch_xla."""

import contextlib
import functools
import os
import sys
from collections.abc import Iterator
from typing import Any

import torch
import torch_xla
from torch.nn import parallel

from ..device import DEVICE_TYPE
from ..distributed.ddp import DistributedDataParallel, join
from ..text import compiled_generate
from ..text.generate_calls import GenerateTarget
from . import lightning_accelerator, lightning_ranks, mixed_targets
from .import_hooks import when_imported

_RANKS = "xla ranks"  # accelerate takes "xla" for a back end that it supports


def _choose(state: Any) -> None:
    """Let `cpu=True` keep accelerate on the CPU, and ranks of a launcher join one group.

    accelerate 1.15 uses torch_xla whenever it is installed, and asks it for the number of ranks
    without joining them, so each of them would train separately. Here they are set up like ranks on
    the CPU, which have DDP and torch.distributed's exchanges, with another device and group.
    """
    partial, several = state.PartialState, state.DistributedType.MULTI_CPU
    prepare, set_device = partial._prepare_backend, partial.set_device

    def backend(self: Any, cpu: bool = False, *args: Any, **kwargs: Any) -> Any:
        if not cpu and int(os.environ.get("WORLD_SIZE") or 1) > 1:
            parallel.DistributedDataParallel = DistributedDataParallel  # type: ignore[misc,assignment]
            join()
            return _RANKS, several
        if not cpu:
            return prepare(self, cpu, *args, **kwargs)
        asked, state.is_torch_xla_available = state.is_torch_xla_available, lambda *_, **__: False
        try:
            return prepare(self, cpu, *args, **kwargs)
        finally:
            state.is_torch_xla_available = asked

    def device(self: Any) -> None:
        if self.device is None and self.backend == _RANKS:
            self.device = torch.device(DEVICE_TYPE)
        set_device(self)

    partial._prepare_backend, partial.set_device = backend, device


def _counts_from_zero(state: Any) -> None:
    """accelerate 1.15 numbers a single process on a back end other than TPUs as -1, which isn't the
    main one: Trainer prints nothing."""
    stock = state.PartialState.__init__

    @functools.wraps(stock)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        stock(self, *args, **kwargs)
        self.local_process_index = max(self.local_process_index, 0)

    state.PartialState.__init__ = init


class _Unknown:
    """A class without instances."""


def _shuffles_as_asked(module: Any) -> None:
    """accelerate 1.15 shuffles with its own generator on torch_xla, also for one process: the
    order differs from a GPU's."""
    data_loader: Any = sys.modules["accelerate.data_loader"]
    stock = data_loader.prepare_data_loader

    @functools.wraps(stock)
    def prepare_data_loader(*args: Any, **kwargs: Any) -> Any:
        if module.PartialState().num_processes > 1:
            return stock(*args, **kwargs)
        known = data_loader.RandomSampler
        if not kwargs.get("use_seedable_sampler"):
            data_loader.RandomSampler = _Unknown
        try:
            with torch.random.fork_rng(devices=[]):
                return stock(*args, **kwargs)
        finally:
            data_loader.RandomSampler = known

    module.prepare_data_loader = prepare_data_loader


def _reads_where_it_trains(data_loader: Any) -> None:
    """accelerate 1.15 lets torch_xla read its loader in a thread, ahead of the loop. The loader
    notes which batch is the last one: with `gradient_accumulation_steps`, the gradients of the last
    batches were kept for the next epoch, or some batch by chance was taken for the last."""
    send_to_device = data_loader.send_to_device

    def iterate(self: Any) -> Iterator[Any]:
        if self._rng_types is not None:
            data_loader.synchronize_rng_states(self._rng_types, self._loader.synchronized_generator)
        for batch in self._loader:
            yield send_to_device(batch, self.device)
            torch_xla.sync()

    data_loader.MpDeviceLoaderWrapper.__iter__ = iterate


def _has_no_memory(safetensors: Any) -> None:
    """safetensors 0.8 asks tensors for their memory address, which raises; 0 means none to it."""
    stock = safetensors.storage_ptr

    def storage_ptr(tensor: torch.Tensor) -> int:
        return 0 if tensor.device.type == DEVICE_TYPE else stock(tensor)

    safetensors.storage_ptr = storage_ptr


def _tells_tensors_apart(module: Any) -> None:
    """accelerate 1.15 also asks for their address, when it looks for shared weights."""
    stock = module.id_tensor_storage

    def id_tensor_storage(tensor: torch.Tensor) -> Any:
        if tensor.device.type != DEVICE_TYPE:
            return stock(tensor)
        return tensor.device, torch_xla._XLAC._xla_get_tensor_id(tensor), tensor.nbytes

    module.id_tensor_storage = id_tensor_storage


def install() -> None:
    """Patch them when they are imported."""
    when_imported("accelerate.state", _counts_from_zero)
    when_imported("accelerate.accelerator", _shuffles_as_asked)
    when_imported("accelerate.data_loader", _reads_where_it_trains)
    when_imported("accelerate.utils.other", _tells_tensors_apart)
    when_imported("safetensors.torch", _has_no_memory)
    when_imported("accelerate.state", _choose)
    mixed_targets.install()
    lightning_accelerator.install(
        torch_xla.sync, functools.partial(lightning_ranks.of_ranks, False)
    )
    compiled_generate.install(
        GenerateTarget(
            hurried=lambda *_: contextlib.nullcontext(),
            as_it_is=contextlib.nullcontext,
            in_thread=contextlib.nullcontext,
            apart=contextlib.nullcontext,
            there=contextlib.nullcontext,
            boundary=torch_xla.sync,
            of_model=lambda model, function: functools.partial(function, model),  # up to a boundary
            to_device=lambda tensor: tensor.to(DEVICE_TYPE),
            to_cpu=torch.Tensor.cpu,
        )
    )
