"""The TPUs that the compiler knows, with the figures of their data sheets (chips.toml)."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files


@dataclass(frozen=True)
class Chip:
    """A chip's data sheet; bytes and seconds. ``devices``: as JAX counts them."""

    name: str
    peak: float  # FLOP/s of bfloat16
    hbm: int
    hbm_bandwidth: float
    ici_bandwidth: float  # in both directions together
    links: int  # to neighbours, in a whole torus
    mxu: int  # rows and columns of a matrix unit
    devices: int
    cycles: float  # a second's, as the compiler counts them
    source: str
    topologies: dict[int, str]  # by the number of chips
    count: int = 1  # chips of its slice

    @property
    def label(self) -> str:
        return f"TPU {self.name}"

    @property
    def sends(self) -> float:
        """Bytes that it can send in a second to all of its neighbours.

        The compiler's slices end in each dimension: a chip in a corner has one neighbour there.
        """
        sizes = self.topologies[self.count].partition(":")[2].split("x")
        return self.ici_bandwidth / 2 * sum(size != "1" for size in sizes) / self.links


@cache
def chips() -> dict[str, Chip]:
    """By name."""
    text = (files(__package__) / "chips.toml").read_text("utf-8")
    return {name: _chip(name, **values) for name, values in tomllib.loads(text).items()}


def _chip(name: str, hbm: int, topologies: dict[str, str], **values: object) -> Chip:
    slices = {int(count): topology for count, topology in topologies.items()}
    return Chip(name, hbm=hbm * 2**30, topologies=slices, **values)  # type: ignore[arg-type]


def chip_of(slice_name: str) -> Chip:
    """A chip of a slice such as `v6e-8`."""
    name, _, count = slice_name.partition("-")
    return replace(chips()[name], count=int(count))


def topology(slice_name: str) -> str:
    """The compiler's name for a slice such as `v6e-8`."""
    chip = chip_of(slice_name)
    return chip.topologies[chip.count]


# What `verify --compile-for` offers: there, float32 products are judged by the compiled text, which
# the compiler doesn't give for all programs of a v7x.
SLICES = [f"v6e-{count}" for count in chips()["v6e"].topologies]
