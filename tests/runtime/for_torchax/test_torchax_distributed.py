"""--shard fsdp: what one process on a mesh computes is what the ranks of the original compute.

The original runs on the CPU by gloo, a process for each rank; what the tool makes of it runs on as
many virtual devices. Both end with the same parameters.
"""

import re
import shutil
from pathlib import Path

import pytest
import torch

from migrator import migrate_paths
from migrator.config import Config
from migrator.diagnostics import Outcome
from tests.runtime.several_devices import PROGRAMS, difference, execute

# Of one rank; adam computes in float64, since float32 rounding decides the sign of its first steps
# where a gradient is about 0.
TOLERANCES = {"sgd": 1e-6, "clip": 1e-6, "uneven": 1e-6, "adam": 1e-6}
NORMS = ["norm", "norm_sync"]


def on_devices(count: int, script: Path, *arguments: object, **variables: str) -> str:
    flags = f"--xla_force_host_platform_device_count={count}"
    variables = {"XLA_FLAGS": flags, "JAX_ENABLE_X64": "1", "TPU_RUNTIME_REPORT": "1", **variables}
    return execute(script, *arguments, **variables)


@pytest.fixture(scope="module")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("migrated")
    config = Config(shard="fsdp", unsafe=True, runtime="copy")
    program, output = PROGRAMS / "ddp_training.py", folder / "programs"
    report = migrate_paths([program], target="torchax", config=config, output=output)
    assert not report.diagnostics(Outcome.REPORTED)
    return folder / "programs"


@pytest.mark.parametrize(
    ("count", "cases"),
    [
        (2, ["uneven", "adam"]),
        pytest.param(2, ["clip", "norm"], marks=pytest.mark.thorough),
        pytest.param(4, ["sgd", "uneven"], marks=pytest.mark.thorough),
    ],
)
def test_ddp_ends_with_the_parameters_of_the_ranks(
    count: int, cases: list[str], migrated: Path, tmp_path: Path
) -> None:
    there, here = tmp_path / "gloo.pt", tmp_path / "mesh.pt"
    arguments = (*cases, "--world-size", count, "--output")
    execute(PROGRAMS / "ddp_training.py", *arguments, there)
    printed = on_devices(count, migrated / "ddp_training.py", *cases, "--output", here)
    expected, found = torch.load(there), torch.load(here)
    for case in cases:
        if case == "norm":  # each rank uses its own part there, which gives other numbers
            assert difference(found[case], expected[case]) > 1e-3
            continue
        assert difference(found[case], expected[case]) <= TOLERANCES[case], case
        # counts are those of all ranks, and each step is one program
        assert (found[case]["right"], found[case]["seen"]) == (
            expected[case]["right"], expected[case]["seen"],
        )  # fmt: skip
    assert f"tpu_runtime: {count} devices (cpu)" in printed
    assert f"a batch of {4 * count} is 4 on each of {count} devices" in printed
    assert re.findall(r"step\(\).*: (\d+) calls?, (\d+) programs?$", printed, re.M)


def test_each_device_has_a_part_of_each_parameter(migrated: Path, tmp_path: Path) -> None:
    folder, here = tmp_path / "migrated", tmp_path / "mesh.pt"
    shutil.copytree(migrated, folder)
    script = folder / "ddp_training.py"
    shows = "        print([str(p.jax().sharding.spec) for p in model.parameters()])\n"
    text = script.read_text().replace("    if rank == 0:\n", f"    if rank == 0:\n{shows}", 1)
    script.write_text(text)
    printed = on_devices(2, script, "sgd", "--output", here)
    # of a weight of 16 x 12, its bias, one of 3 x 16, its bias
    parts = "[\"P('data',)\", \"P('data',)\", "
    assert f"{parts}\"P(None, 'data')\", 'P()']" in printed


@pytest.mark.thorough
def test_batchnorm_uses_the_whole_batch(migrated: Path, tmp_path: Path) -> None:
    """As one process does that has all of it."""
    count = 8
    there, here = tmp_path / "one.pt", tmp_path / "mesh.pt"
    arguments = (*NORMS, "--world-size", 1, "--batch-size", 4 * count, "--output", there)
    execute(PROGRAMS / "ddp_training.py", *arguments)
    on_devices(count, migrated / "ddp_training.py", *NORMS, "--output", here)
    expected, found = torch.load(there), torch.load(here)
    for case in NORMS:
        assert difference(found[case], expected[case]) <= 1e-5, case


def test_one_device_on_request_and_no_other_number(migrated: Path, tmp_path: Path) -> None:
    script, output = migrated / "ddp_training.py", tmp_path / "one.pt"
    arguments = ("sgd", "--epochs", 1, "--output")
    printed = on_devices(4, script, *arguments, output, TPU_RUNTIME_NUM_CORES="1")
    assert "tpu_runtime: 1 device (cpu)" in printed
    there = tmp_path / "gloo.pt"
    execute(PROGRAMS / "ddp_training.py", *arguments, there, "--world-size", 1)
    assert difference(torch.load(output)["sgd"], torch.load(there)["sgd"]) <= 1e-6
    with pytest.raises(AssertionError, match="TPU_RUNTIME_NUM_CORES=3: 1 or all, there are 4"):
        on_devices(4, script, "sgd", "--output", output, TPU_RUNTIME_NUM_CORES="3")


def test_another_number_of_ranks_is_refused(migrated: Path, tmp_path: Path) -> None:
    """Whoever tells the program a number of GPUs has to tell it the right one."""
    script, arguments = migrated / "ddp_training.py", ("sgd", "--output", tmp_path / "x.pt")
    with pytest.raises(AssertionError, match="set up for 1 ranks, and uses 2 devices"):
        on_devices(2, script, *arguments, "--world-size", 1)


def test_several_processes_are_refused(migrated: Path, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="2 processes were started: start the program once"):
        on_devices(
            2, migrated / "ddp_training.py", "sgd", "--output", tmp_path / "x.pt",
            WORLD_SIZE="2", RANK="0",
        )  # fmt: skip
