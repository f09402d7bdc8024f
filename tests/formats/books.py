"""Notebooks of some cells, migrated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from migrator.pipeline.engine import migrate_file
from migrator.pipeline.result import Result
from migrator.targets import targets

BOOK = Path("a.ipynb")
TORCHAX = targets()["torchax"]


def code(source: str | list[str], **more: Any) -> dict[str, Any]:
    lines = source if isinstance(source, list) else source.splitlines(keepends=True)
    return {"cell_type": "code", "execution_count": 3, "id": "a1", "metadata": {},
            "outputs": [{"output_type": "stream", "name": "stdout", "text": ["cuda:0\n"]}],
            "source": lines, **more}  # fmt: skip


def book(*cells: str | dict[str, Any], **metadata: Any) -> dict[str, Any]:
    made = [code(cell) if isinstance(cell, str) else cell for cell in cells]
    return {"cells": made, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def run(*cells: str | dict[str, Any], target: str = "torchax", **metadata: Any) -> Result:
    content = json.dumps(book(*cells, **metadata), indent=1).encode()
    return migrate_file(BOOK, content, targets()[target])


def sources(result: Result) -> list[str]:
    return ["".join(cell["source"]) for cell in json.loads(result.source)["cells"]]


MODEL = "import torch\n\n\ndef f(x):\n    return x.cuda()\n"
