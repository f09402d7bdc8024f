"""Lightning's `accelerator="tpu"` on any target; Lightning 2.6 itself needs torch_xla and float32.

It is one device, on which Lightning trains as on one GPU: with the same hooks, checkpoints and
precisions, except that bfloat16 replaces float16. Ranks that torchrun has started have one device
each, and train with Lightning's strategy "ddp".
"""

import functools
import os
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ..device import DEVICE_TYPE
from .import_hooks import when_imported

OfRanks = Callable[[Any], Any]  # a strategy -> the same with ranks

# Lightning's names for import: as a separate package, and as part of `lightning`.
_FABRIC = ("lightning.fabric", "lightning_fabric")
_TRAINER = ("lightning.pytorch", "pytorch_lightning")


def _started(variable: str = "LOCAL_WORLD_SIZE") -> int:
    """How many processes a launcher has started, on this host or in total (WORLD_SIZE)."""
    return int(os.environ.get(variable) or 1)


def _make_available(module: Any) -> None:
    """Make the accelerator available, with one device for each started process."""
    kind, parse = module.XLAAccelerator, module.XLAAccelerator.parse_devices

    def parse_devices(devices: Any) -> Any:
        count = _started()
        if devices in (-1, "-1", [*range(count)]):  # all of them
            devices = count
        if count == 1 and str(devices).isdecimal() and int(devices) > 1:
            raise ValueError(
                f"Lightning starts no processes for TPUs: devices={devices} wants "
                f"torchrun --nproc-per-node={devices}"
            )
        return parse(devices)

    def get_parallel_devices(devices: Any) -> list[torch.device]:
        if isinstance(devices, int) and devices > 1:
            return [torch.device(DEVICE_TYPE)] * devices
        return [torch.device(DEVICE_TYPE, 0)]

    kind.__init__ = object.__init__
    kind.is_available = staticmethod(lambda: True)
    kind.auto_device_count = staticmethod(_started)
    kind.parse_devices = staticmethod(parse_devices)
    kind.get_parallel_devices = staticmethod(get_parallel_devices)


def _without_stats(module: Any) -> None:
    module.XLAAccelerator.get_device_stats = lambda self, device: {}


def _on_cpu(value: Any) -> Any:
    return value.cpu() if isinstance(value, torch.Tensor) else value


def _strategy(base: Any, boundary: Callable[[], None]) -> Any:
    """Lightning's strategy ``base``, on a device of this target."""

    class TpuStrategy(base):  # type: ignore[misc]
        def batch_to_device(self, *args: Any, **kwargs: Any) -> Any:
            boundary()
            return super().batch_to_device(*args, **kwargs)

        def optimizer_step(self, *args: Any, **kwargs: Any) -> Any:
            result = super().optimizer_step(*args, **kwargs)
            boundary()
            return result

        def save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
            args, kwargs = pytree.tree_map(_on_cpu, (args, kwargs))
            super().save_checkpoint(*args, **kwargs)

    return TpuStrategy


def _precision(connector: Any, flag: str) -> Any:
    """The plugin for a precision, as for a GPU; bfloat16 replaces float16."""
    if flag.endswith("-mixed"):
        return connector.MixedPrecision("bf16-mixed", DEVICE_TYPE)
    if flag in ("16-true", "bf16-true"):
        return connector.HalfPrecision("bf16-true")
    if flag == "64-true":
        return connector.DoublePrecision()
    if flag == "32-true":
        return connector.Precision()
    raise ValueError(f'a TPU has no precision="{flag}"')


def _connect(
    boundary: Callable[[], None], of_ranks: OfRanks | None, name: str, module: Any
) -> None:
    """Let a connector, which reads Trainer's or Fabric's arguments, use the classes made here."""
    registry = vars(module).get("StrategyRegistry") or module.STRATEGY_REGISTRY
    one = module.SingleDeviceXLAStrategy = _strategy(module.SingleDeviceStrategy, boundary)
    ranks = of_ranks(_strategy(type(registry.get("ddp")), boundary)) if of_ranks else None
    if ranks is not None:
        module.XLAStrategy = ranks
    module.XLAPrecision = functools.partial(_precision, module)
    connector = getattr(module, name)
    fall_back = connector._check_strategy_and_fallback

    def check(self: Any) -> None:
        """DistributedDataParallel in one process is just that process."""
        flag = self._strategy_flag
        kind = flag if isinstance(flag, str) else getattr(flag, "strategy_name", "")
        if self._accelerator_flag == "tpu" and _is_plain(kind):
            self._strategy_flag = chosen(self, "ddp" if flag == "xla" else flag)
        fall_back(self)

    def chosen(self: Any, flag: Any) -> Any:
        started = max(_started("WORLD_SIZE"), self.cluster_environment.world_size())
        told = len(self._parallel_devices) * self._num_nodes_flag
        if started != told:
            raise ValueError(
                f"Lightning is set to {told} devices, but {started} processes run, each with one "
                f"TPU: write devices={_started()}"
            )
        if started == 1:
            return one(device=self._parallel_devices[0])
        if ranks is None:
            raise ValueError(f"Lightning trains on one TPU here: start one process, not {started}")
        stock = registry.get(flag) if isinstance(flag, str) else flag
        return ranks(timeout=stock._timeout, **stock._ddp_kwargs)

    connector._check_strategy_and_fallback = check


def _is_plain(strategy: str) -> bool:
    """Whether each process has the whole model."""
    return strategy.startswith(("ddp", "dp", "single_device", "xla")) and "fsdp" not in strategy


def install(boundary: Callable[[], None], of_ranks: OfRanks | None = None) -> None:
    """Patch Lightning; ``boundary`` ends the recording of a step, on targets that need it.

    ``of_ranks`` makes the strategy "ddp" with ranks of this target; None: it has one device.
    """
    for fabric, trainer in zip(_FABRIC, _TRAINER, strict=True):
        when_imported(f"{fabric}.accelerators.xla", _make_available)
        when_imported(f"{trainer}.accelerators.xla", _without_stats)
        connect = functools.partial(_connect, boundary, of_ranks)
        when_imported(f"{fabric}.connector", functools.partial(connect, "_Connector"))
        inner = f"{trainer}.trainer.connectors.accelerator_connector"
        when_imported(inner, functools.partial(connect, "_AcceleratorConnector"))
