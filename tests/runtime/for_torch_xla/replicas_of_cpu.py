"""Scripts that are migrated, and run on several devices of the CPU."""

from pathlib import Path
from typing import Any

from migrator import migrate_paths
from migrator.config import Config
from migrator.diagnostics import Outcome
from migrator.targets.torch_xla import replicas
from tests.runtime.several_devices import execute


def migrated(source: str | Path, folder: Path, **options: Any) -> Path:
    """The script in ``source``, or of that text, as it becomes."""
    if isinstance(source, str):
        (folder / "source").mkdir(exist_ok=True)
        (folder / "source" / "script.py").write_text(source)
        source = folder / "source"
    output = folder / f"migrated{len(options)}"
    report = migrate_paths([source], "torch_xla", config=Config(**options), output=output)
    assert not report.diagnostics(Outcome.REPORTED)
    return next(p for p in output.glob("*.py"))


def on_replicas(count: int, script: Path, *arguments: object, **variables: str) -> str:
    variables = {"PJRT_DEVICE": "CPU", "CPU_NUM_DEVICES": str(count), **variables}
    return execute(Path(replicas.__file__), script, *arguments, **variables)
