"""backends: its golden, the original through the CPU stand-in, and the choice of a device."""

import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.numpy import load_file

ROOT = Path(__file__).resolve().parents[2]
RECORDER = ROOT / "migrator" / "verify" / "recorder"
APP, GOLDEN = ROOT / "reference_apps" / "backends", ROOT / "golden" / "backends"
WAYS = ("engine", "encode_cuda", "encode_xpu", "encode_mps", "encode_vulkan")


def run(*also: str, code: str) -> str:
    """What a piece of code prints in the app's folder, with the stand-in."""
    setup = f"import sys; sys.path.insert(0, {str(RECORDER)!r})\nimport cpu_stand_in\n"
    install = f"cpu_stand_in.install(*{also!r})\n" if also else ""
    command = [sys.executable, "-c", f"{setup}{install}{code}"]
    done = subprocess.run(command, cwd=APP, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_every_way_gives_embeddings_of_length_one() -> None:
    outputs = load_file(GOLDEN / "outputs.safetensors")
    assert set(outputs) == {
        f"{way}.{what}" for way in WAYS for what in ("embeddings", "similarity")
    }
    for way in WAYS:
        embeddings = outputs[f"{way}.embeddings"]
        assert embeddings.shape == (100, 64)
        assert abs((embeddings**2).sum(1) - 1).max() < 1e-5
        assert abs(embeddings - outputs["encode_vulkan.embeddings"]).max() < 0.01
    assert outputs["engine.similarity"].min() < 0.5  # texts differ


def test_texts_are_those_that_are_drawn() -> None:
    before = (APP / "data" / "texts.txt").read_bytes()
    code = "import pathlib, make_data; pathlib.Path.write_text = lambda p, text, **k: print(text)\n"
    assert run(code=f"{code}make_data.main()").split("\n") == before.decode().strip().split("\n")


@pytest.mark.thorough
def test_devices_are_asked_for_in_order() -> None:
    code = "import devices; print(devices.get_best_device())"
    assert run(code=code) == "cpu"
    assert run("xpu", "mps", code=code) == "cuda"
    without_cuda = "import torch; torch.cuda.is_available = lambda: False\n"
    assert run("xpu", "mps", "vulkan", code=without_cuda + code) == "xpu"
    assert run("mps", "vulkan", code=without_cuda + code) == "mps"
    assert run("vulkan", code=without_cuda + code) == "vulkan"


def test_optimal_batch_size_is_a_power_of_two_that_fits() -> None:
    code = """
import torch, devices
for device in ("cuda", "xpu", "mps", "cpu"):
    print(*(devices.get_optimal_batch_size(torch.device(device), 2**n) for n in (20, 24, 40)))
"""
    lines = run("xpu", "mps", code=code).splitlines()
    assert lines == ["1024 128 1"] * 3 + ["128 8 1"]
