"""What a run did: losses, metrics and times while it goes on, the trained state at its end."""

import json
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn


class Recorder:
    """Collects series of numbers and wall times by name; writes them with the state of a model."""

    def __init__(self) -> None:
        self.series: dict[str, list[float]] = defaultdict(list)
        self.arrays: dict[str, torch.Tensor] = {}
        self.seconds: dict[str, list[float]] = defaultdict(list)

    def add(self, **values: float) -> None:
        """Append each value to its series."""
        for name, value in values.items():
            self.series[name].append(value)

    def keep(self, **arrays: np.ndarray) -> None:
        """Keep arrays; a later one replaces an earlier one of the same name."""
        self.arrays |= {name: torch.from_numpy(array) for name, array in arrays.items()}

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Time the body of the `with` block as one run of `name`."""
        began = time.perf_counter()
        yield
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.seconds[name].append(time.perf_counter() - began)

    def times(self) -> dict[str, dict[str, float]]:
        """Seconds of the first run of each name (the warm-up), and the mean of the later ones."""
        table = {}
        for name, runs in self.seconds.items():
            later = runs[1:] or runs
            table[name] = {"first_s": runs[0], "later_s": sum(later) / len(later)}
        return table

    def write(
        self, path: Path, model: nn.Module, optimizer: torch.optim.Optimizer | None = None
    ) -> None:
        """Write PATH (safetensors: series, arrays and state) and the times as JSON beside it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        series = {
            name: torch.tensor(values, dtype=torch.float64) for name, values in self.series.items()
        }
        state = state_vectors(model, optimizer)
        save_file({**series, **self.arrays, **state}, path)
        repeat = max((len(runs) for runs in self.seconds.values()), default=0)
        table = {"repeat": repeat, "steps": self.times()}
        path.with_suffix(".json").write_text(json.dumps(table, indent=2) + "\n")


def state_vectors(
    model: nn.Module, optimizer: torch.optim.Optimizer | None
) -> dict[str, torch.Tensor]:
    """All parameters, BatchNorm statistics and Adagrad sums, each kind as one long vector."""
    kinds: dict[str, list[torch.Tensor]] = defaultdict(list)
    for parameter in model.parameters():
        kinds["state.parameters"].append(parameter.detach())
        if optimizer is not None:
            kinds["state.adagrad_sum"].append(optimizer.state[parameter]["sum"])
    for name, buffer in model.named_buffers():
        kinds[f"state.{name.rpartition('.')[2]}"].append(buffer)
    return {
        kind: torch.cat([tensor.cpu().flatten() for tensor in tensors])
        for kind, tensors in kinds.items()
    }
