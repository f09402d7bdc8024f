"""The largest value of an option that fits, and comparison with an earlier forecast."""

import json
from pathlib import Path

import pytest

from migrator.errors import UsageError
from migrator.forecast import baseline
from migrator.forecast.forecast import Forecast
from migrator.forecast.largest import MOST, find_largest
from migrator.forecast.roofline import step_of
from migrator.verify.chips import chip_of
from migrator.verify.tpu import CompiledForTpu

V6E = chip_of("v6e-1")


def forecast_of(hbm: int, flops: float = 1e12, name: str = "step") -> Forecast:
    compiled = CompiledForTpu(name, "f", True, 0, [], [], 1.0, hbm=hbm, arguments=hbm, flops=flops)
    return Forecast("train.py", V6E, steps=[step_of(compiled, [], V6E)])


@pytest.mark.parametrize("given", [1, 8, 700, 5000])
@pytest.mark.parametrize("most", [6, 100, 3001])
@pytest.mark.parametrize("form", ["--batch-size={}", "--batch-size {}", "--batch_size={}"])
def test_the_largest_batch_is_bisected(given: int, most: int, form: str) -> None:
    tried: list[int] = []

    def make(arguments: list[str]) -> Forecast:
        assert arguments[:1] == ["--lr"] and arguments[-1] == "data"
        tried.append(int(" ".join(arguments).replace("=", " ").split()[3]))
        return forecast_of((32 * 2**30 - 1) * tried[-1] // most)

    arguments = ["--lr", "1", *form.format(given).split(), "data"]
    found, trials = find_largest("--batch-size", arguments, make)
    best = max(trial.value for trial in trials if trial.fits)
    assert most * 15 / 16 - 1 <= best <= most
    assert found.steps[0].hbm == (32 * 2**30 - 1) * best // most
    assert len(tried) == len(set(tried)) == len(trials) <= MOST


def test_if_nothing_fits_the_given_value_is_shown() -> None:
    found, trials = find_largest("n", ["--n", "3"], lambda _: forecast_of(40 * 2**30))
    assert [trial.value for trial in trials] == [1, 3] and not found.steps[0].fits


@pytest.mark.parametrize("arguments", [[], ["--batch"], ["--batch", "x"], ["--other", "8"]])
def test_an_option_that_the_script_does_not_get_is_an_error(arguments: list[str]) -> None:
    with pytest.raises(UsageError, match="add `-- --batch 8`"):
        find_largest("--batch", arguments, lambda _: forecast_of(1))


def test_a_bound_that_grew_by_a_tenth_is_a_problem(tmp_path: Path) -> None:
    file = tmp_path / "before.json"
    file.write_text(json.dumps(forecast_of(1).to_dict()))
    before = baseline.read_baseline(file, "v6e-1")
    assert list(baseline.slower(forecast_of(1, 1.05e12), before, file)) == []
    (line,) = baseline.slower(forecast_of(1, 1.2e12), before, file)
    assert line == f"step: the bound of a step is 1.31 ms, 20% more than the 1.09 ms in {file}"
    (line,) = baseline.slower(forecast_of(1, name="other"), before, file)
    assert line == f"step is in {file}, but not in this forecast"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "No such file"),
        ("{", "not a forecast: write one with --format json"),
        ("[]", "not a forecast"),
        (json.dumps(forecast_of(1).to_dict()), "is of a v6e-1, this forecast of a v6e-8"),
    ],
)
def test_a_baseline_that_can_not_be_compared_is_an_error(
    tmp_path: Path, text: str | None, message: str
) -> None:
    file = tmp_path / "before.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(UsageError, match=message):
        baseline.read_baseline(file, "v6e-8")
