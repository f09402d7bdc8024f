"""finetune: its golden, and what its programs learn."""

import importlib
import sys
import tomllib
from pathlib import Path

import pytest
from safetensors.numpy import load_file

ROOT = Path(__file__).resolve().parents[2]
APP, GOLDEN = ROOT / "reference_apps" / "finetune", ROOT / "golden" / "finetune"
SETTINGS = tomllib.loads((APP / "app.toml").read_text(encoding="utf-8"))
NAMES = {"loss", "eval_loss", "weights"}


def test_each_program_has_learned_in_the_golden() -> None:
    outputs = load_file(GOLDEN / "outputs.safetensors")
    assert {name.partition(".")[2] for name in outputs} == {*NAMES, "eval_accuracy"}
    for program, steps in (("lora", 24), ("trainer", 12), ("lightning", 12)):
        losses = outputs[f"{program}.loss"]
        assert losses.shape == (steps,) and losses[-1] < losses[0] - 0.4
        first, last = outputs[f"{program}.eval_loss"]
        assert last < first


def test_data_are_those_that_are_drawn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = {path.name: path.read_text("utf-8") for path in (APP / "data").iterdir()}
    monkeypatch.syspath_prepend(APP)
    drawing = importlib.import_module("make_data")
    del sys.modules["make_data"]  # other apps have one, too
    (tmp_path / "data").mkdir()
    monkeypatch.setattr(drawing, "__file__", str(tmp_path / "make_data.py"))
    drawing.main()
    assert {p.name: p.read_text("utf-8") for p in (tmp_path / "data").iterdir()} == before
