"""The video transformer's GPU original, a CPU standing in: what its stages promise."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

ROOT = Path(__file__).resolve().parents[2]
APP = ROOT / "reference_apps" / "video_transformer"
STAND_IN = ROOT / "migrator" / "verify" / "recorder" / "cpu_stand_in.py"


def stage(name: str, *arguments: object, code: int = 0) -> str:
    """Run a stage; its last line."""
    command = [sys.executable, str(STAND_IN), name, *map(str, arguments)]
    done = subprocess.run(command, cwd=APP, capture_output=True, text=True, timeout=300)
    assert done.returncode == code, done.stderr
    lines = (done.stdout if code == 0 else done.stderr).strip().splitlines()
    return lines[-1] if lines else ""


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with weights and with what stage 1 writes."""
    folder = tmp_path_factory.mktemp("work")
    stage("make_weights.py", "--output", folder / "weights")
    size = ("--height", 32, "--width", 32, "--max_tokens", 16)
    stage("stage1_encode.py", "--prompt", "a boat", *size, *places(folder, folder))
    return folder


def places(work: Path, out: Path) -> tuple[object, ...]:
    return ("--weights", work / "weights", "--output_dir", out)


def denoise(
    work: Path, out: Path, *arguments: object, code: int = 0, given: Path | None = None
) -> str:
    told = ("--video_length", 5, "--num_inference_steps", 6, "--dtype", "float32", *arguments)
    where = ("--input_dir", given or work, *places(work, out))
    return stage("stage2_denoise.py", *told, *where, code=code)


@pytest.mark.thorough
def test_cached_steps_are_counted_and_padding_does_not_matter(work: Path, tmp_path: Path) -> None:
    cache = ("--enable_cache", "--cache_start_step", 2, "--cache_end_step", 6,
             "--cache_step_interval", 2)  # fmt: skip
    assert denoise(work, tmp_path / "cached", *cache).startswith("6 steps, 2 of them cached")
    times = json.loads((tmp_path / "cached" / "stage2_times.json").read_text())
    assert (times["cached_steps"], times["full_steps"], len(times["step_ms"])) == (2, 4, 6)
    # what stands at padded places of the text has no influence at all
    other = tmp_path / "other"
    other.mkdir()
    (other / "generation_config.json").write_bytes((work / "generation_config.json").read_bytes())
    stored = load_file(work / "stage1_embeddings.safetensors")
    for name in ("text", "negative"):
        stored[name][~stored[f"{name}_mask"]] = 7.0
    save_file(stored, other / "stage1_embeddings.safetensors")
    denoise(work, tmp_path / "other_out", *cache, given=other)
    latents = [
        load_file(tmp_path / folder / "stage2_latents.safetensors")["latents"]
        for folder in ("cached", "other_out")
    ]
    assert torch.equal(*latents)


@pytest.mark.thorough
def test_frames_are_written_as_png(work: Path, tmp_path: Path) -> None:
    denoise(work, tmp_path)
    (tmp_path / "generation_config.json").write_bytes(
        (work / "generation_config.json").read_bytes()
    )
    stage("stage3_decode.py", "--input_dir", tmp_path, *places(work, tmp_path), "--format", "png")
    assert len(list(tmp_path.glob("frame_*.png"))) == 5
    assert load_file(tmp_path / "stage3_frames.safetensors")["frames"].shape == (5, 32, 32, 3)


def test_bad_input_is_one_line(tmp_path: Path) -> None:
    out = tmp_path / "out"
    said = denoise(tmp_path, out, "--video_length", 8, code=2)
    assert said.endswith("error: --video_length 8: has to be a multiple of 4, plus 1")
    said = denoise(tmp_path, out, code=2)
    assert (
        said == f"error: {tmp_path}/generation_config.json is missing: run stage1_encode.py first"
    )
    assert not out.exists()


@pytest.mark.thorough
def test_damaged_input_is_one_line_and_leaves_nothing(work: Path, tmp_path: Path) -> None:
    out, broken = tmp_path / "out", tmp_path / "broken"
    broken.mkdir()
    for path in work.glob("*.*"):
        (broken / path.name).write_bytes(path.read_bytes())
    cut = broken / "stage1_embeddings.safetensors"
    cut.write_bytes(cut.read_bytes()[:100])
    said = denoise(work, out, code=2, given=broken)
    assert said.startswith(f"error: {cut} is damaged (") and said.endswith(
        "run stage1_encode.py again"
    )
    save_file({"x": torch.ones(2)}, cut)
    assert denoise(work, out, code=2, given=broken).startswith(
        f"error: {cut} does not fit: 'negative'"
    )
    assert not out.exists()
