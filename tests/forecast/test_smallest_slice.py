"""The smallest slice that fits."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from migrator.errors import UsageError
from migrator.forecast.forecast import Forecast
from migrator.forecast.largest import find_largest
from migrator.forecast.page import render as page_of
from migrator.forecast.roofline import step_of
from migrator.forecast.show_forecast import show
from migrator.forecast.smallest_slice import find_smallest
from migrator.forecast.tried_tables import tables_of
from migrator.forecast.ways import Way, try_changes
from migrator.report.terminal import console
from migrator.verify.chips import chip_of
from migrator.verify.gpu_steps import GpuSteps
from migrator.verify.tpu import CompiledForTpu

V6E = chip_of("v6e-1")


def forecast_of(count: int, shard: str | None, hbm: int, flops: float = 1e12) -> Forecast:
    chip = chip_of(f"v6e-{count}")
    compiled = CompiledForTpu(
        "step", "f", True, 0, [], [], 1.0, hbm=hbm, arguments=hbm, flops=flops
    )
    step = replace(step_of(compiled, [], chip), devices=count if shard else 1)
    return Forecast("train.py", chip, steps=[step])


def divided(weights: int) -> "list[tuple[int, str | None]]":
    tried: list[tuple[int, str | None]] = []

    def make(count: int, way: Way) -> Forecast:
        shard = way.shard
        tried.append((count, shard))
        part = 1 if shard is None else count // 2 if shard == "tp" else count
        return forecast_of(count, shard, weights // part, 2e12 if shard == "tp" else 1e12)

    best, trials = find_smallest(V6E, make)
    assert tried[0] == tried[1] == (1, None)
    assert len({*tried}) == 1 + 3 * (len(V6E.topologies) - 1)
    assert [(t.chips, t.shard) for t in trials] == tried
    assert len({(t.chips, t.shard, t.recompute) for t in trials}) == len(trials)
    return (
        [(best.chip.count, next(t.shard for t in trials if t.fits))] if best.steps[0].fits else []
    )


@pytest.mark.parametrize(
    ("weights", "best"),
    [(20, [(1, None)]), (60, [(4, "fsdp")]), (120, [(4, "fsdp")]), (200, [(8, "fsdp")]), (900, [])],
)
def test_the_least_chips_are_taken(weights: int, best: list[tuple[int, str | None]]) -> None:
    assert divided(weights * 2**30) == best


def test_what_divides_nothing_fits_on_no_slice(capsys: pytest.CaptureFixture[str]) -> None:
    best, trials = find_smallest(V6E, lambda count, _: forecast_of(count, None, 40 * 2**30))
    assert not any(trial.fits for trial in trials) and best.chip.count == 1
    assert {trial.error for trial in trials[2:]} == {"its steps use one device: nothing is divided"}
    show(replace(best, slices=trials), console())
    assert "no slice of this chip that the compiler knows fits" in capsys.readouterr().out


def test_the_smallest_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    best, trials = find_smallest(
        V6E,
        lambda count, way: forecast_of(
            count, way.shard, 100 * 2**30 // (count if way.shard else 1)
        ),
    )
    show(replace(best, slices=trials), console())
    assert "the smallest that fits: v6e-4 with --shard" in capsys.readouterr().out


def test_without_a_forecast_for_one_chip_there_is_none() -> None:
    with pytest.raises(UsageError, match="it raised"):
        find_smallest(V6E, lambda *_: Forecast("train.py", V6E, error="it raised"))


def test_recomputation_is_tried_where_a_slice_has_too_little_memory() -> None:
    def make(count: int, way: Way) -> Forecast:
        return forecast_of(count, way.shard, (20 if way.recompute else 40) * 2**30)

    best, trials = find_smallest(V6E, make)
    assert best.chip.count == 1 and best.steps[0].hbm == 20 * 2**30
    assert [t.fits for t in trials] == [t.recompute for t in trials]
    assert len(trials) == 2 * (1 + 3 * (len(V6E.topologies) - 1))


def test_changes_are_compiled_again_and_compared(capsys: pytest.CaptureFixture[str]) -> None:
    def make(way: Way) -> Forecast:
        fast = 0.5e12 if way.precision else 1e12
        return forecast_of(1, None, (20 if way.recompute else 40) * 2**30, fast)

    plain, trials = try_changes(make)
    assert [t.fits for t in trials] == [False, True, False, False]
    assert trials[0].bound is not None and trials[0].bound == trials[1].bound
    assert trials[2].bound == trials[3].bound == trials[0].bound / 2
    found = replace(plain, changes=trials)
    show(found, console())
    page = page_of(found, Path("page.html"))
    for shown in (capsys.readouterr().out, page):
        assert "recomputation: torch.utils.checkpoint" in shown and "What changes gain" in shown


def test_the_page_has_what_the_terminal_has(capsys: pytest.CaptureFixture[str]) -> None:
    best, slices = find_smallest(V6E, lambda n, way: forecast_of(n, way.shard, (90 << 30) // n))
    _, trials = find_largest("--batch", ["--batch", "3"], lambda _: forecast_of(1, None, 1))
    today = GpuSteps("NVIDIA H200", 0.0851, 20, 3 << 30)
    found = replace(best, slices=slices, trials=trials, largest="--batch", on_gpu=today)
    page = page_of(found, Path("page.html"))
    for table in tables_of(found):
        assert table.rows and f"<h2>{table.title}</h2>" in page
        for row in table.rows:
            assert "".join(f"{cell}</td>" for cell in row) in re.sub("<td[^>]*>", "", page)
    show(found, console())
    for shown in (capsys.readouterr().out, page):
        assert "the smallest that fits: v6e-4 with --shard fsdp" in shown
        assert "oday: 85.1 ms a step, 3.00 GiB allocated on NVIDIA H200" in shown
