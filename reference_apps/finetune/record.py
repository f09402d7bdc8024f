"""What a run did: losses and times while it goes on, the weights at its end."""

from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import Tensor


class Record:
    """Collects series of numbers by name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.series: dict[str, list[float]] = defaultdict(list)
        self.seconds: list[float] = []
        self.weights = torch.empty(0)

    def add(self, **values: float) -> None:
        """Append each value to its series."""
        for name, value in values.items():
            self.series[name].append(value)

    def last(self, name: str) -> float:
        """The newest value of a series."""
        return self.series[name][-1]

    def took(self, seconds: float) -> None:
        """Note how long a step took."""
        self.seconds.append(seconds)

    def keep(self, parameters: Iterable[Tensor]) -> None:
        """Keep trained weights, as one long vector."""
        self.weights = torch.cat([p.detach().float().cpu().flatten() for p in parameters])

    def tensors(self) -> dict[str, Tensor]:
        """All of it, by names that begin with that of the run."""
        series = {
            name: torch.tensor(values, dtype=torch.float64) for name, values in self.series.items()
        }
        return {
            f"{self.name}.{name}": value
            for name, value in {**series, "weights": self.weights}.items()
        }

    def times(self) -> dict[str, float]:
        """Seconds of the first step (the warm-up), and the mean of the later ones."""
        later = self.seconds[1:]
        return {"first_s": self.seconds[0], "later_s": sum(later) / len(later)}

    def show(self) -> None:
        """Print each series."""
        for name, values in self.series.items():
            print(self.name, name, *(f"{value:.4f}" for value in values))
