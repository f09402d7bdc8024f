"""What an interpreter has is looked at by running it; each fault is one clear line."""

import sys
from pathlib import Path

import pytest

from migrator.verify import environments, interpreters
from migrator.verify.errors import VerifyError
from migrator.verify.interpreters import Interpreter, examine, find, require

from .support import TORCHAX, executable, fake_interpreter

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="fake interpreters are sh scripts")


def test_a_whole_environment_works(python: Path) -> None:
    found = examine(python, "torchax")
    assert found.works and not found.notes
    assert found.versions["torchax"] == "0.0.13"


def test_the_damaged_pair_is_named_with_its_fix(tmp_path: Path) -> None:
    python = fake_interpreter(tmp_path, files={"torchax": "0.0.6"})
    (problem,) = examine(python, "torchax").problems
    assert "damaged: installed as 0.0.13, but its files are 0.0.6" in problem
    assert f"uv pip uninstall --python {python} torch_xla torchax && " in problem
    assert problem.endswith(f"uv pip install --python {python} torchax==0.0.13")
    assert "\n" not in problem


def test_the_fix_uses_pip_where_it_is(tmp_path: Path) -> None:
    python = fake_interpreter(tmp_path, {**TORCHAX, "pip": "26"}, {"torchax": "0.0.6"})
    (problem,) = examine(python, "torchax").problems
    assert problem.endswith(f"{python} -m pip install torchax==0.0.13")


def test_the_damaged_pair_is_named_where_its_import_fails_too(tmp_path: Path) -> None:
    # So it is with torchax 0.0.13 under torch_xla 2.9.0: the old files want flax.
    python = fake_interpreter(tmp_path)
    (tmp_path / "site" / "torchax.py").write_text('__version__ = "0.0.6"\nimport flax\n')
    (problem,) = examine(python, "torchax").problems
    assert "damaged: installed as 0.0.13, but its files are 0.0.6" in problem


def test_a_torch_that_torchax_does_not_import_with_is_named(tmp_path: Path) -> None:
    found = examine(fake_interpreter(tmp_path, {**TORCHAX, "torch": "2.13.0+cpu"}), "torchax")
    assert found.problems == [
        "torchax does not import with torch 2.13.0+cpu: it needs torch < 2.13"
    ]


def test_missing_packages_are_named_in_one_line(tmp_path: Path) -> None:
    some = {name: TORCHAX[name] for name in TORCHAX if name not in ("jax", "safetensors")}
    found = examine(fake_interpreter(tmp_path, some), "torchax")
    assert found.problems == [f"{found.python} lacks jax, safetensors (extra 'torchax')"]


def test_another_version_than_the_tested_one_is_a_note(tmp_path: Path) -> None:
    found = examine(fake_interpreter(tmp_path, {**TORCHAX, "torch": "2.8.0+cpu"}), "torchax")
    assert found.works
    assert found.notes == ["torch 2.8.0+cpu instead of the tested 2.9.0"]


def test_an_import_that_fails_is_said(tmp_path: Path) -> None:
    python = fake_interpreter(tmp_path)
    (tmp_path / "site" / "jax.py").write_text("raise OSError('libgomp.so: no such file')")
    (problem,) = examine(python, "torchax").problems
    assert problem == f"import jax fails in {python}: OSError: libgomp.so: no such file"


def test_a_wrong_python_is_said(monkeypatch: pytest.MonkeyPatch, python: Path) -> None:
    monkeypatch.setattr(interpreters, "OLDEST", (3, 98))
    monkeypatch.setattr(interpreters, "NEWEST", (3, 99))
    (problem,) = examine(python, "torchax").problems
    assert problem.endswith("the targets need 3.98 to 3.99")


def test_something_that_is_no_python_is_said(tmp_path: Path) -> None:
    python = executable(tmp_path / "python", "#!/bin/sh\necho no snake here >&2\nexit 3\n")
    (problem,) = examine(python, "torchax").problems
    assert problem == f"probe.py failed in {python} (exit 3): no snake here"


def test_the_interpreter_asked_for_is_refused_where_it_does_not_do(tmp_path: Path) -> None:
    with pytest.raises(VerifyError, match="lacks torch, torchvision, torchax"):
        require(fake_interpreter(tmp_path, {}), "torchax")


def test_the_cached_environment_serves_where_the_current_one_does_not(
    tmp_path: Path, python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(fake_interpreter(tmp_path / "bare", {})))
    monkeypatch.setattr(environments, "cached_python", lambda target: python)
    found = find("torchax")
    assert found is not None and found.python == python
    monkeypatch.setattr(environments, "cached_python", lambda target: None)
    assert find("torchax") is None


def test_a_damaged_current_environment_is_not_passed_over(
    tmp_path: Path, python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged = fake_interpreter(tmp_path / "damaged", files={"torchax": "0.0.6"})
    monkeypatch.setattr(sys, "executable", str(damaged))
    monkeypatch.setattr(environments, "cached_python", lambda target: python)
    with pytest.raises(VerifyError, match="damaged"):
        find("torchax")


def test_works_means_no_problems() -> None:
    assert Interpreter(Path("p"), "torchax").works
    assert not Interpreter(Path("p"), "torchax", problems=["x"]).works
