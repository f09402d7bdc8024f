"""A recorded process: what is replaced in it, the program's run, and the written recording."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import compiled
import double_precision
import halves
import layer_outputs
import module_traces
import randomness
import recorded_process
import recorded_ranks
import rounding
import torch
import written_files
from operation_traces import OperationTrace
from recording_store import Store
from watch_training import Watch


class Session:
    """Records what a program does in this process; SPEC as in `__main__.py`.

    ``output``: the folder of what is recorded, made here. ``number``: of a process that the program
    has started as a rank; None for the program itself.
    """

    def __init__(self, spec: dict[str, Any], output: Path, number: int | None = None) -> None:
        self.spec, self.output, self.number = spec, output, number
        self.root, self.original = Path(spec["root"]).resolve(), Path(spec["original"])
        self.owner = os.getpid()
        self.rank: int | None = None  # in the process group, once it exists
        self.error = ""  # for a rank, whose launcher only reports its exit code
        self.failed = 0.0  # time of that
        self.runtime: str | None = None
        self.stood_in: Iterable[str] = ()  # computations outside of torch
        self.rounding: rounding.Rounding | None = None
        self.halves = halves.Halves()
        output.mkdir(parents=True, exist_ok=True)

    # ---- before the program ------------------------------------------------------------------

    def install(self) -> None:
        """Replace functions, to record them or to make all runs alike. Then remove the recorder's
        folder and modules: the program may have modules of the same names."""
        spec = self.spec
        recorded_process.limit_memory(spec["memory"])
        stand_in: Any = None
        if spec["stand_in"] is not None and not torch.cuda.is_available():
            import cpu_stand_in
            import cpu_sync_batch_norm

            cpu_stand_in.install(*spec["stand_in"], count=spec["devices"] or 1)
            stand_in = cpu_stand_in
            self.stood_in = cpu_sync_batch_norm.used
        for name in [n for n, m in sys.modules.items() if _is_ours(m)]:
            del sys.modules[name]
        sys.path[:] = [entry for entry in sys.path if entry != str(Path(__file__).parent)]
        recorded_process.redirect(self.original, self.root)
        # It logs what it compiles, which ranks that are threads do once for all.
        logging.getLogger("numba").setLevel(logging.WARNING)
        self.runtime = _runtime() if spec["runtime"] else None
        if self.runtime is None:
            _leave_uncompiled()
            self.halves.install()
        random = randomness.Randomness(spec["seed"], spec["dropout"], spec["float64"])
        watch = self._watch(self.output)
        threads = spec["replicas"] is not None
        self.random = recorded_ranks.PerThread(random) if threads else random
        self.watch: Any = recorded_ranks.PerThread(watch) if threads else watch
        if spec["own_draws"] is not None:
            randomness.leave(spec["seed"], *spec["own_draws"])
        else:
            randomness.install(self.random)
        if spec["float64"]:
            double_precision.DoublePrecision().install()
        if spec["rounding"]:
            self.rounding = rounding.Rounding(spec["rounding"], stand_in)
            self.rounding.install()
        self.watch.install(spec["closely"], counting=spec["focus"] is None)
        module_traces.install(self.watch)
        if spec["layers"] and spec["closely"]:
            layer_outputs.install(self.watch)
        compiled.follow(self.watch)
        self.focus = None if spec["focus"] is None else OperationTrace(self.watch, spec["focus"])
        if self.focus is not None:
            self.focus.install(sys.modules.get("tpu_runtime"))
        if spec["devices"] is not None:
            recorded_ranks.tell(self._joined, self.watch.leave_group)
        started = (
            None
            if spec["devices"] is None or self.number is not None
            else recorded_ranks.Started(self)
        )
        self.children = recorded_process.Children(self.watch.leave, started)
        self.outside = recorded_process.Outside([self.root, Path(spec["output"])])
        self.watch.store.note({"machine": written_files.machine(False)})

    def _watch(self, output: Path) -> Watch:
        spec = self.spec
        store = Store(output / "tensors.safetensors", spec["limit"] // (spec["devices"] or 1))
        return Watch(store, spec["steps"], self.root, spec["stop"], spec["stop_calls"])

    def _joined(self, rank: int) -> None:
        self.rank = rank
        self.watch.store.note({"rank": rank})

    def fork(self, output: Path, number: int) -> None:
        """Continue in a forked process, as a rank with its own recording."""
        self.output, self.number, self.owner = output, number, os.getpid()
        output.mkdir(parents=True, exist_ok=True)
        self.watch.restart(self._watch(output).store)
        self.watch.store.note({"machine": written_files.machine(False)})

    # ---- the program, and what is left of it -------------------------------------------------

    def record(self, program: Callable[[], object]) -> int:
        """Run the program and write the recording, however it ends. Returns the exit code."""
        before = recorded_process.there(self.root) if self._sees_files else {}
        began = time.time()
        ended, code = self._run(program)
        if os.getpid() != self.owner:  # a child of the program that got here by fork
            return code
        seconds = time.time() - began
        written: list[dict[str, Any]] = []
        try:
            with self.watch.at_rest():
                if self.focus is not None:
                    self.focus.flush()
                elif not ended:  # with less, only earlier events are compared
                    self.watch.finish()
                    if self._sees_files:
                        own = Path(self.spec["output"])
                        written = written_files.written(self.root, before, self.watch.store, own)
        except Exception as error:
            ended = ended or f"its end cannot be read: {type(error).__name__}: {error}"
        self.watch.finish_reading()
        self._write(self.error or ended, seconds, self.failed or began + seconds, written)
        return code

    @property
    def _sees_files(self) -> bool:
        """Ranks share their folder: files in it are recorded once."""
        return self.number is None or (self.number == 0 and self.spec["launched"])

    def _run(self, program: Callable[[], object]) -> tuple[str, int]:
        return recorded_process.outcome(program, self.root)

    def _write(self, ended: str, seconds: float, at: float, written: list[dict[str, Any]]) -> None:
        watch, random = self.watch, self.random
        called = self.rounding is not None and self.rounding.convolves
        table = {
            "ended": ended,
            "ended_at": at,
            "seconds": seconds,
            "rank": self.rank,
            "events": watch.events,
            "files": written,
            "left_out": watch.store.left_out,
            "randomness": {
                "drawn": random.drawn,
                "before": random.before,
                "dropped": randomness.next_count(random.dropped),
                "traced": randomness.next_count(random.traced),
                "elsewhere": randomness.next_count(random.elsewhere),
            },
            "steps": watch.step,
            "migrated": self.runtime is not None,
            "machine": written_files.machine(called or watch.convolves),
            "processes": self.children.started,
            "outside": self.outside.written,
            "devices": sorted(watch.devices),
            "shortened": watch.shortened,
            "in_parts": compiled.in_parts(),
            "stood_in": sorted(self.stood_in),
            "halves": self.halves.values,
            "not_copied": recorded_process.imported_from(self.original, self.root),
            "tensors_sha256": watch.store.finish(),
        }
        partial = self.output / "events.json.part"
        partial.write_text(json.dumps(table), "utf-8")
        partial.replace(self.output / "events.json")


class Thread(Session):
    """A rank that is a thread of a recorded process, with everything a process would have."""

    def __init__(self, of: Session, rank: int) -> None:
        super().__init__(of.spec, recorded_ranks.folder(of.output, rank), rank)
        self.rank, self.runtime, self.focus = rank, of.runtime, None
        self.rounding, self.halves = of.rounding, of.halves
        self.children, self.outside = of.children, of.outside
        self.watch = self._watch(self.output)
        self.watch.closely = of.watch.closely
        self.random = randomness.Randomness(
            self.spec["seed"], self.spec["dropout"], self.spec["float64"]
        )
        self.watch.store.note({"machine": written_files.machine(False), "rank": rank})
        self.of = of
        self.failure: BaseException | None = None

    def record(self, program: Callable[[], object]) -> int:
        """Run the rank. Raises the program's errors: the other ranks then end as well."""
        self.of.watch.enter(self.watch)
        self.of.random.enter(self.random)
        randomness.seed_all(self.spec["seed"])  # like a process of its own
        with recorded_ranks.printing(self.output, self.rank):
            code = super().record(program)
        if self.failure is not None:
            raise self.failure
        return code

    def _run(self, program: Callable[[], object]) -> tuple[str, int]:
        try:
            program()
        except recorded_process.Finished:
            pass
        except BaseException as error:
            self.failure = error
            return recorded_process.why(error, self.root)
        return "", 0


def _is_ours(module: Any) -> bool:
    file = getattr(module, "__file__", None) or ""
    inside = Path(file).parent == Path(__file__).resolve().parent
    return module.__name__ not in ("__main__", "__mp_main__") and inside


def _runtime() -> str | None:
    """Import the runtime of migrated code first: it has to see torch's own functions."""
    try:
        import tpu_runtime
    except ImportError:
        return None
    return str(getattr(tpu_runtime, "__file__", ""))


def _leave_uncompiled() -> None:
    """Results of torch.compile can't be observed. It only rounds differently than its source."""
    import torch._dynamo

    if hasattr(torch._dynamo.config, "disable"):
        torch._dynamo.config.disable = True
