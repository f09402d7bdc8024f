"""Graphs that only differ in which of their inputs are used again."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch
import torch_xla
import tpu_runtime as tpu
from torch import Tensor

tpu.setup()

BANK = 5


def bank(number: int, *shape: int) -> list[Tensor]:
    """Tensors of a memory; their values tell them apart."""
    return [torch.full(shape, float(number * BANK + k)) for k in range(BANK)]


def picks(rng: random.Random, count: int) -> list[int]:
    return [rng.randrange(BANK) for _ in range(count)]


@pytest.mark.parametrize("join", [torch.cat, torch.stack], ids=["cat", "stack"])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_a_list_is_joined_as_it_was_picked(join: object, dim: int) -> None:
    rng = random.Random(dim)
    memory = bank(1, 2, 3)
    there = [tensor.to("xla") for tensor in memory]
    for _ in range(40):
        picked = picks(rng, 4)
        expected = join([memory[k] for k in picked], dim)  # type: ignore[operator]
        found = join([there[k] for k in picked], dim)  # type: ignore[operator]
        assert torch.equal(found.cpu(), expected), picked


def test_lists_of_one_graph_share_other_tensors_each_time() -> None:
    """As the states and the next states of a replay memory."""
    rng = random.Random(0)
    memory = bank(1, 1, 4)
    there = [tensor.to("xla") for tensor in memory]
    for _ in range(40):
        picked = [picks(rng, 3), picks(rng, 3)]
        joined = [torch.cat([memory[k] for k in each]) for each in picked]
        expected = (joined[0] - 2 * joined[1]).sum(1)
        joined = [torch.cat([there[k] for k in each]) for each in picked]
        found = (joined[0] - 2 * joined[1]).sum(1)
        assert torch.equal(found.cpu(), expected), picked


def test_tensors_that_are_updated_in_place_or_alias_each_other() -> None:
    rng = random.Random(1)
    memory = bank(1, 3)
    there = [tensor.to("xla") for tensor in memory]
    for step in range(40):
        place = rng.randrange(BANK)
        for tensors in (memory, there):
            tensors[place].mul_(0.5).add_(step)
        torch_xla.sync()
        picked = picks(rng, 4)
        expected = torch.cat([memory[k].detach() for k in picked])
        found = torch.cat([there[k].detach() for k in picked])
        assert torch.equal(found.cpu(), expected), (step, picked)


def test_parts_of_other_lengths_and_gradients() -> None:
    memory = [torch.arange(n, dtype=torch.float32) for n in (2, 3, 0, 4)]
    there = [tensor.to("xla").requires_grad_() for tensor in memory]
    for tensor in memory:
        tensor.requires_grad_()
    weights = torch.arange(11.0)
    for picked in ([0, 1, 3, 0], [0, 1, 1, 1], [1, 2, 1, 1], [3, 3, 1, 2]):
        for tensor in (*memory, *there):
            tensor.grad = None
        expected = torch.cat([memory[k] for k in picked])
        found = torch.cat([there[k] for k in picked])
        assert torch.equal(found.cpu(), expected), picked
        (expected * weights[: len(expected)]).sum().backward()
        (found * weights[: len(found)].to("xla")).sum().backward()
        for mine, theirs in zip(memory, there, strict=True):
            if mine.grad is None:
                assert theirs.grad is None
            else:
                assert theirs.grad is not None and torch.equal(theirs.grad.cpu(), mine.grad)


def _in_rows(memory: list[Tensor], picked: list[int]) -> Tensor:
    rows = memory[0].new_zeros(len(picked), 3)
    for row, k in enumerate(picked):
        rows[row] = memory[k]
    return rows


def _padded(memory: list[Tensor], picked: list[int]) -> Tensor:
    return torch.nn.utils.rnn.pad_sequence([memory[k] for k in picked], batch_first=True)


@pytest.mark.parametrize("put", [_in_rows, _padded])
def test_rows_are_copied_from_the_tensors_that_were_picked(
    put: Callable[[list[Tensor], list[int]], Tensor],
) -> None:
    rng = random.Random(2)
    memory = bank(1, 3)
    there = [tensor.to("xla") for tensor in memory]
    for _ in range(25):
        picked = picks(rng, 3)
        assert torch.equal(put(there, picked).cpu(), put(memory, picked)), picked
