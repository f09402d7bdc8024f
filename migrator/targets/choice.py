"""The name of a target on a command line."""

from __future__ import annotations

import click

from migrator.targets import names


class TargetName(click.Choice[str]):
    """What is installed is looked up when it is asked for: `--version` need not wait for that."""

    def __init__(self, *others: str) -> None:
        self._others = others
        self.case_sensitive = True

    @property
    def choices(self) -> tuple[str, ...]:  # type: ignore[override]
        return (*names(), *self._others)
