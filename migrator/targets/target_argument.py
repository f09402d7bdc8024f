"""The name of a target on a command line."""

from __future__ import annotations

import click

from migrator.targets import names


class TargetName(click.Choice[str]):
    """Installed targets are looked up lazily: `--version` doesn't have to wait for that."""

    def __init__(self, *others: str) -> None:
        self._others = others
        self.case_sensitive = True

    @property
    def choices(self) -> tuple[str, ...]:  # type: ignore[override]
        return (*names(), *self._others)
