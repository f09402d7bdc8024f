"""Programs for several devices, as they are by gloo and as they become, and how far they agree."""

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from target import TARGET

from migrator import migrate_paths
from migrator.config import Config
from migrator.diagnostics import Outcome

PROGRAMS = Path(__file__).parent / "programs"


def program(name: str) -> str:
    """The text of a program for GPUs."""
    return (PROGRAMS / f"{name}.py").read_text()


def migrated(source: str | Path, folder: Path, **options: Any) -> Path:
    """The script in ``source``, or of that text, as it becomes."""
    if isinstance(source, str):
        (folder / "source").mkdir(exist_ok=True)
        (folder / "source" / "script.py").write_text(source)
        source = folder / "source"
    output = folder / f"migrated{len(options)}"
    report = migrate_paths(
        [source], TARGET, config=Config(runtime="copy", **options), output=output
    )
    assert not report.diagnostics(Outcome.REPORTED)
    return next(p for p in output.glob("*.py"))


def execute(script: Path, *arguments: object, **variables: str) -> str:
    """What a program prints, errors included."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "MASTER_PORT": str(port), **variables}
    done = subprocess.run(
        [sys.executable, script, *map(str, arguments)], env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}"
    return done.stdout


def on_ranks(count: int, script: Path, *arguments: object, **variables: str) -> str:
    """What a migrated program prints on `count` devices of the CPU."""
    if TARGET == "torchax":
        told = {"JAX_NUM_CPU_DEVICES": str(count), "MASTER_ADDR": "localhost"}
        return execute(script, *arguments, **{**told, **variables})
    from migrator.targets.torch_xla import replicas

    # an address as programs have it for the machines with their GPUs
    told = {"PJRT_DEVICE": "CPU", "CPU_NUM_DEVICES": str(count), "MASTER_ADDR": "192.0.2.1"}
    return execute(Path(replicas.__file__), script, *arguments, **{**told, **variables})


# gloo has no mean, no scattered sum, and no exchange of all with all. Its threads may want Python's
# lock when ranks end: those that DDP waits for never get it, and in an interpreter that is taken
# down they abort.
_GLOO = (
    ("dist.destroy_process_group()", 'print(end="", flush=True); __import__("os")._exit(0)'),
    ('"nccl"', '"gloo"'), ('"cuda", index', '"cpu"'), ('"cuda", rank', '"cpu"'),
    ("device = rank", 'device = "cpu"'), (".to(rank)", ""), (", device_ids=[rank]", ""),
    (", device_ids=[device]", ""), ('"AVG", ', ""), (", op=dist.ReduceOp.AVG", ""),
    (
        "dist.reduce_scatter_tensor(value, own[: 2 * ranks])",
        "all = own[: 2 * ranks].clone(); dist.all_reduce(all); value = all[2 * rank :][:2]",
    ),
    (
        "dist.all_to_all_single(value, own)",
        "parts = [torch.empty_like(own) for _ in range(ranks)]; dist.all_gather(parts, own); "
        "value = torch.cat([p[2 * rank :][:2] for p in parts])",
    ),
)  # fmt: skip


def on_gloo(text: str, folder: Path, *arguments: object) -> None:
    """Run a program for GPUs on the CPU."""
    for gpus, cpu in _GLOO:
        text = text.replace(gpus, cpu)
    original = folder / "original.py"
    lines = text.splitlines(keepends=True)
    original.write_text("".join(line for line in lines if "# not on gloo" not in line))
    execute(original, *arguments, MASTER_ADDR="localhost")


def difference(found: dict[str, Any], expected: dict[str, Any]) -> float:
    """The largest one of any parameter or loss."""
    assert found["state"].keys() == expected["state"].keys()
    pairs = [(found["state"][name], value) for name, value in expected["state"].items()]
    pairs.append((torch.tensor(found["losses"]), torch.tensor(expected["losses"])))
    assert all(a.shape == b.shape for a, b in pairs)
    return max((a.double() - b.double()).abs().max().item() for a, b in pairs)


# "adam" computes in float64: float32 rounding decides the sign of its first steps where a gradient
# is about 0, and BatchNorm over four samples makes more of a rounding at each step.
TOLERANCES = {
    "sgd": 1e-6, "clip": 1e-6, "uneven": 1e-6, "adam": 1e-6, "adam_norm": 1e-9,
    "adam_norm_sync": 1e-9, "uneven_adam_norm": 1e-9,
}  # fmt: skip


def compare(here: Path, there: Path, cases: list[str]) -> None:
    """Parameters, losses and counts of two runs of ddp_training.py."""
    expected, found = torch.load(there), torch.load(here)
    for case in cases:
        assert difference(found[case], expected[case]) <= TOLERANCES[case], case
        for count in ("right", "seen"):
            assert found[case][count] == expected[case][count]


def compare_collectives(here: Path, there: Path) -> None:
    """What two ranks have seen of collectives.py, and what gloo, which has no mean, gave them."""
    for rank in range(2):
        expected, found = torch.load(f"{there}.{rank}"), torch.load(f"{here}.{rank}")
        assert found.pop("AVG") == [x / 2 for x in expected["SUM"]]
        assert found.pop("mean of integers") == [1, 4]
        assert expected.pop("mean of integers") == [3, 8]
        assert found == expected


def compare_groups(here: Path, there: Path) -> None:
    """What three ranks have seen of groups.py, and what gloo gave them."""
    for rank, of in enumerate((2, 1, 2)):
        expected, found = torch.load(f"{there}.{rank}"), torch.load(f"{here}.{rank}")
        expected["mean"] = [total // of for total in expected["mean"]]
        rows = [torch.arange(4.0) + 10 * r for r in ([1] if rank == 1 else [0, 2])]
        batch = torch.stack([row for own in rows for row in (own, own * own, own + 1)])
        assert torch.allclose(found.pop("variance"), 0.9 + 0.1 * batch.var(0), rtol=1e-5)
        if TARGET == "torch_xla":  # its broadcast is a sum
            expected["bits"] = expected["bits"].replace("-0.0", "0.0")
        assert found == expected
