"""A second framework moves in: a package brings its constructs, its rules and its target."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import cli, committed, one_line, outcomes, write_tree

from migrator import migrate_paths
from migrator.config import Config, load
from migrator.editor.analysis import Moment
from migrator.editor.analyst import Analyst
from migrator.editor.documents import Document, Text
from migrator.engine import migrate
from migrator.errors import UsageError
from migrator.examples import failures, rules_of
from migrator.frameworks import find_framework, frameworks
from migrator.options import Options
from migrator.registry import registry, vocabulary
from migrator.review.changes import review
from migrator.single import single
from migrator.targets import find_target, names, targets
from migrator.verify.asked import Asked
from migrator.verify.command import verify_command
from migrator.worker import migrate_for_all

FRAMEWORK = '''
"""Loom, which does not exist: what of it counts as GPU code."""

import ast
import re

from migrator.construct import Construct
from migrator.frameworks.by_name import by_name
from migrator.frameworks.framework import Framework

DEVICE = re.compile(r"/GPU:\\d+")


def constructs(parsed):
    found = by_name(parsed)
    for node in parsed.names.order:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if DEVICE.fullmatch(node.value):
                found.append(Construct("loom device", "GPU", node))
    place = {node: number for number, node in enumerate(parsed.names.order)}
    return sorted(found, key=lambda construct: place[construct.node])


FRAMEWORK = Framework(
    name="loom",
    module="loom",
    packages=("loom",),
    constructs=constructs,
    has_tokens=lambda source: b"/GPU:" in source,
    uses_device=lambda construct: construct.kind == "loom device",
)
'''
TARGET = """
from migrator.targets import Environment, Target, Word, Words

TARGET = Target(
    name="loom_tpu",
    summary="Loom on a TPU",
    home="https://example.org/loom",
    framework="loom",
    words=Words(device="/TPU:0", calls={"synchronize": Word("{loom}.tpu.wait()")}),
    environment=Environment(package="loom", pins=("loom==1.0",)),
)
"""
RULES = '''
from migrator.edits import Replace, SetString
from migrator.rule import Example, Report, Rewrite, Rule

DEVICE = Rule(
    code="LOM001", name="loom-device", summary="the device of Loom", framework="loom",
    why="It has another name.",
    examples=(
        Example(
            """
            import loom
            with loom.device("/GPU:0"):
                train()
            """,
            after="""
            import loom
            with loom.device("{device}"):
                train()
            """,
        ),
    ),
)
GPU = Rule(
    code="LOM002", name="loom-gpu", summary="functions of loom.gpu", framework="loom",
    why="The target has its own.",
    examples=(
        Example(
            """
            import loom as lm
            lm.gpu.synchronize()
            """,
            after="""
            import loom as lm
            lm.tpu.wait()
            """,
        ),
    ),
)


@DEVICE.on("loom device", "GPU")
def device(ctx, found):
    return Rewrite([SetString(found.node, ctx.words.device)])


@GPU.on("name", "loom.gpu.*")
def function(ctx, found):
    word = ctx.words.calls.get(found.key.rpartition(".")[2])
    call = ctx.names.call_of(found.node)
    if word is None or call is None:
        return Report(f"{found.key} has no counterpart")
    return Rewrite([Replace(call, word.code)], word.requires)
'''
PACKAGE = {
    "loom_migrate/__init__.py": TARGET,
    "loom_migrate/rules.py": RULES,
    "loom_framework.py": FRAMEWORK,
    "loom-1.0.dist-info/METADATA": "Name: loom-migrate\nVersion: 1.0\n",
    "loom-1.0.dist-info/entry_points.txt": (
        "[tpu_migrate.frameworks]\nloom = loom_framework\n\n"
        "[tpu_migrate.targets]\nloom_tpu = loom_migrate\n"
    ),
}
LOOM = (
    "import loom\n\nwith loom.device('/GPU:0'):\n    loom.gpu.synchronize()\n    loom.gpu.graph()\n"
)
LOOM_AFTER = LOOM.replace("/GPU:0", "/TPU:0").replace("loom.gpu.synchronize", "loom.tpu.wait")
TORCH = "import torch\n\nx = torch.ones(2).cuda()\n"
BOTH = "import torch\nimport loom\n\nx = y.cuda()\nloom.gpu.synchronize()\nloom.gpu.graph()\n"


def _forget() -> None:
    for known in (frameworks, find_framework, names, targets, registry, vocabulary):
        known.cache_clear()


@pytest.fixture
def loom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    folder = write_tree(tmp_path / "site-packages", PACKAGE)
    monkeypatch.syspath_prepend(folder)
    _forget()
    yield
    monkeypatch.undo()
    _forget()
    for name in ("loom_migrate", "loom_migrate.rules", "loom_framework"):
        sys.modules.pop(name, None)


def test_its_constructs_are_found_and_decided_by_its_rules(loom: None) -> None:
    result = migrate(LOOM.encode(), find_target("loom_tpu"), Options(entry=True))
    assert result.source.decode() == LOOM_AFTER
    assert outcomes(result) == [
        ("LOM001", "rewritten", "'/GPU:0'"),
        ("LOM002", "rewritten", "loom.gpu.synchronize"),
        ("LOM002", "reported", "loom.gpu.graph"),
    ]
    assert result.uses_device and not result.companions
    again = migrate(result.source, find_target("loom_tpu"), Options(entry=True))
    assert again.source == result.source


def test_the_examples_of_its_rules_hold_on_its_target_alone(loom: None) -> None:
    assert not list(failures(rules_of("LOM")))
    assert [list(rule.targets) for rule in rules_of("LOM")] == [["loom_tpu"]] * 2
    assert "loom_tpu" not in rules_of("MOV001")[0].targets


def test_each_target_keeps_to_its_framework(loom: None) -> None:
    assert migrate(TORCH.encode(), find_target("loom_tpu")).source.decode() == TORCH
    for name in ("torchax", "torch_xla"):
        result = migrate(LOOM.encode(), find_target(name))
        assert result.source.decode() == LOOM and not result.diagnostics


def test_a_run_for_both(loom: None, tmp_path: Path) -> None:
    root = write_tree(tmp_path / "p", {"a.py": LOOM, "b.py": TORCH, "c.py": BOTH})
    report = migrate_paths([root], ["loom_tpu", "torchax"])
    made = {file.path.name: file.result for file in report.files}
    assert made["a.py"].source.decode() == LOOM_AFTER
    assert 'torch.ones(2).to("jax")' in made["b.py"].source.decode()
    both = made["c.py"].source.decode()
    assert 'x = y.to("jax")' in both and "loom.tpu.wait()" in both
    said = [(d.range.line, d.code, str(d.outcome)) for d in made["c.py"].diagnostics if d.outcome]
    assert said == [
        (4, "MOV001", "rewritten"), (5, "LOM002", "rewritten"), (6, "LOM002", "reported"),
    ]  # fmt: skip
    assert not report.notes and report.target == "torchax, loom_tpu"


def test_a_framework_without_a_target_stays_and_is_named_once(loom: None, tmp_path: Path) -> None:
    root = write_tree(tmp_path / "p", {"a.py": LOOM, "b.py": TORCH, "c.py": BOTH})
    report = migrate_paths([root], "torchax")
    made = {file.path.name: file.result.source.decode() for file in report.files}
    assert made["a.py"] == LOOM and "loom.gpu.synchronize()" in made["c.py"]
    (note,) = report.notes
    assert "loom: 2 files" in note and "--target loom_tpu" in note
    (note,) = migrate_paths([root], "loom_tpu").notes
    assert "torch: 2 files" in note and "--target torch_xla or torchax" in note


def test_a_target_for_each_framework_in_the_configuration(loom: None, tmp_path: Path) -> None:
    table = '[tool.tpu-migrate]\ntarget = ["torchax", "loom_tpu"]\n'
    write_tree(tmp_path / "p", {"pyproject.toml": table, "c.py": BOTH})
    assert load(tmp_path / "p").targets == ("torchax", "loom_tpu")
    shown = cli("c.py", "--diff", cwd=tmp_path / "p").stdout
    assert b'+x = y.to("jax")' in shown and b"+loom.tpu.wait()" in shown


def test_a_review_of_both(loom: None, tmp_path: Path) -> None:
    table = '[tool.tpu-migrate]\ntarget = ["torchax", "loom_tpu"]\n'
    root = committed(tmp_path / "p", {"pyproject.toml": table, "a.py": LOOM, "c.py": BOTH})
    assert cli(".", "--allow-dirty", cwd=root).returncode == 0
    found = review(root, "HEAD", config=load(root))
    assert found.target == "torchax, loom_tpu" and found.exit_code == 0
    assert {file.path for file in found.files if file.explained} >= {"a.py", "c.py"}
    assert review(root, "HEAD", config=Config(targets=("torchax",))).exit_code == 1


def test_one_rewrite_of_a_file_with_both(loom: None) -> None:
    both = [find_target("torchax"), find_target("loom_tpu")]
    whole = migrate_for_all(Path("c.py"), BOTH.encode(), both, Options(entry=False))
    for code, made in (("MOV001", 'y.to("jax")'), ("LOM002", "loom.tpu.wait()")):
        wanted = next(d for d in whole.diagnostics if d.code == code and d.is_edit)
        part = single(Path("c.py"), whole, wanted, both, Options(entry=False))
        assert made in part.source.decode() and part.source != whole.source
        rest = migrate_for_all(Path("c.py"), part.source, both, Options(entry=False))
        assert rest.source == whole.source


def test_an_editor_serves_both(loom: None, tmp_path: Path) -> None:
    uri = (tmp_path / "c.py").as_uri()
    document = Document(uri, tmp_path / "c.py", (Text(uri, 1, BOTH),))
    moment = Moment(document, {}, Config(targets=("torchax", "loom_tpu")), [tmp_path], 0)
    analyst = Analyst()
    assert {d.code for d in analyst.analysis(moment).findings} >= {"MOV001", "LOM002"}
    ((_, edits),) = analyst.rewrite(moment, None).edits
    made = " ".join(edit.text for edit in edits)
    assert 'to("jax")' in made and "tpu.wait" in made


def test_verify_runs_on_the_target_of_the_script(loom: None, tmp_path: Path) -> None:
    table = '[tool.tpu-migrate]\ntarget = ["loom_tpu", "torch_xla"]\n'
    root = write_tree(tmp_path, {"pyproject.toml": table, "a.py": LOOM, "b.py": TORCH})
    assert _verified_on(root / "b.py") == ("torch_xla",)
    assert _verified_on(root / "a.py") == ("loom_tpu",)
    assert _verified_on(root / "b.py", "--target", "torchax") == ("torchax",)
    (root / "pyproject.toml").unlink()
    assert _verified_on(root / "b.py") == ("torchax",)


def _verified_on(script: Path, *options: str) -> tuple[str, ...]:
    context = verify_command.make_context("verify", [str(script), *options])
    return Asked(**context.params).targets()


def test_two_targets_for_one_framework_are_an_error(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a.py": TORCH})
    found = cli("a.py", "--target", "torchax", "--target", "torch_xla", "--check", cwd=tmp_path)
    assert found.returncode == 2
    one_line(found.stderr, "--target", "torchax and torch_xla are both for torch")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"loom_framework.py": "x = 1\n"}, "there is no FRAMEWORK of that name"),
        ({"loom_framework.py": "import nothing_such\n"}, "nothing_such"),
    ],
)
def test_a_package_with_a_fault_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, str], words: str
) -> None:
    folder = write_tree(tmp_path / "site-packages", {**PACKAGE, **change})
    monkeypatch.syspath_prepend(folder)
    _forget()
    with pytest.raises(UsageError, match="framework loom of loom_framework") as error:
        frameworks()
    assert words in str(error.value)
    monkeypatch.undo()
    _forget()
    sys.modules.pop("loom_framework", None)


def test_a_configuration_may_name_one_target_or_a_list(tmp_path: Path) -> None:
    for text in ('target = "torchax"', 'target = ["torchax"]'):
        write_tree(tmp_path, {"pyproject.toml": f"[tool.tpu-migrate]\n{text}\n"})
        assert load(tmp_path).targets == ("torchax",)
    assert Config().target is None
