"""A TPU is claimed only where one is; elsewhere the label says CPU."""

from pathlib import Path

import pytest

from migrator.targets import find_target
from migrator.verify.script_device import device_for, has_tpu
from migrator.verify.verify_errors import VerifyError

JAX_TARGET, XLA_TARGET = find_target("torchax"), find_target("torch_xla")


@pytest.fixture(autouse=True)
def no_wishes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    monkeypatch.delenv("PJRT_DEVICE", raising=False)


def card(root: Path, vendor: str, device: str) -> None:
    folder = root / "sys/bus/pci/devices" / f"0000:{device}"
    folder.mkdir(parents=True)
    (folder / "vendor").write_text(f"{vendor}\n")
    (folder / "device").write_text(f"{device}\n")


def group(root: Path, name: str) -> None:
    (root / "dev/vfio").mkdir(parents=True, exist_ok=True)
    (root / "dev/vfio" / name).touch()


def test_nothing_there(tmp_path: Path) -> None:
    assert not has_tpu(JAX_TARGET, tmp_path)


def test_accel_devices(tmp_path: Path) -> None:
    (tmp_path / "dev/accel").mkdir(parents=True)  # the folder of other makers' accelerators
    assert not has_tpu(JAX_TARGET, tmp_path)
    (tmp_path / "dev/accel0").touch()
    assert has_tpu(JAX_TARGET, tmp_path)


def test_vfio_counts_only_with_a_tpu_behind_it(tmp_path: Path) -> None:
    group(tmp_path, "0")
    card(tmp_path, "0x10de", "0x2335")
    card(tmp_path, "0x1ae0", "0x0042")  # Google's network card
    assert not has_tpu(JAX_TARGET, tmp_path)
    card(tmp_path, "0x1ae0", "0x006f")
    assert has_tpu(XLA_TARGET, tmp_path)


def test_the_vfio_control_file_is_no_device(tmp_path: Path) -> None:
    group(tmp_path, "vfio")
    card(tmp_path, "0x1ae0", "0x006f")
    assert not has_tpu(JAX_TARGET, tmp_path)


def test_virtual_devices_are_labelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setenv("XLA_FLAGS", "--mine")
    device = device_for(JAX_TARGET, 8)
    assert device.label == "CPU back end of torchax, 8 virtual devices"
    flags = "--mine --xla_force_host_platform_device_count=8"
    assert device.environment == {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    monkeypatch.setenv("PJRT_DEVICE", "CPU")
    device = device_for(XLA_TARGET, 2)
    assert device.label == "CPU back end of torch_xla, 2 virtual devices"
    assert device.environment == {"PJRT_DEVICE": "CPU", "CPU_NUM_DEVICES": "2"}


def test_the_users_wish_wins_and_is_labelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    cpu = device_for(JAX_TARGET)
    assert (cpu.label, cpu.environment) == ("CPU back end of torchax", {"JAX_PLATFORMS": "cpu"})
    monkeypatch.setenv("PJRT_DEVICE", "TPU")
    tpu = device_for(XLA_TARGET)
    assert tpu.is_tpu and tpu.label == "TPU"
    # Named explicitly, so that a TPU that is not there is an error instead of a run on the CPU.
    assert tpu.environment == {"PJRT_DEVICE": "TPU"}


def test_what_compiles_sooner_keeps_the_flags_that_are_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--mine")
    sooner = "--xla_backend_optimization_level=0"
    for target in (JAX_TARGET, XLA_TARGET):
        host, device = target.host, device_for(target, 8)
        found = host.in_haste(device.environment)
        own = device.environment.get("XLA_FLAGS", "--mine")
        assert found == {**device.environment, "XLA_FLAGS": f"{own} {sooner}"}


def test_a_target_without_a_cpu_back_end_has_a_stand_in_that_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("migrator.verify.script_device.has_tpu", lambda _target: False)
    target = find_target("torch_tpu")
    device = device_for(target)
    assert device.modules is not None and (device.modules / "torch_tpu_on_cpu.py").is_file()
    assert "CPU's arithmetic" in device.notes[0] and "attention" in device.notes[0]
    with pytest.raises(VerifyError, match="torch_tpu has one device"):
        device_for(target, 2)
    monkeypatch.setattr("migrator.verify.script_device.has_tpu", lambda _target: True)
    device = device_for(target, 2)
    assert device.is_tpu and device.modules is None and not device.notes
