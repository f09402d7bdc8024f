"""generate: its golden, and what its programs make."""

import hashlib
import importlib
import json
import tomllib
from pathlib import Path

import pytest
from safetensors.numpy import load_file

ROOT = Path(__file__).resolve().parents[2]
APP, GOLDEN = ROOT / "reference_apps" / "generate", ROOT / "golden" / "generate"
SETTINGS = tomllib.loads((APP / "app.toml").read_text(encoding="utf-8"))
PROVENANCE = json.loads((GOLDEN / "provenance.json").read_text(encoding="utf-8"))


def test_golden_is_of_this_source(monkeypatch: pytest.MonkeyPatch) -> None:
    content = (GOLDEN / "outputs.safetensors").read_bytes()
    assert hashlib.sha256(content).hexdigest() == PROVENANCE["outputs_sha256"]
    monkeypatch.syspath_prepend(ROOT / "golden")
    assert importlib.import_module("capture").digest(APP) == PROVENANCE["source_sha256"]
    assert PROVENANCE["command"][-len(SETTINGS["args"]) :] == SETTINGS["args"]


def test_each_program_has_made_text_of_its_own() -> None:
    """Tokens that are all alike would agree with nearly anything."""
    outputs = load_file(GOLDEN / "outputs.safetensors")
    assert SETTINGS["tolerances"]["default"].keys() == outputs.keys()
    for program in ("gpt", "llama", "transformers"):
        made = outputs[f"{program}.tokens"][:, -12:]
        assert len({tuple(row) for row in made}) == 3
        assert all(len(set(row)) > 6 for row in made.tolist())
        assert outputs[f"{program}.logits"].shape == (3, 256)
