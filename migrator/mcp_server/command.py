"""``tpu-migrate mcp``. The server is imported when it runs."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import click

from migrator.errors import UsageError, installed_by


@click.command("mcp", short_help="Serve a coding agent, by the Model Context Protocol.")
@click.option(
    "--root",
    "roots",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="A folder that the agent may look at and change; may be given more than once. "
    "Default: the current folder.",
)
@click.option(
    "--allow-run",
    is_flag=True,
    help="Let the agent run programs of the project, with your rights: verify and compile_for.",
)
def mcp_command(roots: tuple[Path, ...], allow_run: bool) -> None:
    """Serve a coding agent on standard input and output (docs/agents.md).

    Paths outside of the roots are refused. Without --allow-run, nothing of the project is run.
    """
    if find_spec("mcp") is None:
        raise UsageError(f"the server needs the package mcp: {installed_by('mcp')}")
    from .mcp_tools import new_server
    from .roots import Roots

    new_server(Roots(roots or (Path.cwd(),)), allow_run=allow_run).run()
