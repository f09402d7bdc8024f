"""generate: its golden, and what its programs make."""

import tomllib
from pathlib import Path

from safetensors.numpy import load_file

ROOT = Path(__file__).resolve().parents[2]
APP, GOLDEN = ROOT / "reference_apps" / "generate", ROOT / "golden" / "generate"
SETTINGS = tomllib.loads((APP / "app.toml").read_text(encoding="utf-8"))


def test_each_program_has_made_text_of_its_own() -> None:
    """Tokens that are all alike would agree with nearly anything."""
    outputs = load_file(GOLDEN / "outputs.safetensors")
    for program in ("gpt", "llama", "transformers"):
        made = outputs[f"{program}.tokens"][:, -12:]
        assert len({tuple(row) for row in made}) == 3
        assert all(len(set(row)) > 6 for row in made.tolist())
        assert outputs[f"{program}.logits"].shape == (3, 256)
