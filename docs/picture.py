"""A picture of what a run prints on a terminal. docs/generate.py writes it."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.text import Text

COLUMNS = 100
COMMAND = ("tpu-migrate", "train.py", "--target", "torchax", "--diff")
SCRIPT = re.compile(r"`train.py`:\n\n```python\n(.*?)```", re.S)
FONTS = re.compile(r"@font-face \{.*?\}", re.S)  # from a server
# The version of a runtime, which changes with it, and the time.
VARIES = re.compile(r"(?<=tpu_runtime-)\S+(?=\.whl)|(?<=\()[\d.]+ s(?=\))")


def svg(page: str) -> str:
    """What the command prints for the script that the page has."""
    found = SCRIPT.search(page)
    assert found, "the page has no train.py"
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True)
    console.print(f"$ {' '.join(COMMAND)}\n", style="bold", highlight=False)
    console.print(Text.from_ansi(VARIES.sub("…", _printed(found[1]))))
    drawn = FONTS.sub("", console.export_svg(title="tpu-migrate", unique_id="run"))
    return re.sub(r"[ \t]+$", "", drawn, flags=re.M)


def words(drawn: str) -> list[str]:
    return " ".join(html.unescape(t) for t in re.findall(r">([^<>]+)</text>", drawn)).split()


def _printed(script: str) -> str:
    with TemporaryDirectory() as folder:
        Path(folder, "train.py").write_text(script, "utf-8")
        result = subprocess.run(
            [sys.executable, "-m", "migrator", *COMMAND[1:], "--color", "always"],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": str(COLUMNS)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            check=False,
        )
    assert result.returncode == 1, result.stdout
    return result.stdout
