"""What a program made: text, logits, seconds."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


class Record:
    """Keeps the last text of a program and how long each took."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.seconds: list[float] = []
        self.kept: dict[str, Tensor] = {}

    @contextmanager
    def text(self) -> Iterator[None]:
        """Time what makes one text."""
        torch.cuda.synchronize()
        start = time.perf_counter()
        yield
        torch.cuda.synchronize()
        self.seconds.append(time.perf_counter() - start)

    def keep(self, tokens: Tensor, logits: Tensor) -> None:
        """Keep a text, (batch, length), and logits of its end, (batch, vocabulary)."""
        self.kept = {"tokens": tokens.int().cpu(), "logits": logits.float().cpu()}

    def tensors(self) -> dict[str, Tensor]:
        """What was kept, by names that begin with that of the program."""
        return {f"{self.name}.{name}": value for name, value in self.kept.items()}

    def times(self) -> dict[str, float]:
        """Seconds of the first text (the warm-up), and the mean of the later ones."""
        later = self.seconds[1:]
        return {"first_s": self.seconds[0], "later_s": sum(later) / len(later)}

    def show(self) -> None:
        """Print the first text."""
        print(self.name, bytes(self.kept["tokens"][0].tolist()).decode("latin-1"))
