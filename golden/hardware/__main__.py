"""What real hardware says: capture goldens on a GPU, verify on a TPU, keep what came of both.

    python golden/hardware gpu -o gpu.zip               # on a machine with an NVIDIA GPU
    python golden/hardware portable -o portable.json    # there, too
    python golden/hardware tpu -o tpu.json              # on a machine with a TPU
    python golden/hardware add gpu.zip portable.json tpu.json   # in a clone of the same commit
    python golden/hardware page                         # write docs/hardware.md anew

`gpu` records the golden of every reference app and needs what the apps need, nothing else;
`portable` runs the migrated apps there, those for torch_tpu without its library, those for torchax
on JAX's CUDA back end, and needs tpu-migrate, too; `tpu` runs `tpu-migrate verify --all` on each
target. `add` refuses what is damaged, of other sources or goldens, or not from such hardware;
goldens become those of golden/, verifications go to golden/hardware/results/. With `--rehearsal`,
`add` takes results of CPUs, keeps nothing, and prints the page that they would make, labelled.
`--apps` and `--targets` name some of them.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import capture  # noqa: E402
from page import page  # noqa: E402
from portable import TARGETS, on_this_gpu  # noqa: E402
from results import Refused, Results, sha256  # noqa: E402

ROOT = HERE.parent.parent


def on_gpu(apps: list[str], output: Path) -> int:
    """Capture the goldens of `apps` into one zip file; one that fails does not stop the others."""
    failed = []
    with tempfile.TemporaryDirectory() as work, zipfile.ZipFile(output, "w") as archive:
        for name in apps:
            try:
                device = capture.capture(name, Path(work) / name)["device"]
            except Exception as error:  # of any app's own
                failed.append(f"{name}: {error}")
                continue
            for file in ("provenance.json", "outputs.safetensors"):
                archive.write(Path(work) / name / file, f"{name}/{file}")
            print(f"{name}: captured on {device['name']} ({device['kind']})", flush=True)
    for line in failed:
        print(line, file=sys.stderr)
    print(f"{output}: {len(apps) - len(failed)} of {len(apps)} goldens")
    return int(bool(failed))


def verified(verifications: Iterator[dict[str, Any]], output: Path) -> int:
    """Keep what was found, and of which sources and goldens."""
    from migrator.distribution import __version__

    found: list[dict[str, Any]] = []
    for result in verifications:
        name = result["app"]
        of = {
            "source_sha256": capture.digest(capture.APPS / name),
            "golden_sha256": sha256(HERE.parent / name / "outputs.safetensors"),
        }
        kept = {key: result[key] for key in Results.KEPT if key in result}
        found.append({**kept, **of})
        word = "PASS" if result["passed"] else f"FAIL {result['error'] or ''}"
        where = result["device"] or "no device"
        print(f"{name} on {result['target']}, {where}: {word}", flush=True)
    table = {"schema": 1, "tpu_migrate": __version__, "date": capture.today(), "results": found}
    output.write_text(json.dumps(table, indent=1) + "\n", "utf-8")
    print(f"{output}: {sum(each['passed'] for each in found)} of {len(found)} passed")
    return int(not all(each["passed"] for each in found))


def on_tpu(apps: list[str], targets: list[str]) -> Iterator[dict[str, Any]]:
    """What `tpu-migrate verify` finds of `apps` on each target."""
    from migrator.verify import verify_app

    return (verify_app(name, target, install=True).to_dict() for target in targets for name in apps)


def add(files: list[Path], rehearsal: bool) -> int:
    results = Results.of(ROOT)
    for file in files:
        results.add(file, rehearsal)
    if rehearsal:
        print(page(results, rehearsal=True))
        return 0
    results.keep()
    (ROOT / "docs" / "hardware.md").write_text(page(results), "utf-8")
    kept = f"kept {', '.join(map(str, files))}; " if files else ""
    print(f"{kept}docs/hardware.md is written anew")
    return 0


def main() -> int:
    every = sorted(path.parent.name for path in capture.APPS.glob("*/app.toml"))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("gpu", "portable", "tpu"):
        command = commands.add_parser(name)
        command.add_argument("-o", "--output", type=Path, required=True)
        command.add_argument("--apps", nargs="+", choices=every, default=every)
        if name != "gpu":
            targets = ["torchax", "torch_xla"] if name == "tpu" else list(TARGETS)
            command.add_argument("--targets", nargs="+", choices=targets, default=targets)
    command = commands.add_parser("add")
    command.add_argument("files", nargs="+", type=Path)
    command.add_argument("--rehearsal", action="store_true")
    commands.add_parser("page")
    given = parser.parse_args()
    try:
        if given.command == "gpu":
            return on_gpu(given.apps, given.output)
        if given.command == "portable":
            found = (on_this_gpu(name, target) for target in given.targets for name in given.apps)
            return verified(found, given.output)
        if given.command == "tpu":
            return verified(on_tpu(given.apps, given.targets), given.output)
        return add(
            given.files if given.command == "add" else [], getattr(given, "rehearsal", False)
        )
    except (Refused, OSError) as error:
        print(f"hardware: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
