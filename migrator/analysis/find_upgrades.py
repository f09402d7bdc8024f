"""What newer versions of Python's libraries lack, in code of any framework."""

from __future__ import annotations

from collections.abc import Iterator

from migrator.analysis import find_absent_names, find_removed_names, old_calls
from migrator.analysis.syntax.names import Names
from migrator.construct import Construct


def may_be_in(source: bytes) -> bool:
    """A cheap test: False if a file has none of it."""
    return (
        find_removed_names.may_be_in(source)
        or old_calls.may_be_in(source)
        or find_absent_names.may_be_in(source)
    )


def find(names: Names) -> Iterator[Construct]:
    """All of one file. What has a known successor is not called absent, too."""
    for node in names.order:
        known = [*find_removed_names.find(names, node), *old_calls.find(names, node)]
        yield from known or find_absent_names.find(names, node)
