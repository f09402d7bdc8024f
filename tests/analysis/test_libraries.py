"""The table of libraries that only exist for CUDA."""

import re

from helpers import constructs, run

from migrator.analysis.cuda_libraries import LIBRARIES, MODULES, of_package
from migrator.diagnostics import Outcome


def test_each_has_a_source_and_an_advice() -> None:
    assert len(MODULES) >= 200
    for each in LIBRARIES:
        assert re.fullmatch(r"https://[\w./-]+", each.source), each
        assert each.advice and not each.advice.endswith("."), each
        assert each.modules or each.packages, each
    named = [module for each in LIBRARIES for module in each.modules]
    assert len(named) == len(set(named))


def test_each_is_reported_where_it_is_imported() -> None:
    source = "".join(f"import {module}\n" for module in sorted(MODULES))
    found = constructs(run(source, entry=False))
    said = {d.range.line for d in found if d.outcome is Outcome.REPORTED or d.code == "LIB020"}
    assert said == set(range(1, len(MODULES) + 1))


def test_requirements_are_known_by_their_packages() -> None:
    for package, module in (
        ("unsloth", "unsloth"), ("fastmoe", "fmoe"), ("exllamav3", "exllamav3"),
        ("cupy-cuda12x", "cupy"), ("warp-lang", "warp"),
    ):  # fmt: skip
        found = of_package(package)
        assert found is not None and module in found.modules
    assert of_package("warp") is None
    assert of_package("numpy") is None
