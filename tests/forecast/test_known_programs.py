"""Programs that an earlier forecast compiled."""

from pathlib import Path
from typing import Any

import pytest

from migrator.verify.known_programs import with_known

V = {"libtpu": "0.0.52"}


class Machine:
    """A compiler that counts; ``most``: programs until its time is spent."""

    def __init__(self, most: int = 9, error: str | None = None) -> None:
        self.most, self.error = most, error
        self.asked: list[str] = []

    def __call__(self, programs: list[Path]) -> dict[str, Any]:
        done = programs[: self.most]
        self.asked += [program.stem for program in done]
        for program in done:
            if not self.error:
                program.with_suffix(".hlo").write_text(f"compiled {program.read_text()}")
        facts = [{"file": p.name, "error": self.error, "hbm": 7, "seconds": 9.0} for p in done]
        return {"programs": facts, "error": None if len(done) == len(programs) else "time"}


def programs(root: Path, *texts: str) -> list[Path]:
    root.mkdir()
    for number, text in enumerate(texts):
        (root / f"p{number}.mlir").write_text(f"{text} loc({root}/train.py:{number})")
    return sorted(root.glob("*.mlir"))


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TPU_MIGRATE_CACHE", str(tmp_path / "cache"))


def test_a_known_program_is_not_compiled_again_and_has_the_lines_of_this_run(
    tmp_path: Path,
) -> None:
    machine, first, second = Machine(), tmp_path / "first", tmp_path / "second"
    with_known(machine, "v6e:1x1", V, first)(programs(first, "a", "b"))
    found = with_known(machine, "v6e:1x1", V, second)(programs(second, "a", "c", "b"))
    # The last has another line number than before.
    assert machine.asked == ["p0", "p1", "p1", "p2"]
    assert [facts["seconds"] for facts in found["programs"]] == [0.0, 9.0, 9.0]
    assert (second / "p0.hlo").read_text() == f"compiled a loc({second}/train.py:0)"


@pytest.mark.parametrize("other", ["topology", "version", "flags"])
def test_another_compiler_compiles_again(
    other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine, first, second = Machine(), tmp_path / "first", tmp_path / "second"
    with_known(machine, "v6e:1x1", V, first)(programs(first, "a"))
    if other == "flags":
        monkeypatch.setenv("LIBTPU_INIT_ARGS", "--x=1")
    topology = "v5p:1x1x1" if other == "topology" else "v6e:1x1"
    versions = {"libtpu": "1"} if other == "version" else V
    with_known(machine, topology, versions, second)(programs(second, "a"))
    assert len(machine.asked) == 2


@pytest.mark.parametrize(("error", "times"), [("Ran out of memory in hbm", 1), ("INTERNAL", 2)])
def test_of_refusals_only_those_for_memory_are_known(
    error: str, times: int, tmp_path: Path
) -> None:
    machine = Machine(error=error)
    for run in ("first", "second"):
        root = tmp_path / run
        found = with_known(machine, "v6e:1x1", V, root)(programs(root, "a"))
        assert found["programs"][0]["error"] == error
    assert len(machine.asked) == times


def test_what_was_not_compiled_in_time_has_no_result_and_none_after_it(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    with_known(Machine(), "v6e:1x1", V, first)(programs(first, "a", "b", "c"))
    given = programs(second, "a", "new", "c")
    found = with_known(Machine(most=0), "v6e:1x1", V, second)(given)
    assert [facts["file"] for facts in found["programs"]] == ["p0.mlir"]
    assert found["error"] == "time"
