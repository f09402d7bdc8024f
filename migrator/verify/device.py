"""Where a script will run: a TPU if this machine has one, else the CPU back end of its target."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

_GOOGLE = "0x1ae0"
# Google's PCI devices that are not TPUs: the virtual network card and the virtual disk.
_NOT_TPU = {"0x0042", "0x001f"}


@dataclass(frozen=True)
class Device:
    """The label is what the result says; the environment makes it true."""

    label: str
    environment: dict[str, str]
    is_tpu: bool


def device_for(target: str, count: int | None = None) -> Device:
    """Choose the device for ``target`` and the settings that hold a script to it.

    On a TPU they also forbid a silent fall back to the CPU, so that the label cannot lie. ``count``
    is that of virtual devices where there is no TPU.
    """
    if has_tpu(target):
        settings = {"torchax": {"JAX_PLATFORMS": "tpu,cpu"}, "torch_xla": {"PJRT_DEVICE": "TPU"}}
        return Device("TPU", settings[target], is_tpu=True)
    settings = {"torchax": {"JAX_PLATFORMS": "cpu"}, "torch_xla": {"PJRT_DEVICE": "CPU"}}
    label = f"CPU back end of {target}"
    if count is None:
        return Device(label, settings[target], is_tpu=False)
    own = os.environ.get("XLA_FLAGS", "")
    virtual = {
        "torchax": {"XLA_FLAGS": f"{own} --xla_force_host_platform_device_count={count}".strip()},
        "torch_xla": {"CPU_NUM_DEVICES": str(count)},
    }
    environment = settings[target] | virtual[target]
    return Device(f"{label}, {count} virtual devices", environment, is_tpu=False)


def has_tpu(target: str, root: Path = Path("/")) -> bool:
    """Whether a TPU is here; the user's own JAX_PLATFORMS or PJRT_DEVICE wins."""
    wish = os.environ.get("JAX_PLATFORMS" if target == "torchax" else "PJRT_DEVICE", "")
    if wish:
        return "tpu" in wish.lower().split(",")
    if any(re.fullmatch(r"accel\d+", path.name) for path in (root / "dev").glob("accel*")):
        return True
    # Newer TPUs come as vfio groups, which every passed-through device does: ask whose it is.
    groups = any(path.name.isdigit() for path in (root / "dev" / "vfio").glob("*"))
    return groups and any(map(_is_tpu_card, (root / "sys/bus/pci/devices").glob("*")))


def _is_tpu_card(folder: Path) -> bool:
    try:
        vendor, device = ((folder / name).read_text().strip() for name in ("vendor", "device"))
    except OSError:
        return False
    return vendor == _GOOGLE and device not in _NOT_TPU
