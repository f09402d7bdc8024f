"""Ranks of a program: processes that torchrun or the program itself starts, or threads.

Each is recorded in its own folder, `ranks/NUMBER`. The number is the rank, or the number of
processes started before. In the second case, `rank` in events.json is set when the process joins a
process group; if it never does, it is no rank.
"""

from __future__ import annotations

import atexit
import functools
import inspect
import itertools
import json
import multiprocessing.process
import multiprocessing.spawn
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MethodType
from typing import TYPE_CHECKING, Any, NoReturn

import recorded_process
import torch.distributed as dist

if TYPE_CHECKING:
    from session import Session

_TASK = "TPU_MIGRATE_RANK"  # tells a started process its role: JSON
_AGENT = "TORCHELASTIC_USE_AGENT_STORE"
_HERE = Path(__file__).resolve().parent
_MAIN = ("init_main_from_path", "init_main_from_name")
# Groups that were destroyed. DDP ends the threads of a group that nobody else holds, and waits for
# them while it has Python's lock; a thread that lets go of a tensor wants that lock (torch 2.9).
_kept: list[Any] = []


def folder(output: Path, number: int) -> Path:
    return output / "ranks" / str(number)


def tell(joined: Callable[[int], None], leaves: Callable[[], None]) -> None:
    """Note which rank this process is, once it is one; and when it leaves the group."""
    if not dist.is_available():
        return
    init, destroy = dist.init_process_group, dist.destroy_process_group
    signature = inspect.signature(init)

    @functools.wraps(init)
    def init_process_group(*args: Any, **kwargs: Any) -> None:
        with _meeting(signature.bind_partial(*args, **kwargs).arguments.get("init_method")):
            init(*args, **kwargs)
        joined(dist.get_rank())

    @functools.wraps(destroy)
    def destroy_process_group(*args: Any, **kwargs: Any) -> None:
        if sys.exc_info()[0] is None:  # otherwise the others are elsewhere
            leaves()
        _kept.extend(dist.distributed_c10d._world.pg_map)
        destroy(*args, **kwargs)

    dist.init_process_group = init_process_group
    dist.destroy_process_group = destroy_process_group


@contextmanager
def _meeting(address: str | None) -> Iterator[None]:
    """Lets ranks meet at an address of their own, as with a launcher of their own.

    Under torchrun, torch would take that address for torchrun's store, and wait for it.
    """
    own = (address or "").startswith("tcp://") and not (address or "").endswith(
        f":{os.environ.get('MASTER_PORT')}"
    )
    given = os.environ.pop(_AGENT, None) if own else None
    try:
        yield
    finally:
        if given is not None:
            os.environ[_AGENT] = given


def leave(code: int) -> NoReturn:
    """End a rank without finalizing Python: a thread of gloo that waits for the lock would
    abort."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def take_output(output: Path, number: int) -> None:
    """Ranks print at the same time: all except the first write to files of their own."""
    if number == 0:
        return
    sys.stdout.flush()
    sys.stderr.flush()
    with (output / "output.txt").open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)


# ---- processes that a program starts -------------------------------------------------------------


class Started:
    """Processes that a program starts, except workers of data loaders: each may be a rank."""

    def __init__(self, session: Session) -> None:
        self.session, self.numbers = session, itertools.count()
        prepare = multiprocessing.spawn.get_preparation_data
        run = multiprocessing.process.BaseProcess.run

        def prepared(name: str) -> dict[str, Any]:
            found: dict[str, Any] = prepare(name)
            if task := os.environ.get(_TASK):
                main = {key: found.pop(key) for key in _MAIN if key in found}
                found["init_main_from_path"] = str(_HERE / "rank.py")
                os.environ[_TASK] = json.dumps({**json.loads(task), **main})
            return found

        def begin(started: Any) -> None:
            if task := os.environ.pop(_TASK, None):  # in a forked process
                number = json.loads(task)["number"]
                session.fork(folder(session.output, number), number)
                take_output(session.output, number)
                if code := _record(session, started, run):
                    sys.exit(code)
            else:
                run(started)

        multiprocessing.spawn.get_preparation_data = prepared
        multiprocessing.process.BaseProcess.run = begin  # type: ignore[method-assign]

    @contextmanager
    def one(self) -> Iterator[None]:
        """While one is being started."""
        spec = str(Path(self.session.spec["output"]) / "spec.json")
        os.environ[_TASK] = json.dumps({"spec": spec, "number": next(self.numbers)})
        try:
            yield
        finally:
            os.environ.pop(_TASK, None)


def own_task() -> dict[str, Any]:
    """The role of a spawned process, removed from its environment."""
    task: dict[str, Any] = json.loads(os.environ.pop(_TASK))
    return task


def record_main_task(session: Session) -> None:
    """Record the task that this process was spawned for."""
    run = multiprocessing.process.BaseProcess.run

    def begin(started: Any) -> None:
        multiprocessing.process.BaseProcess.run = run  # type: ignore[method-assign]
        if "fork" in multiprocessing.get_all_start_methods():
            # A spawned process spawns by default. Workers of data loaders are forked instead, as in
            # ranks that a launcher starts, so that they draw the same numbers in all runs.
            multiprocessing.set_start_method("fork", force=True)
        leave(_record(session, started, run))

    multiprocessing.process.BaseProcess.run = begin  # type: ignore[method-assign]


def _record(session: Session, started: Any, run: Callable[[Any], None]) -> int:
    # processes of `torch.multiprocessing.spawn` pass errors on, and exit
    if started._target is not None and started._target.__name__ == "_wrap":
        started._args = (_telling(session, started._args[0]), *started._args[1:])
    return session.record(lambda: run(started))


def _telling(session: Session, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            session.failed = time.time()
            session.error = recorded_process.why(error, session.root)[0]
            raise

    return call


# ---- threads ---------------------------------------------------------------------------------


class PerThread:
    """Stands for one object in each thread that called `enter`, and for another in all others.

    Its methods also look up the object of the current thread, wherever they are stored.
    """

    def __init__(self, common: Any) -> None:
        vars(self).update(_common=common, _own=threading.local())

    def enter(self, own: Any) -> None:
        """From now on, it stands for this object in this thread."""
        self._own.it = own

    def __getattr__(self, name: str) -> Any:
        here = getattr(self._own, "it", self._common)
        value = getattr(here, name)
        if isinstance(value, MethodType) and value.__self__ is here:
            return MethodType(value.__func__, self)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(getattr(self._own, "it", self._common), name, value)


@contextmanager
def printing(output: Path, rank: int | None) -> Iterator[None]:
    """Threads print in turn: all except the first rank write to files of their own."""
    if not rank:
        yield
        return
    with (output / "output.txt").open("w", encoding="utf-8") as file:
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if not isinstance(stream, PerThread):
                stream = PerThread(stream)
                setattr(sys, name, stream)
            stream.enter(file)
        yield
