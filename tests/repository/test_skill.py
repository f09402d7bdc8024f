"""The skill for agents: its format, the commands that it names, and its script."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from helpers import REPOSITORY

from migrator.cli import COMMANDS, _command
from migrator.verify.comparisons import Comparison, Finding
from migrator.verify.script_result import ScriptResult

SKILL = REPOSITORY / "skills" / "tpu-migrate"
PAGES = [SKILL / "SKILL.md", *sorted((SKILL / "references").glob("*.md"))]
VERDICT = SKILL / "scripts" / "verdict.py"


def test_its_head_has_the_published_form() -> None:
    """https://agentskills.io/specification"""
    empty, head, body = (SKILL / "SKILL.md").read_text("utf-8").split("---\n", 2)
    found: dict[str, str] = yaml.safe_load(head)
    assert not empty and found["name"] == SKILL.name
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", found["name"]) and len(found["name"]) <= 64
    assert 0 < len(found["description"]) <= 1024 and len(found["compatibility"]) <= 500
    assert len(body.splitlines()) < 500  # is read whole


def test_all_of_it_is_named_where_an_agent_begins() -> None:
    text = (SKILL / "SKILL.md").read_text("utf-8")
    for path in (p for p in SKILL.rglob("*") if p.is_file() and p.suffix in (".md", ".py")):
        assert path.name == "SKILL.md" or path.relative_to(SKILL).as_posix() in text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_commands_and_options_are_there(page: Path) -> None:
    commands = re.findall(r"`tpu-migrate ([^`]+)`", page.read_text("utf-8"))
    for command in (part for line in commands for part in [line.partition(" -- ")[0]]):
        first, *_ = command.split()
        found = _command(first if first in COMMANDS else "migrate")
        known = {option for p in found.params for option in (*p.opts, *p.secondary_opts)}
        options = re.findall(r"(?<!\S)--?[a-z][\w-]*", command)
        assert {*options} <= known, command
        assert isinstance(found, click.Command)


def result(*findings: Finding, **more: Any) -> dict[str, Any]:
    return ScriptResult(
        "train.py", "torchax", device="CPU back end of torchax",
        compiled=Comparison([*findings]), **more,
    ).to_dict()  # fmt: skip


def finding(reason: str | None) -> Finding:
    return Finding(
        kind="loss", name="loss", place="", step=1, order=7, line="train.py:9 in step",
        reason=reason, want=1.5, got=2.5, ratio=3.0 if reason else 0.1,
    )  # fmt: skip


def test_the_verdict_names_the_first_difference(tmp_path: Path) -> None:
    lines = runpy.run_path(str(VERDICT))["lines"]
    said = lines(result(finding("off by 1, allowed 0.1")))
    assert said[0] == "train.py on torchax (CPU back end of torchax): DIFFERS"
    assert said[1:4] == [
        "first: loss loss, step 2", "  line: train.py:9 in step",
        "  off by 1, allowed 0.1: original 1.5, here 2.5",
    ]  # fmt: skip
    assert said[-1] == "it ran on the CPU, not on a TPU"
    passed = lines(result(finding(None), quick=True))
    assert passed[0].endswith(": passed") and "without --quick" in passed[1]
    assert "nothing was verified: no golden" in lines(result(error="no golden"))[0]


def test_the_verdict_is_its_exit_code(tmp_path: Path) -> None:
    for reason, code in ((None, 0), ("off by 1", 1)):
        (tmp_path / "found.json").write_text(json.dumps(result(finding(reason))))
        command = [sys.executable, str(VERDICT), str(tmp_path / "found.json")]
        assert subprocess.run(command, capture_output=True).returncode == code
