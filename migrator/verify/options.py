"""Options shared by `record` and `verify`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

TOPOLOGIES = {"v6e-1": "v6e:1x1", "v6e-4": "v6e:2x2", "v6e-8": "v6e:2x4"}  # by --compile-for
Option = Callable[[Callable[..., Any]], Callable[..., Any]]


def count(name: str, default: int, least: int, help: str) -> Option:
    """A number of things."""
    kind = click.IntRange(min=least)
    return click.option(name, type=kind, default=default, show_default=True, help=help)


def devices(help: str) -> Option:
    """`--devices N`"""
    return click.option("--devices", type=click.IntRange(min=1), metavar="N", help=help)


def memory(help: str) -> Option:
    """`--memory GB`; `in_bytes` of it is for the recorder."""
    kind = click.FloatRange(min=0, min_open=True)
    return click.option("--memory", type=kind, metavar="GB", help=help)


def in_bytes(gigabytes: float | None) -> int | None:
    """The number in bytes; None stays None."""
    return int(gigabytes * 2**30) if gigabytes else None
