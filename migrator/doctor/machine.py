"""What this machine has, read from files where there are any: no look takes long, none fails.

On Linux /proc, /sys and /dev below ``root`` tell nearly all; elsewhere the platform's own tools.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import which

from migrator.verify.interpreters import Problem
from migrator.verify.script_device import tpu_cards, tpu_devices

_SECONDS = 5.0  # for a tool of the platform, where files do not tell
# TPUs by their number on the PCI bus, as JAX names them (jax/_src/hardware_utils.py).
_GENERATIONS = {
    "0x0027": "v2 or v3", "0x0056": "", "0x005e": "v4", "0x0062": "v5p", "0x0063": "v5e",
    "0x006f": "v6e", "0x0076": "7x",
}  # fmt: skip
_NVIDIA, _AMD, _INTEL = "0x10de", "0x1002", "0x8086"
# What the kernel calls them, on x86 and on ARM: what numerical libraries choose their code by.
_FEATURES = {
    "AVX2": {"avx2"}, "AVX-512": {"avx512f"}, "AMX": {"amx_tile"}, "NEON": {"neon", "asimd"},
    "SVE": {"sve"}, "SVE2": {"sve2"}, "bfloat16": {"avx512_bf16", "amx_bf16", "bf16"},
}  # fmt: skip
_GIB = 2**30


@dataclass(frozen=True)
class Accelerator:
    """A kind of accelerator, and what was found of it ("": nothing)."""

    kind: str
    found: str = ""


@dataclass(frozen=True)
class Machine:
    """What is here. Sizes are in bytes, None where they cannot be told."""

    place: str  # where it stands, "" for any other machine
    system: str
    cpu: str
    cores: int
    features: Sequence[str]
    memory: int | None
    free: int | None
    accelerators: Sequence[Accelerator]
    tpu: bool  # whether programs can reach a TPU
    hints: Sequence[Problem]  # what keeps programs from a TPU


def inspect_machine(root: Path = Path("/"), environment: Mapping[str, str] = os.environ) -> Machine:
    """Look at this machine, or at the one whose files lie below ``root``."""
    cpu, features = _cpu(root)
    memory, free = _memory(root)
    tpus = tpu_devices(root)

    def found(kind: str, search: Callable[..., str], *arguments: object) -> Accelerator:
        try:
            return Accelerator(kind, search(root, *arguments))
        except (OSError, ValueError):  # a file system that is not as others are
            return Accelerator(kind)

    return Machine(
        place=_place(root, environment, bool(tpus)),
        system=f"{platform.system()} {platform.release()}, {platform.machine()}",
        cpu=cpu,
        cores=_cores(),
        features=features,
        memory=memory,
        free=free,
        accelerators=[
            found("TPU", _tpu, tpus),
            found("CUDA", _cuda),
            found("ROCm", _rocm),
            found("XPU", _graphics, _INTEL, "Intel GPU"),
            found("MPS", _mps),
            found("Vulkan", _vulkan, environment),
            found("NPU", _npu),
        ],
        tpu=bool(tpus),
        hints=_hints(root, environment, tpus),
    )


# ---- where it stands -----------------------------------------------------------------------------


def _place(root: Path, environment: Mapping[str, str], tpu: bool) -> str:
    if "KAGGLE_KERNEL_RUN_TYPE" in environment:
        return "Kaggle"
    if "COLAB_RELEASE_TAG" in environment or "COLAB_BACKEND_VERSION" in environment:
        return "Colab"
    if "KUBERNETES_SERVICE_HOST" in environment and tpu:
        return "Kubernetes, with a TPU"
    if "Google" in _text(root / "sys/class/dmi/id/product_name"):
        return "Cloud TPU VM" if tpu else "Google Cloud"
    return ""


def _hints(root: Path, environment: Mapping[str, str], tpus: Sequence[Path]) -> list[Problem]:
    if tpus:
        closed = [str(file) for file in tpus if not os.access(file, os.R_OK | os.W_OK)]
        found = [
            Problem(f"{name} holds the TPU, which one process at a time can use", f"kill {pid}")
            for pid, name in _holders(root, tpus)
        ]
        if closed:
            mend = f"sudo chmod a+rw {' '.join(closed)}"
            found.append(Problem(f"{closed[0]} cannot be opened by this user", mend))
        return found
    if tpu_cards(root):
        return [
            Problem(
                "a TPU is on the PCI bus, but there is no device file (/dev/accel*, /dev/vfio/*): "
                "start the container with --privileged"
            )
        ]
    place = _place(root, environment, False)
    if place in _MENUS:
        return [Problem(f"{place} has given no TPU: {_MENUS[place]}")]
    for name in ("TPU_ACCELERATOR_TYPE", "TPU_NAME"):
        if environment.get(name):
            text = f"{name}={environment[name]} asks for a TPU, and none is attached"
            return [Problem(text)]
    return []


_MENUS = {
    "Colab": "choose one by Runtime, Change runtime type",
    "Kaggle": "choose one by Settings, Accelerator",
}


def _holders(root: Path, tpus: Sequence[Path]) -> list[tuple[str, str]]:
    """Number and name of processes that have a TPU open; one sees those of its own user."""
    wanted = {Path("/") / file.relative_to(root) for file in tpus}
    found = []
    for process in (root / "proc").glob("[0-9]*"):
        try:
            opened = {link.readlink() for link in (process / "fd").iterdir()}
        except OSError:
            continue
        if opened & wanted:
            name = _text(process / "comm") or "a process"
            found.append((process.name, f"{name} (process {process.name})"))
    return found


# ---- CPU and memory ------------------------------------------------------------------------------


def _cpu(root: Path) -> tuple[str, list[str]]:
    """The name of the CPU and what it can do that numerical libraries ask for."""
    text = _text(root / "proc/cpuinfo")
    fields: dict[str, str] = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon:
            fields.setdefault(name.strip().lower(), value.strip())
    name = fields.get("model name") or fields.get("hardware") or fields.get("cpu") or ""
    flags = set((fields.get("flags") or fields.get("features") or "").lower().split())
    if not text and sys.platform == "darwin":
        name = _tool_output("sysctl", "-n", "machdep.cpu.brand_string")
        known = _tool_output("sysctl", "-n", "machdep.cpu.features", "machdep.cpu.leaf7_features")
        flags = {"neon"} if platform.machine() == "arm64" else set(known.lower().split())
    elif not text and sys.platform == "win32":
        flags = _windows_flags()
    features = [feature for feature, signs in _FEATURES.items() if signs & flags]
    return name or platform.processor() or platform.machine() or "unknown", features


def _cores() -> int:
    """How many this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory(root: Path) -> tuple[int | None, int | None]:
    """Bytes in all, and free; those of the container where it has fewer."""
    sizes = dict(re.findall(r"^(\w+):\s+(\d+) kB", _text(root / "proc/meminfo"), re.MULTILINE))
    total = int(sizes["MemTotal"]) * 1024 if "MemTotal" in sizes else None
    free = int(sizes["MemAvailable"]) * 1024 if "MemAvailable" in sizes else None
    if total is None:
        return (_windows_memory() if sys.platform == "win32" else _pages()), None
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        most = _text(root / "sys/fs/cgroup" / limit)
        if most.isdigit() and int(most) < total:
            total, taken = int(most), _text(root / "sys/fs/cgroup" / used)
            left = total - int(taken) if taken.isdigit() else total
            free = left if free is None else min(free, left)
    return total, free


def _pages() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _windows_flags() -> set[str]:
    """The numbers are those of IsProcessorFeaturePresent (winnt.h)."""
    if sys.platform == "win32":
        from ctypes import windll

        numbers = {"avx2": 40, "avx512f": 41, "neon": 19}
        has = windll.kernel32.IsProcessorFeaturePresent
        return {flag for flag, number in numbers.items() if has(number)}
    return set()


def _windows_memory() -> int | None:
    if sys.platform == "win32":
        from ctypes import byref, c_ulonglong, windll

        kilobytes = c_ulonglong()
        if windll.kernel32.GetPhysicallyInstalledSystemMemory(byref(kilobytes)):
            return kilobytes.value * 1024
    return None


# ---- accelerators --------------------------------------------------------------------------------


def _tpu(root: Path, tpus: Sequence[Path]) -> str:
    if not tpus:
        return ""
    names = {_GENERATIONS.get(card, "") for card in tpu_cards(root)} - {""}
    chips = f"{len(tpus)} chip{'s' * (len(tpus) > 1)}"
    where = f"/{tpus[0].relative_to(root).as_posix()}{' …' * (len(tpus) > 1)}"
    return f"{' and '.join(sorted(names)) + ', ' if names else ''}{chips} ({where})"


def _cuda(root: Path) -> str:
    """NVIDIA's driver, which files of its own tell of on Linux; else nvidia-smi."""
    folders = sorted((root / "proc/driver/nvidia/gpus").glob("*"))
    models = [re.search(r"^Model:\s*(.+)", _text(f / "information"), re.MULTILINE) for f in folders]
    names = [model[1].strip() for model in models if model]
    version = re.search(r"\s(\d+\.\d+(?:\.\d+)*)\s", _text(root / "proc/driver/nvidia/version"))
    driver = version[1] if version else ""
    if not names and root == Path("/") and which("nvidia-smi"):
        query = "--query-gpu=name,driver_version"
        rows = [
            [cell.strip() for cell in line.split(",")]
            for line in _tool_output("nvidia-smi", query, "--format=csv,noheader").splitlines()
        ]
        names = [row[0] for row in rows if len(row) == 2]
        driver = next((row[1] for row in rows if len(row) == 2), "")
    if names:
        return _count_cards(names) + (f", driver {driver}" if driver else "")
    return _graphics(root, _NVIDIA, "NVIDIA GPU")


def _rocm(root: Path) -> str:
    """AMD's GPUs as its compute driver lists them."""
    names = []
    for node in sorted((root / "sys/class/kfd/kfd/topology/nodes").glob("*")):
        properties = dict(re.findall(r"^(\w+) (\d+)$", _text(node / "properties"), re.MULTILINE))
        number = int(properties.get("gfx_target_version", 0))
        if number:
            major, minor, step = number // 10000, number // 100 % 100, number % 100
            names.append(f"gfx{major}{minor:x}{step:x}")
    if names:
        version = _text(root / "opt/rocm/.info/version")
        return _count_cards(names) + (f", ROCm {version}" if version else "")
    return _graphics(root, _AMD, "AMD GPU")


def _graphics(root: Path, vendor: str, name: str) -> str:
    """Display controllers (class 03) of a maker, and whether the kernel drives them."""
    found = []
    for card in sorted((root / "sys/bus/pci/devices").glob("*")):
        if _text(card / "vendor") == vendor and _text(card / "class").startswith("0x03"):
            driver = card / "driver"
            used = driver.resolve().name if driver.exists() else ""
            found.append(f"{name}, driver {used}" if used else f"{name}, no driver")
    return _count_cards(found)


def _mps(_root: Path) -> str:
    if sys.platform == "darwin" and platform.machine() == "arm64":
        return "Apple GPU"
    return ""


def _vulkan(root: Path, environment: Mapping[str, str]) -> str:
    """The drivers that Vulkan's loader would find."""
    named = environment.get("VK_DRIVER_FILES") or environment.get("VK_ICD_FILENAMES") or ""
    files = [Path(name) for name in named.split(os.pathsep) if name]
    if not files:
        for folder in (
            "etc",
            "usr/share",
            "usr/local/share",
            "usr/local/etc",
            "opt/homebrew/share",
        ):
            files += sorted((root / folder / "vulkan/icd.d").glob("*.json"))
    if sys.platform == "win32" and not files:
        system = Path(environment.get("SystemRoot", "C:/Windows")) / "System32"
        files = [file for file in [system / "vulkan-1.dll"] if file.exists()]
    return ", ".join(dict.fromkeys(re.sub(r"_icd.*|\.\w+$", "", f.name) for f in files))


def _npu(root: Path) -> str:
    ascend = [f for f in (root / "dev").glob("davinci*") if f.name[7:].isdigit()]
    found = ["Ascend"] * len(ascend)
    for card in sorted((root / "sys/class/accel").glob("accel*")):  # Intel's, AMD's, Habana's
        driver = (card / "device/driver").resolve().name
        if driver not in ("driver", "accel", "gasket", "tpu_common", "google_tpu"):
            found.append(f"driver {driver}")
    return _count_cards(found)


def _count_cards(names: Sequence[str]) -> str:
    counts = {name: names.count(name) for name in names}
    return ", ".join(f"{n} × {name}" if n > 1 else name for name, n in counts.items())


def gib(size: int | None) -> str:
    return "unknown" if size is None else f"{size / _GIB:.1f} GiB"


# ---- reading -------------------------------------------------------------------------------------


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except (OSError, ValueError):
        return ""


def _tool_output(*command: str) -> str:
    """What a tool of the platform prints; "" where there is none, or none that answers."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
