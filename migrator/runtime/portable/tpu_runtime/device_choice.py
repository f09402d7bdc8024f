"""Which device this program runs on: decided once, when it starts.

By the first that says: ``--use-tpu`` or ``--no-use-tpu`` on the command line, the environment
variable TPU_RUNTIME_DEVICE (tpu, cuda or cpu), a TPU in this machine, a GPU, else the CPU.
"""

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

VARIABLE = "TPU_RUNTIME_DEVICE"
DEVICES = ("tpu", "cuda", "cpu")
FLAG = "--use-tpu"
# Google's vendor number and the devices on the PCI bus that are TPUs, v2 to TPU7x, as JAX has them
# (jax/_src/hardware_utils.py). Asking JAX itself would take the memory of a GPU.
_VENDOR = "0x1ae0"
_TPUS = {"0x0027", "0x0056", "0x005e", "0x0062", "0x0063", "0x006f", "0x0076"}


@cache
def chosen_device() -> str:
    """The device of this program: "tpu", "cuda" or "cpu".

    Exits with one line where what was asked for is not there.
    """
    asked = _asked()
    if asked == "tpu" and not (_has_tpu() or _stands_in()):
        raise SystemExit(
            "tpu_runtime: there is no TPU in this machine; to try the program on the CPU back end "
            "of the TPU's software, set JAX_PLATFORMS=cpu (torchax) or PJRT_DEVICE=CPU (torch_xla)"
        )
    if asked == "cuda" and not torch.cuda.is_available():
        raise SystemExit("tpu_runtime: there is no GPU that torch can use")
    if asked in DEVICES:
        return asked
    if asked != "gpu or cpu" and _has_tpu():
        return "tpu"
    return "cuda" if torch.cuda.is_available() else "cpu"


def _asked() -> str:
    """What the user said, or ""."""
    flags = [word for word in sys.argv[1:] if word in (FLAG, f"--no-{FLAG[2:]}")]
    if flags:
        return "tpu" if flags[-1] == FLAG else "gpu or cpu"
    asked = os.environ.get(VARIABLE, "")
    if asked and asked not in DEVICES:
        raise SystemExit(f"tpu_runtime: {VARIABLE}={asked} is not one of {', '.join(DEVICES)}")
    return asked


def _has_tpu() -> bool:
    def text(file: Path) -> str:
        try:
            return file.read_text().strip()
        except OSError:
            return ""

    return any(
        text(folder / "vendor") == _VENDOR and text(folder / "device") in _TPUS
        for folder in Path("/sys/bus/pci/devices").glob("*")
    )


def _stands_in() -> bool:
    """Whether the CPU back end of the TPU's software was asked for by name."""
    return "cpu" in (os.environ.get("JAX_PLATFORMS"), os.environ.get("PJRT_DEVICE", "").lower())


@cache
def tpu() -> ModuleType:
    """The runtime for TPUs; it raises ImportError, with what is missing, where it cannot run."""
    return importlib.import_module(".tpu", __package__)


def device_type() -> str:
    """The type of the device, as `x.device.type` has it: "jax" or "xla", "cuda", "cpu"."""
    return str(tpu().device.DEVICE_TYPE) if chosen_device() == "tpu" else chosen_device()


def accelerator_type() -> str:
    """The same, but "cuda" where there is only the CPU: what "cuda" was compared with."""
    return str(tpu().device.DEVICE_TYPE) if chosen_device() == "tpu" else "cuda"


def device() -> torch.device:
    """The device; on a machine with several GPUs, the current one."""
    if chosen_device() == "tpu":
        return tpu().device.chosen_device()  # type: ignore[no-any-return]
    return torch.device(chosen_device())


def is_available() -> bool:
    """Whether there is a TPU or a GPU to run on."""
    return chosen_device() != "cpu"


def is_cuda() -> bool:
    """Whether a GPU was chosen, as for pinned memory."""
    return chosen_device() == "cuda"


class UseTpu(argparse.BooleanOptionalAction):
    """``--use-tpu`` and ``--no-use-tpu``, which the runtime has read before the parser does.

    The attribute is True where the program runs on a TPU.
    """

    def __init__(self, option_strings: Sequence[str], dest: str, **kwargs: Any) -> None:
        super().__init__(option_strings, dest, **{**kwargs, "default": chosen_device() == "tpu"})

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Set the attribute; an error where the flag came too late to be followed."""
        super().__call__(parser, namespace, values, option_string)
        if getattr(namespace, self.dest) != (chosen_device() == "tpu"):
            parser.error(
                f"{option_string}: this program already runs on {chosen_device()}; give the flag "
                f"on its command line, or set {VARIABLE}"
            )
