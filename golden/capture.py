"""Record a reference app's golden outputs: the unchanged GPU script, run on a GPU if there is one.

    python golden/capture.py image_ops

Without an NVIDIA GPU the same script runs on the CPU through `cpu_stand_in.py`, and the provenance
says so. Writes golden/NAME/outputs.safetensors and golden/NAME/provenance.json. Needs what the app
needs (torch, torchvision, numpy, pillow, opencv, safetensors; `finetune` also the group `trainers`)
and nothing else.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
APPS = HERE.parent / "reference_apps"
STAND_IN = HERE.parent / "migrator" / "verify" / "recorder" / "cpu_stand_in.py"
PACKAGES = {
    "torch": ("torch",),
    "torchvision": ("torchvision",),
    "numpy": ("numpy",),
    "pillow": ("pillow",),
    "opencv": ("opencv-python-headless", "opencv-python", "opencv-contrib-python"),
    "safetensors": ("safetensors",),
    "transformers": ("transformers",),
    "accelerate": ("accelerate",),
    "peft": ("peft",),
    "lightning": ("lightning",),
}


def load_app(name: str) -> dict[str, Any]:
    """The app's description, app.toml."""
    return tomllib.loads((APPS / name / "app.toml").read_text(encoding="utf-8"))


def gpu_name() -> str | None:
    """The NVIDIA GPU that torch sees, if any."""
    import torch

    if not torch.cuda.is_available() or torch.version.cuda is None:
        return None
    name: str = torch.cuda.get_device_name(0)
    return name if name.startswith("NVIDIA") else f"NVIDIA {name}"


def versions() -> dict[str, str | None]:
    """Python, the CUDA that torch was built for, and the packages that can change a number."""
    import torch

    found: dict[str, str | None] = {
        "python": platform.python_version(),
        "cuda_of_torch": torch.version.cuda,
    }
    for label, names in PACKAGES.items():
        found[label] = None
        for name in names:
            try:
                found[label] = importlib.metadata.version(name)
                break
            except importlib.metadata.PackageNotFoundError:
                continue
    return found


def app_files(folder: Path) -> list[Path]:
    """What the app is made of: its source and its data, in a fixed order."""
    files = [*folder.rglob("*.py"), *(folder / "data").rglob("*")]
    return sorted(path for path in files if path.is_file())


def digest(folder: Path) -> str:
    """SHA-256 over names and contents of the app's files."""
    total = hashlib.sha256()
    for path in app_files(folder):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        total.update(f"{path.relative_to(folder).as_posix()}\0{content}\n".encode())
    return total.hexdigest()


def run_original(app: dict[str, Any], folder: Path, work: Path, on_gpu: bool) -> list[str]:
    """Run a copy of the app in `work`; returns the command, as to be typed in the app's folder."""
    for path in app_files(folder):
        copy = work / path.relative_to(folder)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    stand_in = ["--also", ",".join(app["accelerators"])] if "accelerators" in app else []
    launcher = [] if on_gpu else [str(STAND_IN), *stand_in]
    command = [app["entry"], *app["args"]]
    subprocess.run(
        [sys.executable, *launcher, *command],
        cwd=work,
        check=True,
        timeout=app["timeout_s"],
        env=os.environ if on_gpu else {**os.environ, "CUDA_VISIBLE_DEVICES": ""},
    )
    return ["python", *([] if on_gpu else ["cpu_stand_in.py", *stand_in]), *command]


def today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def replace(target: Path, content: bytes) -> None:
    """Write `target` in one step: a reader sees the old or the new file, never half of one."""
    partial = target.with_name(f".{target.name}.partial")
    partial.write_bytes(content)
    partial.replace(target)


def with_other_accelerators(
    app: dict[str, Any], folder: Path, outputs: bytes
) -> tuple[bytes, list[str]]:
    """``outputs``, which a GPU has computed, and those of accelerators that its machine has not,
    for which the CPU stands in; the names of these."""
    from safetensors.torch import load, save

    with tempfile.TemporaryDirectory(prefix="golden-") as temporary:
        work = Path(temporary)
        run_original(app, folder, work, on_gpu=False)
        stood_in = load((work / app["outputs"]).read_bytes())
    computed = load(outputs)
    return save({**stood_in, **computed}), sorted(stood_in.keys() - computed.keys())


def capture(name: str, output: Path) -> dict[str, Any]:
    """Run app `name` and write its golden files into `output`; returns the provenance."""
    app, folder = load_app(name), APPS / name
    device = gpu_name()
    with tempfile.TemporaryDirectory(prefix="golden-") as temporary:
        work = Path(temporary)
        command = run_original(app, folder, work, on_gpu=device is not None)
        outputs = (work / app["outputs"]).read_bytes()
        times = json.loads((work / app["times"]).read_text(encoding="utf-8"))
    note = "The GPU original, unchanged, on the GPU."
    others: list[str] = []
    if device and "accelerators" in app:
        outputs, others = with_other_accelerators(app, folder, outputs)
        note += f" For {', '.join(app['accelerators'])} the CPU stood in: see stand_in."
    if device is None:
        note = (
            "No GPU was at hand: the GPU original, unchanged, ran on the CPU through "
            "migrator/verify/recorder/cpu_stand_in.py. The times are a CPU's."
        )
    provenance = {
        "schema": 1,
        "app": name,
        "device": {
            "kind": "NVIDIA GPU" if device else "CPU stand-in for CUDA",
            "name": device or f"CPU ({platform.machine()})",
        },
        "versions": versions(),
        "command": command,
        "seed": app["seed"],
        "date": today(),
        "times": {
            step: {"first_s": round(t["first_s"], 6), "later_s": round(t["later_s"], 6)}
            for step, t in times["steps"].items()
        },
        "repeat": times["repeat"],
        "figures": times.get("figures", {}),
        "source_sha256": digest(folder),
        "outputs_sha256": hashlib.sha256(outputs).hexdigest(),
        "tolerances": f"reference_apps/{name}/app.toml",
        "note": note,
        **({"stand_in": others} if others else {}),
    }
    output.mkdir(parents=True, exist_ok=True)
    replace(output / "outputs.safetensors", outputs)
    replace(output / "provenance.json", (json.dumps(provenance, indent=2) + "\n").encode())
    return provenance


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("app", help="a folder of reference_apps")
    parser.add_argument("--output", type=Path, help="instead of golden/APP")
    args = parser.parse_args()
    if not (APPS / args.app / "app.toml").is_file():
        parser.error(f"no reference_apps/{args.app}/app.toml")
    output = args.output or HERE / args.app
    provenance = capture(args.app, output)
    size = (output / "outputs.safetensors").stat().st_size / 1e6
    print(f"captured on {provenance['device']['name']}: {size:.1f} MB")


if __name__ == "__main__":
    main()
