"""docs/adding-a-rule.md, followed to the letter: its one file makes a whole rule."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import migrator.rules
import pytest
from helpers import REPOSITORY, TARGETS, cli, run, write_tree

from migrator.construct import Construct
from migrator.registry import registry, vocabulary
from migrator.report.explain import pages
from migrator.rule import Rule

TEXT = (REPOSITORY / "docs" / "adding-a-rule.md").read_text("utf-8")
RULE, TESTED, PROGRAM, DIFF, LEFT = re.findall(r"^```\w*\n(.*?)^```$", TEXT, re.M | re.S)


def _forget() -> None:
    registry.cache_clear()
    vocabulary.cache_clear()


@pytest.fixture
def rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rule]:
    """The rule of the page, as one more file of the built-in rules."""
    known = set(sys.modules)
    folder = write_tree(tmp_path / "rules", {"nvsmi.py": RULE})
    monkeypatch.setattr(migrator.rules, "__path__", [*migrator.rules.__path__, str(folder)])
    _forget()
    yield registry().rules["LIB090"]
    _forget()
    for name in set(sys.modules) - known:
        if str(folder) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def test_its_examples_hold(rule: Rule, tmp_path: Path) -> None:
    found = cli("rules", "--test", "LIB090", cwd=tmp_path)
    command, said = TESTED.splitlines()
    assert command == "$ tpu-migrate rules --test LIB090"
    assert found.stdout.decode().strip() == said


def test_it_rewrites_and_reports(rule: Rule, tmp_path: Path) -> None:
    write_tree(tmp_path, {"train.py": PROGRAM})
    shown = cli("train.py", "--target", "torchax", "--diff", cwd=tmp_path).stdout.decode()
    ours = shown.partition("--- /dev/null")[0].partition("diff --git a/tpu_runtime")[0]
    heads = ("---", "+++", "@@", "diff", "new")
    lines = ours.splitlines(keepends=True)
    assert "".join(line for line in lines if not line.startswith(heads)) == DIFF
    checked = cli("train.py", "--target", "torchax", "--check", cwd=tmp_path)
    assert LEFT in checked.stdout.decode()


@pytest.mark.parametrize("target", TARGETS)
def test_a_file_without_another_word_of_gpus_is_found(rule: Rule, target: str) -> None:
    result = run("from nvsmi import get_gpus\n\nget_gpus()\nx = 1\n", target)
    assert result.source == b"x = 1\n"
    assert not run("import nvsmi_of_ours\nnvsmi_of_ours.f()\n", target).diagnostics


def test_it_has_a_page_and_a_line_in_the_index(rule: Rule) -> None:
    made = pages()
    assert made["LIB090.md"].startswith("# LIB090 nvsmi\n")
    assert "-nvsmi.get_available_gpus()\n" in made["LIB090.md"]
    libraries = made["README.md"].partition("## Libraries\n")[2].partition("\n## ")[0]
    assert "[LIB090](LIB090.md)" in libraries


def test_without_the_file_nothing_is_known_of_it() -> None:
    assert not run("import nvsmi\n\nnvsmi.get_available_gpus()\n").diagnostics
    assert "LIB090.md" not in pages()


def test_every_kind_of_the_page_is_one_that_rules_are_asked_for() -> None:
    kinds = re.findall(
        r"^\| `(\w+)` \| ", TEXT.partition("| kind |")[2].partition("| answer |")[0], re.M
    )
    assert len(kinds) == 6
    assert all(f"{kind} " in str(Construct.__doc__) for kind in kinds)
    assert {kind for kind, _ in registry().exact} >= set(kinds) - {"star", "store"}


def test_codes_of_a_new_family_get_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where nobody says what the family is called."""
    module = RULE.replace("LIB090", "NEW001")
    folder = write_tree(tmp_path / "rules", {"new_family.py": module})
    monkeypatch.setattr(migrator.rules, "__path__", [*migrator.rules.__path__, str(folder)])
    _forget()
    made = pages()
    assert "## NEW\n" in made["README.md"] and "NEW001.md" in made
    titled = module.replace("NVSMI =", 'FAMILY = Family("NEW", "Monitors", 95)\nNVSMI =')
    titled = titled.replace("    Example,\n", "    Example,\n    Family,\n", 1)
    write_tree(tmp_path / "rules", {"new_family.py": titled})
    del sys.modules["migrator.rules.new_family"]
    _forget()
    assert "\n## Monitors\n" in pages()["README.md"]
    monkeypatch.undo()
    del sys.modules["migrator.rules.new_family"]
    _forget()
