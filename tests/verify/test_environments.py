"""Environments are made in the user's cache folder, and only when asked for."""

import json
import os
import shlex
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from migrator.doctor.command import doctor_command
from migrator.targets import find_target
from migrator.verify import environments
from migrator.verify.choose_interpreter import choose_interpreter
from migrator.verify.command import verify_command
from migrator.verify.environments import (
    announcement,
    cache_folder,
    cached_python,
    commands,
    environment_folder,
    how_to,
    install,
)
from migrator.verify.run_options import RunOptions
from migrator.verify.verify_errors import VerifyError

from .support import executable, fake_interpreter

JAX_TARGET, XLA_TARGET = find_target("torchax"), find_target("torch_xla")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(environments, "CPU_WHEELS", "http://127.0.0.1:1")  # nobody answers
    monkeypatch.setenv("TPU_MIGRATE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def fake_uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    """A uv that notes its arguments and index settings, then runs ``body``."""
    note = f'echo "$@ [$UV_INDEX_URL]" >> "{tmp_path}/calls"\n'
    uv = executable(tmp_path / "uv", f"#!/bin/sh\n{note}{body}\n")
    monkeypatch.setattr(environments, "uv_command", lambda: [str(uv)])


MAKES_PYTHON = 'for last; do :; done; if [ "$1" = venv ]; then mkdir -p "$last/bin"; '
MAKES_PYTHON += 'touch "$last/bin/python"; fi'


def test_the_cache_folder_follows_the_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    assert environment_folder(JAX_TARGET).is_relative_to(cache_folder())
    monkeypatch.delenv("TPU_MIGRATE_CACHE")
    if sys.platform == "linux":
        monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
        assert cache_folder() == Path("/somewhere/tpu-migrate")


def test_targets_and_pins_have_folders_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    before = environment_folder(JAX_TARGET)
    assert environment_folder(XLA_TARGET) != before
    monkeypatch.setattr(environments, "python_version", lambda target: "3.99")
    assert environment_folder(JAX_TARGET) != before


def test_a_python_that_libtpu_has_no_wheel_for_is_not_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 13, 0))
    assert environments.python_version(JAX_TARGET) == "3.13"
    assert commands(JAX_TARGET, ["uv"])[0][4] == sys.executable
    assert environments.python_version(XLA_TARGET) == "3.11"
    assert commands(XLA_TARGET, ["uv"])[0][4] == "3.11"


def test_the_commands_install_the_extra_and_nothing_of_the_migrator() -> None:
    venv, pip = commands(JAX_TARGET, ["uv"])
    assert venv[:2] == ["uv", "venv"] and venv[-1] == str(environment_folder(JAX_TARGET))
    assert "torchax==0.0.13" in pip
    assert "torch_xla[tpu]==2.9.0" in commands(XLA_TARGET, ["uv"])[1]
    assert not any("tpu-migrate" in word or "torch_xla" in word for word in pip[5:])


def test_how_to_is_exact_and_says_what_where_and_how_much() -> None:
    text = how_to(JAX_TARGET, ["image_ops"])
    assert "tpu-migrate verify --install image_ops\n" in text
    assert "tpu-migrate doctor --install --target torchax\n" in how_to(JAX_TARGET, ())
    assert str(environment_folder(JAX_TARGET)) in text
    assert "about 7 GB" in text
    assert "about 2.5 GB" in how_to(find_target("keras_jax"), ())  # no PyTorch, no CUDA
    assert f"uv venv --python {environments.python_version(JAX_TARGET)} .venv-torchax" in text
    assert "torchax==0.0.13" in text


@pytest.mark.skipif(sys.platform == "win32", reason="fake interpreters are sh scripts")
def test_what_to_type_without_an_environment_is_the_same_command_with_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text("import torch\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", str(fake_interpreter(tmp_path / "bare", {})))
    given = ["train.py", "--target", "torchax", "--", "--text", "it's $5", "a b", "isn't"]
    done = CliRunner().invoke(verify_command, given)
    assert done.exit_code == 2
    (line,) = [line for line in done.output.splitlines() if "verify --install" in line]
    words = shlex.split(line[line.index("tpu-migrate") :])
    assert words == ["tpu-migrate", "verify", "--install", *given]


@pytest.mark.skipif(sys.platform == "win32", reason="fake interpreters are sh scripts")
def test_a_relative_python_is_found_and_the_link_of_an_environment_kept(
    tmp_path: Path, python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    link = tmp_path / ".venv" / "bin" / "python"
    link.symlink_to(python)
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    Path("train.py").write_text("print('it', 'ran'); 1 / 0\n", "utf-8")
    given = ["--target", "torchax", "--python", "../.venv/bin/python"]
    done = CliRunner().invoke(verify_command, ["train.py", "--compile-for", "v6e-1", *given])
    assert "it ran" in done.output
    done = CliRunner().invoke(doctor_command, [*given, "--format", "json"])
    (state,) = json.loads(done.stdout)["targets"]
    assert os.path.normpath(state["python"]) == str(link)


@pytest.mark.skipif(sys.platform == "win32", reason="fake uv is an sh script")
class TestInstall:
    def test_makes_one_environment_and_finds_it_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fake_uv(tmp_path, monkeypatch, MAKES_PYTHON)
        monkeypatch.setenv("UV_INDEX_URL", "https://index.example")
        assert cached_python(JAX_TARGET) is None
        python = install(JAX_TARGET)
        assert cached_python(JAX_TARGET) == python and python.exists()
        calls = (tmp_path / "calls").read_text()
        assert calls.count("[https://index.example]") == 2
        assert "about 1 GB" in announcement(XLA_TARGET)

    def test_a_failure_leaves_nothing_and_names_the_command(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fake_uv(tmp_path, monkeypatch, MAKES_PYTHON + '; [ "$1" = venv ]')
        with pytest.raises(VerifyError, match=r"failed \(exit 1\): .*uv pip install"):
            install(JAX_TARGET)
        assert cached_python(JAX_TARGET) is None
        assert not environment_folder(JAX_TARGET).exists()

    def test_an_interrupted_installation_is_not_used_and_is_replaced(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        half = environments.python_of(environment_folder(JAX_TARGET))
        half.parent.mkdir(parents=True)
        half.touch()
        assert cached_python(JAX_TARGET) is None
        fake_uv(tmp_path, monkeypatch, MAKES_PYTHON)
        assert install(JAX_TARGET) == half


@pytest.fixture
def cpu_wheels(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An index with a page for torch, in place of PyTorch's own."""

    class Index(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/torch/" else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Index) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setattr(environments, "CPU_WHEELS", address)
        yield address
        server.shutdown()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere PyTorch brings no CUDA")
def test_torch_comes_without_cuda_where_its_index_answers(
    cpu_wheels: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in environments._INDEXES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert environments.takes_cpu_torch(JAX_TARGET) and not environments.takes_cpu_torch(XLA_TARGET)
    assert "about 3 GB" in announcement(JAX_TARGET) and "about 8 GB" in announcement(XLA_TARGET)
    by_pip = commands(JAX_TARGET, None, cpu_torch=True)[1]
    assert by_pip[4:6] == ["--extra-index-url", cpu_wheels]
    fake_uv(tmp_path, monkeypatch, MAKES_PYTHON)
    install(JAX_TARGET)
    assert "--torch-backend cpu" in (tmp_path / "calls").read_text()
    monkeypatch.setenv("UV_INDEX_URL", "https://index.example")  # it has to have everything
    assert not environments.takes_cpu_torch(JAX_TARGET)
    monkeypatch.delenv("UV_INDEX_URL")
    monkeypatch.setattr(environments, "CPU_WHEELS", f"{cpu_wheels}/gone")
    assert not environments.takes_cpu_torch(JAX_TARGET)


def test_without_uv_there_are_venv_and_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments, "uv_command", lambda: None)
    monkeypatch.setattr(environments, "pinned", lambda target: [])
    pip = str(environments.python_of(environment_folder(JAX_TARGET)))
    made, installed = commands(JAX_TARGET, None)
    assert made == [sys.executable, "-m", "venv", str(environment_folder(JAX_TARGET))]
    assert installed == [pip, "-m", "pip", "install"]
    with pytest.raises(VerifyError, match="pip install"):  # pip has nothing to install
        install(JAX_TARGET)
    assert not environment_folder(JAX_TARGET).exists()
    newer = SimpleNamespace(version_info=(3, 99), executable="python", platform=sys.platform)
    monkeypatch.setattr(environments, "sys", newer)
    with pytest.raises(VerifyError, match=r"torchax needs Python 3\.\d+, which uv brings"):
        install(JAX_TARGET)


def test_what_an_app_requires_comes_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Into an environment of ours; in any other the command is said."""
    other = fake_interpreter(tmp_path / "other")
    wanted = {"requires": ["peft"], "by_import": False}
    with pytest.raises(VerifyError, match=r"has no peft\. Fix: .* install .*peft==0\.21\.\*"):
        choose_interpreter(JAX_TARGET, RunOptions(python=other, install=True), **wanted)
    ours = fake_interpreter(environment_folder(JAX_TARGET))
    (environment_folder(JAX_TARGET) / ".tpu-migrate-ready").touch()
    with pytest.raises(VerifyError, match="has no peft"):
        choose_interpreter(JAX_TARGET, RunOptions(python=ours), **wanted)
    site = ours.parents[1] / "site"
    metadata = "Metadata-Version: 2.1\\nName: peft\\nVersion: 0.21.2\\n"
    installs = f'd="{site}/peft-0.21.2.dist-info"; mkdir "$d"; printf "{metadata}" > "$d/METADATA"'
    fake_uv(tmp_path, monkeypatch, f'{installs}; touch "{site}/peft.py"')
    found = choose_interpreter(JAX_TARGET, RunOptions(python=ours, install=True), **wanted)
    assert found.versions["peft"] == "0.21.2"
    assert "peft==0.21.*" in (tmp_path / "calls").read_text()


def test_what_pip_says_while_it_installs_is_seen_and_is_no_result(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Minutes and gigabytes went by without a word, where there is no uv."""
    environments._run([sys.executable, "-c", "print('Collecting torch')"])
    assert capfd.readouterr() == ("", "Collecting torch\n")
