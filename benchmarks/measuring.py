"""What measurements of an app share: the migrated app, the target's Python, rows of a table.

`tpu-migrate verify APP --measure` runs those that its app.toml names, and shows the rows.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def parser(doc: str | None) -> argparse.ArgumentParser:
    """With the options that `verify --measure` gives."""
    made = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    made.add_argument("--python", default=sys.executable, help="has the target, and libtpu")
    made.add_argument("--json", type=Path, help="write the rows here, too")
    made.add_argument("--migrated", type=Path, help=argparse.SUPPRESS)
    return made


@contextmanager
def migrated(app: str, shard: str) -> Iterator[Path]:
    """A migrated copy of a reference app, for torchax."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "app"
        command = [sys.executable, "-m", "migrator", str(ROOT / "reference_apps" / app)]
        how = ["--target", "torchax", "--shard", shard, "-o", str(copy), "--runtime", "copy", "-q"]
        subprocess.run([*command, *how], check=True, cwd=ROOT)
        yield copy


def inside(python: str, script: str, copy: Path, *arguments: str, **variables: str) -> Any:
    """What ``script`` prints last, as JSON, run on ``copy`` by the target's Python."""
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", **variables}
    done = subprocess.run(
        [python, script, *arguments, "--migrated", str(copy)],
        check=True, env=environment, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])


def row(what: str, here: str, beside: str = "", passed: bool | None = None) -> dict[str, Any]:
    """One line: what was measured, what it is held against, and whether that is met."""
    return {"what": what, "here": here, "beside": beside, "passed": passed}


def report(rows: Iterable[dict[str, Any]], to: Path | None) -> int:
    """Print the rows, write them, and return the exit code: 1 where one of them is not met."""
    found = list(rows)
    for each in found:
        beside = f" ({each['beside']})" if each["beside"] else ""
        verdict = {True: "", False: ": NOT MET", None: ""}[each["passed"]]
        print(f"{each['what']}: {each['here']}{beside}{verdict}")
    if to is not None:
        to.write_text(json.dumps(found), encoding="utf-8")
    return int(any(each["passed"] is False for each in found))
