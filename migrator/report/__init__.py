"""Reports: how a run is shown. One file a format."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from migrator.run import Report

# What `--format` takes beside "console": each is a module here with `render(report, view) -> str`.
FORMATS = ("json", "github", "github-review", "gitlab", "markdown", "sarif")


@dataclass(frozen=True)
class View:
    """What the report of a run does not say by itself."""

    exit_code: int = 0
    written: bool = False  # in place: the files hold what they became
    statistics: bool = False


def render(name: str, report: Report, view: View) -> str:
    """A report in one of `FORMATS`.

    Raises:
        UsageError: the format needs something that is not there.
    """
    module = import_module(f"{__name__}.{name.replace('-', '_')}")
    text: str = module.render(report, view)
    return text
