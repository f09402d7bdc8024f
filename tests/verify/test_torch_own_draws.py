"""Runs of an original with its own random numbers, which show how far seeds are apart."""

import sys
from pathlib import Path

import pytest

from migrator.frameworks import find_framework
from migrator.verify.recordings import Recording, RecordSettings, record_run

TEXT = """\
import torch
torch.manual_seed(3)
net = torch.nn.Linear(2, 2)
order = torch.randperm(9)
torch.manual_seed(4)
batch = torch.rand(3)
print(net.weight.tolist(), net.bias.tolist(), order.tolist(), batch.tolist(), "early")
torch.rand(3, device="{device}")
torch.nn.functional.dropout(torch.ones(3))
print(torch.rand(3).tolist(), "late")
torch.manual_seed(5)
print(torch.randn(3).tolist(), "seeded")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path


def run(folder: Path, own_draws: tuple[int, int] | None, device: str = "cuda") -> Recording:
    Path("t.py").write_text(TEXT.format(device=device), encoding="utf-8")
    here, out = Path.cwd(), folder / f"recording-{own_draws}"
    _, found = record_run(
        Path(sys.executable), "t.py", [], here, out, RecordSettings(), own_draws=own_draws,
        framework=find_framework("torch"), stand_in=True, original=here,
    )  # fmt: skip
    assert not found.ended, found.ended
    return found


def test_calls_before_the_first_number_of_the_device_are_counted(folder: Path) -> None:
    counts = run(folder, None, device="meta").randomness  # what is no CPU is a device
    assert (counts["drawn"], counts["before"]) == (7, 4)


def test_seeds_differ_from_the_first_number_of_the_device_on(folder: Path) -> None:
    """So initial weights do not hide how far the noise of a device moves a loss."""
    first, *others = (run(folder, (more, 4)).printed.splitlines() for more in (0, 1, 2))
    for other in others:
        assert other[0] == first[0]
        assert other[1] != first[1]
        assert other[2] != first[2]
    assert others[0][1:] != others[1][1:]


def test_all_numbers_differ_where_the_device_draws_first(folder: Path) -> None:
    first, other = (run(folder, (more, 0)).printed.splitlines() for more in (0, 1))
    assert all(a != b for a, b in zip(first, other, strict=True))
