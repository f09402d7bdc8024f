"""Programs a step and CPU seconds a step of a list of public programs, beside their originals.

    python benchmarks/public_programs/speed.py LIST CHECKOUTS --target torchax [--only NAME]

In the environment of a target. LIST is a folder with `cases.py` (programs, and small data for
them), `tree.py` and `fake/`; CHECKOUTS has the repositories as git folders. Each program is
migrated with one command, and stopped after 24 steps; the original runs on the CPU. A step ends
with an optimizer's `step()`, so that an iteration of a GAN has two. Programs of several processes
are left out. The figures go to speed.json, of which docs/program-speed.md has a table
(`python docs/generate.py`):

* `programs`: that ran in most steps after the third, and `most`: in one of them;
* `first`, `after`: compiled until the end of the third step, and later;
* `seconds`: CPU seconds of a step, of those after the third in which nothing was compiled, and
  `original`: of the same steps of the original;
* `said`: what the run's last lines say of it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RESULTS = HERE / "speed.json"
BY_HAND = HERE / "by_hand.json"
STEPS, FIRST = 24, 3
SLOW, MANY = 3.0, 2  # times the original's seconds; programs a step
OF_HAND = 1.5  # times the seconds of the same step by hand in JAX
TIMEOUT = 400  # seconds of a run
TARGETS = {
    "torchax": ({"JAX_PLATFORMS": "cpu"}, "jax"),
    "torch_xla": ({"PJRT_DEVICE": "CPU"}, "xla"),
    "torch_tpu": ({"TPU_SKIP_MDS_QUERY": "1"}, "tpu"),
}
ON_DEVICE = ("ex_mnist_rnn", "ex_dcgan", "ex_wlm", "ex_superres")  # with an option, `--accel`
SEVERAL_PROCESSES = ("ex_hogwild", "ex_ddp_multi")
UNSAFE = ("mingpt_chargpt",)  # its text grows, which is rewritten on request
# What gives a program enough steps: its data, or later arguments, which count.
_IMAGES = {"FAKE_N": "1630", "FAKE_NT": "128"}
_BATCHES_OF_100 = {"FAKE_N": "2450", "FAKE_NT": "100"}
MORE: dict[str, tuple[dict[str, str], list[str]]] = {
    "ex_mnist": (_IMAGES, []),
    "ex_mnist_rnn": (_IMAGES, []),
    "ex_vae": ({"FAKE_N": "3200", "FAKE_NT": "128"}, []),
    "ex_siamese": (_IMAGES, []),
    "ex_superres": ({}, ["--nEpochs", "12"]),
    "ex_imagenet": ({}, ["--epochs", "4"]),
    "ex_wlm": ({}, ["--epochs", "2"]),
    "ex_gcn": ({}, ["--epochs", "24"]),
    "unet": ({}, ["--epochs", "5"]),
    "unet_amp": ({}, ["--epochs", "5"]),
    "yj_resnet": ({"FAKE_N": "1200", "FAKE_NT": "100"}, []),
    "yj_generative_adversarial_network": ({"FAKE_N": "1250", "FAKE_NT": "100"}, []),
    "yj_variational_autoencoder": ({"FAKE_N": "3100", "FAKE_NT": "100"}, []),
    "yj_": (_BATCHES_OF_100, []),
    "pg_": ({"FAKE_N": "200", "FAKE_NT": "64"}, []),
}


def more(name: str) -> tuple[dict[str, str], list[str]]:
    """The longest beginning of a name that MORE has."""
    fits = [key for key in MORE if name.startswith(key)]
    return MORE[max(fits, key=len)] if fits else ({}, [])


def run(
    case: Any, folder: Path, listed: Path, target: str, kind: str = "programs"
) -> tuple[int, str, list[Any]]:
    """Its exit code, its output, and its steps. ``target``: none for the original."""
    data, arguments = more(case.name)
    # An original doesn't look for a TPU when torch is imported.
    variables, device = TARGETS.get(target, ({"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}, "cpu"))
    own = [str((folder / case.path).resolve())] if case.path else []
    path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    on_cpu = [str(ROOT / "migrator/targets/torch_tpu/on_cpu")] * (target == "torch_tpu")
    environment = {
        **os.environ, **case.env, **data, **variables, "MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "", "PYTHONHASHSEED": "0",
        "PYTHONPATH": os.pathsep.join([*on_cpu, str(listed / "fake"), *own, *path]),
    }  # fmt: skip
    asked = ["--accel"] * bool(target and case.name in ON_DEVICE)
    given = [each.replace("{dev}", device) for each in case.argv if each != "--dry-run"]
    out = folder.with_suffix(".steps")
    out.unlink(missing_ok=True)
    command = [
        sys.executable,
        str(HERE / "intervals.py"),
        target or "cpu",
        kind,
        str(STEPS),
        str(out),
    ]
    try:
        ran = subprocess.run(
            [*command, *given, *arguments, *asked], cwd=folder / case.sub, env=environment,
            text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            timeout=TIMEOUT, errors="replace",
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return 124, "", []
    folder.with_suffix(".log").write_text(ran.stdout)
    return ran.returncode, ran.stdout, json.loads(out.read_text()) if out.exists() else []


def migrate(source: Path, target: str, *options: str) -> Path:
    out = source.with_name(target)
    shutil.rmtree(out, ignore_errors=True)
    command = [sys.executable, "-m", "migrator", str(source), "--target", target, "-o", str(out)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(
        [*command, "--runtime", "copy", "-q", "--isolated", *options],
        env=environment,
        capture_output=True,
    )
    return out


def lay(case: Any, listed: Path, checkouts: Path, folder: Path, is_original: bool) -> Path:
    """Its files and data. An original gets the edits that a CPU needs."""
    from cases import sub  # type: ignore[import-not-found]
    from tree import checkout  # type: ignore[import-not-found]

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    part = case.sub if case.repo.endswith(("examples", "PyTorch-GAN", "pytorch-tutorial")) else "."
    checkout(case.repo, folder, part, str(checkouts))
    if case.prep:
        case.prep(folder, folder / case.sub)
    for file, pattern, text in case.cpu if is_original else ():
        sub(folder / case.sub / file, (pattern, text))
    return folder


def figures(steps: list[Any], timed: list[Any], beside: list[Any]) -> dict[str, Any]:
    """Of the steps after the third, but for `first`."""
    later = range(FIRST, min(len(steps), len(timed), len(beside)))
    ran = [steps[at][2] - steps[at - 1][2] for at in later]
    settled = [at for at in later if timed[at][1] == timed[at - 1][1]]

    def seconds(of: list[Any]) -> float:
        return float(f"{mean(of[at][0] - of[at - 1][0] for at in settled):.3g}") if settled else 0

    return {
        "steps": len(steps), "programs": Counter(ran).most_common(1)[0][0] if ran else 0,
        "most": max(ran, default=0),
        "first": steps[min(FIRST, len(steps)) - 1][1] if steps else 0,
        "after": steps[-1][1] - steps[FIRST - 1][1] if len(steps) >= FIRST else 0,
        "compiling": len(later) - len(settled),
        "seconds": seconds(timed), "original": seconds(beside),
    }  # fmt: skip


def said(output: str) -> str:
    lines = [line for line in output.splitlines() if line.startswith("tpu_runtime: ")]
    return lines[-1].removeprefix("tpu_runtime: ") if lines else ""


def measured(
    case: Any, listed: Path, checkouts: Path, work: Path, target: str, *options: str
) -> dict[str, Any]:
    folder = work / case.name
    code, output, beside = run(
        case, lay(case, listed, checkouts, folder / "original", True), listed, ""
    )
    row: dict[str, Any] = {"program": " ".join([case.name, *options]), "target": target}
    if code:
        return {**row, "failed": f"the original: {(output.splitlines() or ['timeout'])[-1]}"}
    source = lay(case, listed, checkouts, folder / "source", False)
    migrated = migrate(source, target, *options)
    code, output, steps = run(case, migrated, listed, target)
    timed = steps
    if not code and target == "torchax":
        code, output, timed = run(case, migrated, listed, target, "seconds")
    if code:
        return {**row, "failed": (output.splitlines() or ["timeout"])[-1]}
    found = {**row, **figures(steps, timed, beside), "said": said(output)}
    return {**found, "timed": True} if timed is not steps else found


def keep(row: dict[str, Any]) -> None:
    """Put a row in the place of the one of the same program and target."""
    rows = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    rows = [r for r in rows if (r["program"], r["target"]) != (row["program"], row["target"])]
    rows = sorted([*rows, row], key=lambda r: (r["target"], r["program"]))
    RESULTS.write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n")


def published() -> str:
    """The table of docs/program-speed.md, and what the runs of slow programs end with."""
    rows = json.loads(RESULTS.read_text())
    targets = sorted({row["target"] for row in rows}, reverse=True)
    by = {(row["program"], row["target"]): row for row in rows}
    names = [n for n in dict.fromkeys(row["program"] for row in rows) if _runs(by, n, targets)]
    lines = [
        f"| | {' | '.join(f'{t}: programs | compiled | seconds' for t in targets)} |",
        f"|---|{'---|---|---|' * len(targets)}",
    ]
    for name in names:
        cells = [_cells(by.get((name, target), {})) for target in targets]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    measured = {t: [by[n, t] for n in names if (n, t) in by] for t in targets}
    lines += ["", *(_counts(target, rows) for target, rows in measured.items())]
    lines += [_beside_hand(target, rows) for target, rows in measured.items()]
    return "\n".join([*lines, "", *_endings(by, names, targets)])


def _runs(by: dict[tuple[str, str], Any], name: str, targets: list[str]) -> bool:
    """Whether its original runs."""
    return all("the original" not in by.get((name, t), {}).get("failed", "") for t in targets)


def _ratio(row: dict[str, Any]) -> float:
    return row["seconds"] / row["original"] if row.get("original") else 0.0


def _cells(row: dict[str, Any]) -> str:
    if "programs" not in row:
        return "– | – | –"
    ran = str(row["programs"])
    ran += f" to {row['most']}" if row["most"] > row["programs"] else ""
    ratio = f"{_ratio(row):.2g}" if _ratio(row) else "–"
    return f"{ran} | {row['first']}, {row['after']} | {ratio}{'' if _is_timed(row) else ' *'}"


def _is_timed(row: dict[str, Any]) -> bool:
    """Whether its seconds are those of a run whose programs weren't counted, where that matters."""
    return row["target"] != "torchax" or not _ratio(row) or bool(row.get("timed"))


def _of_hand(row: dict[str, Any]) -> float:
    """Times the same step by hand in JAX; 0 if that isn't written."""
    by_hand = json.loads(BY_HAND.read_text()).get(row["program"])
    return row.get("seconds", 0) / by_hand if by_hand else 0.0


def _counts(target: str, rows: list[dict[str, Any]]) -> str:
    ran = [row for row in rows if "programs" in row]
    few = sum(row["programs"] <= MANY for row in ran)
    quick = sum(0 < _ratio(row) <= SLOW for row in ran)
    also = sum(_ratio(row) > SLOW and 0 < _of_hand(row) <= OF_HAND for row in ran)
    return (
        f"* {target}: {few} of {len(rows)} have one or two programs a step, {quick} take at most "
        f"{SLOW:g} times the original's seconds, and {also} more at most {OF_HAND:g} times those "
        "of the same step by hand in JAX."
    )


def _beside_hand(target: str, rows: list[dict[str, Any]]) -> str:
    found = [f"{row['program']} {_of_hand(row):.2g}" for row in rows if _of_hand(row)]
    return f"* {target}, as a multiple of the same step by hand in JAX: {', '.join(found)}."


def _endings(by: dict[tuple[str, str], Any], names: list[str], targets: list[str]) -> list[str]:
    said = {(name, t): by.get((name, t), {}) for name in names for t in targets}
    return [
        f"* {name}, {target}: {escaped(row.get('said') or row.get('failed', ''))}"
        for (name, target), row in said.items()
        if row.get("said") or "failed" in row
    ]


def escaped(text: str) -> str:
    return "`" + text.replace("`", "'") + "`"


def cases(listed: Path, only: str) -> Iterator[Any]:
    sys.path.insert(0, str(listed))
    from cases import CASES

    for case in CASES:
        if (
            any(part in case.name for part in only.split(","))
            and case.name not in SEVERAL_PROCESSES
        ):
            yield case


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("list", type=Path)
    parser.add_argument("checkouts", type=Path)
    parser.add_argument("--target", choices=list(TARGETS), default="torchax")
    parser.add_argument("--only", default="", help="programs whose name has this, or one of these")
    parser.add_argument("--work", type=Path, help="a folder that is kept")
    asked = parser.parse_args()
    work = (asked.work or Path(tempfile.mkdtemp())).resolve()
    listed = asked.list.resolve()
    for case in cases(listed, asked.only):
        for options in ([], ["--unsafe"])[: 1 + (case.name in UNSAFE)]:
            row = measured(case, listed, asked.checkouts.resolve(), work, asked.target, *options)
            keep(row)
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
