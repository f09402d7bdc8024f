"""The server's tools, resources and prompt: a thin layer over the Python API and the command."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial, wraps
from typing import Annotated, Any, ParamSpec, TypeVar

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import Field

from migrator.distribution import __version__
from migrator.errors import UsageError
from migrator.targets import names
from migrator.verify.chips import SLICES

from . import guides, migrating, verifying
from .roots import Roots
from .running import in_thread

TargetName = Annotated[str, Field(json_schema_extra={"enum": [*names()]})]
_LOOKS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
_WRITES = ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=False)
_RUNS = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=True)
_Given = ParamSpec("_Given")
_Found = TypeVar("_Found")
_Tool = Callable[_Given, Coroutine[Any, Any, _Found]]


def new_server(roots: Roots, allow_run: bool) -> MCPServer[Any]:
    """A server for projects in some folders; without `allow_run` it runs nothing of theirs."""
    server: MCPServer[Any] = MCPServer(
        "tpu-migrate", version=__version__, instructions=guides.INSTRUCTIONS, log_level="WARNING"
    )
    _add_looking(server, roots)
    _add_recording(server, roots, allow_run)
    _add_verifying(server, roots, allow_run)
    _add_pages(server)
    return server


def _with_error_line(tool: _Tool[_Given, _Found]) -> _Tool[_Given, _Found]:
    """The tool, with what the caller did wrong as one line."""

    @wraps(tool)
    async def told(*args: _Given.args, **kwargs: _Given.kwargs) -> _Found:
        try:
            return await tool(*args, **kwargs)
        except (UsageError, OSError) as error:
            raise ToolError(str(error)) from error

    return told


def _add_looking(server: MCPServer[Any], roots: Roots) -> None:
    """The tools that only parse the project's code."""

    @server.tool(annotations=_LOOKS)
    @_with_error_line
    async def assess(paths: list[str], context: Context[Any, Any]) -> dict[str, Any]:
        """Say how far each target gets with each program at these paths, and which to take."""
        return await in_thread(context, partial(migrating.assess_in, roots, paths))

    @server.tool(annotations=_WRITES)
    @_with_error_line
    async def migrate(
        paths: list[str],
        target: TargetName,
        context: Context[Any, Any],
        write: bool = False,
        unsafe: bool = False,
        line: int | None = None,
        code: str | None = None,
    ) -> dict[str, Any]:
        """Rewrite files for a target: `diff` says how; with `write` they are rewritten in place.

        A folder means the files in it; a file means its program. A path, a `line` and a `code` mean
        one construct, with what depends on it: its diff is never written, apply it yourself.
        `unsafe` also makes edits that may change results. Files are only overwritten if git holds
        what they are now; `tpu-migrate PATH --undo` takes a run back.
        """
        asked = migrating.MigrationRequest(paths, target, write, unsafe, line, code)
        return await in_thread(context, partial(migrating.migrate_in, roots, asked))

    @server.tool(annotations=_LOOKS)
    @_with_error_line
    async def remaining(
        paths: list[str], target: TargetName, context: Context[Any, Any], unsafe: bool = False
    ) -> dict[str, Any]:
        """List what is left to change by hand once the rules have done their part.

        Each with its place, its programs, why, and how to check a change; `by_hand` has an example
        of what to write instead, with a check, by the key that a place names. A file's kernels are
        in `write`: what takes their place, with a skeleton and its check.
        """
        work = partial(migrating.remaining_in, roots, paths, target, unsafe)
        return await in_thread(context, work)

    @server.tool(annotations=_LOOKS)
    @_with_error_line
    async def explain(code: str) -> str:
        """Explain a code, such as LIB001: what it means, why, before and after, and by hand."""
        return guides.page_of(code)

    @server.tool(annotations=_LOOKS)
    @_with_error_line
    async def doctor(context: Context[Any, Any]) -> dict[str, Any]:
        """Say whether each target can run on this machine, and how to mend what is in the way."""
        return await in_thread(context, lambda tick: migrating.diagnose_here())


def _add_recording(server: MCPServer[Any], roots: Roots, allow_run: bool) -> None:
    """The tool that runs a program of the project as it is."""

    @server.tool(annotations=_RUNS)
    @_with_error_line
    async def record(
        script: str,
        output: str,
        context: Context[Any, Any],
        arguments: list[str] | None = None,
        layers: bool = False,
        timeout: float = 600.0,
    ) -> str:
        """Run a script as it is and keep what it computes in a new folder, for `verify`'s `golden`.

        Do this before you change a program by hand: without it, `verify` compares the code that you
        have changed with itself. On a machine without a GPU it runs on the CPU.
        """
        asked = verifying.VerificationRequest(script, "", arguments or [], timeout)
        return await verifying.record_in(context, roots, allow_run, asked, output, layers)


def _add_verifying(server: MCPServer[Any], roots: Roots, allow_run: bool) -> None:
    """The tools that run a migrated program."""

    @server.tool(annotations=_RUNS)
    @_with_error_line
    async def verify(
        script: str,
        target: TargetName,
        context: Context[Any, Any],
        arguments: list[str] | None = None,
        quick: bool = False,
        bisect: bool = False,
        layers: bool = False,
        unsafe: bool = False,
        steps: int = 5,
        timeout: float = 600.0,
        golden: str | None = None,
    ) -> dict[str, Any]:
        """Run a script as it is and migrated, and compare all numbers. Takes minutes.

        `passed` is the verdict; `first` is the first value that differs, with the line of the
        original that made it. `layers` compares the output and the gradient of every module, and
        names the first that leaves its bound (a golden needs `layers`, too). `bisect` follows a
        difference to the operation that is its cause.
        `quick` compares the first steps only. `golden` is a folder of `record`: with it, the
        original is the recorded program; without it, the script as it is now. The tolerances can't
        be changed here.
        """
        asked = verifying.VerificationRequest(script, target, arguments or [], timeout)
        options = {
            "--quick": quick, "--bisect": bisect, "--layers": layers, "--unsafe": unsafe,
        }  # fmt: skip
        given = [name for name, wanted in options.items() if wanted]
        return await verifying.verify_in(
            context, roots, allow_run, asked, [*given, "--steps", str(steps)], golden
        )

    @server.tool(annotations=_RUNS)
    @_with_error_line
    async def compile_for(
        script: str,
        target: TargetName,
        context: Context[Any, Any],
        topology: str = SLICES[0],
        arguments: list[str] | None = None,
        timeout: float = 600.0,
    ) -> dict[str, Any]:
        """Compile a migrated script's programs with the real TPU compiler: memory, collectives.

        It runs on the CPU for that; nothing runs on a TPU, and no numbers are compared.
        """
        asked = verifying.VerificationRequest(script, target, arguments or [], timeout)
        if topology not in SLICES:
            raise UsageError(f"topology {topology}: it takes {', '.join(SLICES)}")
        options = ["--compile-for", topology]
        return await verifying.verify_in(context, roots, allow_run, asked, options)


def _add_pages(server: MCPServer[Any]) -> None:
    @server.resource("tpu-migrate://rules", mime_type="text/markdown")
    def rules() -> str:
        """All codes, with a line on each."""
        return guides.index()

    @server.resource("tpu-migrate://rules/{code}", mime_type="text/markdown")
    def rule(code: str) -> str:
        """What a code means, and what to write by hand."""
        return guides.page_of(code)

    @server.resource("tpu-migrate://targets/{target}", mime_type="text/markdown")
    def target(target: str) -> str:
        """What a target is, what it needs, and what is known to take the place of what."""
        return guides.target_guide(target)

    @server.prompt()
    def finish(path: str, target: str) -> str:
        """How to bring a program to a TPU with these tools, and what never to do."""
        return guides.how_to_work(path, target)
