"""Code with TODO comments."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

from helpers import run

from migrator.pipeline import todo

TO = ("--target", "torchax")
STREAM = (
    "TPU-TODO[CUD003]: streams have no counterpart; take them out, XLA overlaps the work itself"
)


def commented(source: str | bytes, path: str = "module.py", **options: Any) -> str:
    """What a file becomes with comments; they are gone without a trace when they are taken out."""
    plain = run(source, path=path, **options).source
    result = run(source, path=path, todo_comments=True, **options).source
    assert todo.strip(Path(path), result) == plain
    assert run(result, path=path, todo_comments=True, **options).source == result
    if path.endswith(".py"):
        assert ast.dump(ast.parse(result)) == ast.dump(ast.parse(plain))
    return result.decode("utf-8-sig", "replace")


def body(text: str) -> str:
    """Without the import above it, and with short comments."""
    return text.removeprefix("import torch\n").replace(STREAM, "TODO")


def check(before: str, after: str) -> None:
    assert body(commented(f"import torch\n{before}")) == after


def book(*cells: str, **layout: Any) -> str:
    made = [
        {"cell_type": "code", "execution_count": None, "id": "a", "metadata": {}, "outputs": [],
         "source": cell.splitlines(keepends=True)}
        for cell in cells
    ]  # fmt: skip
    metadata = {"accelerator": "GPU", "colab": {"gpuType": "T4"}}
    return json.dumps({"cells": made, "metadata": metadata, "nbformat": 4}, **layout)


def cells(text: str) -> list[str]:
    return ["".join(cell["source"]) for cell in json.loads(text)["cells"]]
