"""Step times: the host waits for the GPU before and after each step."""

import json
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch


class StepTimer:
    """Collects the wall time and the GPU time of named steps over repeated runs."""

    def __init__(self, device: torch.device) -> None:
        self.on_gpu = device.type == "cuda"
        self.wall: dict[str, list[float]] = defaultdict(list)
        self.gpu: dict[str, list[float]] = defaultdict(list)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time the body of the `with` block as one run of step `name`."""
        if self.on_gpu:
            start = torch.cuda.Event(enable_timing=True)
            end = torch.cuda.Event(enable_timing=True)
            # Kernels are launched asynchronously: without this we would time the launches only.
            torch.cuda.synchronize()
            start.record()
        began = time.perf_counter()
        yield
        if self.on_gpu:
            end.record()
            torch.cuda.synchronize()
            self.gpu[name].append(start.elapsed_time(end) / 1000)
        self.wall[name].append(time.perf_counter() - began)

    def summary(self) -> dict[str, dict[str, float | list[float]]]:
        """Seconds per step: the first run (warm-up) and the mean of the later ones."""
        steps: dict[str, dict[str, float | list[float]]] = {}
        for name, runs in self.wall.items():
            later = runs[1:] or runs
            steps[name] = {
                "first_s": runs[0],
                "later_s": sum(later) / len(later),
                "runs_s": runs,
                "gpu_s": self.gpu.get(name, []),
            }
        return steps

    def write(self, path: Path, **header: str | int) -> None:
        """Write `header` and the step times as JSON."""
        path.write_text(json.dumps({**header, "steps": self.summary()}, indent=2) + "\n")
