"""External executors, by an address on the command line: `dask://HOST:PORT`."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager, nullcontext
from importlib import import_module
from typing import Any

from migrator.errors import UsageError, installed_by

DASK = "dask://"


@contextmanager
def executor_at(address: str | None) -> Iterator[Executor | None]:
    """What runs elsewhere, as long as it is needed; None for None.

    Raises:
        UsageError: no such address, or what it takes is not installed.
    """
    with nullcontext() if address is None else _dask(address) as found:
        yield found


@contextmanager
def _dask(address: str) -> Iterator[Executor]:
    """The workers of a scheduler. If one dies, another one takes over its groups."""
    if not address.startswith(DASK):
        raise UsageError(f"--executor {address}: it takes {DASK}HOST:PORT")
    try:
        distributed: Any = import_module("distributed")  # imported only here; it has no types
    except ImportError:
        raise UsageError(
            f"--executor {address}: dask is not installed: {installed_by('dask')}"
        ) from None
    try:
        client = distributed.Client(f"tcp://{address.removeprefix(DASK)}", timeout=10)
    except (OSError, ValueError) as error:
        raise UsageError(f"--executor {address}: no scheduler answers there: {error}") from None
    with client:
        yield client.get_executor(pure=False)
