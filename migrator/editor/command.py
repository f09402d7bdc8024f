"""``tpu-migrate lsp``. The server is imported when it runs."""

from __future__ import annotations

import sys
from importlib.util import find_spec

import click

from migrator.errors import UsageError, installed_by


@click.command("lsp", short_help="Serve an editor, as a language server.")
def lsp_command() -> None:
    """Serve an editor on standard input and output (docs/editors.md)."""
    if find_spec("pygls") is None:
        raise UsageError(f"the language server needs pygls: {installed_by('editor')}")
    from migrator.editor.protocol import new_server

    server = new_server()
    server.start_io()
    sys.exit(0 if server.was_shut_down else 1)
