"""An analysis process: it can be stopped, and it doesn't block other work."""

from __future__ import annotations

import asyncio
import pickle
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter
from contextlib import suppress
from typing import Any

from pygls.exceptions import JsonRpcContentModified, JsonRpcInternalError

from migrator.editor.analysis import Moment
from migrator.editor.analyst import LENGTH


class AnalystProcess:
    """An `Analyst` in a process, kept ready. It handles one request at a time."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._process: asyncio.Task[Process] | None = None
        self._uri = ""  # of the document being analysed
        self._stops = Counter[str]()  # number of stops by document

    def start(self) -> asyncio.Task[Process]:
        """Start it ahead of the next request."""
        if self._process is None or _has_ended(self._process):
            self._process = asyncio.ensure_future(_start())
        return self._process

    def end(self) -> None:
        """End it, even while it is working."""
        if self._process is not None:
            self._process.add_done_callback(_kill)
        self._process = None

    def stop(self, uri: str) -> None:
        """Stop running and pending work for a document whose text is outdated."""
        self._stops[uri] += 1
        if uri == self._uri:
            self.end()
            self.start()

    async def ask(self, what: str, moment: Moment, *arguments: Any) -> Any:
        """The result of an `Analyst` method.

        Requests that are cancelled before their turn are not sent.

        Raises:
            JsonRpcContentModified: it was stopped.
            JsonRpcInternalError: it failed.
        """
        uri = moment.document.uri
        stops = self._stops[uri]
        await self._turn.acquire()
        answer = asyncio.ensure_future(self._ask(uri, stops, (what, moment, *arguments)))
        answer.add_done_callback(self._answered)
        return await asyncio.shield(answer)

    def _answered(self, answer: asyncio.Task[Any]) -> None:
        self._turn.release()
        if not answer.cancelled():
            answer.exception()  # a cancelled caller doesn't read it

    async def _ask(self, uri: str, stops: int, question: Any) -> Any:
        if self._stops[uri] != stops:
            raise JsonRpcContentModified("the document has changed")
        self._uri = uri
        started = self.start()
        try:
            done, answer = await _exchange(await started, question)
        except (asyncio.IncompleteReadError, ConnectionError):
            if self._process is not started:
                raise JsonRpcContentModified("the document has changed") from None
            self._process = None
            code = await (await started).wait()
            message = f"internal error: an analysis ended with {code}"
            raise JsonRpcInternalError(message) from None
        finally:
            self._uri = ""
        if not done:
            raise JsonRpcInternalError(answer)
        return answer


async def _start() -> Process:
    # Isolated, with this process's modules: none from the folder that the editor is in.
    code = f"import sys; sys.path[:] = {sys.path!r}; from migrator.editor.analyst import serve"
    command = (sys.executable, "-I", "-c", f"{code}; serve()")
    return await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)


async def _exchange(process: Process, question: Any) -> Any:
    assert process.stdin is not None and process.stdout is not None
    message = pickle.dumps(question)
    process.stdin.write(LENGTH.pack(len(message)) + message)
    await process.stdin.drain()
    header = await process.stdout.readexactly(LENGTH.size)
    return pickle.loads(await process.stdout.readexactly(*LENGTH.unpack(header)))


def _has_ended(started: asyncio.Task[Process]) -> bool:
    return started.done() and (
        started.cancelled() or bool(started.exception()) or started.result().returncode is not None
    )


def _kill(started: asyncio.Task[Process]) -> None:
    if not _has_ended(started):
        with suppress(ProcessLookupError):
            started.result().kill()
