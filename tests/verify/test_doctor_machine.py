"""A machine is looked at by its files; strange ones are no reason to fail."""

import sys
from pathlib import Path

import pytest

from migrator.doctor import machine
from migrator.doctor.machine import Machine, inspect_machine

from .support import executable

XEON = """\
processor	: 0
vendor_id	: GenuineIntel
model name	: Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz
flags		: fpu vme avx avx2 avx512f avx512_bf16 amx_bf16 amx_tile

processor	: 1
model name	: Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz
flags		: fpu vme avx avx2 avx512f
"""
GRACE = "processor\t: 0\nBogoMIPS\t: 2000.00\nFeatures\t: fp asimd sve sve2 bf16\n"


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def found(at: Machine) -> dict[str, str]:
    return {each.kind: each.found for each in at.accelerators if each.found}


def card(address: str, vendor: str, device: str, kind: str) -> dict[str, str]:
    folder = f"sys/bus/pci/devices/{address}"
    texts = {"vendor": vendor, "device": device, "class": kind}
    return {f"{folder}/{name}": f"{text}\n" for name, text in texts.items()}


def test_an_empty_machine(tmp_path: Path) -> None:
    at = inspect_machine(tmp_path, {})
    assert found(at) == {} or sys.platform == "darwin"
    assert at.cores >= 1 and at.cpu and not at.tpu and at.hints == []


def test_this_machine() -> None:
    at = inspect_machine()
    assert at.system and at.cpu and at.cores >= 1
    assert at.memory is None or at.memory > 2**28


@pytest.mark.parametrize(
    ("cpuinfo", "name", "features"),
    [
        (XEON, "Intel(R) Xeon(R) Platinum 8481C", ["AVX2", "AVX-512", "AMX", "bfloat16"]),
        (GRACE, "", ["NEON", "SVE", "SVE2", "bfloat16"]),
        ("\x00\xff garbage without a colon", "", []),
    ],
)
def test_cpu(tmp_path: Path, cpuinfo: str, name: str, features: list[str]) -> None:
    at = inspect_machine(write(tmp_path, {"proc/cpuinfo": cpuinfo}), {})
    assert at.cpu.startswith(name) and at.features == features


def test_memory_is_that_of_the_container(tmp_path: Path) -> None:
    files = {"proc/meminfo": "MemTotal:  1048576 kB\nMemFree: 9 kB\nMemAvailable:  524288 kB\n"}
    at = inspect_machine(write(tmp_path, files), {})
    assert (at.memory, at.free) == (2**30, 2**29)
    files = {"sys/fs/cgroup/memory.max": "max\n"}
    assert inspect_machine(write(tmp_path, files), {}).memory == 2**30
    files = {"sys/fs/cgroup/memory.max": f"{2**28}\n", "sys/fs/cgroup/memory.current": f"{2**27}\n"}
    at = inspect_machine(write(tmp_path, files), {})
    assert (at.memory, at.free) == (2**28, 2**27)


def test_a_tpu_vm(tmp_path: Path) -> None:
    files = {"dev/accel0": "", "dev/accel1": "", "sys/class/dmi/id/product_name": "Google Compute"}
    files |= card("0000:00:04.0", "0x1ae0", "0x0063", "0x120000")
    at = inspect_machine(write(tmp_path, files), {})
    assert at.tpu and at.place == "Cloud TPU VM"
    assert found(at)["TPU"] == "v5e, 2 chips (/dev/accel0 …)"
    at = inspect_machine(tmp_path, {"COLAB_RELEASE_TAG": "release-colab"})
    assert at.place == "Colab" and at.hints == []


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
def test_who_holds_the_tpu(tmp_path: Path) -> None:
    write(tmp_path, {"dev/accel0": "", "proc/77/comm": "python3\n", "proc/78/comm": "bash\n"})
    for process, to in ((77, "/dev/accel0"), (78, "/dev/null")):
        (tmp_path / f"proc/{process}/fd").mkdir()
        (tmp_path / f"proc/{process}/fd/3").symlink_to(to)
    (hint,) = inspect_machine(tmp_path, {}).hints
    assert "python3 (process 77) holds the TPU" in hint.text and hint.fix == "kill 77"


def test_a_tpu_that_can_not_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"dev/accel0": ""})
    monkeypatch.setattr(machine.os, "access", lambda *_: False)
    (hint,) = inspect_machine(tmp_path, {}).hints
    assert hint.fix == f"sudo chmod a+rw {tmp_path / 'dev/accel0'}"


def test_signs_of_a_tpu_that_is_not_attached(tmp_path: Path) -> None:
    (hint,) = inspect_machine(tmp_path, {"TPU_ACCELERATOR_TYPE": "v5litepod-8"}).hints
    assert "v5litepod-8" in hint.text
    (hint,) = inspect_machine(tmp_path, {"KAGGLE_KERNEL_RUN_TYPE": "Interactive"}).hints
    assert "Settings, Accelerator" in hint.text
    write(tmp_path, card("0000:00:04.0", "0x1ae0", "0x006f", "0x120000"))
    (hint,) = inspect_machine(tmp_path, {}).hints
    assert "--privileged" in hint.text


def test_gpus_by_their_drivers(tmp_path: Path) -> None:
    gpu = "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ: 34\n"
    files = {
        "proc/driver/nvidia/gpus/0000:01:00.0/information": gpu,
        "proc/driver/nvidia/gpus/0000:02:00.0/information": gpu,
        "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Kernel Module  570.86.15  Tue",
        "sys/class/kfd/kfd/topology/nodes/0/properties": "simd_count 0\ngfx_target_version 0\n",
        "sys/class/kfd/kfd/topology/nodes/1/properties": "simd_count 9\ngfx_target_version 90402\n",
        "opt/rocm/.info/version": "6.4.1\n",
        "usr/share/vulkan/icd.d/nvidia_icd.json": "{}",
        "dev/davinci0": "",
        "dev/davinci_manager": "",
    }
    files |= card("0000:03:00.0", "0x8086", "0x0bd5", "0x038000")
    assert found(inspect_machine(write(tmp_path, files), {})) == {
        "CUDA": "2 × NVIDIA H100 80GB HBM3, driver 570.86.15",
        "ROCm": "gfx942, ROCm 6.4.1",
        "XPU": "Intel GPU, no driver",
        "Vulkan": "nvidia",
        "NPU": "Ascend",
    }


def test_gpus_without_their_drivers(tmp_path: Path) -> None:
    files = card("0000:01:00.0", "0x10de", "0x2335", "0x030200")
    files |= card("0000:02:00.0", "0x1002", "0x74a1", "0x038000")
    files |= card("0000:02:00.1", "0x10de", "0x10e0", "0x040300")  # the sound of a GPU
    assert found(inspect_machine(write(tmp_path, files), {})) == {
        "CUDA": "NVIDIA GPU, no driver",
        "ROCm": "AMD GPU, no driver",
    }


@pytest.mark.skipif(sys.platform == "win32", reason="the fake tool is an sh script")
def test_nvidia_smi_is_asked_where_files_do_not_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    smi = tmp_path / "nvidia-smi"
    executable(smi, "#!/bin/sh\necho 'NVIDIA T4, 550.1'\n")
    said = machine._cuda(Path("/"))
    if not Path("/proc/driver/nvidia").exists():
        assert said == "NVIDIA T4, driver 550.1"
    executable(smi, "#!/bin/sh\nexit 9\n")  # as it does without its driver
    assert machine._tool_output(str(smi)) == ""
    assert machine._tool_output(str(tmp_path / "nothing")) == ""
    monkeypatch.setattr(machine, "_SECONDS", 0.2)
    executable(smi, "#!/bin/sh\nexec /bin/sleep 5\n")
    assert machine._tool_output(str(smi)) == ""


@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_other_systems_do_not_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: str
) -> None:
    # no files at all, and tools of the platform that are not there
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(machine, "_windows_flags", lambda: {"avx2"})
    monkeypatch.setattr(machine, "_windows_memory", lambda: 2**34)
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.delattr(machine.os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(machine.platform, "machine", lambda: "arm64")
    at = inspect_machine(tmp_path, {})
    assert at.cores >= 1
    if system == "darwin":
        assert found(at) == {"MPS": "Apple GPU"} and at.features == ["NEON"]
    else:
        assert at.features == ["AVX2"] and at.memory == 2**34


def test_a_file_system_that_refuses_is_no_reason_to_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, {"sys/class/kfd/kfd/topology/nodes/1/properties": "gfx_target_version 90402"})

    def refuse(*_: object) -> str:
        raise PermissionError

    monkeypatch.setattr(machine, "_count_cards", refuse)
    assert found(inspect_machine(tmp_path, {})).keys() <= {"MPS"}
