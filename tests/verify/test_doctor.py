"""doctor says what can run, and the command that it prints for each problem mends it."""

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from migrator.doctor import environment_variables
from migrator.doctor.command import doctor_command
from migrator.doctor.diagnosis import Diagnosis, State, diagnose
from migrator.targets import Target, find_target
from migrator.verify import environments
from migrator.verify.interpreters import forget

from .support import TORCH_TPU, TORCH_XLA, TORCHAX, fake_interpreter

ROOT = Path(__file__).resolve().parents[2]
BOTH = [find_target("torch_xla"), find_target("torchax")]
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="fake interpreters are sh scripts")


@pytest.fixture(autouse=True)
def nothing_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for variable in environment_variables.present(os.environ):
        monkeypatch.delenv(variable.name)
    monkeypatch.setenv("TPU_MIGRATE_CACHE", str(tmp_path / "cache"))
    forget()
    yield
    forget()


def at(
    root: Path, target: str, python: Path | None = None, **environment: str
) -> tuple[Diagnosis, State]:
    found = diagnose([find_target(target)], python, root=root, environment=environment)
    return found, found.states[0]


def with_tpu(root: Path) -> Path:
    (root / "dev").mkdir()
    (root / "dev/accel0").touch()
    return root


def one(problems: object) -> tuple[str, str]:
    assert isinstance(problems, list) and len(problems) == 1, problems
    return problems[0].text, problems[0].fix


TENSORFLOW = {"keras": "3.15.1", "tensorflow-cpu": "2.21.0", "numpy": "2.2.6", "pillow": "12.0.0"}


@pytest.mark.parametrize(
    ("there", "told"),
    [
        ({}, "tensorflow-tpu is missing, libtpu is missing"),
        ({"tensorflow-tpu": "2.20.0", "libtpu": "0.0.52"}, "tensorflow-tpu 2.20.0, libtpu 0.0.52"),
        ({"tensorflow-tpu": "2.19.1", "libtpu": "0.0.10"}, ""),
    ],
)
def test_tensorflow_uses_a_tpu_in_its_last_release_that_does(
    tmp_path: Path, there: dict[str, str], told: str
) -> None:
    packages = {**TENSORFLOW, **there}
    if there:  # one of them is TensorFlow
        del packages["tensorflow-cpu"]
    python = fake_interpreter(tmp_path / "env", packages)
    assert at(tmp_path, "tf_tpu", python)[1].ready  # on a CPU any will do
    _, state = at(with_tpu(tmp_path), "tf_tpu", python)
    if not told:
        assert state.ready
        return
    text, fix = one(state.problems)
    assert text.endswith(f"the last that do; {told}")
    assert "'tensorflow-tpu==2.19.1' 'libtpu==0.0.10'" in fix.replace('"', "'") or (
        "tensorflow-tpu==2.19.1 libtpu==0.0.10" in fix
    )


# ---- interpreters --------------------------------------------------------------------------------


def test_a_whole_environment_is_ready(tmp_path: Path, python: Path) -> None:
    found, state = at(tmp_path, "torchax", python)
    assert state.ready and state.runs_on == "CPU back end of torchax" and found.exit_code == 0
    assert state.warnings == []


def test_a_damaged_one_is_not_and_the_other_target_is(tmp_path: Path) -> None:
    both = {**TORCHAX, "torch_xla": "2.9.0"}
    python = fake_interpreter(tmp_path / "damaged", both, {"torchax": "0.0.6"})
    found = diagnose(BOTH, python, root=tmp_path, environment={})
    assert [state.ready for state in found.states] == [True, False]
    text, fix = one(found.states[1].problems)
    assert "installed as 0.0.13, but its files are 0.0.6" in text
    assert "uninstall" in fix and "torchax==0.0.13" in fix
    assert found.exit_code == 0
    needed = diagnose(BOTH, python, every=True, root=tmp_path, environment={})
    assert needed.exit_code == 1
    assert at(tmp_path, "torchax", python)[0].exit_code == 1
    packages = found.to_dict()["interpreters"][0]["packages"]
    assert packages["torchax"] == "0.0.13, files 0.0.6"


def test_an_environment_of_the_other_target_is_left_as_it_is(tmp_path: Path) -> None:
    python = fake_interpreter(tmp_path / "other", TORCH_XLA)
    assert at(tmp_path, "torch_xla", python)[1].ready
    text, fix = one(at(tmp_path, "torchax", python)[1].problems)
    assert "an environment for torch_xla" in text
    assert fix.endswith("tpu-migrate doctor --target torchax --install")


def test_one_that_holds_both_is_warned_of(tmp_path: Path) -> None:
    python = fake_interpreter(tmp_path / "both", {**TORCHAX, "torch_xla": "2.9.0"})
    _, state = at(tmp_path, "torchax", python)
    assert state.ready and "installing it again damages torchax" in one(state.warnings)[0]


def test_frameworks_of_other_releases_are_warned_of(tmp_path: Path) -> None:
    ran = {"accelerate": "1.15.7", "transformers": "5.24.0"}
    _, state = at(tmp_path, "torchax", fake_interpreter(tmp_path / "same", TORCHAX | ran))
    assert state.warnings == []
    others = TORCHAX | {"accelerate": "1.9.0", "lightning": "2.1.0", "transformers": "5.24.0"}
    _, state = at(tmp_path, "torchax", fake_interpreter(tmp_path / "others", others))
    text, fix = one(state.warnings)
    assert text.startswith("accelerate 1.9.0, lightning 2.1.0: programs were run on torchax with")
    assert "accelerate 1.15, lightning 2.6" in text and "'accelerate==1.15.*'" in fix


def test_frameworks_are_those_that_are_tested() -> None:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["dependency-groups"]
    pins = dict(line.split("==") for line in groups["trainers"])
    for target in BOTH:
        known = target.environment.frameworks
        assert {name: ".".join(pin.split(".")[:2]) for name, pin in pins.items()}.items() <= (
            known.items()
        )


def test_without_an_environment_it_says_how_to_make_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(fake_interpreter(tmp_path / "bare", {})))
    found, state = at(tmp_path, "torchax")
    assert "no environment yet" in one(state.problems)[0]
    assert found.exit_code == 1 and state.interpreter is None


def test_one_with_torch_is_completed_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = fake_interpreter(tmp_path / "some", {"torch": "2.9.0", "pip": "26"})
    monkeypatch.setattr(sys, "executable", str(python))
    text, fix = one(at(tmp_path, "torchax")[1].problems)
    assert "lacks torchvision, torchax, jax" in text
    assert fix.startswith(f"{python} -m pip install torchvision==0.24.0 torchax==0.0.13")


def test_the_cached_environment_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cached = fake_interpreter(environments.environment_folder(find_target("torchax")))
    monkeypatch.setattr(sys, "executable", str(fake_interpreter(tmp_path / "bare", {})))
    (cached.parents[1] / ".tpu-migrate-ready").touch()
    found, state = at(tmp_path, "torchax")
    assert state.ready and state.interpreter is not None and state.interpreter.python == cached
    assert [each.python for each in found.looked_at] == [Path(sys.executable), cached]


def test_install_makes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = sys.executable
    monkeypatch.setattr(sys, "executable", str(fake_interpreter(tmp_path / "bare", {})))

    def install(target: Target) -> Path:
        with monkeypatch.context() as here:
            here.setattr(sys, "executable", real)
            python = fake_interpreter(environments.environment_folder(target))
        (python.parents[1] / ".tpu-migrate-ready").touch()
        return python

    monkeypatch.setattr(environments, "install", install)
    run = CliRunner().invoke(doctor_command, ["--target", "torchax"])
    assert run.exit_code == 1 and "doctor --target torchax --install" in run.output
    run = CliRunner().invoke(doctor_command, ["--target", "torchax", "--install"])
    assert run.exit_code == 0 and "Installing torch==2.9.0" in run.stderr


@pytest.mark.parametrize("target", [target.name for target in BOTH])
def test_torch_is_not_imported(tmp_path: Path, target: str) -> None:
    python = fake_interpreter(tmp_path / "fake", TORCHAX if target == "torchax" else TORCH_XLA)
    for module in ("torch", "jax", target):
        path = tmp_path / f"fake/site/{module}.py"
        path.write_text(
            (path.read_text() if path.exists() else "") + "raise SystemExit('imported')\n"
        )
    assert at(tmp_path, target, python)[1].ready


# ---- a TPU, and what keeps programs from it ------------------------------------------------------


def test_on_a_tpu(tmp_path: Path) -> None:
    python = fake_interpreter(tmp_path / "fake", {**TORCHAX, "libtpu": "0.0.52"})
    _, state = at(with_tpu(tmp_path), "torchax", python)
    assert (state.runs_on, state.warnings) == ("TPU", [])


def test_a_tpu_without_libtpu(tmp_path: Path, python: Path) -> None:
    _, state = at(with_tpu(tmp_path), "torchax", python)
    text, fix = one(state.warnings)
    assert "libtpu is not installed" in text and state.runs_on == "CPU back end of torchax"
    assert "libtpu==0.0.52" in fix
    python = fake_interpreter(tmp_path / "xla", TORCH_XLA)
    assert "'torch_xla[tpu]==2.9.0'" in one(at(tmp_path, "torch_xla", python)[1].warnings)[1]
    cpu = at(tmp_path / "xla", "torch_xla", python)[1]
    assert cpu.ready and cpu.warnings == []  # there nothing needs it


def test_a_tpu_with_a_python_that_libtpu_is_not_for(tmp_path: Path) -> None:
    target = find_target("torch_xla")
    older = replace(target, environment=replace(target.environment, newest_with_tpu=(3, 10)))
    python = fake_interpreter(tmp_path / "xla", TORCH_XLA)
    found = diagnose([older], python, root=with_tpu(tmp_path), environment={})
    text, fix = one(found.states[0].warnings)
    assert "needs Python 3.10 or older" in text
    assert fix.endswith("tpu-migrate doctor --target torch_xla --install")


def test_a_libtpu_that_is_not_where_it_is_said_to_be(tmp_path: Path, python: Path) -> None:
    setting = {"TPU_LIBRARY_PATH": "/nowhere/libtpu.so"}
    assert at(tmp_path, "torchax", python, **setting)[1].warnings == []  # the CPU does not mind
    text, fix = one(at(with_tpu(tmp_path), "torchax", python, **setting)[1].warnings)
    assert "no such file" in text and fix == "unset TPU_LIBRARY_PATH"
    setting = {"TPU_LIBRARY_PATH": str(python)}
    assert at(tmp_path, "torchax", python, **setting)[1].runs_on == "TPU"


@pytest.mark.parametrize(
    ("target", "setting"),
    [
        ("torchax", {"JAX_PLATFORMS": "cpu"}),
        ("torch_xla", {"PJRT_DEVICE": "CPU"}),
        ("torch_tpu", {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}),
    ],
)
def test_a_variable_that_keeps_programs_from_the_tpu(
    tmp_path: Path, target: str, setting: dict[str, str]
) -> None:
    own = {"torchax": TORCHAX, "torch_xla": TORCH_XLA, "torch_tpu": TORCH_TPU}[target]
    python = fake_interpreter(tmp_path / "fake", {**own, "libtpu": "0.0.52"})
    assert at(tmp_path, target, python, **setting)[1].warnings == []  # right: there is no TPU
    found, state = at(with_tpu(tmp_path), target, python, **setting)
    text, fix = one(state.warnings)
    assert "keeps programs off this machine's TPU" in text and fix == f"unset {next(iter(setting))}"
    assert state.runs_on == f"CPU back end of {target}" and found.exit_code == 0


# Each was tried with the real packages, without a TPU: the program ended.
@pytest.mark.parametrize(
    ("target", "setting"),
    [
        ("torchax", {"JAX_PLATFORMS": "tpu,cpu"}),
        ("torchax", {"JAX_PLATFORMS": "cuda"}),
        ("torchax", {"XLA_FLAGS": "--xla_tpu_scoped_vmem_limit_kib=98304"}),
        ("torch_xla", {"PJRT_DEVICE": "TPU"}),
        ("torch_xla", {"PJRT_DEVICE": "CUDA"}),
        ("torch_xla", {"PJRT_DEVICE": ""}),
    ],
)
def test_a_variable_with_which_programs_do_not_start(
    tmp_path: Path, target: str, setting: dict[str, str]
) -> None:
    python = fake_interpreter(tmp_path / "fake", TORCHAX if target == "torchax" else TORCH_XLA)
    found, state = at(tmp_path, target, python, **setting)
    name = next(iter(setting))
    text, fix = one(state.problems)
    assert found.exit_code == 1 and name in text
    # the command really mends it
    shell = f'{fix} && {sys.executable} -c "import json, os; print(json.dumps({{**os.environ}}))"'
    done = subprocess.run(["sh", "-c", shell], env=setting, capture_output=True, check=True)
    assert at(tmp_path, target, python, **json.loads(done.stdout))[1].ready


def test_flags_of_a_tpu_are_moved_and_others_stay(tmp_path: Path, python: Path) -> None:
    flags = "--xla_dump_to=/tmp/x --xla_tpu_a=1 --xla_tpu_b=2"
    setting = {"XLA_FLAGS": flags, "LIBTPU_INIT_ARGS": "--c"}
    _, fix = one(at(tmp_path, "torchax", python, **setting)[1].problems)
    assert fix == (
        "export XLA_FLAGS=--xla_dump_to=/tmp/x && "
        "export LIBTPU_INIT_ARGS='--c --xla_tpu_a=1 --xla_tpu_b=2'"
    )


def test_a_plugin_for_gpus_makes_cuda_right(tmp_path: Path) -> None:
    python = fake_interpreter(tmp_path / "gpu", {**TORCHAX, "jax-cuda12-plugin": "0.10.2"})
    assert at(tmp_path, "torchax", python, JAX_PLATFORMS="cuda")[1].ready


@pytest.mark.parametrize(
    "setting",
    [
        {"TPU_RUNTIME_EAGR": "1"}, {"XRT_TPU_CONFIG": "x"}, {"TPU_RUNTIME_EAGER": "1"},
        {"TPU_RUNTIME_NUM_CORES": "many"}, {"TPU_RUNTIME_DEVICE": "gpu"},
        {"TPU_RUNTIME_FLASH": "interpret"},
    ],
)  # fmt: skip
def test_what_no_one_reads_or_what_is_slow_is_a_warning(
    tmp_path: Path, python: Path, setting: dict[str, str]
) -> None:
    found, state = at(tmp_path, "torchax", python, **setting)
    text, fix = one(state.warnings)
    assert state.ready and fix == f"unset {next(iter(setting))}" and next(iter(setting)) in text
    assert [variable.name for variable in found.variables] == list(setting)


def test_every_variable_of_the_runtimes_is_known() -> None:
    import re

    text = "".join(
        path.read_text(encoding="utf-8")
        for path in (Path(environment_variables.__file__).parents[1] / "runtime").rglob("*.py")
    )
    named = set(re.findall(r"\bTPU_RUNTIME_[A-Z_]+\b", text))
    assert named and named <= environment_variables.meanings().keys()
    assert {
        name for name in environment_variables.meanings() if name.startswith("TPU_RUNTIME_")
    } == named


def test_torch_xla_elsewhere_than_on_linux(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = fake_interpreter(tmp_path / "fake", TORCH_XLA)
    at(tmp_path, "torch_xla", python)
    monkeypatch.setattr("migrator.doctor.diagnosis.platform.machine", lambda: "aarch64")
    assert "Linux on x86_64 only" in one(at(tmp_path, "torch_xla", python)[1].problems)[0]


# ---- what is shown -------------------------------------------------------------------------------


def shown(*arguments: str, columns: int = 80) -> str:
    run = CliRunner(env={"COLUMNS": str(columns)}).invoke(doctor_command, [*arguments])
    assert run.exception is None or isinstance(run.exception, SystemExit), run.exception
    return run.output


def test_commands_and_paths_are_in_one_line_each(tmp_path: Path) -> None:
    python = fake_interpreter(tmp_path / "damaged", files={"torchax": "0.0.6"})
    text = shown("--python", str(python), columns=60)
    found = diagnose([find_target("torchax")], python)
    assert f"    {found.states[0].problems[0].fix}\n" in text
    assert f"[1] {python}\n" in text
    tables = text.partition("\nProblems\n")[0].splitlines()
    assert all(len(line) <= 60 for line in tables if not line.startswith("[1] "))


def test_a_command_for_several_problems_is_said_once(tmp_path: Path) -> None:
    python = fake_interpreter(tmp_path / "new", {**TORCHAX, "torch": "2.13.0", "jax": "0.9.0"})
    with (tmp_path / "new/site/jax-0.9.0.dist-info/METADATA").open("a") as file:
        file.write("Requires-Dist: jaxlib==0.9.0\n")
    text = shown("--python", str(python), "--target", "torchax")
    assert "torch < 2.13" in text and "jaxlib==0.9.0" in text
    assert text.count("uv pip install") == 1


def test_json(python: Path) -> None:
    found = json.loads(shown("--python", str(python), "--format", "json"))
    assert found["exit_code"] == 0 and found["machine"]["cores"] >= 1
    by_name = {target["target"]: target for target in found["targets"]}
    assert by_name["torchax"]["ready"] and by_name["torchax"]["python"] == str(python)
    assert not by_name["torch_xla"]["ready"] and by_name["torch_xla"]["problems"][0]["fix"]


def test_something_that_is_no_python(tmp_path: Path) -> None:
    text = tmp_path / "python"
    text.write_text("no")
    assert "cannot be run" in shown("--python", str(text), "--target", "torchax")
