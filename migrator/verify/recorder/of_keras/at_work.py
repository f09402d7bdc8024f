"""What is running: training of Keras' own, and functions that XLA compiles."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class AtWork:
    """How many calls of each there are, one within another."""

    training: int = 0  # `fit`, `evaluate` and the like
    compiled: int = 0  # by XLA, which leaves no way to tell of anything

    @property
    def own(self) -> int:
        """All of which the tapes are no concern of a program's own loop."""
        return self.training + self.compiled
