"""`tpu-migrate rules --test PACKAGE`: whether the examples of anybody's rules hold."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import TARGETS, Install, cli, one_line

RULES = '''
from migrator.rule_api import Example, Replace, Report, Rewrite, Rule

OPERATORS = Rule(
    code="OWN001", name="own-operators", summary="operators of ours", why="They are CUDA's.",
    examples=(
        Example(
            """
            from mylib.cuda_ops import gelu
            y = gelu(x)  # heavy
            """,
            after="""
            import torch
            y = {after}(x)  # heavy
            """,
        ),
        Example(
            """
            import torch
            y = x.cuda()
            """,
            after="""
            import torch
            y = x.to("{{device}}")
            """,
        ),
    ),
)


@OPERATORS.on("name", "mylib.cuda_ops.gelu")
def operator(ctx, found):
    return Rewrite([Replace(found.node, "{becomes}")], ("torch",))
'''
GELU = "torch.nn.functional.gelu"


@pytest.mark.parametrize("package", ["own-rules", "own", "own_rules"])
def test_all_hold(install: Install, tmp_path: Path, package: str) -> None:
    install({"own_rules.py": RULES.format(after=GELU, becomes=GELU)}, "own_rules")
    found = cli("rules", "--test", package, cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    on = ", ".join(TARGETS).encode()
    assert found.stdout.strip() == b"2 examples of 1 rule on " + on + b": all hold"


def test_what_failed_is_a_table_and_a_diff(install: Install, tmp_path: Path) -> None:
    install({"own_rules.py": RULES.format(after=GELU, becomes="torch.relu")}, "own_rules")
    found = cli("rules", "--test", "own-rules", cwd=tmp_path)
    assert found.returncode == 1
    lines = found.stdout.decode().splitlines()
    assert lines[0].split() == ["rule", "example", "target", "what", "failed"]
    rows = [["OWN001", "1", name, "becomes", "something", "else"] for name in TARGETS]
    assert [line.split() for line in lines[1:3]] == rows
    assert lines.count(f"-y = {GELU}(x)  # heavy") == 2
    assert lines.count("+y = torch.relu(x)  # heavy") == 2
    assert lines[-1].endswith(": 2 failures")


AGAIN = RULES.replace('cuda_ops.gelu")', 'cuda_ops.*")').replace(
    '"{becomes}")], ("torch",)', 'found.key + "_")], ("mylib.cuda_ops",)'
)


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        (AGAIN, "a second run changes it"),
        (RULES.replace('ops.gelu")', 'ops.other")'), "OWN001 does not apply to its first example"),
        (RULES.replace("Rewrite([", "nothing(["), "NameError: name 'nothing'"),
    ],
)
def test_other_failures(install: Install, tmp_path: Path, rules: str, reason: str) -> None:
    install({"own_rules.py": rules.format(after=GELU, becomes=GELU)}, "own_rules")
    found = cli("rules", "--test", "own-rules", cwd=tmp_path)
    assert found.returncode == 1
    assert reason in found.stdout.decode()


REPORTED = """
from migrator.rule_api import Example, Report, Rule

OPERATORS = Rule(
    code="OWN001", name="own-operators", summary="operators of ours", why="They are CUDA's.",
    examples=(
        Example("from mylib.cuda_ops import gelu\\ny = gelu(x)\\n", says={{{line}: {words!r}}}),
    ),
)


@OPERATORS.on("name", "mylib.cuda_ops.gelu")
def operator(ctx, found):
    return Report(f"write {{ctx.api.device}} code")
"""


@pytest.mark.parametrize(
    ("line", "words", "reason"),
    [
        (2, "write {device} code", ""),
        (2, "remove it", "does not say 'remove it' in line 2"),
        (1, "write", "does not say 'write' in line 1: it says nothing there"),
    ],
)
def test_what_an_example_says(
    install: Install, tmp_path: Path, line: int, words: str, reason: str
) -> None:
    install({"own_rules.py": REPORTED.format(line=line, words=words)}, "own_rules")
    found = cli("rules", "--test", "own-rules", cwd=tmp_path)
    assert found.returncode == (1 if reason else 0), found.stdout
    assert reason in " ".join(found.stdout.decode().split())


def test_rules_of_the_tool_by_their_code(tmp_path: Path) -> None:
    found = cli("rules", "--test", "lib006", cwd=tmp_path)
    assert found.returncode == 0
    assert b"of 1 rule on" in found.stdout


def test_a_package_that_is_not_there(install: Install, tmp_path: Path) -> None:
    install({"own_rules.py": RULES.format(after=GELU, becomes=GELU)}, "own_rules")
    found = cli("rules", "--test", "acme-rules", cwd=tmp_path)
    assert found.returncode == 2
    one_line(found.stderr, "acme-rules", "packages: own_rules, tpu-migrate")
