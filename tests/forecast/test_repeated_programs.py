"""Which programs of a run are compiled for a forecast."""

import json
from pathlib import Path

import pytest

from migrator.verify.repeated_programs import repeated
from migrator.verify.tpu import DumpedProgram

TRAINS, NOT = ["weights", "others"], ["others"]


def program(folder: Path, number: int, name: str, results: list[str] | None) -> DumpedProgram:
    path = folder / f"{number}.mlir"
    if results is not None:
        path.with_suffix(".json").write_text(json.dumps({"given": {}, "results": results}))
    return DumpedProgram(path, name, True, [])


@pytest.mark.parametrize(
    ("later", "runs", "left_out"),
    [
        (TRAINS, {"0": 1, "1": 1, "2": 1, "3": 2}, ["0", "1"]),
        (TRAINS, {"0": 1, "1": 1, "2": 1, "3": 1}, []),  # two steps: the second is what repeats
        (TRAINS, {"0": 2, "1": 1, "2": 1, "3": 2}, ["1"]),
        (NOT, {"0": 1, "1": 1, "2": 1, "3": 2}, []),  # nothing that trains ran again
        (TRAINS, {}, []),
        (TRAINS, {"3": 2}, []),  # of others it is not known
    ],
)
def test_what_ran_once_is_left_out(
    later: list[str], runs: dict[str, int], left_out: list[str], tmp_path: Path
) -> None:
    programs = [
        program(tmp_path, 0, "step (2)", NOT), program(tmp_path, 1, "AdamW", TRAINS),
        program(tmp_path, 2, "Net", NOT),  # an evaluation
        program(tmp_path, 3, "Net (2)", later), program(tmp_path, 4, "outside", None),
    ]  # fmt: skip
    kept, left = repeated(programs, {f"{n}.mlir": times for n, times in runs.items()})
    assert [p.path.stem for p in left] == left_out
    assert sorted([*kept, *left], key=lambda p: p.path.stem) == programs
