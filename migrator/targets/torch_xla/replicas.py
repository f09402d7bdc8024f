"""Runs a program for several ranks on the CPU back end of torch_xla; stands alone, in its python.

    PJRT_DEVICE=CPU CPU_NUM_DEVICES=2 python replicas.py [--each] SCRIPT [ARGUMENTS]

On a TPU each rank is a process with a chip. The CPU client has all devices in one process, so here
each rank is a thread, with XLA's own collectives between them. Ranks run in turn, one at a time,
from one exchange to the next, and each has a process's own state: random numbers,
environment, modules of the program, built-in functions, world of torch.distributed. So a run gives
the same numbers each time, and if ranks don't do the same exchanges, on which a TPU would hang,
it raises an error.

With ``--each`` every rank runs the whole script, as torchrun starts it; ``{rank}`` in an argument
is replaced by its number (``--local_rank={rank}`` is torch.distributed.launch's argument).
"""

import builtins
import functools
import io
import os
import pickle
import random
import runpy
import sys
import threading
import traceback
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any

COUNT = int(os.environ.get("CPU_NUM_DEVICES") or 1)
# The default is the number of cores; an exchange needs a thread for each device.
os.environ.setdefault("XLA_THREAD_POOL_SIZE", str(max(32, 2 * COUNT)))

numpy: Any = import_module("numpy")
torch: Any = import_module("torch")
torch_xla: Any = import_module("torch_xla")
xm: Any = import_module("torch_xla.core.xla_model")
xr: Any = import_module("torch_xla.runtime")
pjrt: Any = import_module("torch_xla._internal.pjrt")
rendezvous: Any = import_module("torch_xla._internal.rendezvous")
multi_threaded_pg: Any = import_module("torch.testing._internal.distributed.multi_threaded_pg")

# Library modules that keep the state of one run of a program.
_OWN_LIBRARIES = ("hydra", "omegaconf")
_group_of_gloo: Any = torch.distributed.ProcessGroupGloo
_EXCHANGES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "collective_permute")


class Turns:
    """Lets one rank run at a time."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._at = 0  # the rank whose turn it is
        self._running = set(range(COUNT))
        self._away: set[int] = set()
        self._exchanges: list[str] = []  # all exchanges so far
        self._done = [0] * COUNT  # the number of them done, by rank
        self._failed = False
        self._start: tuple[Any, ...] = ()

    @contextmanager
    def take(self, rank: int) -> Iterator[None]:
        """Run this thread as ``rank``, to its end."""
        self._wait(rank)
        # The first rank finds the program's previous state: ranks start alike.
        self._start = self._start or (
            dict(os.environ), {"__main__": _modules()["__main__"]}, [*sys.argv],
            dict(vars(builtins)),
        )  # fmt: skip
        _restore((*_fresh_numbers(rank), *self._start))
        try:
            yield
        except BaseException:
            if not self._failed:  # the others end because of this one
                traceback.print_exc()
            self._failed = True
            raise
        finally:
            with self._condition:
                self._running.discard(rank)
                self._next(rank)

    def meet(self, exchange: str) -> None:
        """Continue when all ranks have reached the same exchange."""
        rank = xr.global_ordinal()
        state = _state()
        with self._condition:
            at = self._done[rank]
            self._done[rank] += 1
            if at == len(self._exchanges):
                self._exchanges.append(exchange)
            if exchange != self._exchanges[at]:
                others = f"where others wait for {self._exchanges[at]}"
                raise RuntimeError(f"rank {rank} waits for {exchange}, {others}")
            self._next(rank)
        self._wait(rank)
        while behind := {r for r in range(COUNT) if self._done[r] <= at}:
            if not behind <= self._running | self._away:
                _restore(state)
                raise RuntimeError(f"rank {rank} waits for {exchange}, and another rank has ended")
            with self._condition:  # a rank that is away may still arrive
                self._next(rank)
            self._wait(rank)
        _restore(state)

    def away(self, work: Callable[[], Any]) -> Any:
        """Waiting for other ranks without XLA, while these take their turns."""
        rank, state = xr.global_ordinal(), _state()
        with self._condition:
            self._running.discard(rank)
            self._away.add(rank)
            self._next(rank)
        try:
            return work()
        finally:
            with self._condition:
                self._running.add(rank)
                self._away.discard(rank)
                if self._at < 0:
                    self._at = rank
            self._wait(rank)
            _restore(state)

    def _next(self, rank: int) -> None:
        order = [(rank + 1 + i) % COUNT for i in range(COUNT)]
        self._at = next((r for r in order if r in self._running), -1)
        if self._at == rank and self._away:
            self._at = -1  # whoever comes back is next
        self._condition.notify_all()

    def _wait(self, rank: int) -> None:
        with self._condition:
            self._condition.wait_for(lambda: self._at == rank or self._failed)
        if self._failed:
            raise SystemExit(f"rank {rank} ends, since another one has failed")


_turns = Turns()
_package = ""  # of the main module


def _state() -> tuple[Any, ...]:
    """The state that a separate process would have."""
    numbers = torch.get_rng_state(), numpy.random.get_state(), random.getstate()
    return *numbers, dict(os.environ), _modules(), [*sys.argv], dict(vars(builtins))


def _modules() -> dict[str, types.ModuleType]:
    """The modules that each process would import separately, with their own state."""
    found = {}
    for name, module in [*sys.modules.items()]:
        path = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), "")
        if name == "__main__" or _is_own(name.partition(".")[0], path):
            found[name] = module
    return found


@functools.cache
def _is_own(package: str, path: str) -> bool:
    if package in _OWN_LIBRARIES:
        return True
    return package != "tpu_runtime" and "site-packages" not in path and path.startswith(_folders())


@functools.cache
def _folders() -> tuple[str, ...]:
    """The folders of the program's modules."""
    return tuple(f"{Path(folder).absolute()}{os.sep}" for folder in (sys.path[0], "."))


def _put_back(modules: dict[str, types.ModuleType]) -> None:
    for name in _modules():
        del sys.modules[name]
    sys.modules.update(modules)


def _fresh_numbers(rank: int) -> tuple[Any, ...]:
    numbers = torch.Generator().get_state(), numpy.random.RandomState(rank).get_state()
    return *numbers, random.Random(rank).getstate()


def _restore(state: tuple[Any, ...]) -> None:
    torch.set_rng_state(state[0])
    numpy.random.set_state(state[1])
    random.setstate(state[2])
    if state[3] != dict(os.environ):
        os.environ.clear()
        os.environ.update(state[3])
    _put_back(state[4])
    sys.argv = [*state[5]]
    for name in vars(builtins).keys() - state[6].keys():
        delattr(builtins, name)
    vars(builtins).update(state[6])  # some programs let only the first rank print


def _at_once(name: str, exchange: Callable[..., Any]) -> Callable[..., Any]:
    """An exchange as a separate program that all ranks run at the same time."""

    @functools.wraps(exchange)
    def exchanged(*args: Any, **kwargs: Any) -> Any:
        if xr.world_size() == 1:
            return exchange(*args, **kwargs)
        torch_xla.sync(wait=True)
        if name == "all_gather":
            kwargs["pin_layout"] = False
        result = exchange(*args, **kwargs)
        _turns.meet(f"{name} of {_shapes(args)}")
        # The first rank compiles, and the others find its program: it has to be the same one.
        device = torch_xla._XLAC._xla_get_default_device()
        torch_xla._XLAC._xla_step_marker(device, [], wait=False, reset_scope=True)
        _turns.meet(f"the end of {name}")
        torch_xla.sync(wait=True)
        return result

    return exchanged


class _Gloo:
    """A gloo group, whose ranks wait for each other."""

    def __init__(self, store: Any, *args: Any) -> None:
        own = store.clone()  # waiting for a value blocks the connection
        self._group = _turns.away(lambda: _group_of_gloo(own, *args))

    def __getattr__(self, name: str) -> Any:
        exchange = getattr(self._group, name)

        def exchanged(*args: Any) -> Any:
            work = exchange(*args)
            if name.startswith(("send", "recv")):  # other ranks may have to be served first
                return _Work(work)
            _turns.away(work.wait)
            return work

        return exchanged


class _Work:
    """An exchange between two ranks: the program decides when to wait."""

    def __init__(self, work: Any) -> None:
        self._work = work

    def wait(self, *timeout: Any) -> bool:
        return bool(_turns.away(lambda: self._work.wait(*timeout)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._work, name)


def _on_hosts(new_group: Callable[..., Any]) -> Callable[..., Any]:
    """Groups with gloo for a subset of ranks: these exchange through it, too, and wait in turn."""

    @functools.wraps(new_group)
    def made(ranks: Any = None, timeout: Any = None, backend: Any = None, **options: Any) -> Any:
        return new_group(ranks, timeout, None if backend == "gloo" else backend, **options)

    return made


def _shapes(values: Any) -> str:
    if isinstance(values, torch.Tensor):
        return f"{tuple(values.shape)}"
    if isinstance(values, list | tuple):
        return " ".join(filter(None, map(_shapes, values)))
    return ""


def _share() -> None:
    """Make exchanges meet, and make torch.distributed's state thread-local."""
    # Up to Python 3.11 a cached_property has a lock, which processes wouldn't share: a thread that
    # waits for the others inside of one would hold it.
    functools.RLock = nullcontext  # type: ignore[attr-defined]
    for name in _EXCHANGES:
        setattr(xm, name, _at_once(name, getattr(xm, name)))
    torch.distributed.ProcessGroupGloo = _Gloo
    for module in (torch.distributed, torch.distributed.distributed_c10d):
        module.new_group = _on_hosts(module.new_group)
    # All ranks are here: use a free port, whatever the program sets.
    rendezvous._store = torch.distributed.TCPStore("localhost", 0, is_master=True)
    multi_threaded_pg._install_threaded_pg()
    torch._C._distributed_c10d._set_thread_isolation_mode(True)


def _prepare() -> None:
    """Make the threads of a launch ranks."""
    _share()
    threads = pjrt._run_thread_per_device

    def run(rank: int, count: int, function: Any, initialize: Any) -> Any:
        modules, task = _modules(), functools.partial(_run_task, pickle.dumps(function))
        try:
            return threads(rank, count, task, initialize)
        finally:
            _put_back(modules)

    pjrt._run_thread_per_device = run


class _Unpickler(pickle.Unpickler):
    """Resolves names of the main module to this rank's own."""

    def __init__(self, data: bytes, main: types.ModuleType) -> None:
        super().__init__(io.BytesIO(data))
        self._main = main

    def find_class(self, module: str, name: str) -> Any:
        if module in ("__main__", "__mp_main__"):
            return functools.reduce(getattr, name.split("."), self._main)
        return super().find_class(module, name)


def run_rank(_rank: int, program: Callable[[], object]) -> object:
    """Run a rank's function; a recorder replaces this."""
    return program()


def _take_part(program: Callable[[], object]) -> None:
    """Be a rank in this thread."""
    rank = xr.global_ordinal()
    with _turns.take(rank), torch.autograd.set_multithreading_enabled(False):
        run_rank(rank, program)


def _run_task(task: bytes) -> None:
    """A rank as started by a launch."""

    def program() -> None:
        script = getattr(sys.modules["__main__"], "__file__", None)
        main = _execute(Path(script), "__mp_main__") if script else sys.modules["__main__"]
        _Unpickler(task, main).load()()

    _take_part(program)


def _execute(script: Path, name: str) -> types.ModuleType:
    """A main module for each rank."""
    module = types.ModuleType(name)
    module.__file__, module.__package__ = str(script), _package
    sys.modules["__main__"] = module
    exec(compile(script.read_bytes(), str(script), "exec"), module.__dict__)
    return module


def _run_script(script: str) -> None:
    """A rank as started by torchrun."""

    def program() -> None:
        rank = str(xr.global_ordinal())
        os.environ |= dict.fromkeys(("RANK", "LOCAL_RANK", "ROLE_RANK"), rank)
        sys.argv = [argument.replace("{rank}", rank) for argument in sys.argv]
        _execute(Path(script), "__main__")

    _take_part(program)


def main(arguments: list[str], module: str = "") -> None:
    """Run a script; with ``module`` like `python -m` in the folder that is found first."""
    global _package
    each = arguments[0] == "--each"
    script, *rest = arguments[1:] if each else arguments
    sys.argv = [script, *rest]
    if module:
        _package = module.rpartition(".")[0]
    else:
        sys.path[0] = str(Path(script).parent.absolute())
    if each:
        sizes = ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "ROLE_WORLD_SIZE")
        os.environ |= {**dict.fromkeys(sizes, str(COUNT)), "GROUP_RANK": "0"}
        os.environ.setdefault("MASTER_ADDR", "localhost")
        os.environ.setdefault("MASTER_PORT", "29500")  # nothing listens: it is all one process
        threads, setup = pjrt._run_thread_per_device, pjrt.initialize_multiprocess
        _share()
        threads(0, 1, functools.partial(_run_script, script), setup)
        return
    _prepare()
    # One process would be started, with all devices here; its arguments are pickled below.
    # A program of torch_xla alone starts it by the first, one with the runtime by the second.
    pjrt.run_multiprocess = lambda function, start_method="spawn": pjrt._run_thread_per_device(
        0, 1, function, pjrt.initialize_multiprocess
    )
    torch.multiprocessing.start_processes = lambda function, args=(), **how: function(0, *args)
    if module:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
