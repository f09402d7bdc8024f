"""The goldens of all reference apps: of which source, on which device, and who reproduces them."""

import hashlib
import importlib
import json
import re
import socket
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.tiers import thorough_but

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "golden"))
capture = importlib.import_module("capture")
sys.path.remove(str(ROOT / "golden"))
# without those that were recorded, as scripts are (tests/keras_scripts)
APPS = sorted(
    path.parent.name
    for path in capture.APPS.glob("*/app.toml")
    if not (ROOT / "golden" / path.parent.name / "golden.json").is_file()
)
GPU, STAND_IN = "NVIDIA GPU", "CPU stand-in for CUDA"


def provenance(app: str) -> dict[str, Any]:
    path = ROOT / "golden" / app / "provenance.json"
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def outputs(app: str) -> dict[str, np.ndarray]:
    return load_file(ROOT / "golden" / app / "outputs.safetensors")


@pytest.mark.parametrize("app", APPS)
def test_it_is_of_this_source_and_these_arguments(app: str) -> None:
    known, settings = provenance(app), capture.load_app(app)
    content = (ROOT / "golden" / app / "outputs.safetensors").read_bytes()
    assert hashlib.sha256(content).hexdigest() == known["outputs_sha256"]
    assert len(content) < 12e6
    assert capture.digest(capture.APPS / app) == known["source_sha256"]
    assert known["command"][-len(settings["args"]) :] == settings["args"]
    assert (known["schema"], known["app"], known["seed"]) == (1, app, settings["seed"])
    assert known["tolerances"] == f"reference_apps/{app}/app.toml"


@pytest.mark.parametrize("app", APPS)
def test_it_says_where_and_with_what_it_was_made(app: str) -> None:
    known, settings = provenance(app), capture.load_app(app)
    kind, name = known["device"]["kind"], known["device"]["name"]
    assert kind in {GPU, STAND_IN}
    assert ("NVIDIA" in name) == (kind == GPU)
    assert ("cpu_stand_in.py" in known["command"]) == (kind == STAND_IN)
    needed = {"python", "torch", "torchvision", "numpy", "pillow", "opencv", "safetensors"}
    needed |= {*settings.get("requires", ())}
    assert needed <= {key for key, version in known["versions"].items() if version}
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", known["date"])
    assert known["times"]
    for times in known["times"].values():
        assert times["first_s"] > 0 and times["later_s"] > 0


@pytest.mark.parametrize("app", APPS)
def test_it_names_no_machine(app: str) -> None:
    text = json.dumps(provenance(app))
    assert not re.search(r'"/|/home/|/tmp/|/root|://|\\\\', text)
    assert not re.search(rf"\b{re.escape(socket.gethostname())}\b", text)


@pytest.mark.parametrize("app", APPS)
def test_each_output_has_a_tolerance_with_a_reason(app: str) -> None:
    tolerances = capture.load_app(app)["tolerances"]
    assert tolerances["default"].keys() == outputs(app).keys()
    for table in tolerances.values():
        assert table.keys() <= outputs(app).keys()
        assert all(entry["reason"] for entry in table.values())


@pytest.mark.parametrize("app", thorough_but({"image_ops"}, APPS))
def test_the_original_on_the_cpu_reproduces_it(app: str, tmp_path: Path) -> None:
    """Within the tolerances that a migrated program has: so the CPU may stand in for the GPU."""
    settings = capture.load_app(app)
    capture.run_original(settings, capture.APPS / app, tmp_path, on_gpu=False)
    fresh, golden = load_file(tmp_path / settings["outputs"]), outputs(app)
    assert fresh.keys() == golden.keys()
    for name, want in golden.items():
        tolerance = settings["tolerances"]["default"][name]
        assert (fresh[name].shape, fresh[name].dtype) == (want.shape, want.dtype)
        difference = np.abs(fresh[name].astype(np.float64) - want.astype(np.float64))
        allowed = tolerance["atol"] + tolerance["rtol"] * np.abs(want.astype(np.float64))
        assert np.mean(difference > allowed) <= tolerance.get("max_mismatch", 0), name


def test_a_gpu_has_the_cpu_compute_what_only_others_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_original(app: dict[str, Any], folder: Path, work: Path, on_gpu: bool) -> list[str]:
        found = {
            "encode_cuda": np.full(2, on_gpu),
            **({} if on_gpu else {"encode_xpu": np.ones(2)}),
        }
        (work / "out").mkdir()
        save_file(found, work / app["outputs"])
        (work / app["times"]).write_text('{"repeat": 1, "steps": {}}')
        return [app["entry"]]

    monkeypatch.setattr(capture, "gpu_name", lambda: "NVIDIA of a test")
    monkeypatch.setattr(capture, "run_original", run_original)
    made = capture.capture("backends", tmp_path)
    assert made["stand_in"] == ["encode_xpu"] and "see stand_in" in made["note"]
    kept = load_file(tmp_path / "outputs.safetensors")
    assert kept.keys() == {"encode_cuda", "encode_xpu"} and kept["encode_cuda"].all()
