"""Files that nobody writes: one clear line each, and no more time than their length takes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers import errors, run

from migrator.config import load
from migrator.errors import UsageError

_CELL = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None}


def _notebook(code: str, metadata: str = "{}") -> str:
    cell = json.dumps({**_CELL, "source": [code]})
    return f'{{"cells": [{cell}], "metadata": {metadata}, "nbformat": 4, "nbformat_minor": 5}}'


@pytest.mark.parametrize("name", ["rot13", "zip", "hex", "base64", "undefined"])
def test_what_is_no_encoding_of_source_is_said(name: str) -> None:
    source = f"# coding: {name}\nimport torch\nx = x.cuda()\n".encode()
    result = run(source)
    assert result.source == source
    assert [d.code for d in errors(result)] in (["ERR001"], ["ERR002"])
    assert name in errors(result)[0].message


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ('{"a": ' + "[" * 20_000 + "]" * 20_000 + "}", "too deeply nested"),
        ('{"a": ' + "1" * 5_000 + "}", "limit"),
    ],
    ids=["deep", "a long number"],
)
def test_a_notebook_that_can_not_be_read_is_one_line(metadata: str, message: str) -> None:
    found = errors(run(_notebook("import torch\nx.cuda()", metadata), path="a.ipynb"))
    assert [d.code for d in found] == ["ERR001"]
    assert message in found[0].message


def test_a_manifest_with_deep_arrays_is_left() -> None:
    text = "[project]\ndependencies = ['torch']\nx = " + "[" * 3_000 + "]" * 3_000 + "\n"
    result = run(text, path="pyproject.toml")
    assert not result.changed


@pytest.mark.parametrize(
    ("text", "message"),
    [("tool = 1\n", "is not a table"), (f"x = {'[' * 3_000}{']' * 3_000}\n", "too deeply nested")],
    ids=["a number", "deep"],
)
def test_a_configuration_that_can_not_be_read_is_one_line(
    text: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(UsageError, match=message):
        load(tmp_path)


_LINES = {
    "run.sh": "CUDA_VISIBLE_DEVICES=0 python a.py {}\n",
    "Dockerfile": "FROM nvidia/cuda:12.1\nRUN python a.py --gpus 1 {}\n",
    "Makefile": "a:\n\tCUDA_VISIBLE_DEVICES=0 python a.py {}\n",
    "environment.yml": "dependencies:\n- pytorch{}\n",
    "requirements.txt": "torch{}\n",
    "setup.cfg": "[options]\ninstall_requires =\n  torch{}\n",
    "pyproject.toml": "[project]\ndependencies = ['torch']\nx = {}\n",
    "a.yaml": "run: CUDA_VISIBLE_DEVICES=0 python a.py {}\n",
}


@pytest.mark.parametrize("path", _LINES)
@pytest.mark.parametrize(
    "mark", [" ", "-", '"', "'", "[", "{", ",", "#", "\\", "$", "${", ":", "="]
)
def test_a_long_line_of_one_mark_takes_no_time(path: str, mark: str) -> None:
    """20,000 of them: what is quadratic takes minutes, and runs into the limit of a test."""
    result = run(_LINES[path].replace("{}", mark * 20_000), path=path)
    assert not any(d.code == "ERR003" for d in result.diagnostics)


def test_a_long_line_that_no_environment_has_takes_no_time() -> None:
    """The mark at the end has each way to read the blanks tried."""
    result = run(f'dependencies:\n- pytorch{" " * 20_000}"\n', path="environment.yml")
    assert not any(d.code == "ERR003" for d in result.diagnostics)


def test_a_notebook_with_a_long_line_takes_no_time() -> None:
    for mark in " -\"'[{,#\\$:=":
        result = run(_notebook(f"import torch\n!python {mark * 20_000}\nx.cuda()"), path="a.ipynb")
        assert not any(d.code == "ERR003" for d in result.diagnostics)
