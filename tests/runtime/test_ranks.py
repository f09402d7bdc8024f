"""Ranks keep their processes, or their threads, and end with what the original's have by gloo.

The original runs on the CPU, a process for each rank. What the tool makes of it runs on as many
devices of the CPU: in processes on torchax, as replicas (targets/torch_xla/replicas.py) on
torch_xla.
"""

from pathlib import Path

import pytest
import torch
from tiers import thorough_but, thorough_on

from tests.runtime.several_devices import (
    PROGRAMS,
    TARGET,
    compare,
    compare_collectives,
    compare_groups,
    execute,
    migrated,
    on_gloo,
    on_ranks,
    program,
)
from tests.runtime.sharded_models import (
    FUNCTIONAL,
    SHARDED,
    SHARDED_CASES,
    compare_functional,
    compare_sharded,
    sharded_alike,
)

FLOAT64 = {"JAX_ENABLE_X64": "1"} if TARGET == "torchax" else {}
DDP = PROGRAMS / "ddp_training.py"


@pytest.mark.parametrize(
    ("count", "cases"),
    [
        (2, ["uneven_adam_norm"]),
        pytest.param(2, ["uneven", "adam_norm"], marks=pytest.mark.thorough),
        pytest.param(2, ["clip", "sgd", "adam"], marks=pytest.mark.thorough),
        pytest.param(4, ["sgd", "uneven", "adam_norm"], marks=pytest.mark.thorough),
    ],
)
def test_ddp_ends_with_the_parameters_of_the_ranks(
    count: int, cases: list[str], tmp_path: Path
) -> None:
    there, here = tmp_path / "gloo.pt", tmp_path / "here.pt"
    arguments = (*cases, "--epochs", 2, "--output")
    execute(DDP, *arguments, there, "--world-size", count)
    printed = on_ranks(count, migrated(DDP, tmp_path), *arguments, here, **FLOAT64)
    compare(here, there, cases)
    assert f"tpu_runtime: {count} ranks, each with its own device (cpu)" in printed
    assert f"a batch of 4 on each of {count} ranks is {4 * count}" in printed


@pytest.mark.thorough
def test_one_rank_and_sync_batchnorm(tmp_path: Path) -> None:
    """Two ranks with SyncBatchNorm compute what one does that has the whole batch."""
    there, one, two = tmp_path / "gloo.pt", tmp_path / "one.pt", tmp_path / "two.pt"
    cases, arguments = ["adam_norm_sync", "sgd"], ("--epochs", 2, "--output")
    whole = ("--batch-size", 8)
    script = migrated(DDP, tmp_path)
    execute(DDP, *cases, *arguments, there, "--world-size", 1, *whole)
    printed = on_ranks(1, script, *cases, *arguments, one, *whole, **FLOAT64)
    assert "tpu_runtime: 1 rank (cpu)" in printed
    compare(one, there, cases)
    on_ranks(2, script, cases[0], *arguments, two, **FLOAT64)
    compare(two, there, cases[:1])


def test_collectives_give_what_they_give_on_gloo(tmp_path: Path) -> None:
    there, here = tmp_path / "gloo", tmp_path / "here"
    on_gloo(program("collectives"), tmp_path, there)
    on_ranks(2, migrated(PROGRAMS / "collectives.py", tmp_path), here)
    compare_collectives(here, there)


@thorough_on("torchax")
def test_groups_of_some_ranks_and_exchanges_between_two(tmp_path: Path) -> None:
    there, here = tmp_path / "gloo", tmp_path / "here"
    on_gloo(program("groups"), tmp_path, there)
    on_ranks(3, migrated(PROGRAMS / "groups.py", tmp_path), here)
    compare_groups(here, there)


@thorough_on("torchax")
def test_functional_collectives_and_their_gradients(tmp_path: Path) -> None:
    on_ranks(2, migrated(FUNCTIONAL, tmp_path), tmp_path / "here")
    compare_functional(tmp_path / "here")


@thorough_on("torch_xla")  # the class is that of torchax
@pytest.mark.parametrize(
    "cases", thorough_but([["bfloat16"]], [["bfloat16"], [*SHARDED_CASES]]), ids=len
)
def test_sharded_models_end_as_torchs(cases: list[str], tmp_path: Path) -> None:
    there, here = tmp_path / "gloo.pt", tmp_path / "here.pt"
    on_gloo(sharded_alike(), tmp_path, there, *cases)
    on_ranks(2, migrated(SHARDED, tmp_path), here, *cases, **FLOAT64)
    compare_sharded(here, there, cases)


def agree(text: str, tolerance: float, folder: Path, **variables: str) -> None:
    """A program ends with the same state on two ranks by gloo, and as it becomes."""
    there, here = folder / "gloo.pt", folder / "here.pt"
    on_gloo(text, folder, there)
    on_ranks(2, migrated(text, folder), here, **variables)
    expected, found = torch.load(there), torch.load(here)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert (found[name] - value).abs().max() <= tolerance, name


def test_accumulation_unused_parameters_and_other_starts(tmp_path: Path) -> None:
    agree(program("accumulation"), 1e-5, tmp_path)


@pytest.mark.thorough
def test_checkpoints_of_all_ranks(tmp_path: Path) -> None:
    agree(program("rank_checkpoints"), 1e-5, tmp_path)


def test_backward_in_parts_and_a_pass_of_one_rank(tmp_path: Path) -> None:
    agree(program("two_parts"), 1e-6, tmp_path)


@thorough_on("torch_xla")  # the functions are those of torchax
def test_parameters_that_torch_shards_each_by_itself(tmp_path: Path) -> None:
    agree(program("each_parameter"), 1e-6, tmp_path, **FLOAT64)


@pytest.mark.thorough
def test_gradients_are_exchanged_in_16_bits(tmp_path: Path) -> None:
    text = program("two_parts").replace(
        "    optimizer = ",
        "    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks\n"
        "    model.register_comm_hook(None, default_hooks.fp16_compress_hook)\n"
        "    optimizer = ",
    )
    agree(text, 1e-6, tmp_path)


def test_a_parameter_without_a_gradient_is_named(tmp_path: Path) -> None:
    text = program("accumulation").replace(", find_unused_parameters=True", "")
    missing = r"other.weight, other.bias, never.weight, never.bias: no gradient since the last"
    with pytest.raises(AssertionError, match=missing):
        on_ranks(2, migrated(text, tmp_path), tmp_path / "x.pt")
