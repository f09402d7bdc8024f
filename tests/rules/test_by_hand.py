"""What the pages say to write by hand: it stands for what is reported, and nothing of it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from migrator.by_hand import Cure, cure_for, cures
from migrator.diagnostics import Diagnostic, Outcome
from migrator.options import Options
from migrator.pipeline.engine import migrate_file
from migrator.registry import registry
from migrator.targets import Target, find_target, targets

CASES = [
    pytest.param(own, target, id=f"{cure.key}-{target.name}")
    for cure in cures()
    for target in targets().values()
    if (own := cure.for_target(target)) is not None
]


def reported(cure: Cure, text: str, target: Target) -> list[Diagnostic]:
    result = migrate_file(Path(cure.path), text.encode(), target, Options(entry=False))
    assert not result.failed, result.diagnostics
    return [d for d in result.diagnostics if d.outcome is Outcome.REPORTED]


@pytest.mark.parametrize(("cure", "target"), CASES)
def test_it_stands_for_what_is_reported(cure: Cure, target: Target) -> None:
    found = [cure_for(d.code, d.name, target) for d in reported(cure, cure.before, target)]
    assert cure.key in {each.key for each in found if each is not None}


@pytest.mark.parametrize(("cure", "target"), CASES)
def test_nothing_of_it_is_left(cure: Cure, target: Target) -> None:
    left = reported(cure, cure.after, target)
    assert not left, left


@pytest.mark.parametrize("cure", cures(), ids=[cure.key for cure in cures()])
def test_its_codes_and_targets_are_known(cure: Cure) -> None:
    assert {*cure.codes} <= registry().rules.keys()
    assert {*cure.targets, *cure.on} <= targets().keys()
    assert cure.title[0].islower() or cure.title.split()[0] not in ("A", "An", "The")


def test_the_longest_name_decides() -> None:
    found = cure_for("LIB002", "numba.cuda.jit", find_target("torchax"))
    assert found is not None and found.key == "numba_cuda" and found.device == "jax"
    other = cure_for("LIB002", "torch.utils.cpp_extension.load", find_target("torchax"))
    assert other is not None and other.key == "cuda_extension"
    assert cure_for("LIB001", "cupyx_of_others", find_target("torchax")) is None
