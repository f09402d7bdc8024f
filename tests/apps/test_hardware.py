"""Results of real hardware: taken in, refused, and shown."""

from __future__ import annotations

import hashlib
import importlib
import json
import shlex
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers import REPOSITORY

KIT = REPOSITORY / "golden" / "hardware"
GPU = {"kind": "NVIDIA GPU", "name": "NVIDIA H100"}
STAND_IN = {"kind": "CPU stand-in for CUDA", "name": "CPU (x86_64)"}
OUTPUTS = b"numbers"


@pytest.fixture
def kit(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    monkeypatch.syspath_prepend(str(KIT))
    monkeypatch.syspath_prepend(str(KIT.parent))
    names = ("capture", "portable", "results", "page")
    yield SimpleNamespace(**{name: importlib.import_module(name) for name in names})
    for name in names:
        sys.modules.pop(name, None)


@pytest.fixture
def root(tmp_path: Path, kit: SimpleNamespace) -> Path:
    """A checkout with one app, whose golden is a stand-in's."""
    app = tmp_path / "checkout" / "reference_apps" / "tiny"
    app.mkdir(parents=True)
    (app / "app.toml").write_text('entry = "tiny.py"\n')
    (app / "tiny.py").write_text("print(1)\n")
    golden = tmp_path / "checkout" / "golden" / "tiny"
    golden.mkdir(parents=True)
    (golden / "outputs.safetensors").write_bytes(OUTPUTS)
    (golden / "provenance.json").write_text(json.dumps(provenance(kit, app, STAND_IN)))
    return tmp_path / "checkout"


def provenance(kit: SimpleNamespace, app: Path, device: dict[str, str]) -> dict[str, Any]:
    return {
        "device": device, "date": "2027-01-02", "source_sha256": kit.capture.digest(app),
        "outputs_sha256": hashlib.sha256(OUTPUTS).hexdigest(),
        "versions": {"torch": "2.9.0", "cuda_of_torch": "12.8"},
    }  # fmt: skip


def golden(kit: SimpleNamespace, root: Path, device: dict[str, str], **changes: Any) -> Path:
    """A result file of a GPU machine."""
    found = provenance(kit, root / "reference_apps" / "tiny", device) | changes
    file = root.parent / "gpu.zip"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("tiny/provenance.json", json.dumps(found))
        archive.writestr("tiny/outputs.safetensors", OUTPUTS)
    return file


def verified(kit: SimpleNamespace, root: Path, **changes: Any) -> Path:
    """A result file of a TPU machine."""
    outputs = [{"name": "loss", "passed": True, "ratio": 0.25}]
    found = {
        "app": "tiny", "target": "torchax", "device": "TPU", "versions": {"torch": "2.12.0"},
        "notes": [], "outputs": outputs, "problems": [], "times": [], "seconds": 3.0,
        "passed": True, "error": None,
        "source_sha256": kit.capture.digest(root / "reference_apps" / "tiny"),
        "golden_sha256": hashlib.sha256(OUTPUTS).hexdigest(),
    } | changes  # fmt: skip
    file = root.parent / "tpu.json"
    table = {"schema": 1, "tpu_migrate": "1", "date": "2027-01-03", "results": [found]}
    file.write_text(json.dumps(table))
    return file


def test_the_page_says_what_the_repository_has(kit: SimpleNamespace) -> None:
    expected = kit.page.page(kit.results.Results.of(REPOSITORY))
    assert (REPOSITORY / "docs" / "hardware.md").read_text("utf-8") == expected


def test_nothing_ran_until_a_result_is_added(kit: SimpleNamespace, root: Path) -> None:
    text = kit.page.page(kit.results.Results.of(root))
    assert "| `tiny` | not run (the golden is of a CPU stand-in for CUDA) |" in text
    assert "| `tiny` | not run | not run | not run |" in text
    assert "| `tiny` | not run | not run |\n" in text


def test_results_of_a_gpu_and_a_tpu_are_kept_and_shown(kit: SimpleNamespace, root: Path) -> None:
    results = kit.results.Results.of(root)
    results.add(golden(kit, root, GPU))
    results.add(verified(kit, root))
    results.keep()
    text = kit.page.page(kit.results.Results.of(root))
    assert "| `tiny` | NVIDIA H100 | 2027-01-02 | 2.9.0 | 12.8 |" in text
    assert "PASS: 1 outputs, at most 25 % of tolerance (TPU, 2027-01-03, torch 2.12.0)" in text


def test_what_also_runs_on_a_gpu_is_shown_as_that(kit: SimpleNamespace, root: Path) -> None:
    results = kit.results.Results.of(root)
    results.add(verified(kit, root, target="torchax", device="NVIDIA H100", on_gpu=True))
    results.keep()
    text = kit.page.page(kit.results.Results.of(root))
    row = "PASS: 1 outputs, at most 25 % of tolerance (NVIDIA H100, 2027-01-03, torch 2.12.0)"
    assert (
        f"| `tiny` | {row} | not run |" in text
        and "| `tiny` | not run | not run | not run |" in text
    )


def test_what_failed_on_a_tpu_is_shown_as_that(kit: SimpleNamespace, root: Path) -> None:
    outputs = [{"name": "loss", "passed": False, "ratio": 3.0}]
    results = kit.results.Results.of(root)
    results.add(verified(kit, root, outputs=outputs, passed=False))
    assert "| FAIL: loss (TPU, " in kit.page.page(results)


@pytest.mark.parametrize(
    ("device", "changes", "message"),
    [
        (STAND_IN, {}, "tiny was captured on CPU (x86_64), not on a GPU"),
        (GPU, {"source_sha256": "0"}, "the app has changed since"),
        (GPU, {"outputs_sha256": "0"}, "the outputs are not those of the provenance"),
        (GPU, {"versions": {}}, "the version of torch is not known"),
    ],
)
def test_goldens_that_prove_nothing_are_refused(
    kit: SimpleNamespace, root: Path, device: dict[str, str], changes: Any, message: str
) -> None:
    with pytest.raises(kit.results.Refused) as raised:
        kit.results.Results.of(root).add(golden(kit, root, device, **changes))
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"device": "CPU back end of torchax"}, "ran on CPU back end of torchax, not on a TPU"),
        ({"device": "NVIDIA H100"}, "ran on NVIDIA H100, not on a TPU"),
        ({"on_gpu": True, "device": "CPU"}, "ran on CPU, not on a GPU"),
        ({"golden_sha256": "0"}, "it was compared with another golden"),
        ({"source_sha256": "0"}, "the app has changed since"),
        ({"app": "other"}, "there is no such app here"),
    ],
)
def test_verifications_that_prove_nothing_are_refused(
    kit: SimpleNamespace, root: Path, changes: Any, message: str
) -> None:
    with pytest.raises(kit.results.Refused) as raised:
        kit.results.Results.of(root).add(verified(kit, root, **changes))
    assert message in str(raised.value)


def test_a_damaged_file_is_one_line(root: Path, tmp_path: Path) -> None:
    shutil.copytree(KIT, root / "golden" / "hardware", ignore=shutil.ignore_patterns("*.pyc"))
    shutil.copyfile(KIT.parent / "capture.py", root / "golden" / "capture.py")
    broken = tmp_path / "tpu.json"
    broken.write_text("{}")
    done = subprocess.run(
        [sys.executable, str(root / "golden" / "hardware"), "add", str(broken)],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.count("\n") == 1 and "is no result file, or is damaged" in done.stderr


def test_a_rehearsal_is_labelled_and_keeps_nothing(kit: SimpleNamespace, root: Path) -> None:
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    results = kit.results.Results.of(root)
    results.add(golden(kit, root, STAND_IN), rehearsal=True)
    results.add(verified(kit, root, device="CPU back end of torchax"), rehearsal=True)
    text = kit.page.page(results, rehearsal=True)
    assert text.startswith("# Rehearsal on CPUs: nothing here ran on a GPU or a TPU")
    assert "CPU stand-in for CUDA" in text and "CPU back end of torchax" in text
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("name", ["gpu", "tpu"])
def test_a_notebook_calls_the_command_as_it_is(name: str) -> None:
    cells = json.loads((KIT / f"{name}.ipynb").read_text("utf-8"))["cells"]
    code = [line for cell in cells if cell["cell_type"] == "code" for line in cell["source"]]
    (line,) = [line.strip() for line in code if "golden/hardware" in line]
    command = shlex.split(line.removeprefix("!"))
    assert command[:2] == ["python", "golden/hardware"] and command[2] == name
    done = subprocess.run(
        [sys.executable, *command[1:3], "--help"], cwd=REPOSITORY, capture_output=True, text=True
    )
    assert done.returncode == 0 and command[3] in done.stdout


@pytest.mark.parametrize("name", ["gpu", "tpu"])
def test_a_notebook_runs_what_its_own_environment_has(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel's environment need not be activated, and `python` may be another one then."""
    cells = json.loads((KIT / f"{name}.ipynb").read_text("utf-8"))["cells"]
    first = next(cell["source"] for cell in cells if cell["cell_type"] == "code")
    monkeypatch.setenv("PATH", "/usr/bin")
    exec("".join(line for line in first if not line.startswith("%")), {})
    assert shutil.which("python") == f"{sys.prefix}/bin/python"
