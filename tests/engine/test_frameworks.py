"""A second framework moves in, as docs/adding-a-framework.md says: a package brings all of it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import (
    REPOSITORY,
    changed_lines,
    cli,
    committed,
    have_installed,
    installed_by,
    one_line,
    outcomes,
    page_blocks,
    write_tree,
)

from migrator import migrate_paths
from migrator.config import Config, load
from migrator.editor.analysis import Moment
from migrator.editor.analyst import Analyst
from migrator.editor.open_documents import OpenDocument, Text
from migrator.editor.single import single
from migrator.errors import UsageError
from migrator.examples import failures, rules_of
from migrator.frameworks import find_framework, frameworks
from migrator.options import Options
from migrator.pipeline.engine import migrate
from migrator.registry import registry, vocabulary
from migrator.review.changes import review
from migrator.runs.worker import migrate_for_all
from migrator.targets import find_target, names, targets
from migrator.verify.command import verify_command
from migrator.verify.verify_arguments import VerifyArguments

PAGE = REPOSITORY / "docs" / "adding-a-framework.md"
NAMED = re.compile(r"`(loom_migrate/\S+\.py|pyproject\.toml|train\.py|tpu-migrate [^`]+)`")
SHOWN = dict(page_blocks(PAGE, NAMED))
PACKAGE = {
    **{name: text for name, text in SHOWN.items() if name.startswith("loom_migrate/")},
    **installed_by(SHOWN["pyproject.toml"]),
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
    folder = write_tree(tmp_path / "installed", PACKAGE)
    have_installed(monkeypatch, folder)
    _forget()
    yield
    monkeypatch.undo()
    _forget()
    for name in ("loom_migrate", "loom_migrate.rules", "loom_migrate.framework"):
        sys.modules.pop(name, None)


def test_the_page_shows_what_comes_out(loom: None, tmp_path: Path) -> None:
    write_tree(tmp_path, {"train.py": SHOWN["train.py"]})
    command, diff = list(SHOWN.items())[-1]
    done = cli(*command.split()[1:], cwd=tmp_path)
    assert changed_lines(done.stdout) == diff, done.stderr.decode()
    assert "loom.gpu.graph has no counterpart" in done.stderr.decode()


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


def test_its_rules_are_tested_by_the_name_of_the_package(loom: None, tmp_path: Path) -> None:
    tested = cli("rules", "--test", "loom-migrate", cwd=tmp_path)
    assert tested.stdout == b"2 examples of 2 rules on loom_tpu: all hold\n", tested.stderr


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
    assert "torch: 2 files" in note and "--target torch_tpu or torch_xla or torchax" in note


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
    document = OpenDocument(uri, tmp_path / "c.py", (Text(uri, 1, BOTH),))
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
    return VerifyArguments(**context.params).targets()


def test_two_targets_for_one_framework_are_an_error(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a.py": TORCH})
    found = cli("a.py", "--target", "torchax", "--target", "torch_xla", "--check", cwd=tmp_path)
    assert found.returncode == 2
    one_line(found.stderr, "--target", "torchax and torch_xla are both for torch")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"loom_migrate/framework.py": "x = 1\n"}, "there is no FRAMEWORK of that name"),
        ({"loom_migrate/framework.py": "import nothing_such\n"}, "nothing_such"),
    ],
)
def test_a_package_with_a_fault_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, str], words: str
) -> None:
    folder = write_tree(tmp_path / "installed", {**PACKAGE, **change})
    have_installed(monkeypatch, folder)
    _forget()
    with pytest.raises(UsageError, match=r"framework loom of loom_migrate\.framework") as error:
        frameworks()
    assert words in str(error.value)
    monkeypatch.undo()
    _forget()
    for name in ("loom_migrate", "loom_migrate.framework"):
        sys.modules.pop(name, None)


def test_a_configuration_may_name_one_target_or_a_list(tmp_path: Path) -> None:
    for text in ('target = "torchax"', 'target = ["torchax"]'):
        write_tree(tmp_path, {"pyproject.toml": f"[tool.tpu-migrate]\n{text}\n"})
        assert load(tmp_path).targets == ("torchax",)
    assert Config().target is None


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"a.py": "import keras\nm = keras.Sequential()\n"}, "1 file uses it and is left"),
        (
            {"a.py": "import tensorflow as tf\n", "b.py": "from tensorflow import keras\n"},
            "2 files use it and are left",
        ),
        ({"a.py": f"import tensorflow as tf\n{TORCH}"}, ""),  # as torch's logs and inputs do
        (
            {"a.py": f"import tensorflow as tf\n{TORCH}s = tf.distribute.MirroredStrategy()\n"},
            "1 file",
        ),
        ({"a.py": TORCH}, ""),
    ],
)
def test_scripts_of_tensorflow_are_not_passed_over_in_silence(
    tmp_path: Path, files: dict[str, str], said: str
) -> None:
    write_tree(tmp_path, files)
    notes = [
        n
        for n in migrate_paths([tmp_path], target="torchax", write=False).notes
        if "tensorflow" in n
    ]
    assert (said in notes[0] and "choose --target keras_jax" in notes[0]) if said else not notes
