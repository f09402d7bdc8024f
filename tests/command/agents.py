"""A client of `tpu-migrate mcp`, by the SDK, over standard input and output."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
from mcp import Client
from mcp.client.stdio import StdioServerParameters

_LIMIT = 300.0  # seconds


def session(root: Path, *options: str, talk: Callable[[Client], Awaitable[Any]]) -> Any:
    """What `talk` gives, with a server for a folder."""

    async def run() -> Any:
        arguments = ["-P", "-m", "migrator", "mcp", "--root", str(root), *options]
        server = StdioServerParameters(command=sys.executable, args=arguments, env={**os.environ})
        with anyio.fail_after(_LIMIT):
            async with Client(server) as client:
                return await talk(client)

    return anyio.run(run)


async def called(client: Client, tool: str, **given: Any) -> Any:
    """What a tool gives; AssertionError with what it says if it fails."""
    result = await client.call_tool(tool, given)
    said = "".join(getattr(part, "text", "") for part in result.content)
    assert not result.is_error, said
    return result.structured_content


async def refused(client: Client, tool: str, **given: Any) -> str:
    """What a tool says that fails."""
    result = await client.call_tool(tool, given)
    said = "".join(getattr(part, "text", "") for part in result.content)
    assert result.is_error, said
    return said
