"""Small scripts that are verified against themselves on the target of this environment."""

import sys
from pathlib import Path

from target import TARGET

from migrator.targets import find_target
from migrator.verify.recordings import RecordSettings
from migrator.verify.run_options import RunOptions
from migrator.verify.script_result import ScriptResult
from migrator.verify.script_verification import verify_against

ON_TARGET = find_target(TARGET)


def held(
    folder: Path, text: str, *args: str, roundings: int, quick: bool = False, float64: bool = False
) -> ScriptResult:
    """A small script against itself, in the current folder."""
    (folder / "t.py").write_text(text, encoding="utf-8")
    options = RunOptions(python=Path(sys.executable))
    settings = RecordSettings(roundings=roundings, quick=quick, float64=float64)
    return verify_against(Path("t.py"), [*args], ON_TARGET, None, settings, options)
