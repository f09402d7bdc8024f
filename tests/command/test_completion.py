"""Completion, as bash, zsh, fish and PowerShell give it to a user."""

from __future__ import annotations

import os
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers import REPOSITORY

from migrator.cli import cli, completion

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no such shells there")
PROGRAM = "tpu-migrate"

Ask = Callable[[str], list[str]]


def shell_of(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """With the program on PATH, and a home of its own."""
    program = tmp_path / "bin" / PROGRAM
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m migrator "$@"\n')
    program.chmod(0o755)
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    return {"PATH": path, "HOME": str(tmp_path), "TERM": "dumb", "PYTHONPATH": str(REPOSITORY)}


@pytest.fixture(params=["bash", "fish"])
def ask(request: pytest.FixtureRequest, environment: dict[str, str], tmp_path: Path) -> Ask:
    """What a shell offers for a line, by its own means to ask for that."""
    shell = shell_of(request.param)
    if request.param == "fish":
        script = f"{PROGRAM} completion fish | source; complete -C $argv[1]"
        command = [shell, "--no-config", "-c", script]
    else:
        # readline passes the words of a line, broken at =, too
        script = (
            f'eval "$({PROGRAM} completion bash)"; read -ra COMP_WORDS <<< "${{1//=/ = }}"; '
            '[[ $1 == *[\\ =] ]] && COMP_WORDS+=(""); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); '
            "compopt() { :; }; _tpu_migrate_completion tpu-migrate; "
            "printf '%s\\n' \"${COMPREPLY[@]}\""
        )
        command = [shell, "--norc", "-c", script, "bash"]
    (tmp_path / "reference_apps/tiny").mkdir(parents=True)
    (tmp_path / "reference_apps/tiny/app.toml").touch()
    (tmp_path / "golden").mkdir()
    (tmp_path / "train.py").touch()
    (tmp_path / "models").mkdir()

    def offered(line: str) -> list[str]:
        done = subprocess.run(
            [*command, line], cwd=tmp_path, env=environment, capture_output=True, check=True
        )
        words = done.stdout.decode().splitlines()
        return [word.partition("\t")[0].rstrip("/") for word in words if word]

    return offered


# ---- what is offered -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("--sel", {"--select"}),  # of the default command
        ("tr", {("file", "tr")}),
        ("m", {"mcp", "migrate", ("file", "m")}),
        ("train.py --target torch_x", {"torch_xla"}),
        ("train.py --target=torch_x", {"--target=torch_xla"}),
        ("--target=torch_x", {"--target=torch_xla"}),
        ("train.py other", {("file", "other")}),
        ("train.py --ignore MOV00", {f"MOV00{n}" for n in range(1, 6)}),
        ("train.py --ignore MOV001,MOV00", {f"MOV001,MOV00{n}" for n in range(2, 6)}),
        ("explain mov00", {f"MOV00{n}" for n in range(1, 6)}),
        ("verify vi", {"video_transformer", ("file", "vi")}),
        ("verify mshnet --target a", {"all"}),
        ("train.py -o m", {("dir", "m")}),
        ("doctor --py", {"--python"}),
        ("completion z", {"zsh"}),
        ("--color n", {"never"}),
        ("train.py --format g", {"github", "github-review", "gitlab"}),
    ],
)
def test_offers(line: str, expected: set[object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    *before, incomplete = line.split(" ")
    offers = completion._Zsh(cli, {}, PROGRAM, "X").get_completions(before, incomplete)
    plain = {
        offer.value if offer.type == "plain" else (offer.type, offer.value) for offer in offers
    }
    assert plain == expected


# ---- in shells -----------------------------------------------------------------------------------


def test_words_and_paths_together(ask: Ask) -> None:
    assert set(ask("tpu-migrate m")) == {"mcp", "migrate", "models"}


def test_a_folder(ask: Ask) -> None:
    assert set(ask("tpu-migrate train.py -o m")) == {"models"}


def test_a_list_with_commas(ask: Ask) -> None:
    assert set(ask("tpu-migrate train.py --ignore PRE,MOV00")) == {
        f"PRE,MOV00{n}" for n in range(1, 6)
    }


def test_an_equals_sign(ask: Ask) -> None:
    (word,) = ask("tpu-migrate train.py --target=torch_x")
    assert word.removeprefix("--target=") == "torch_xla"


def test_power_shell_is_given_three_lines_for_each_offer(environment: dict[str, str]) -> None:
    """What its script reads: kind, word, help. The script itself was never run in PowerShell."""
    program = Path(environment["PATH"].partition(os.pathsep)[0]) / PROGRAM

    def offered(line: str, at: int) -> str:
        asked = {"COMP_WORDS": line, "COMP_CWORD": str(at)}
        asked["_TPU_MIGRATE_COMPLETE"] = "powershell_complete"
        return subprocess.check_output([program], env=environment | asked, text=True)

    assert offered("tpu-migrate x --target=torch_x", 2).startswith("plain\n--target=torch_xla\n")
    assert offered("tpu-migrate x -o m", 3) == "dir\nm\n_\n"
    words = offered("tpu-migrate x --stati", 2).splitlines()
    assert words[:2] == ["plain", "--statistics"] and "Count" in words[2]
    script = subprocess.check_output(
        [program, "completion", "powershell"], env=environment, text=True
    )
    assert "-CommandName tpu-migrate" in script and "'powershell_complete'" in script


def typed(command: list[str], environment: dict[str, str], keys: list[tuple[str, str]]) -> str:
    """What a terminal shows when keys are typed into an interactive shell, each behind what the
    keys before it made appear."""
    import pty

    process, terminal = pty.fork()
    if process == 0:
        os.chdir(environment["HOME"])
        os.execve(command[0], command, environment)
    shown, end = "", time.monotonic() + 60
    try:
        for key, answer in keys:
            os.write(terminal, key.encode())
            shown = ""
            while answer not in shown and time.monotonic() < end:
                if select.select([terminal], [], [], 0.1)[0]:
                    text = os.read(terminal, 4096).decode(errors="replace")
                    shown += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\x08|\r", "", text)
    finally:
        os.kill(process, 9)
        os.waitpid(process, 0)
        os.close(terminal)
    return shown


@pytest.mark.parametrize("name", ["bash", "zsh"])
def test_the_tab_key(name: str, environment: dict[str, str]) -> None:
    """In a real terminal: the rest of the word appears behind what was typed."""
    start = {
        "bash": f'eval "$({PROGRAM} completion bash)"',
        "zsh": f'autoload -U compinit; compinit -u; eval "$({PROGRAM} completion zsh)"',
    }[name]
    command = [shell_of(name), *{"bash": ["--norc", "-i"], "zsh": ["-f", "-i"]}[name]]
    keys = [(f"{start}; echo REA'DY'\n", "READY"), (f"{PROGRAM} x --stati\t", "--statistics")]
    keys.append(("--target=torch_x\t", "torch_xla"))
    shown = typed(command, environment, keys)
    assert "--target=torch_xla" in shown, shown
