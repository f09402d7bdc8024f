"""The whole of it: the video transformer migrated with --shard tp, on one device and on eight."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image
from target import TARGET

from migrator.verify import VerifyResult, verification, verify_app


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(count, marks=pytest.mark.thorough(f"video on {TARGET}, {count} devices"))
        for count in (1, 8)
    ],
)
def result(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[VerifyResult]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setattr(verification, "_COMPILE_SECONDS", 5.0)
        devices, python = request.param, Path(sys.executable)
        keep = tmp_path_factory.mktemp("keep")
        yield verify_app("video_transformer", TARGET, python=python, devices=devices, keep=keep)


def test_every_number_agrees_with_the_golden(result: VerifyResult) -> None:
    assert result.error is None and result.log_tail is None
    assert [(each.name, each.reason) for each in result.outputs if not each.passed] == []
    assert result.compared == 11
    assert all(step.first is not None for step in result.times)
    assert result.precision is not None and result.precision.offenders == []


def test_what_it_says_of_its_runs_is_what_the_golden_says(result: VerifyResult) -> None:
    figures = {figure.name: (figure.here, figure.golden) for figure in result.figures}
    assert figures["cached: steps run fully"] == figures["cached: steps run cached"] == (6, 6)
    for what in ("PSNR of the frames, dB", "largest difference of the latents"):
        here, golden = figures[f"cached against full: {what}"]
        assert here == pytest.approx(golden, rel=1e-3)


def test_frames_are_drawn_beside_those_of_the_golden(result: VerifyResult) -> None:
    assert result.kept is not None
    with Image.open(result.kept / "contact_sheet.png") as sheet:
        assert sheet.size == (8 * 132 + 4, 6 * 148 + 4)


def test_nothing_is_compiled_after_the_warm_up(result: VerifyResult) -> None:
    assert result.compiled is not None
    if TARGET == "torchax":  # float32, float32 with and without cache, bfloat16
        assert "VideoTransformer without gradients: 44 calls, 4 programs" in result.compiled
    else:  # a first run that compiled would take seconds
        programs = re.match(r"(\d+) programs compiled", result.compiled)
        assert programs is not None and int(programs[1]) < 20
    for step in result.times:
        assert step.first is not None and step.later is not None
        assert step.first < 20 * step.later + 0.5
