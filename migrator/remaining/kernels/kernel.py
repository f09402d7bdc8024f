"""What is known of a kernel, and of the function that takes its place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path


@dataclass(frozen=True)
class KernelCall:
    """A call or a reference. `values` are the lines that its names come from."""

    path: Path
    line: int
    code: str
    values: Sequence[str] = ()
    said: str = "called"

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


@dataclass(frozen=True)
class Kernel:
    """A kernel. `reads` and `writes` are the parameters that it loads from and stores to, if its
    source shows them."""

    path: Path
    line: int
    language: str  # Triton, numba, CUDA
    name: str
    signature: str
    parameters: Sequence[str]
    reads: Sequence[str] = ()
    writes: Sequence[str] = ()
    launches: Sequence[KernelCall] = ()


@dataclass(frozen=True)
class KernelPart:
    """A function that is written anew in the place of kernels and what launches them."""

    name: str  # of the function
    parameters: str  # as in a `def`
    arguments: Sequence[str]  # their names
    original: str  # what it replaces: add, or Softmax.apply; "": no function that can be called
    path: Path
    line: int
    has_gradient: bool
    kernels: Sequence[Kernel]
    calls: Sequence[KernelCall] = ()
    references: Sequence[KernelCall] = ()  # what the repository has to compare it with

    @property
    def place(self) -> str:
        return f"{self.path}:{self.line}"

    def within(self, holds: Callable[[Path], bool]) -> KernelPart:
        """The same with what lies in some folders alone."""

        def only(places: Sequence[KernelCall]) -> Sequence[KernelCall]:
            return [place for place in places if holds(place.path)]

        kernels = [replace(k, launches=only(k.launches)) for k in self.kernels if holds(k.path)]
        calls, references = only(self.calls), only(self.references)
        return replace(self, kernels=kernels, calls=calls, references=references)
