"""The TPUs that the compiler knows, with the figures of their data sheets (chips.toml)."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
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
    mxu: int  # rows and columns of a matrix unit
    devices: int
    cycles: float  # a second's, as the compiler counts them
    source: str
    topologies: dict[int, str]  # by the number of chips

    @property
    def label(self) -> str:
        return f"TPU {self.name}"


@cache
def chips() -> dict[str, Chip]:
    """By name."""
    text = (files(__package__) / "chips.toml").read_text("utf-8")
    return {name: _chip(name, **values) for name, values in tomllib.loads(text).items()}


def _chip(name: str, hbm: int, topologies: dict[str, str], **values: object) -> Chip:
    slices = {int(count): topology for count, topology in topologies.items()}
    return Chip(name, hbm=hbm * 2**30, topologies=slices, **values)  # type: ignore[arg-type]


def chip_of(slice_name: str) -> Chip:
    """The chip of a slice such as `v6e-8`."""
    return chips()[slice_name.partition("-")[0]]


def topology(slice_name: str) -> str:
    """The compiler's name for a slice such as `v6e-8`."""
    return chip_of(slice_name).topologies[int(slice_name.partition("-")[2])]


# What `verify --compile-for` offers: there, float32 products are judged by the compiled text, which
# the compiler doesn't give for all programs of a v7x.
SLICES = [f"v6e-{count}" for count in chips()["v6e"].topologies]
