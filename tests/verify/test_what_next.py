"""The command that is named at the end of a verification."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from migrator import migrate_paths
from migrator.verify.script_result import ScriptResult
from migrator.verify.verify_arguments import VerifyArguments
from migrator.verify.verify_result import VerifyResult
from migrator.verify.what_next import what_next


def asked(app: str, **values: Any) -> VerifyArguments:
    names = VerifyArguments.__dataclass_fields__
    return VerifyArguments(**{**dict.fromkeys(names), "app": app, "module": False, **values})


def passing(monkeypatch: pytest.MonkeyPatch, result: ScriptResult | VerifyResult) -> Any:
    monkeypatch.setattr(type(result), "passed", True)
    return result


def test_after_an_app_comes_ones_own_program(monkeypatch: pytest.MonkeyPatch) -> None:
    result = VerifyResult("image_ops", "torch_xla")
    assert what_next(replace(result, problems=["it fails"]), asked("image_ops")) == ""
    said = "your own program: tpu-migrate verify train.py --target torch_xla --quick"
    assert what_next(passing(monkeypatch, result), asked("image_ops")) == said


def test_a_script_that_passes_is_migrated_with_the_same_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = passing(monkeypatch, ScriptResult("a b.py", "torchax"))
    said = "migrate it in place (with -o DIR, a copy): tpu-migrate 'a b.py' --target torchax"
    assert what_next(result, asked("a b.py", portable=False, unsafe=False)) == said
    how = {"portable": True, "unsafe": True, "shard": "tp"}
    assert what_next(result, asked("a b.py", **how)) == f"{said} --portable --unsafe --shard tp"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pkg").mkdir()
    for name, file in (("pkg", "pkg/__main__.py"), ("pkg.train", "pkg/train.py")):
        found = what_next(result, asked(name, module=True, portable=False, unsafe=False))
        assert found.endswith(f"tpu-migrate {file} --target torchax")


def test_a_script_that_fails_with_places_left_to_change_leads_to_these(tmp_path: Path) -> None:
    left = tmp_path / "left.py"
    left.write_text("import torch\ns = torch.cuda.Stream()\n", "utf-8")
    clean = tmp_path / "clean.py"
    clean.write_text("import torch\nx = torch.ones(2).cuda()\n", "utf-8")
    result = ScriptResult("left.py", "torchax", problems=["it fails"])
    for file, begins in ((left, "what is left to change by hand"), (clean, "")):
        migrated = replace(result, migration=migrate_paths([file], target="torchax"))
        said = what_next(migrated, asked("left.py"))
        assert said.partition(",")[0] == begins
    assert what_next(replace(result, error="no environment"), asked("left.py")) == ""
