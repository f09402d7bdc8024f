"""What an interpreter has is looked at by running it; each fault is one clear line."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from migrator.analysis.python_requirements import pinned
from migrator.targets import Target, find_target
from migrator.verify import environments, interpreters
from migrator.verify.interpreters import (
    Interpreter,
    Problem,
    examine,
    find,
    require,
    without_libtpu,
)
from migrator.verify.verify_errors import VerifyError

from .support import TORCH_XLA, TORCHAX, executable, fake_interpreter

JAX_TARGET, XLA_TARGET = find_target("torchax"), find_target("torch_xla")

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="fake interpreters are sh scripts")


def test_a_whole_environment_works(python: Path) -> None:
    found = examine(python, JAX_TARGET)
    assert found.works and not found.notes
    assert found.versions["torchax"] == "0.0.13"


def test_the_damaged_pair_is_named_with_its_fix(tmp_path: Path) -> None:
    python = fake_interpreter(tmp_path, files={"torchax": "0.0.6"})
    (problem,) = examine(python, JAX_TARGET).problems
    assert "damaged: installed as 0.0.13, but its files are 0.0.6" in problem.text
    assert f"uv pip uninstall --python {python} torch_xla torchax && " in problem.fix
    assert f"uv pip install --python {python} torchax==0.0.13" in problem.fix
    assert "\n" not in str(problem) and problem.fix in str(problem)


def test_the_fix_uses_pip_where_it_is(tmp_path: Path) -> None:
    python = fake_interpreter(tmp_path, {**TORCHAX, "pip": "26"}, {"torchax": "0.0.6"})
    (problem,) = examine(python, JAX_TARGET).problems
    assert f"{python} -m pip uninstall -y torch_xla torchax && " in problem.fix
    assert f"{python} -m pip install torchax==0.0.13" in problem.fix


def test_the_damaged_pair_is_named_where_its_import_fails_too(tmp_path: Path) -> None:
    # So it is with torchax 0.0.13 under torch_xla 2.9.0: the old files want flax.
    python = fake_interpreter(tmp_path)
    (tmp_path / "site" / "torchax.py").write_text('__version__ = "0.0.6"\nimport flax\n')
    (problem,) = examine(python, JAX_TARGET).problems
    assert "damaged: installed as 0.0.13, but its files are 0.0.6" in problem.text


def test_a_torch_that_torchax_does_not_import_with_is_named(tmp_path: Path) -> None:
    found = examine(fake_interpreter(tmp_path, {**TORCHAX, "torch": "2.13.0+cpu"}), JAX_TARGET)
    (problem,) = found.problems
    assert problem.text == "torchax does not import with torch 2.13.0+cpu: it needs torch < 2.13"
    assert "install" in problem.fix and "torch==2.9.0" in problem.fix


def test_missing_packages_are_named_in_one_line(tmp_path: Path) -> None:
    some = {name: TORCHAX[name] for name in TORCHAX if name not in ("jax", "safetensors")}
    found = examine(fake_interpreter(tmp_path, some), JAX_TARGET)
    (problem,) = found.problems
    assert problem.text == f"{found.python} lacks jax, safetensors (extra 'torchax')"
    assert "jax==0.10.2" in problem.fix and "torchax==" not in problem.fix


def test_an_extra_is_written_as_every_pip_knows_it(tmp_path: Path) -> None:
    (problem,) = examine(fake_interpreter(tmp_path, {}), XLA_TARGET).problems
    assert "(extra 'torch-xla')" in problem.text


def test_nothing_is_installed_into_the_environment_of_the_other_target(tmp_path: Path) -> None:
    found = examine(fake_interpreter(tmp_path), XLA_TARGET)
    assert [problem.fix for problem in found.problems] == [""]


def test_versions_that_do_not_fit_each_other_are_said(tmp_path: Path) -> None:
    python = fake_interpreter(tmp_path, {**TORCHAX, "torch": "2.10.0", "jaxlib": "0.9.0"})
    for name, line in (("torchvision-0.24.0", "torch (==2.9.0)"), ("jax-0.10.2", "jaxlib>=0.10.1")):
        with (tmp_path / "site" / f"{name}.dist-info" / "METADATA").open("a") as file:
            file.write(f"Requires-Dist: {line}\nRequires-Dist: jaxlib==1; extra == 'other'\n")
    found = examine(python, JAX_TARGET)
    assert [problem.text for problem in found.problems] == [
        f"torchvision 0.24.0 in {python} needs torch==2.9.0, not 2.10.0",
        f"jax 0.10.2 in {python} needs jaxlib>=0.10.1, not 0.9.0",
    ]
    assert "torch==2.9.0 jaxlib==0.10.2" in found.problems[0].fix


@pytest.mark.parametrize("target", ["torchax", "torch_xla"])
def test_what_a_runtime_starts_with_is_known_here(target: str) -> None:
    folder = Path(interpreters.__file__).parents[1] / "runtime" / target / "tpu_runtime"
    text = (folder / "_versions.py").read_text(encoding="utf-8")
    if target == "torchax":
        assert 'SUPPORTED_TORCHAX = ("0.0.13",)' in text
        assert "OLDEST_TORCH, FIRST_BROKEN_TORCH = (2, 9), (2, 13)" in text
        wanted = {"torch": ">=2.9,<2.13", "torchax": "==0.0.13"}
    else:
        assert 'SUPPORTED = "2.9"' in text
        assert "'torch==2.9.0' 'torch_xla[tpu]==2.9.0'" in text
        assert {"torch==2.9.0", "torch_xla[tpu]==2.9.0"} <= {
            r.text for r in pinned(find_target(target))
        }
        wanted = {"torch": "==2.9.*", "torch_xla": "==2.9.*"}
    assert find_target(target).environment.runs_with == wanted


def test_reading_finds_what_importing_finds_and_imports_nothing(tmp_path: Path) -> None:
    python = fake_interpreter(tmp_path, files={"torchax": "0.0.6"})
    for module in ("torch", "jax", "torchax"):
        with (tmp_path / "site" / f"{module}.py").open("a") as file:
            file.write("raise SystemExit(9)\n")
    (problem,) = examine(python, JAX_TARGET, by_import=False).problems
    assert "damaged: installed as 0.0.13, but its files are 0.0.6" in problem.text


def test_another_version_than_the_tested_one_is_a_note(tmp_path: Path) -> None:
    found = examine(fake_interpreter(tmp_path, {**TORCHAX, "torch": "2.10.0+cpu"}), JAX_TARGET)
    assert found.works
    assert found.notes == ["torch 2.10.0+cpu instead of the tested 2.9.0"]


def test_an_import_that_fails_is_said(tmp_path: Path) -> None:
    python = fake_interpreter(tmp_path)
    (tmp_path / "site" / "jax.py").write_text("raise OSError('libgomp.so: no such file')")
    (problem,) = examine(python, JAX_TARGET).problems
    assert problem.text == f"import jax fails in {python}: OSError: libgomp.so: no such file"


def of_pythons(target: Target, **pythons: Any) -> Target:
    return replace(target, environment=replace(target.environment, **pythons))


def test_a_wrong_python_is_said(python: Path) -> None:
    (problem,) = examine(python, of_pythons(JAX_TARGET, pythons=((3, 98), (3, 99)))).problems
    assert problem.text.endswith("torchax needs 3.98 to 3.99")


def test_torch_xla_without_what_a_tpu_needs_runs_on_the_cpu(tmp_path: Path) -> None:
    target = of_pythons(XLA_TARGET, newest_with_tpu=(3, 10))
    found = examine(fake_interpreter(tmp_path / "whole", TORCH_XLA), target)
    assert found.works and not found.notes
    problem = without_libtpu(found, {})
    assert problem is not None and "needs Python 3.10 or older" in problem.text
    assert problem.fix == ""  # no command installs it here
    found = examine(fake_interpreter(tmp_path / "bare", {}), target)
    assert "torch_xla needs 3.11 to 3.10" in found.problems[0].text


def test_libtpu_is_asked_for_by_what_brings_it(tmp_path: Path) -> None:
    for target, packages, brings in (
        ("torchax", TORCHAX, "libtpu==0.0.52; sys_platform"),
        ("torch_xla", TORCH_XLA, "'torch_xla[tpu]==2.9.0'"),
    ):
        python = fake_interpreter(tmp_path / target, packages)
        problem = without_libtpu(examine(python, find_target(target)), {})
        assert problem is not None and brings in problem.fix
        assert (
            without_libtpu(examine(python, find_target(target)), {"TPU_LIBRARY_PATH": "/x.so"})
            is None
        )
    python = fake_interpreter(tmp_path / "whole", {**TORCH_XLA, "libtpu": "0.0.21"})
    assert without_libtpu(examine(python, XLA_TARGET), {}) is None


def test_something_that_is_no_python_is_said(tmp_path: Path) -> None:
    python = executable(tmp_path / "python", "#!/bin/sh\necho no snake here >&2\nexit 3\n")
    (problem,) = examine(python, JAX_TARGET).problems
    assert problem.text == f"probe.py failed in {python} (exit 3): no snake here"


def test_the_interpreter_asked_for_is_refused_where_it_does_not_do(tmp_path: Path) -> None:
    with pytest.raises(VerifyError, match="lacks torch, torchvision, torchax"):
        require(fake_interpreter(tmp_path, {}), JAX_TARGET)


def test_the_cached_environment_serves_where_the_current_one_does_not(
    tmp_path: Path, python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(fake_interpreter(tmp_path / "bare", {})))
    monkeypatch.setattr(environments, "cached_python", lambda target: python)
    found = find(JAX_TARGET)
    assert found is not None and found.python == python
    monkeypatch.setattr(environments, "cached_python", lambda target: None)
    assert find(JAX_TARGET) is None


def test_a_damaged_current_environment_is_not_passed_over(
    tmp_path: Path, python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged = fake_interpreter(tmp_path / "damaged", files={"torchax": "0.0.6"})
    monkeypatch.setattr(sys, "executable", str(damaged))
    monkeypatch.setattr(environments, "cached_python", lambda target: python)
    with pytest.raises(VerifyError, match="damaged"):
        find(JAX_TARGET)


def test_works_means_no_problems() -> None:
    assert Interpreter(Path("p"), JAX_TARGET).works
    assert not Interpreter(Path("p"), JAX_TARGET, problems=[Problem("x")]).works
