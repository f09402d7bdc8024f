"""Options shared by `record`, `verify` and `doctor`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

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


def python(help: str) -> Option:
    """`--python PATH`"""
    kind = click.Path(exists=True, dir_okay=False, path_type=Path)
    return click.option("--python", type=kind, callback=_absolute, help=help)


def _absolute(
    _context: click.Context, _parameter: click.Parameter, path: Path | None
) -> Path | None:
    """Programs start in other folders. Links stay: the Python of an environment is one."""
    return path.absolute() if path is not None else None


def in_bytes(gigabytes: float | None) -> int | None:
    """The number in bytes; None stays None."""
    return int(gigabytes * 2**30) if gigabytes else None
