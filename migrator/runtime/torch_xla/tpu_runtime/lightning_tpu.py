"""Lightning's `accelerator="tpu"`, which 2.6 has for TPUs that torch_xla shows it, and for float32.

Here it is one device of this target, which Lightning trains on as on one GPU: the same hooks, the
same precisions but for bfloat16 in place of float16, the same checkpoints.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from .device import DEVICE_TYPE
from .imported import when_imported

NEEDED_BY = "lightning pytorch_lightning lightning_fabric"

# How it is imported: as a package of its own, and as a part of `lightning`.
_FABRIC = ("lightning.fabric", "lightning_fabric")
_TRAINER = ("lightning.pytorch", "pytorch_lightning")


def _make_available(module: Any) -> None:
    """Let the accelerator be there, with the one device that a process has."""
    kind, parse = module.XLAAccelerator, module.XLAAccelerator.parse_devices

    def parse_devices(devices: Any) -> Any:
        return parse(1 if devices in (-1, "-1") else devices)  # all of them

    kind.__init__ = object.__init__
    kind.is_available = staticmethod(lambda: True)
    kind.auto_device_count = staticmethod(lambda: 1)
    kind.parse_devices = staticmethod(parse_devices)
    kind.get_parallel_devices = staticmethod(lambda devices: [torch.device(DEVICE_TYPE, 0)])


def _without_stats(module: Any) -> None:
    module.XLAAccelerator.get_device_stats = lambda self, device: {}


def _on_cpu(value: Any) -> Any:
    return value.cpu() if isinstance(value, torch.Tensor) else value


def _strategy(base: Any, boundary: Callable[[], None]) -> Any:
    """The strategy of one device, for a connector's `SingleDeviceStrategy`."""

    class SingleTpuStrategy(base):  # type: ignore[misc]
        strategy_name = "single_tpu"

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

    return SingleTpuStrategy


def _precision(connector: Any, flag: str) -> Any:
    """The plugin for a precision, as for a GPU; bfloat16 takes the place of float16."""
    if flag.endswith("-mixed"):
        return connector.MixedPrecision("bf16-mixed", DEVICE_TYPE)
    if flag in ("16-true", "bf16-true"):
        return connector.HalfPrecision("bf16-true")
    if flag == "64-true":
        return connector.DoublePrecision()
    if flag == "32-true":
        return connector.Precision()
    raise ValueError(f'a TPU has no precision="{flag}"')


def _connect(boundary: Callable[[], None], name: str, module: Any) -> None:
    """Let a connector, which reads the arguments of Trainer or Fabric, choose what is made here."""
    one = module.SingleDeviceXLAStrategy = _strategy(module.SingleDeviceStrategy, boundary)
    module.XLAPrecision = functools.partial(_precision, module)
    connector = getattr(module, name)
    fall_back = connector._check_strategy_and_fallback

    def check(self: Any) -> None:
        """DistributedDataParallel in one process is that process alone."""
        flag = self._strategy_flag
        ranks = flag if isinstance(flag, str) else getattr(flag, "strategy_name", "")
        if self._accelerator_flag == "tpu" and ranks.startswith(("ddp", "dp", "single_device")):
            if self._num_nodes_flag > 1 or not isinstance(
                self.cluster_environment, module.LightningEnvironment
            ):
                raise ValueError(f'Lightning\'s strategy="{ranks}" has one process on a TPU')
            self._strategy_flag = one(device=self._parallel_devices[0])
        fall_back(self)

    connector._check_strategy_and_fallback = check


def install(boundary: Callable[[], None]) -> None:
    """Mend Lightning; ``boundary`` ends what is traced of a step, where that has to be said."""
    for fabric, trainer in zip(_FABRIC, _TRAINER, strict=True):
        when_imported(f"{fabric}.accelerators.xla", _make_available)
        when_imported(f"{trainer}.accelerators.xla", _without_stats)
        connect = functools.partial(_connect, boundary)
        when_imported(f"{fabric}.connector", functools.partial(connect, "_Connector"))
        inner = f"{trainer}.trainer.connectors.accelerator_connector"
        when_imported(inner, functools.partial(connect, "_AcceleratorConnector"))
