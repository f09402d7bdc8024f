"""Programs in the manner of older guides to torch_xla give the numbers of plain PyTorch.

One for a single core, one with eight ranks, one that infers; the same maths runs here on the CPU.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from target import TARGET
from tiers import thorough_but, thorough_on
from torch.utils.data import DataLoader, DistributedSampler

from migrator import migrate_paths
from migrator.config import Config
from migrator.diagnostics import Outcome
from tests.runtime.programs_older_xla.parts import Digits, digits, points, small
from tests.runtime.several_devices import execute

PROGRAMS = Path(__file__).parent / "programs_older_xla"
REPLICAS = Path(__file__).parents[2] / "migrator/targets/torch_xla/replicas.py"
RANKS = 8


@pytest.fixture(scope="module")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("migrated") / "programs"
    report = migrate_paths(
        [PROGRAMS], target=TARGET, config=Config(unsafe=True, runtime="copy"), output=folder
    )
    assert not report.diagnostics(Outcome.REPORTED)
    return folder


def single() -> Iterator[float]:
    torch.manual_seed(0)
    model = Digits()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for _ in range(2):
        for data, target in DataLoader(digits(64, 1), batch_size=16):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(data), target)
            loss.backward()
            optimizer.step()
            yield loss.item()
        data, target = digits(32, 2).tensors
        with torch.no_grad():
            yield F.cross_entropy(model(data), target).item()


def ranks() -> Iterator[float]:
    """The mean of the losses of all ranks, and of their gradients."""
    dataset, model = points(), small(12, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    samplers = [DistributedSampler(dataset, RANKS, rank, shuffle=True) for rank in range(RANKS)]
    loaders = [DataLoader(dataset, 4, sampler=each, drop_last=True) for each in samplers]
    for epoch in range(2):
        for sampler in samplers:
            sampler.set_epoch(epoch)
        for batches in zip(*loaders, strict=True):
            optimizer.zero_grad()
            loss = torch.stack([F.cross_entropy(model(x), y) for x, y in batches]).mean()
            loss.backward()
            optimizer.step()
            yield loss.item()


def inference() -> Iterator[float]:
    model = small(12, 4).eval()
    with torch.no_grad():
        yield from (model(batch).mean().item() for batch in points().tensors[0].split(16))


def printed(text: str) -> list[float]:
    return [float(x) for x in re.findall(r"^(?:loss|test|mean) (\S+)$", text, re.M)]


@pytest.mark.parametrize("program", thorough_but([single], [single, inference]))
def test_on_one_device(program, migrated: Path) -> None:  # type: ignore[no-untyped-def]
    found = printed(execute(migrated / f"{program.__name__}.py"))
    assert found == pytest.approx(list(program()), rel=1e-5)


@thorough_on("torchax")
def test_on_eight_devices(migrated: Path) -> None:
    if TARGET == "torchax":
        flags = f"--xla_force_host_platform_device_count={RANKS}"
        text = execute(migrated / "ranks.py", XLA_FLAGS=flags)
        assert "a batch of 32 is 4 on each of 8 devices" in text
    else:
        counts = {"CPU_NUM_DEVICES": str(RANKS), "XLA_THREAD_POOL_SIZE": "32"}
        text = execute(REPLICAS, migrated / "ranks.py", **counts)
    assert printed(text) == pytest.approx(list(ranks()), rel=1e-5)
