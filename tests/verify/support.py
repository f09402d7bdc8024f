"""Tiny apps, goldens, recordings and interpreters to verify with; needs no PyTorch."""

import hashlib
import json
import os
import shutil
import stat
import struct
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from migrator.verify.comparisons import Comparison
from migrator.verify.divergence import compare
from migrator.verify.goldens import read_golden
from migrator.verify.originals import record_script
from migrator.verify.recordings import Recording, RecordSettings
from migrator.verify.safetensors_files import read_header

FORMATS = {"F64": "d", "F32": "f", "I32": "i", "I64": "q", "U8": "B", "BOOL": "?", "BF16": "H"}

Tensor = tuple[str, Sequence[int], Sequence[Any]]  # safetensors dtype, shape, values


def safetensors(tensors: Mapping[str, Tensor]) -> bytes:
    """The bytes of a safetensors file."""
    header: dict[str, Any] = {}
    data = b""
    for name, (dtype, shape, values) in tensors.items():
        packed = struct.pack(f"<{len(values)}{FORMATS[dtype]}", *values)
        header[name] = {
            "dtype": dtype,
            "shape": list(shape),
            "data_offsets": [len(data), len(data) + len(packed)],
        }
        data += packed
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


GOLDEN: dict[str, Tensor] = {"y": ("F32", [2, 2], [1.0, 2.0, 3.0, 4.0])}

APP_TOML = """\
name = "tiny"
entry = "main.py"
args = ["--output", "out"]
outputs = "out/outputs.safetensors"
times = "out/times.json"

[tolerances.default.y]
atol = 1e-6
reason = "one rounding of float32"
"""


class Checkout:
    """A folder with reference_apps/tiny and golden/tiny."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.app = root / "reference_apps" / "tiny"
        self.golden = root / "golden" / "tiny"
        self.app.mkdir(parents=True)
        self.golden.mkdir(parents=True)
        self.script("pass")
        self.toml(APP_TOML)
        self.write_golden(GOLDEN)

    def script(self, text: str) -> None:
        (self.app / "main.py").write_text(text, encoding="utf-8")

    def toml(self, text: str) -> None:
        (self.app / "app.toml").write_text(text, encoding="utf-8")

    def write_golden(self, tensors: Mapping[str, Tensor]) -> None:
        data = safetensors(tensors)
        (self.golden / "outputs.safetensors").write_bytes(data)
        self.provenance(outputs_sha256=hashlib.sha256(data).hexdigest())

    def provenance(self, **changes: Any) -> None:
        """Write the provenance, or change fields of it."""
        path = self.golden / "provenance.json"
        told = (
            json.loads(path.read_text())
            if path.exists()
            else {
                "schema": 1,
                "app": "tiny",
                "device": {"kind": "NVIDIA GPU", "name": "NVIDIA H200"},
                "times": {"work": {"first_s": 0.5, "later_s": 0.01}},
            }
        )
        path.write_text(json.dumps({**told, **changes}), encoding="utf-8")


def writing(tensors: Mapping[str, Tensor], before: str = "") -> str:
    """A script that runs ``before`` and writes ``tensors`` and a time, as an app does."""
    return f"""\
import json, pathlib
{before}
out = pathlib.Path("out")
out.mkdir(exist_ok=True)
out.joinpath("outputs.safetensors").write_bytes({safetensors(tensors)!r})
times = {{"steps": {{"work": {{"first_s": 2.0, "later_s": 0.25}}}}}}
out.joinpath("times.json").write_text(json.dumps(times))
"""


def copy_as_migration(source: Path, target: str, destination: Path, **how: object) -> list[str]:
    """A migration that changes nothing."""
    shutil.copytree(source, destination)
    return []


TORCHAX = {
    "tqdm": "4.70.1",
    "torch": "2.9.0",
    "torchvision": "0.24.0",
    "torchax": "0.0.13",
    "jax": "0.10.2",
    "jaxlib": "0.10.2",
    "numpy": "2.4.6",
    "pillow": "13.0.0",
    "opencv-python-headless": "4.14.0",
    "safetensors": "0.8.0",
}
TORCH_XLA = {
    **{name: TORCHAX[name] for name in TORCHAX if name not in ("torchax", "jax", "jaxlib")},
    "torch_xla": "2.9.0",
}
TORCH_TPU = {
    **{name: TORCHAX[name] for name in TORCHAX if name not in ("torchax", "jax", "jaxlib")},
    "torch": "2.15.0",
    "torchvision": "0.29.2",
    "torch_tpu": "0.2.0",
    "lammps-jax-pjrt-cpu": "0.11.2",
}


def fake_interpreter(
    folder: Path, recorded: Mapping[str, str] = TORCHAX, files: Mapping[str, str] | None = None
) -> Path:
    """This Python with packages that are names and versions only.

    ``recorded``: versions by distribution; ``files``: where the module says another version.
    """
    site = folder / "site"
    site.mkdir(parents=True)
    for name, version in recorded.items():
        info = site / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        module = {"pillow": "PIL", "opencv-python-headless": "cv2"}.get(name, name)
        says = (files or {}).get(name, version)
        (site / f"{module}.py").write_text(f"__version__ = {says!r}\n")
    (folder / "bin").mkdir()
    return executable(
        folder / "bin" / "python",
        f'#!/bin/sh\nPYTHONPATH="{site}" exec "{os.path.realpath(sys.executable)}" -S "$@"\n',
    )


def executable(path: Path, text: str) -> Path:
    """A script that can be run."""
    path.write_text(text, encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


# As torch_xla dumps what it has recorded up to a sync; the second argument is overwritten.
GRAPH = """\
HloModule SyncTensorsGraph.{0}, buffer_donor={{ (1, {{}}) }}, \
entry_computation_layout={{(f32[4,8]{{1,0}}, f32[8,8]{{1,0}})->(f32[4,8]{{1,0}}, f32[8,8]{{1,0}})}}

ENTRY main {{
  x = f32[4,8]{{1,0}} parameter(0)
  w = f32[8,8]{{1,0}} parameter(1)
  y = f32[4,8]{{1,0}} dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}, \
operand_precision={{highest,highest}}
  v = f32[8,8]{{1,0}} add(w, w)
  ROOT both = (f32[4,8]{{1,0}}, f32[8,8]{{1,0}}) tuple(y, v)
}}
"""


def recording(*events: dict[str, Any], printed: str = "", ended: str = "") -> Recording:
    steps = sum(event["kind"] == "gradients" for event in events)
    return Recording(
        Path(), list(events), [], printed, ended, steps, 1.0, {"dropped": 0, "traced": 0}, {}
    )


def held(golden: Recording, run: Recording, *rounded: Recording, **how: Any) -> Comparison:
    return compare(golden, rounded, run, Path(sys.executable), Path(), **how)


def record(text: str, *args: str, **settings: Any) -> tuple[Recording, list[str]]:
    """What the recorder sees of a program in the current folder."""
    Path("t.py").write_text(text, encoding="utf-8")
    golden = Path("..", "golden")
    found = record_script(
        Path("t.py"),
        args,
        golden,
        Path(sys.executable),
        RecordSettings(**{"roundings": 0, **settings}),
    )
    read_golden(golden)
    read_header(golden / "tensors.safetensors")
    assert not list(Path(tempfile.gettempdir()).glob("tpu-migrate*"))
    return found
