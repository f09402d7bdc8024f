"""Watches what Keras trains, evaluates and predicts, by a callback of each such call."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from fits import Fits
from order import Order
from program_events import Events
from recorded_process import Finished
from recording_store import Store


class FitWatch(Events):
    """What was seen of a program, in the order in which it happened; events as of PyTorch's."""

    def __init__(self, store: Store, spec: dict[str, Any], order: Order) -> None:
        super().__init__(store, Path(spec["root"]).resolve())
        self.order = order
        self.steps, self.stop, self.stop_calls = spec["steps"], spec["stop"], spec["stop_calls"]
        self.calls: Counter[str] = Counter()
        self.trained: dict[int, tuple[str, Any]] = {}
        self.ends: dict[str, list[tuple[str, Any]]] = {}
        self.names: dict[int, tuple[str, Any]] = {}
        self.taken: Counter[str] = Counter()
        self.shortened = False

    def install(self, keras: Any, fits: Fits) -> None:
        """Add a callback to each call of `fit`, `evaluate` and `predict`."""
        watch, base = self, keras.callbacks.Callback
        fits.install(keras)

        class Seen(base):  # type: ignore[misc, valid-type]
            def on_train_begin(self, logs: Any = None) -> None:
                watch.order.begin()
                fits.begin()
                watch.begin(self.model)

            def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
                for kind, norms in fits.taken():
                    watch.event("gradients", kind, norms=norms)
                watch.stepped(self.model, _of_all_replicas(self.model, logs or {}))

            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
                watch.measured("", logs or {})

            def on_test_end(self, logs: Any = None) -> None:
                watch.measured("evaluate ", logs or {})

            def on_predict_batch_end(self, batch: int, logs: Any = None) -> None:
                watch.predicted(self.model, (logs or {}).get("outputs"))

        callbacks = __import__("keras.src.callbacks.callback_list", fromlist=["CallbackList"])
        made = callbacks.CallbackList.__init__

        def init(self: Any, given: Any = None, *args: Any, **kwargs: Any) -> None:
            others = [] if given is None else list(given) if _is_many(given) else [given]
            made(self, [*others, Seen()], *args, **kwargs)

        callbacks.CallbackList.__init__ = init

    # ---- what happens ------------------------------------------------------------------------

    def begin(self, model: Any, kind: str = "") -> None:
        """A training begins: by the state that it begins with."""
        if id(model) not in self.trained:
            self.name(model, kind)
            self.trained[id(model)] = (self.name(model), model)
            found = self.weights(model)
            sizes = [tuple(weight.shape) for weight in model.weights]
            if [np.shape(array) for _, array in found] == sizes:  # else they have no values yet
                self.keep("start", self.name(model), found)

    def stepped(self, model: Any, logs: dict[str, Any]) -> None:
        """A step of a training is over."""
        self.step += 1
        if "loss" in logs:
            self.event("loss", "loss", value=_number(logs["loss"]), dtype="F32")
        if self.store.wants_weights(self.step):
            self.keep("weights", self.name(model), self.weights(model))
        if self.stop is not None and self.step >= self.stop:
            self._finish_early()

    def looked(self, weighed: bool) -> None:
        """Steps of a program's own loop are over; ``weighed``: one whose weights are kept."""
        for name, model in self.trained.values() if weighed else ():
            self.keep("weights", name, self.weights(model))
        if self.stop is not None and self.step >= self.stop:
            self._finish_early()

    def measured(self, when: str, logs: dict[str, Any]) -> None:
        """Metrics at the end of an epoch, or of an evaluation."""
        for name, value in logs.items():
            if np.ndim(value) == 0 and name != "learning_rate":
                self.event("metric", when + name, value=_number(value), dtype="F32")

    def predicted(self, model: Any, outputs: Any) -> None:
        """A batch of predictions."""
        name = self.name(model)
        self.calls[name] += 1
        if self.calls[name] <= self.steps:
            self.keep("output", name, [(path, np.asarray(v)) for path, v in _leaves(outputs)],
                      training=False)  # fmt: skip
        if self.stop_calls is not None and not self.trained and self.calls[name] > self.stop_calls:
            self._finish_early()

    def _finish_early(self) -> None:
        self.shortened = True
        self.ends = {name: self.weights(model) for name, model in self.trained.values()}
        raise Finished

    def finish(self) -> None:
        """The states of what was trained, at the end."""
        for name, model in self.trained.values():
            self.keep("end", name, self.ends.get(name) or self.weights(model))

    # ---- states ------------------------------------------------------------------------------

    def weights(self, model: Any) -> list[tuple[str, Any]]:
        """Weights by their paths, as they are now."""
        sync = getattr(model, "jax_state_sync", None)  # else they are in the compiled step
        if sync is not None:
            sync()
        taken: Counter[str] = Counter()
        found = []
        for weight in model.weights:
            path = weight.path.replace("/", ".")
            taken[path] += 1
            number = f"#{taken[path]}" if taken[path] > 1 else ""
            found.append((path + number, np.asarray(weight.numpy())))
        return found

    def name(self, model: Any, kind: str = "") -> str:
        """A model's class, or what it is called, with a number where there are several of them."""
        if id(model) not in self.names:
            kind = kind or type(model).__name__
            self.taken[kind] += 1
            number = f"#{self.taken[kind]}" if self.taken[kind] > 1 else ""
            self.names[id(model)] = (kind + number, model)
        return self.names[id(model)][0]

    # ---- keeping -----------------------------------------------------------------------------

    def keep(self, kind: str, name: str, found: list[tuple[str, Any]], **about: Any) -> None:
        super().keep(kind, name, [(path, _plain(array)) for path, array in found], **about)


def _of_all_replicas(model: Any, logs: dict[str, Any]) -> dict[str, Any]:
    """What a step is told of is the first replica's share of a batch, on several."""
    strategy = getattr(model, "distribute_strategy", None)
    if getattr(strategy, "num_replicas_in_sync", 1) == 1:
        return logs
    return {**logs, **model.get_metrics_result()}


def _plain(array: Any) -> Any:
    wide = array.astype(np.float32) if array.dtype.name == "bfloat16" else array
    return np.ascontiguousarray(wide)


def _is_many(given: Any) -> bool:
    return isinstance(given, list | tuple)


def _number(value: Any) -> float | str:
    number = float(value)
    return number if math.isfinite(number) else str(number)


def _leaves(value: Any, path: str = "") -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [leaf for key, v in value.items() for leaf in _leaves(v, f"{path}.{key}".strip("."))]
    if isinstance(value, list | tuple):
        return [leaf for i, v in enumerate(value) for leaf in _leaves(v, f"{path}.{i}".strip("."))]
    return [] if value is None else [(path, value)]
