"""An interpreter that is forked is what a new one would be, but for what it has imported."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from migrator.verify import warm as package
from migrator.verify.warm import warm

IS_FORKED = "import sys; print('wave' in sys.modules)"
Start = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it is the real one")


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package, "_GPUS", ())


@pytest.fixture
def start(cold_interpreter: str) -> Iterator[Start]:
    with warm(Path(cold_interpreter), ["wave", "no_such_module"], os.environ) as program:

        def run(*arguments: str, **how: object) -> subprocess.CompletedProcess[str]:
            command = [str(program), *arguments]
            return subprocess.run(command, capture_output=True, text=True, timeout=60, **how)  # type: ignore[call-overload,no-any-return]

        yield run


def test_it_is_forked_and_says_to_be_the_real_one(start: Start, cold_interpreter: str) -> None:
    assert start("-c", IS_FORKED).stdout == "True\n"
    assert start("-c", "import sys; print(sys.executable)").stdout == f"{cold_interpreter}\n"


def test_the_path_of_temporary_files_may_be_long(
    cold_interpreter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("x" * 120)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    with warm(Path(cold_interpreter), ["wave"], os.environ) as program:
        done = subprocess.run([program, "-c", IS_FORKED], capture_output=True, text=True)
    assert done.stdout == "True\n"


def test_arguments_folder_environment_files_and_end_are_those_of_the_caller(
    start: Start, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import os, sys\nfrom other import NAME\nprint(sys.argv[1:], os.getcwd(), NAME)\n"
        "print(os.environ['HELLO'], sys.stdin.read(), file=sys.stderr)\nsys.exit(7)\n"
    )
    (tmp_path / "other.py").write_text("NAME = __name__\n")
    done = start(
        str(script), "a", "b c", cwd="/", input="given", env={**os.environ, "HELLO": "world"}
    )
    assert (done.returncode, done.stderr) == (7, "world given\n")
    assert done.stdout == "['a', 'b c'] / other\n"
    as_module = start("-m", "script", "x", cwd=tmp_path, env={**os.environ, "HELLO": ""}, input="")
    assert (as_module.returncode, as_module.stdout) == (7, f"['x'] {tmp_path} other\n")


def test_errors_and_signals_are_as_ever(start: Start, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("def f():\n    raise ValueError('no')\nf()\n")
    done = start(str(script))
    assert done.returncode == 1
    real = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert done.stderr == real.stderr
    assert start("-c", "import os; os.abort()").returncode == -signal.SIGABRT
    assert start("-c", "import os, signal; os.kill(0, signal.SIGTERM)").returncode == -15


LEFT_OPEN = """
import atexit, threading, time
class Last:
    def __del__(self):
        print("deleted")
one, ring = Last(), Last()
ring.itself = ring
atexit.register(print, "at exit")
file = open("left.txt", "w")
file.write("all of it")
threading.Thread(target=lambda: (time.sleep(0.1), print("a thread"))).start()
print("the end")
"""
STILL_RUNNING = """
import threading, time
def work():
    while True:
        time.sleep(0.001)
threading.Thread(target=work, daemon=True).start()
"""


@pytest.mark.parametrize(
    "program",
    [
        LEFT_OPEN, STILL_RUNNING, "import sys; sys.exit('a reason')", "raise SystemExit",
        "import sys; sys.exit(300)", "import sys; sys.exit(-1)", "import sys; sys.exit([1])",
        "raise KeyboardInterrupt",
    ],
)  # fmt: skip
def test_it_ends_as_ever(start: Start, cold_interpreter: str, tmp_path: Path, program: str) -> None:
    (tmp_path / "script.py").write_text(program)
    ends = []
    for run in (start, None):
        left = tmp_path / "left.txt"
        left.unlink(missing_ok=True)
        if run is not None:
            done = run("script.py", cwd=tmp_path)
        else:
            real = [cold_interpreter, "script.py"]
            done = subprocess.run(real, capture_output=True, text=True, cwd=tmp_path)
        written = left.read_text() if left.exists() else ""
        ends.append((done.returncode, done.stdout, done.stderr, written))
    assert ends[0] == ends[1]


def test_other_settings_of_the_imports_and_other_options_need_a_real_one(start: Start) -> None:
    threads = {**os.environ, "OMP_NUM_THREADS": "3"}
    assert start("-c", IS_FORKED, env=threads).stdout == "False\n"
    assert start("-E", "-c", IS_FORKED).stdout == "False\n"


def printed(program: Path, code: str, environment: dict[str, str]) -> str:
    command = [str(program), "-c", code]
    return subprocess.run(command, capture_output=True, text=True, env=environment).stdout


def test_jax_is_told_later_what_it_can_be_told(cold_interpreter: str, tmp_path: Path) -> None:
    (tmp_path / "jax.py").write_text(
        "import os\nprocess, told = os.getpid(), {}\nclass config:\n    update = told.__setitem__\n"
    )
    code = "import jax, os; print(jax.process == os.getpid(), jax.told)"
    cache, devices = "JAX_COMPILATION_CACHE_DIR", "JAX_NUM_CPU_DEVICES"
    others = {name: v for name, v in os.environ.items() if not name.startswith("JAX_")}
    environment = {**others, "PYTHONPATH": str(tmp_path), cache: "here"}
    with warm(Path(cold_interpreter), ["jax"], environment) as program:

        def told(**variables: str) -> str:
            return printed(program, code, {**others, "PYTHONPATH": str(tmp_path), **variables})

        assert told(**{cache: "here"}) == "False {}\n"
        expected = "{'jax_compilation_cache_dir': 'there', 'jax_num_cpu_devices': 2}"
        assert told(**{cache: "there", devices: "2"}) == f"False {expected}\n"
        assert told() == "True {}\n"  # its own default is not known
        assert told(**{cache: "here", "JAX_PLATFORMS": "cpu"}) == "True {}\n"


def test_flags_of_xla_are_those_of_the_program_and_of_its_imports(
    cold_interpreter: str, tmp_path: Path
) -> None:
    (tmp_path / "adds.py").write_text("import os\nos.environ['XLA_FLAGS'] += ' --more=1 --b=1'\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "XLA_FLAGS": "--a=1"}
    python = Path(cold_interpreter)
    with (
        warm(python, ["adds"], environment) as first,
        warm(python, ["wave"], environment, forked_from=first) as second,
    ):
        for own, expected in (
            ("--a=1", "--a=1 --more=1 --b=1"),
            ("--b=2", "--b=2 --more=1"),
            ("", " --more=1 --b=1"),
        ):
            code = "import os, sys; print(os.environ['XLA_FLAGS'], 'adds' in sys.modules)"
            for program in (first, second):
                found = printed(program, code, {**environment, "XLA_FLAGS": own})
                assert found == f"{expected} True\n"


def test_a_server_forked_from_another_has_its_imports_too(
    cold_interpreter: str, tmp_path: Path
) -> None:
    (tmp_path / "sets.py").write_text("import os\nos.environ['TORCH_SET'] = 'by an import'\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "TORCH_SET": "before"}
    python = Path(cold_interpreter)
    code = "import os, sys; print(*(name in sys.modules for name in ('sets', 'wave')))"
    with (
        warm(python, ["sets"], environment) as first,
        warm(python, ["wave"], environment, forked_from=first) as second,
        warm(first, ["wave"], environment) as third,
    ):

        def imported(program: Path, value: str) -> str:
            return printed(program, code, {**environment, "TORCH_SET": value})

        assert imported(first, "before") == "True False\n"
        assert imported(second, "before") == imported(third, "before") == "True True\n"
        assert imported(second, "by an import") == "True True\n"
        assert imported(second, "other") == imported(third, "other") == "False False\n"


def test_what_a_program_leaves_behind_ends_with_it(start: Start, tmp_path: Path) -> None:
    alive = tmp_path / "alive"
    child = (
        f"import pathlib, time\nwhile True: pathlib.Path({str(alive)!r}).touch(); time.sleep(.05)"
    )
    code = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {child!r}])"
    start("-c", f"{code}; time.sleep(2)")
    assert alive.exists()
    alive.unlink()
    time.sleep(0.5)
    assert not alive.exists()


def test_what_still_runs_ends_with_the_server(cold_interpreter: str, tmp_path: Path) -> None:
    """Also what is started in a session of its own, as torchrun's ranks are, if it is told."""
    started, told = tmp_path / "started", tmp_path / "told"
    code = f"""
import pathlib, signal, time
def end(*_):
    pathlib.Path({str(told)!r}).touch()
    raise SystemExit
signal.signal(signal.SIGTERM, end)
pathlib.Path({str(started)!r}).touch()
while True:
    time.sleep(0.01)
"""
    with warm(Path(cold_interpreter), [], os.environ) as program:
        running = subprocess.Popen([program, "-c", code])
        while not started.exists():
            time.sleep(0.02)
    assert told.exists()
    assert running.wait(10) == 0


def test_where_the_server_ends_the_real_one_runs(cold_interpreter: str, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import os\nos._exit(3)\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    with warm(Path(cold_interpreter), ["broken"], environment) as program:
        for _ in range(2):
            done = subprocess.run([program, "-c", "print(5)"], capture_output=True, text=True)
            assert (done.returncode, done.stdout) == (0, "5\n")


def test_nothing_is_forked_on_a_machine_with_a_gpu(
    cold_interpreter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(package, "_GPUS", (tmp_path,))
    with warm(Path(cold_interpreter), ["wave"], os.environ) as program:
        assert program == Path(cold_interpreter)


@pytest.mark.parametrize("how", ["os._exit(0)", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_the_server_ends_with_what_started_it(cold_interpreter: str, how: str) -> None:
    code = f"""\
import os, signal, subprocess, sys
from pathlib import Path
from migrator.verify.warm import warm
with warm(Path(sys.executable), [], os.environ) as program:
    server = "import os; print(os.getppid(), flush=True)"
    subprocess.run([program, "-c", server])
    {how}
"""
    done = subprocess.run([cold_interpreter, "-c", code], capture_output=True, text=True)
    server = Path("/proc") / done.stdout.strip()
    assert server.name.isdecimal(), done.stderr
    until = time.monotonic() + 10
    while server.exists() and "fork_server.py" in (server / "cmdline").read_text():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_nothing_is_forked_where_pythonpath_customizes_each_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with warm(Path(sys.executable), ["json"], {}) as program:
        assert program == Path(sys.executable)
