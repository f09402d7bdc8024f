"""What all rooms share: the two tiers, and interpreters that start fast.

The first tier always runs. Of the second, which is marked `thorough`, each commit runs a twentieth,
another one each time; `--all` runs both whole. Tests that share something expensive are chosen
together: `thorough("what they share")`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from migrator.verify.warm import warm

SHARE = 20
CHOSEN, LEFT = pytest.StashKey[list[str]](), pytest.StashKey[int]()
# Rooms whose tests start a target's interpreters; those of `verify` that do are named so.
STARTING = ("runtime", "apps", "editor")
# Rooms whose tests run the command, which remembers results.
REMEMBERING = ("cache", "ci", "command", "editor", "files", "report", "review")
OF_VERIFY = ("test_target_", "test_torch_")
# What the language server imports; of what needs a target, tests/run.py has interpreters.
EDITOR = ("libcst", "pygls.lsp.server", "lsprotocol.types", "cattrs")
# The real one: tests themselves may run in one that is forked.
PYTHON = sys.executable = os.environ.get("TPU_MIGRATE_PYTHON", sys.executable)
_WARM = contextlib.ExitStack()  # until all tests have run


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="both tiers of tests, whole")
    parser.addoption("--sample", help="what chooses of the second tier: else the commit")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "thorough: of the second tier, see tests/conftest.py")
    # What runs keep in the user's account; tests that look there name a folder of their own.
    os.environ["TPU_MIGRATE_STATE"] = _WARM.enter_context(tempfile.TemporaryDirectory())
    if config.getoption("--all"):
        os.environ["TPU_MIGRATE_THOROUGH"] = "1"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--all") or any("::" in argument for argument in config.args):
        return
    sample = _sample(config)
    thorough = [item for item in items if item.get_closest_marker("thorough")]
    chosen = [item for item in thorough if _number(f"{sample} {_group(item)}") % SHARE == 0]
    left = {*thorough} - {*chosen}
    items[:] = [item for item in items if item not in left]
    config.hook.pytest_deselected(items=list(left))
    config.stash[CHOSEN], config.stash[LEFT] = [item.nodeid for item in chosen], len(left)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    config = terminalreporter.config
    chosen = config.stash.get(CHOSEN, [])
    if total := len(chosen) + config.stash.get(LEFT, 0):
        terminalreporter.section("second tier")
        terminalreporter.line(
            f"{len(chosen)} of {total}, chosen by --sample {_sample(config)}; --all runs them all"
        )
        for name in chosen:
            terminalreporter.line(f"  {name}")


def _sample(config: pytest.Config) -> str:
    given: str | None = config.getoption("--sample")
    if given is None:
        command = ["git", "rev-parse", "--short=12", "HEAD"]
        done = subprocess.run(command, cwd=config.rootpath, capture_output=True, text=True)
        given = config.option.sample = done.stdout.strip() or "no commit"
    return given


def _group(item: pytest.Item) -> str:
    marker = item.get_closest_marker("thorough")
    return str(marker.args[0]) if marker is not None and marker.args else item.nodeid


def _number(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


@cache
def interpreter(room: str) -> str:
    """Stands for `sys.executable`, and has imported what takes long in a room."""
    if room != "editor":
        return os.environ.get("TPU_MIGRATE_WARM", sys.executable)
    environment = {name: v for name, v in os.environ.items() if name != "PYTHONPATH"}
    return str(_WARM.enter_context(warm(Path(PYTHON), EDITOR, environment, programs_see_it=True)))


def pytest_unconfigure() -> None:
    _WARM.close()


@pytest.fixture(scope="module", autouse=True)
def interpreters_start_fast(request: pytest.FixtureRequest) -> Iterator[None]:
    """`sys.executable` is an interpreter that is forked where much is imported already."""
    path = request.path.relative_to(Path(__file__).parent)
    room, file = path.parts[0], path.name
    if room in STARTING or file.startswith(OF_VERIFY):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "executable", interpreter(room))
            yield
    else:
        yield


@pytest.fixture(autouse=True)
def own_cache(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No test is answered from what another one's run remembers."""
    if request.path.relative_to(Path(__file__).parent).parts[0] in REMEMBERING:
        monkeypatch.setenv("TPU_MIGRATE_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def cold_interpreter() -> str:
    """The real one, which has imported nothing."""
    return PYTHON


os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # torch takes seconds more without bytecode
