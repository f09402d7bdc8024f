"""What each way to run a training step costs on torch_tpu, without a TPU.

    python benchmarks/torch_tpu_steps.py [--only NAME …] [--ways WAY …] [--compile-for v6e:1x1]

In the environment of torch_tpu. Each model trains 15 steps by AdamW on XLA's CPU client, each way
in a process of its own with an empty cache: operator by operator, deferred
(TORCH_TPU_DEFER_AND_FUSE), with `torch.compile` of the model, of the whole step, and both. `varied`
is a loop as people write it: the last batch of an epoch is smaller, a scheduler changes the
learning rate, gradients are clipped, and the model has dropout. A compiled model draws other masks,
as on GPUs, so its losses are not compared there, and the others are compared with eager's.

Columns: how far losses are from CPU torch's (`varied`: from eager's), programs compiled in all, and
of them in the last steps; then, in a step at the end, programs started and CPU milliseconds. With
--compile-for, libtpu compiles the programs of such a step: the sum of their FLOPs and of the bytes
that they read and write in HBM, and the memory of the largest one. Exits with 1 where losses differ
by more than 1e-4.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

WAYS = {
    "CPU torch": "cpu",
    "operator by operator": "",
    "deferred": "defer",
    "torch.compile(model)": "model",
    "both": "model defer",
    "torch.compile of the step": "step",
    "of the step, capturable": "step capturable",
}
MODELS = ("mlp", "convnet", "gpt")
STEPS, LAST = 15, 5  # the last ones are measured
AGREE = 1e-4  # relative, of losses


# ---- in a process of its own ---------------------------------------------------------------------


def trained(model: str, how: str, varied: bool, dump: Path) -> dict[str, Any]:
    """Losses and counts of one way."""
    from torch_tpu_launches import watch

    launches = watch(dump)
    import torch

    from migrator.targets.copies import folder_to_import

    sys.path.insert(0, str(folder_to_import("torch_tpu")))
    import tpu_runtime

    tpu_runtime.setup()
    step = step_of(model, how, varied)
    losses = []
    for number in range(STEPS):
        if number == STEPS - LAST:
            before, began = launches.now(), time.process_time()
        losses.append(step(number))
    seconds = time.process_time() - began
    started = launches.of_a_step(before, LAST)
    graphs = torch._dynamo.utils.counters["stats"].get("unique_graphs", 0)
    return {
        "losses": losses, "programs": launches.compiled,
        "late": launches.compiled - before.compiled,
        "started": started, "milliseconds": 1000 * seconds / LAST, "graphs": graphs,
    }  # fmt: skip


def step_of(name: str, how: str, varied: bool) -> Any:
    """A function of a step's number that trains it, and returns its loss."""
    import torch
    from step_models import CASES, LR

    torch.manual_seed(0)
    case = CASES[name]()
    device = "cpu" if "cpu" in how else "tpu"
    body = torch.nn.Sequential(case.model, torch.nn.Dropout(0.1)) if varied else case.model
    model = body.to(device)
    options = {"capturable": True} if "capturable" in how else {}
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, **options)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.9)
    batches = [case.batch() for _ in range(5)]
    if varied:  # an epoch of five, whose last is smaller
        batches[-1] = tuple(tensor[:-3] for tensor in batches[-1])
    there = [tuple(tensor.to(device) for tensor in batch) for batch in batches]
    if "model" in how:
        model.compile()

    def step(*batch: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = case.loss(model(batch[0], *case.inputs), *batch)
        loss.backward()
        if varied:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    compiled = torch.compile(step) if "step" in how else step

    def run(number: int) -> float:
        loss = compiled(*there[number % len(there)]).item()
        if varied:
            scheduler.step()
        return float(loss)

    return run


# ---- over all of them ----------------------------------------------------------------------------


def in_a_process(model: str, how: str, varied: bool, folder: Path) -> dict[str, Any]:
    """What `trained` gives, or its error, in a process with an empty cache."""
    from migrator.targets.torch_tpu.host import HOST

    on_cpu = ROOT / "migrator/targets/torch_tpu/on_cpu"
    environment = {
        **os.environ, **HOST.cpu, "PYTHONPATH": f"{ROOT}:{on_cpu}",
        "XLA_FLAGS": f"--xla_dump_to={folder} --xla_dump_hlo_as_text",
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"),
        "TORCH_TPU_DEFER_AND_FUSE": "1" if "defer" in how else "0",
    }  # fmt: skip
    command = [sys.executable, __file__, "--one", model, how, "--dump", str(folder)]
    done = subprocess.run(
        [*command, *(["--varied"] if varied else [])], env=environment, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or ["?"])[-1]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def on_tpu(topology: str, folder: Path, started: dict[str, float]) -> dict[str, float]:
    """What libtpu's compiler says of a step's programs."""
    names = [name for name in started if name != "?"]
    compiler = ROOT / "migrator/verify/compile_for_tpu.py"
    done = subprocess.run(
        [sys.executable, str(compiler), topology, "1500", *(str(folder / name) for name in names)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    answer = json.loads(done.stdout.splitlines()[-1])
    found = [facts for facts in answer["programs"] if not facts["error"]]
    return {
        "flops": sum(started[facts["file"]] * facts["flops"] for facts in found),
        "accessed": sum(started[facts["file"]] * facts["accessed"] for facts in found),
        "hbm": max((facts["hbm"] for facts in found), default=0),
        "refused": len(started) - len(found),
    }


def row(cells: Any) -> str:
    return f"| {' | '.join(cells)} |"


def line(way: str, found: dict[str, Any], base: dict[str, Any], tpu: dict[str, float]) -> str:
    if "error" in found:
        return row([way, found["error"][:160]])
    number = sum(found["started"].values())
    cells = [
        way, f"{apart(found, base):.0e}", f"{found['programs']}", f"{found['late']}",
        f"{number:.0f}", f"{found['milliseconds']:.0f}",
    ]  # fmt: skip
    if tpu:
        cells += [f"{tpu['flops'] / 1e9:.2f}", f"{tpu['accessed'] / 2**20:.0f}"]
        cells += [f"{tpu['hbm'] / 2**20:.0f}", f"{tpu['refused']:.0f}"]
    return row(cells)


def apart(found: dict[str, Any], base: dict[str, Any]) -> float:
    pairs = zip(found["losses"], base["losses"], strict=True)
    return max(abs(a - b) / abs(b) for a, b in pairs)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--varied", action="store_true", help="a loop as people write it")
    parser.add_argument("--compile-for", metavar="TOPOLOGY", help="such as v6e:1x1")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--dump", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(trained(*args.one, args.varied, args.dump)))
        return 0
    headings = ["", "losses apart", "programs", "of them late", "started in a step", "CPU ms"]
    if args.compile_for:
        headings += ["GFLOP", "HBM traffic, MiB", "largest program, MiB", "refused"]
    wrong = 0
    for model in args.only:
        print(f"\n{model}\n", row(headings), row(["---"] * len(headings)), sep="\n", flush=True)
        base = None
        for way in [way for way in args.ways if not (args.varied and WAYS[way] == "cpu")]:
            with tempfile.TemporaryDirectory() as name:
                found = in_a_process(model, WAYS[way], args.varied, Path(name))
                tpu = {}
                if args.compile_for and found.get("started"):
                    tpu = on_tpu(args.compile_for, Path(name), found["started"])
            base = base or found
            print(line(way, found, base, tpu), flush=True)
            draws = args.varied and ("model" in WAYS[way] or "step" in WAYS[way])
            wrong += "error" not in found and not draws and apart(found, base) > AGREE
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
