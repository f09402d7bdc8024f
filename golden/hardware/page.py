"""docs/hardware.md: what ran on a GPU and on a TPU, and what did not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from portable import TARGETS as ON_GPU
from results import Results

TARGETS = ("torchax", "torch_xla", "torch_tpu")
NOT_RUN = "not run"
_ABOVE = """\
# Hardware

This page shows what ran on real hardware. `python golden/hardware add` fills it from result files.
It refuses files that are damaged, come from other sources, or from a CPU.
"""
_REHEARSAL = """\
# Rehearsal on CPUs: nothing here ran on a GPU or a TPU
"""
_ON_GPU = """\
## Migrated apps on a GPU

Like a TPU, a GPU has its own memory and works asynchronously. Programs for torchax use JAX's CUDA
back end there, those for torch_tpu do without torch_tpu. Their outputs are compared with the
goldens of the originals:
"""
_HOW = """\
## A CPU in the place of a GPU

Without a GPU, `verify` runs the original on the CPU. [operators-cuda.md](operators-cuda.md) shows
how close that comes to a GPU, operator by operator. A test also runs each app's original on the
CPU; it agrees with its golden within the tolerances of the migration.

## How to fill it

Two notebooks and a command do this. Each needs a clone of this repository and produces one file to
bring back:

* [gpu.ipynb](../golden/hardware/gpu.ipynb), on a machine with an NVIDIA GPU (Colab's will do):
  the golden of each app, in minutes.
* `python golden/hardware portable`, on a machine with an NVIDIA GPU, JAX for it, torchax and
  tpu-migrate: each app migrated, run on the GPU and compared with its golden.
* [tpu.ipynb](../golden/hardware/tpu.ipynb), on a TPU VM, or on Colab with a TPU: each app
  migrated, run on each target and compared with its golden. The first run installs gigabytes.

<!-- not run: needs a GPU and a TPU -->
```sh
python golden/hardware gpu -o gpu.zip
python golden/hardware portable -o portable.json
python golden/hardware tpu -o tpu.json
python golden/hardware add gpu.zip portable.json tpu.json
```

Add the goldens first: a verification only counts for the golden it was compared with. With
`--rehearsal`, `add` accepts results from CPUs, shows what they would look like, and keeps nothing.
"""


def page(results: Results, rehearsal: bool = False) -> str:
    """The page, from what the checkout has."""
    lines = [_REHEARSAL if rehearsal else _ABOVE, "## GPU originals", ""]
    lines += ["| app | captured on | date | torch | CUDA |", "|---|---|---|---|---|"]
    for name, provenance in sorted(results.goldens.items()):
        lines.append(_golden(name, provenance, rehearsal))
    lines += ["", "## Migrated apps on a TPU", ""]
    lines += _table(results.goldens, TARGETS, results.verified)
    lines += ["", _ON_GPU, *_table(results.goldens, ON_GPU, results.on_gpu)]
    return "\n".join([*lines, "", _HOW])


def _table(
    apps: Iterable[str], targets: Sequence[str], found: Mapping[tuple[str, str], dict[str, Any]]
) -> list[str]:
    lines = [f"| app | {' | '.join(targets)} |", f"|---|{'---|' * len(targets)}"]
    for name in sorted(apps):
        cells = [_verified(found.get((name, target))) for target in targets]
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return lines


def _golden(name: str, provenance: dict[str, Any], rehearsal: bool) -> str:
    device, versions = provenance["device"], provenance["versions"]
    if device["kind"] != "NVIDIA GPU" and not rehearsal:
        return f"| `{name}` | {NOT_RUN} (the golden is of a {device['kind']}) | | | |"
    where = device["name"] if device["kind"] == "NVIDIA GPU" else f"{device['kind']}"
    if others := {output.partition(".")[0] for output in provenance.get("stand_in", ())}:
        where += f" ({', '.join(f'`{other}`' for other in sorted(others))}: a CPU stand-in)"
    cells = (where, provenance["date"], versions.get("torch"), versions.get("cuda_of_torch"))
    return f"| `{name}` | {' | '.join(str(cell or '-') for cell in cells)} |"


def _verified(found: dict[str, Any] | None) -> str:
    if found is None:
        return NOT_RUN
    versions = [
        f"{name} {found['versions'][name]}"
        for name in ("torch", "jax")
        if name in found["versions"]
    ]
    where = ", ".join([found["device"], found["date"], *versions])
    outputs = found["outputs"]
    if found["passed"]:
        most = max((float(output["ratio"]) for output in outputs), default=0.0)
        return f"PASS: {len(outputs)} outputs, at most {100 * most:.3g} % of tolerance ({where})"
    failed = [output["name"] for output in outputs if not output["passed"]]
    why = found["error"] or "; ".join([*found["problems"], *failed]) or "nothing was compared"
    return f"FAIL: {why} ({where})"
