"""Forks Python interpreters that have imported torch, which takes a new one seconds.

    python fork_server.py SOCKET MODULE…   (the number of a file)

`client.py` asks for an interpreter, and stands for it. A child gets the arguments, the folder, the
environment and the open files of its client, and goes on as `python ARGUMENTS…` would. A client
whose environment would have made a difference to the imports is refused.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import gc
import importlib
import io
import json
import multiprocessing
import os
import runpy
import select
import signal
import socket
import sys
import tempfile
import threading
import time
import types
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

MOST = 250  # files that a client hands over
PATIENCE = 3.0  # seconds that programs have to end, when their server does
# Variables that are read when modules are imported, by their beginnings; and those that are not.
READ = ("PYTHON", "TORCH", "PYTORCH", "OMP_", "MKL_", "KMP_", "GOMP_", "LD_", "MALLOC_")
READ_BY_JAX = ("JAX_",)
READ_BY_XLA = ("PJRT_DEVICE", "PT_XLA", "XLA_USE", "XLA_REGISTER", "TPU_", "LIBTPU")
LATER = (
    "PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONIOENCODING", "PYTHONDONTWRITEBYTECODE",
    "PYTORCH_NVML_BASED_CUDA_CHECK", "TORCHDYNAMO_DISABLE", "TORCHINDUCTOR_CACHE_DIR",
    "TPU_RUNTIME", "TPU_MIGRATE",
)  # fmt: skip
# What JAX can be told after its import as well, and as what.
TOLD: dict[str, Callable[[str], object]] = {
    "JAX_COMPILATION_CACHE_DIR": str,
    "JAX_DUMP_IR_MODES": str,
    "JAX_DUMP_IR_TO": str,
    "JAX_ENABLE_X64": lambda value: value.lower() in ("y", "yes", "t", "true", "on", "1"),
    "JAX_NUM_CPU_DEVICES": int,
}
FLAGS = "XLA_FLAGS"  # read by the first compilation; imports add what they miss in it
MADE = "TPU_MIGRATE_MADE"  # what variables were that imports have set: JSON


class ForkServer:
    """Its main loop returns in children only, with what they have to do."""

    def __init__(self, listener: socket.socket, before: dict[str, str]) -> None:
        """``before``: the environment before the imports, which may have set variables."""
        self.listener, self.before = listener, before
        self.made = {n: v for n, v in os.environ.items() if before.get(n) != v}
        self.clients: dict[socket.socket, int] = {}  # with the process of each; 0: not yet
        self.wakes, self.rings = os.pipe()
        os.set_blocking(self.rings, False)
        signal.set_wakeup_fd(self.rings)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def serve(self) -> dict[str, Any]:
        while True:
            watched: list[Any] = [0, self.listener, self.wakes, *self.clients]
            ready, _, _ = select.select(watched, [], [])
            if 0 in ready:  # who has started it is gone
                self.end_all()
                os._exit(0)
            if self.wakes in ready:
                self.reap()
            if self.listener in ready:
                self.clients[self.listener.accept()[0]] = 0
            for client in [c for c in ready if c in self.clients]:
                if not self.clients[client]:
                    job = self.fork(client)
                    if job is not None:
                        return job
                else:
                    self.signalled(client)

    def fork(self, client: socket.socket) -> dict[str, Any] | None:
        """What a client asks for, in the child; None in the server."""
        received = _receive(client)
        if received is None:
            self.forget(client)
            return None
        job, files = received
        process = os.fork() if self.fits(job["env"]) else None
        if process == 0:
            before = {**self.before, FLAGS: job["env"].get(FLAGS)}
            job["env"] |= self.made | self.flags(job["env"])
            job["told"] = {
                name: job["env"][name]
                for name in TOLD
                if job["env"].get(name) not in (None, before.get(name))
            }
            if job["arguments"][0] == __file__:  # a server that imports more
                job["env"][MADE] = json.dumps({name: before.get(name) for name in self.made})
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for one in (self.listener, *self.clients):
                one.close()
            os.close(self.wakes)
            os.close(self.rings)
            os.setsid()
            _take_files(files, job["files"])
            return job
        for file in files:
            os.close(file)
        if process is None:
            client.sendall(b"-")
            self.forget(client)
        else:
            client.sendall(b"+")
            self.clients[client] = process
        return None

    def read(self, environment: dict[str, str]) -> dict[str, str]:
        """What the imports read of an environment; what they made of it themselves is no matter.

        JAX can be told another value of some, but not that there is none.
        """
        beginnings: tuple[str, ...] = READ
        for library, names in (("jax", READ_BY_JAX), ("torch_xla", READ_BY_XLA)):
            beginnings += names if library in sys.modules else ()
        return {
            name: "told" if name in TOLD else value
            for name, value in environment.items()
            if name.startswith(beginnings) and not name.startswith(LATER)
            if name not in self.made and (name in self.before or name not in TOLD)
        }

    def flags(self, environment: dict[str, str]) -> dict[str, str]:
        """XLA's, with those that the imports would have added."""
        if FLAGS not in self.made:
            return {}
        own, there = environment.get(FLAGS, ""), self.before.get(FLAGS, "").split()
        added = [flag for flag in self.made[FLAGS].split() if flag not in there]
        missing = [flag for flag in added if flag.partition("=")[0] not in own]
        return {FLAGS: " ".join([own, *missing])}

    def fits(self, environment: dict[str, str]) -> bool:
        """Whether the imports would have been the same."""
        made = all(
            environment.get(name) in (value, self.before.get(name))
            for name, value in self.made.items()
            if name != FLAGS
        )
        return made and self.read(environment) == self.read(self.before)

    def signalled(self, client: socket.socket) -> None:
        """A client passes a signal on, a byte each; when it is gone, so is its process."""
        try:
            numbers = client.recv(64)
        except OSError:
            numbers = b""
        for number in numbers or [signal.SIGKILL]:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.clients[client], number)
        if not numbers:
            self.forget(client)

    def reap(self) -> None:
        """What has ended, after a wake-up."""
        os.read(self.wakes, 4096)
        while True:
            try:
                process, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not process:
                return
            for client in [c for c, number in self.clients.items() if number == process]:
                with contextlib.suppress(OSError):  # what it has started ends with it
                    os.killpg(process, signal.SIGKILL)
                with contextlib.suppress(OSError):
                    client.sendall(str(os.waitstatus_to_exitcode(status)).encode())
                self.forget(client)

    def end_all(self) -> None:
        """What still runs: politely first, since torchrun then ends its ranks."""
        for number, patience in ((signal.SIGTERM, PATIENCE), (signal.SIGKILL, 0)):
            for process in filter(None, self.clients.values()):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process, number)
            end = time.monotonic() + patience
            while any(self.clients.values()) and (rest := end - time.monotonic()) > 0:
                if select.select([self.wakes], [], [], rest)[0]:
                    self.reap()

    def forget(self, client: socket.socket) -> None:
        del self.clients[client]
        client.close()


def _receive(client: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """The job, and the files that came with it."""
    files: list[int] = []
    space = socket.CMSG_SPACE(MOST * array.array("i").itemsize)
    head, ancillary, _, _ = client.recvmsg(8, space)
    for _, _, data in ancillary:
        files += array.array("i", data[: len(data) - len(data) % 4])
    if len(head) < 8:
        return None
    size, text = int.from_bytes(head, "little"), b""
    while len(text) < size:
        text += client.recv(size - len(text))
    return json.loads(text), files


def _take_files(files: list[int], numbers: list[int]) -> None:
    """The client's files, under the numbers that they have there."""
    high = [os.dup2(file, 200 + place, inheritable=False) for place, file in enumerate(files)]
    for file in files:
        os.close(file)
    for file, number in zip(high, numbers, strict=True):
        os.dup2(file, number)
        os.close(file)


def become(job: dict[str, Any], search_path: list[str]) -> list[str]:
    """Take over what belongs to the client; returns its command line."""
    os.chdir(job["cwd"])
    os.environ.clear()
    os.environ.update(job["env"])
    sys.executable = job["executable"]
    multiprocessing.set_executable(sys.executable)
    tempfile.tempdir = None  # it may have been asked for
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    encoding = os.environ.get("PYTHONIOENCODING", "utf-8").partition(":")[0]
    stdin = io.BufferedReader(io.FileIO(0, closefd=False))
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(stdin, encoding)  # type: ignore[misc]
    for number, name, errors in ((1, "stdout", "strict"), (2, "stderr", "backslashreplace")):
        raw = io.FileIO(number, "w", closefd=False)
        stream = io.TextIOWrapper(
            raw if unbuffered else io.BufferedWriter(raw), encoding, errors,
            line_buffering=number == 2 or os.isatty(number), write_through=unbuffered,
        )  # fmt: skip
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()
    if jax := sys.modules.get("jax"):
        for name, value in job["told"].items():
            jax.config.update(name.lower(), TOLD[name](value))
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = [*paths, *search_path]
    importlib.invalidate_caches()
    arguments: list[str] = job["arguments"]
    return arguments


def execute(arguments: list[str]) -> None:
    """As `python ARGUMENTS…` does; of options it knows -c, -m and -."""
    what, rest = arguments[0], arguments[1:]
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    main.__dict__["__builtins__"] = __builtins__
    if what == "-m":
        sys.argv = ["-m", *rest[1:]]
        sys.path.insert(0, str(Path.cwd()))
        runpy._run_module_as_main(rest[0])  # type: ignore[attr-defined]
        return
    if what == "-c":
        sys.argv = ["-c", *rest[1:]]
        sys.path.insert(0, "")
        source, name = rest[0], "<string>"
    elif what == "-":
        sys.argv = ["-", *rest]
        sys.path.insert(0, "")
        source, name = sys.stdin.read(), "<stdin>"
    else:
        sys.argv = [what, *rest]
        if Path(what).is_dir():
            sys.path.insert(0, what)
            runpy._run_module_as_main("__main__", alter_argv=False)  # type: ignore[attr-defined]
            return
        sys.path.insert(0, str(Path(what).resolve().parent))
        name = str(Path(what).absolute())
        main.__dict__.update(__file__=name, __cached__=None)
        source = Path(what).read_bytes()  # type: ignore[assignment]
    exec(compile(source, name, "exec"), main.__dict__)


def run(arguments: list[str]) -> int:
    """Its exit code, as Python has it; negative for the signal that ends it."""
    try:
        execute(arguments)
    except SystemExit as stop:
        if stop.code is None or isinstance(stop.code, int):
            return (stop.code or 0) & 0xFF
        print(stop.code, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        sys.excepthook(*sys.exc_info())
        return -signal.SIGINT
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


def end(code: int) -> NoReturn:
    """As Python ends, but that libraries are not taken down: that takes longer than many a run."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    if threading.active_count() == 1:  # others go on, and may look at what they know
        for module in [module for module in sys.modules.values() if _is_own(module)]:
            for name in [name for name in vars(module) if not name.startswith("__")]:
                vars(module)[name] = None
    gc.collect()
    for stream in [o for o in gc.get_objects() if isinstance(o, io.IOBase)]:  # that nobody closed
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _is_own(module: Any) -> bool:
    """Whether it is the program's, and no library's."""
    if not isinstance(module, types.ModuleType) or vars(module) is globals():
        return False
    file = vars(module).get("__file__") or ""
    libraries = (f"{sys.prefix}/lib", f"{sys.base_prefix}/lib")
    return module is sys.modules["__main__"] or (bool(file) and not file.startswith(libraries))


def _shown(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    """A traceback without what stands in this file."""
    while trace is not None and trace.tb_frame.f_code.co_filename in (__file__, runpy.__file__):
        trace = trace.tb_next
    sys.__excepthook__(kind, error.with_traceback(trace), trace)


if __name__ == "__main__":
    found = [path for path in sys.path[1:] if path not in ("", str(Path.cwd()))]
    made = json.loads(os.environ.pop(MADE, "{}"))
    before = {n: v for n, v in {**os.environ, **made}.items() if v is not None}
    for module in sys.argv[2:]:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    for cleanup in weakref.finalize._registry:  # type: ignore[attr-defined]
        cleanup.atexit = False  # torch would take its operators down, one by one
    gc.collect()
    gc.freeze()  # or a child's first collection copies all of it
    with socket.socket(fileno=int(sys.argv[1])) as listening:
        command = become(ForkServer(listening, before).serve(), found)
    sys.excepthook = _shown
    end(run(command))
