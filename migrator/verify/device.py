"""Where a script will run: a TPU if this machine has one, else the CPU back end of its target."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

WISH = {"torchax": "JAX_PLATFORMS", "torch_xla": "PJRT_DEVICE"}  # the variable that chooses
GOOGLE = "0x1ae0"
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
    wish = os.environ.get(WISH[target], "")
    if wish:
        return "tpu" in wish.lower().split(",")
    return bool(tpu_devices(root))


def tpu_devices(root: Path = Path("/")) -> list[Path]:
    """The device files of the TPUs here, whatever the user wishes."""
    files = (root / "dev").glob("accel*")
    if found := [file for file in files if re.fullmatch(r"accel\d+", file.name)]:
        return sorted(found)
    # Newer TPUs come as vfio groups, which every passed-through device does: ask whose it is.
    groups = [file for file in (root / "dev" / "vfio").glob("*") if file.name.isdigit()]
    return sorted(groups) if tpu_cards(root) else []


def tpu_cards(root: Path = Path("/")) -> list[str]:
    """The device numbers of the TPUs on the PCI bus."""
    cards = map(_card, sorted((root / "sys/bus/pci/devices").glob("*")))
    return [device for vendor, device in cards if vendor == GOOGLE and device not in _NOT_TPU]


def _card(folder: Path) -> tuple[str, str]:
    try:
        return (folder / "vendor").read_text().strip(), (folder / "device").read_text().strip()
    except OSError:
        return "", ""
