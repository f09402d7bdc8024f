"""The device a script will run on: a TPU if this machine has one, otherwise the target's CPU back
end."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from migrator.targets import StandIn, Target

from .verify_errors import VerifyError

GOOGLE = "0x1ae0"
# Google's PCI devices that are not TPUs: the virtual network card and the virtual disk.
_NOT_TPU = {"0x0042", "0x001f"}


@dataclass(frozen=True)
class Device:
    """A device; the result shows the label, and the environment variables select it."""

    label: str
    environment: dict[str, str]
    is_tpu: bool
    stand_in: StandIn | None = None

    @property
    def modules(self) -> Path | None:
        """The folder through which programs find it."""
        return self.stand_in.modules if self.stand_in else None

    @property
    def notes(self) -> list[str]:
        """Notes about it for the result."""
        return [self.stand_in.says] if self.stand_in else []


def device_for(target: Target, count: int | None = None, float64: bool = False) -> Device:
    """Choose the device for ``target``, and the settings that keep a script on it.

    ``count`` is the number of virtual devices without a TPU. ``float64``: a TPU has no such unit,
    so the CPU back end it is. Raises VerifyError if there are fewer devices.
    """
    if has_tpu(target) and not float64:
        return Device("TPU", target.host.on_tpu(), is_tpu=True)
    label, host = f"CPU back end of {target.name}", target.host
    if host.stand_in is not None and (count or 1) > 1:
        raise VerifyError(f"without a TPU, {target.name} has one device: --devices 1")
    if count is not None:
        label += f", {count} virtual device{'s' * (count != 1)}"
    return Device(label, host.on_cpu(count), is_tpu=False, stand_in=host.stand_in)


def has_tpu(target: Target, root: Path = Path("/")) -> bool:
    """Whether a TPU is available; the user's choice has priority (JAX_PLATFORMS, PJRT_DEVICE)."""
    wish = os.environ.get(target.host.device_variable, "")
    return target.host.allows_tpu(os.environ) if wish else bool(tpu_devices(root))


def tpu_devices(root: Path = Path("/")) -> list[Path]:
    """The device files of this machine's TPUs, whatever the user has chosen."""
    files = (root / "dev").glob("accel*")
    if found := [file for file in files if re.fullmatch(r"accel\d+", file.name)]:
        return sorted(found)
    # Newer TPUs appear as vfio groups, like every passed-through device: check the vendor.
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
