"""Several devices on torch_xla: ranks compute what those of the original do, and copies the same.

The original runs on the CPU by gloo, a process for each rank. What the tool makes of it runs as
replicas of the CPU back end (migrator/targets/torch_xla/replicas.py). Both end with the same
parameters.
"""

from pathlib import Path

import pytest
import torch

from tests.runtime.for_torch_xla.replicas_of_cpu import migrated, on_replicas
from tests.runtime.several_devices import (
    ACCUMULATION,
    COLLECTIVES,
    IN_16_BITS,
    PROGRAMS,
    TWO_PARTS,
    accumulation_by_gloo,
    by_gloo,
    compare,
    compare_collectives,
    execute,
    two_parts_by_gloo,
)
from tests.runtime.sharded_models import (
    FUNCTIONAL,
    SHARDED,
    SHARDED_CASES,
    compare_functional,
    compare_sharded,
    sharded_by_gloo,
)


@pytest.mark.parametrize(
    ("count", "cases"),
    [
        (2, ["clip", "uneven", "adam_norm"]),
        pytest.param(2, ["sgd", "adam"], marks=pytest.mark.thorough),
        pytest.param(4, ["sgd", "uneven", "adam_norm"], marks=pytest.mark.thorough),
    ],
)
def test_ddp_ends_with_the_parameters_of_the_ranks(
    count: int, cases: list[str], tmp_path: Path
) -> None:
    there, here = tmp_path / "gloo.pt", tmp_path / "xla.pt"
    arguments = (*cases, "--epochs", 2, "--output")
    execute(PROGRAMS / "ddp_training.py", *arguments, there, "--world-size", count)
    printed = on_replicas(count, migrated(PROGRAMS / "ddp_training.py", tmp_path), *arguments, here)
    compare(here, there, cases)
    assert f"tpu_runtime: {count} ranks, each with a device of its own (cpu)" in printed
    assert f"a batch of 4 on each of {count} ranks is {4 * count}" in printed


@pytest.mark.thorough
def test_one_rank_and_sync_batchnorm(tmp_path: Path) -> None:
    """Two ranks with SyncBatchNorm compute what one does that has the whole batch."""
    there, one, two = tmp_path / "gloo.pt", tmp_path / "one.pt", tmp_path / "two.pt"
    cases, arguments = ["adam_norm_sync", "sgd"], ("--epochs", 2, "--output")
    whole = ("--batch-size", 8)
    script = migrated(PROGRAMS / "ddp_training.py", tmp_path)
    execute(PROGRAMS / "ddp_training.py", *cases, *arguments, there, "--world-size", 1, *whole)
    printed = on_replicas(1, script, *cases, *arguments, one, *whole)
    assert "tpu_runtime: 1 rank (cpu)" in printed
    compare(one, there, cases)
    on_replicas(2, script, cases[0], *arguments, two)
    compare(two, there, cases[:1])


def test_collectives_give_what_they_give_on_gloo(tmp_path: Path) -> None:
    there, here = tmp_path / "gloo", tmp_path / "xla"
    original = tmp_path / "original.py"
    original.write_text(by_gloo(COLLECTIVES))
    execute(original, there, MASTER_ADDR="localhost")
    on_replicas(2, migrated(COLLECTIVES, tmp_path), here)
    compare_collectives(here, there)


def test_functional_collectives_and_their_gradients(tmp_path: Path) -> None:
    on_replicas(2, migrated(FUNCTIONAL, tmp_path), tmp_path / "here")
    compare_functional(tmp_path / "here")


@pytest.mark.thorough  # the class is that of torchax
def test_sharded_models_end_as_torchs(tmp_path: Path) -> None:
    there, here, original = tmp_path / "gloo.pt", tmp_path / "here.pt", tmp_path / "original.py"
    original.write_text(sharded_by_gloo())
    execute(original, there, *SHARDED_CASES, MASTER_ADDR="localhost")
    on_replicas(2, migrated(SHARDED, tmp_path), here, *SHARDED_CASES)
    compare_sharded(here, there)


GROUPS = """
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def main(rank, ranks, path):
    dist.init_process_group("nccl", rank=rank, world_size=ranks)
    device = torch.device("cuda", rank)
    own = torch.arange(4.0, device=device) + 10 * rank
    seen = {}

    def note(name, value):
        seen[name] = value.tolist()

    pair, single = dist.new_group([0, 2]), dist.new_group([1])
    group = single if rank == 1 else pair
    seen["who"] = dist.get_rank(group), dist.get_world_size(group), dist.get_rank(pair)
    for name in ("SUM", "MAX", "PRODUCT"):
        value = own.clone()
        dist.all_reduce(value, op=getattr(dist.ReduceOp, name), group=group)
        note(name, value)
    count = torch.tensor([rank, 5], device=device)
    dist.all_reduce(count, group=group)  # MEAN
    note("mean", count)
    if rank != 1:
        value = own.clone()
        dist.broadcast(value, src=2, group=pair)
        note("broadcast", value)
        parts = [torch.empty_like(own) for _ in range(2)]
        dist.all_gather(parts, own, group=pair)
        note("all_gather", torch.stack(parts))
        whole = torch.empty(8, device=device)
        dist.all_gather_into_tensor(whole, own, group=pair)
        note("all_gather_into_tensor", whole)
        objects = [None, None]
        dist.all_gather_object(objects, {"rank": rank}, group=pair)
        seen["objects"] = objects
        dist.barrier(group=pair)
    norm = torch.nn.SyncBatchNorm(4, process_group=group).to(device)
    norm(torch.stack([own, own * own, own + 1]))
    seen["variance"] = norm.running_var.cpu()
    value = torch.zeros_like(own)
    if rank == 0:
        dist.send(own, dst=1)
    elif rank == 1:
        dist.recv(value)
    note("sent", value)
    value, other = torch.zeros_like(own), torch.zeros_like(own)
    work = [dist.irecv(value, (rank - 1) % ranks), dist.isend(own * 2, (rank + 1) % ranks)]
    for each in work:
        each.wait()
    works = dist.batch_isend_irecv([
        dist.P2POp(dist.irecv, other, (rank + 1) % ranks),
        dist.P2POp(dist.isend, value, (rank - 1) % ranks),
    ])
    for work in works:
        work.wait()
    note("around", value)
    note("and back", other)
    objects = [None]
    if rank == 2:
        dist.send_object_list([{"from": rank}], dst=0, group=pair)
    elif rank == 0:
        dist.recv_object_list(objects, src=2, group=pair)
    seen["objects sent"] = objects
    everybody = dist.new_group()
    value = own.clone()
    dist.all_reduce(value, group=everybody)
    note("everybody", value)
    torch.save(seen, f"{path}.{rank}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(main, args=(3, sys.argv[1]), nprocs=3)
"""


def test_groups_of_some_ranks_and_exchanges_between_two(tmp_path: Path) -> None:
    there, here, original = tmp_path / "gloo", tmp_path / "xla", tmp_path / "original.py"
    text = GROUPS.replace('"nccl"', '"gloo"').replace('"cuda", rank', '"cpu"')
    # torch's SyncBatchNorm refuses the CPU
    original.write_text("".join(line for line in text.splitlines(True) if "norm" not in line))
    execute(original, there, MASTER_ADDR="localhost")
    mean = GROUPS.replace("group=group)  # MEAN", "group=group, op=dist.ReduceOp.AVG)")
    on_replicas(3, migrated(mean, tmp_path), here)
    for rank, of in enumerate((2, 1, 2)):
        expected, found = torch.load(f"{there}.{rank}"), torch.load(f"{here}.{rank}")
        expected["mean"] = [total // of for total in expected["mean"]]
        rows = [torch.arange(4.0) + 10 * r for r in ([1] if rank == 1 else [0, 2])]
        batch = torch.stack([row for own in rows for row in (own, own * own, own + 1)])
        variance = 0.9 + 0.1 * batch.var(0)
        assert torch.allclose(found.pop("variance"), variance, rtol=1e-5)
        assert found == expected


def agree(program: str, on_gloo: str, tolerance: float, folder: Path) -> None:
    """A program for GPUs, and the same for gloo, end with the same state on two ranks."""
    there, here, original = folder / "gloo.pt", folder / "xla.pt", folder / "original.py"
    original.write_text(on_gloo)
    execute(original, there, MASTER_ADDR="localhost")
    # an address as programs have it for the machines with their GPUs
    on_replicas(2, migrated(program, folder), here, MASTER_ADDR="192.0.2.1")
    expected, found = torch.load(there), torch.load(here)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert (found[name] - value).abs().max() <= tolerance, name


def test_accumulation_unused_parameters_and_other_starts(tmp_path: Path) -> None:
    agree(ACCUMULATION, accumulation_by_gloo(), 1e-5, tmp_path)


def test_a_parameter_without_a_gradient_is_named(tmp_path: Path) -> None:
    text = ACCUMULATION.replace(", find_unused_parameters=True", "")
    script = migrated(text, tmp_path)
    missing = r"other.weight, other.bias, never.weight, never.bias: no gradient since the last"
    with pytest.raises(AssertionError, match=missing):
        on_replicas(2, script, tmp_path / "x.pt")


def test_another_number_of_ranks_is_refused(tmp_path: Path) -> None:
    script = migrated(PROGRAMS / "ddp_training.py", tmp_path)
    with pytest.raises(AssertionError, match="set up for 3 ranks, and there are 2, one for each"):
        on_replicas(2, script, "sgd", "--output", tmp_path / "x.pt", "--world-size", 3)


@pytest.mark.thorough
def test_checkpoints_of_all_ranks(tmp_path: Path) -> None:
    program = (PROGRAMS / "rank_checkpoints.py").read_text()
    agree(program, program.replace('"nccl"', '"gloo"').replace(".to(rank)", "")
          .replace(", device_ids=[rank]", ""), 1e-5, tmp_path)  # fmt: skip


def test_backward_in_parts_and_a_pass_of_one_rank(tmp_path: Path) -> None:
    agree(TWO_PARTS, two_parts_by_gloo(), 1e-6, tmp_path)


@pytest.mark.thorough
def test_gradients_are_exchanged_in_16_bits(tmp_path: Path) -> None:
    agree(IN_16_BITS, two_parts_by_gloo(IN_16_BITS), 1e-6, tmp_path)
