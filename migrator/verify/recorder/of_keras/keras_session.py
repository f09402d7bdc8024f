"""A process whose Keras program is recorded: what is replaced in it, and what is written."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import keras_randomness
import keras_rounding
import numpy as np
import order
import recorded_process
import tapes
from after_import import after_import
from at_work import AtWork
from fits import Fits
from recording_store import Store
from tpus import Tpus
from watch_fits import FitWatch

_PACKAGES = (
    "keras",
    "tensorflow",
    "tensorflow-cpu",
    "tensorflow-tpu",
    "jax",
    "jaxlib",
    "libtpu",
    "numpy",
)


class KerasSession:
    """Records what a program does in this process; SPEC as of the recorder of PyTorch's."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec, self.output = spec, Path(spec["output"])
        self.root, self.original = Path(spec["root"]).resolve(), Path(spec["original"])
        self.output.mkdir(parents=True, exist_ok=True)
        self.drawn = keras_randomness.Drawn()
        self.back_end = ""
        self.tpus = Tpus()
        self.tapes: tapes.Tapes | None = None

    def install(self, folders: Sequence[str]) -> None:
        """Replace what is to be seen, or to be the same in all runs, when Keras is imported."""
        spec, seed = self.spec, self.spec["seed"]
        recorded_process.limit_memory(spec["memory"])
        mine = [n for n, m in sys.modules.items() if _lies_in(m, folders) and n != "__main__"]
        for name in mine:  # the program may have modules of these names
            del sys.modules[name]
        sys.path[:] = [entry for entry in sys.path if entry not in folders]
        recorded_process.redirect(self.original, self.root)
        if spec["stand_in"] is not None:  # the original
            os.environ.setdefault("KERAS_BACKEND", "tensorflow")
        random.seed(seed)
        np.random.seed(seed)
        samples = order.Order(seed)
        store = Store(self.output / "tensors.safetensors", spec["limit"])
        self.watch = FitWatch(store, spec, samples)

        def of_keras(keras: Any) -> None:
            self.back_end = keras.backend.backend()
            keras_randomness.install(keras, self.drawn)
            order.install(samples)
            running = AtWork()
            self.watch.install(keras, Fits(running))
            self.tapes = tapes.Tapes(self.watch, running, seed)
            self.tapes.install(keras)
            if spec["rounding"]:
                keras_rounding.KerasRounding(spec["rounding"]).install(keras)

        after_import("keras", of_keras)
        after_import("tensorflow", self.tpus.install)
        after_import("tensorflow", lambda tensorflow: tensorflow.random.set_seed(seed))
        self.children = recorded_process.Children(lambda: None)
        self.outside = recorded_process.Outside([self.root, self.output])
        store.note({"machine": self.machine()})

    def record(self, program: Callable[[], object]) -> int:
        """Run the program, and write what was seen, however it ends. Returns its exit code."""

        def whole() -> None:
            program()
            if self.tapes is not None:
                self.tapes.finish()

        before, began = recorded_process.there(self.root), time.time()
        ended, code = recorded_process.outcome(whole, self.root)
        seconds = time.time() - began
        try:
            self.watch.finish()
        except Exception as error:
            ended = ended or f"its end cannot be read: {type(error).__name__}: {error}"
        self._write(ended, seconds, self._files(before))
        return code

    def _files(self, before: dict[Path, tuple[int, int]]) -> list[dict[str, Any]]:
        """Arrays that the program wrote; what models are saved with is seen at the end."""
        found = []
        for path, stat in sorted(recorded_process.there(self.root).items()):
            if before.get(path) == stat or path.suffix not in (".npy", ".npz"):
                continue
            name = path.relative_to(self.root).as_posix()
            entry: dict[str, Any] = {"name": name, "bytes": stat[0], "tensors": {}}
            try:
                loaded = np.load(path, allow_pickle=False)
                arrays = {"": loaded} if path.suffix == ".npy" else dict(loaded)
            except Exception as error:
                entry["error"] = f"{type(error).__name__}: {error}"
                arrays = {}
            for place, array in arrays.items():
                if kept := self.watch.store.add(f"file.{name}.{place}", array):
                    entry["tensors"][place] = kept
            found.append(entry)
        return found

    def machine(self) -> dict[str, Any]:
        """Device and versions."""
        versions = {"python": platform.python_version()}
        for name in _PACKAGES:
            try:
                versions[name] = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                continue
        tensorflow = sys.modules.get("tensorflow") if self.back_end == "tensorflow" else None
        gpus = tensorflow.config.list_physical_devices("GPU") if tensorflow is not None else []
        name, tf32 = "CPU", False
        if gpus and tensorflow is not None:
            about = tensorflow.config.experimental.get_device_details(gpus[0])
            name = about.get("device_name", "GPU")
            tf32 = tensorflow.config.experimental.tensor_float_32_execution_enabled()
            tf32 = tf32 and about.get("compute_capability", (0, 0)) >= (8, 0)
        return {"device": name, "machine": platform.machine(), "versions": versions, "tf32": tf32}

    @property
    def devices(self) -> list[str]:
        """On which it computed, as far as that shows that it did not on the one it should."""
        if self.tpus.asked:
            return ["tpu"]
        if self.back_end in ("", "tensorflow"):
            return ["cpu"] if self.machine()["device"] == "CPU" else ["gpu"]
        return [self.back_end]

    def _write(self, ended: str, seconds: float, written: list[dict[str, Any]]) -> None:
        watch = self.watch
        table = {
            "ended": ended,
            "seconds": seconds,
            "events": watch.events,
            "files": written,
            "left_out": watch.store.left_out,
            "randomness": {"drawn": self.drawn.count, "dropped": 0, "traced": self.drawn.own},
            "steps": watch.step,
            "machine": self.machine(),
            "processes": self.children.started,
            "outside": self.outside.written,
            "devices": self.devices,
            "shortened": watch.shortened,
            "not_copied": recorded_process.imported_from(self.original, self.root),
            "tensors_sha256": watch.store.finish(),
        }
        partial = self.output / "events.json.part"
        partial.write_text(json.dumps(table), "utf-8")
        partial.replace(self.output / "events.json")


def _lies_in(module: Any, folders: Sequence[str]) -> bool:
    file = getattr(module, "__file__", None) or ""
    return str(Path(file).parent) in folders
