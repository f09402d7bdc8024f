"""What completion offers for values of options and arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from migrator.report import FORMATS

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


def codes(
    _context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """Codes of rules; behind a comma, too, where several are taken."""
    from migrator.registry import registry

    before, comma, last = incomplete.rpartition(",") if parameter.multiple else ("", "", incomplete)
    return [
        offer(f"{before}{comma}{code}", help=rule.summary)
        for code, rule in registry().rules.items()
        if code.startswith(last.upper()) and code not in before.split(",")
    ]


def formats(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """Names of reports."""
    return [offer(n) for n in ("console", *FORMATS) if n.startswith(incomplete)]


def paths(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """Files and folders."""
    return [offer(incomplete, type="file")]


def folders(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """Folders."""
    return [offer(incomplete, type="dir")]


def offer(value: str, **more: Any) -> CompletionItem[str]:
    from click.shell_completion import CompletionItem  # for shells alone

    return CompletionItem(value, **more)
