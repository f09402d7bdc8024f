"""An editor, as far as the tests need one: the server as a process, and documents that it edits."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from lsprotocol import types
from pygls.lsp.client import LanguageClient
from pygls.workspace import PositionCodec, TextDocument

TIMEOUT = 60  # seconds; a loaded machine needs many for what takes one
RESOLVES = types.ClientCodeActionResolveOptions(["edit", "command"])


class _Text(TextDocument):
    """A text whose lines are those of the protocol: a form feed is a character."""

    @property
    def lines(self) -> Sequence[str]:
        return re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", self.source)


class Editor(LanguageClient):
    """A client that keeps the diagnostics it gets, the messages, and the texts of its documents."""

    def __init__(self, encoding: str = "utf-16") -> None:
        super().__init__("test", "1")
        self.encoding = encoding
        self.texts: dict[str, _Text] = {}
        self.diagnostics: dict[str, types.PublishDiagnosticsParams] = {}
        self.publications = 0
        self.messages: list[types.ShowMessageParams] = []
        self.settings: Any = None
        self.exit_code: int | None = None
        self._news = asyncio.Event()
        self.protocol._converter.register_structure_hook(
            types.Command | types.CodeAction, _command_or_action(self)
        )

        @self.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def published(params: types.PublishDiagnosticsParams) -> None:
            self.diagnostics[params.uri] = params
            self.publications += 1
            self._news.set()

        @self.feature(types.WINDOW_SHOW_MESSAGE)
        def message(params: types.ShowMessageParams) -> None:
            self.messages.append(params)
            self._news.set()

        @self.feature(types.WORKSPACE_CONFIGURATION)
        def configuration(params: types.ConfigurationParams) -> list[Any]:
            return [self.settings for _ in params.items]

        @self.feature(types.CLIENT_REGISTER_CAPABILITY)
        def register(params: types.RegistrationParams) -> None:
            pass

    async def server_exit(self, server: asyncio.subprocess.Process) -> None:
        self.exit_code = server.returncode

    async def start(
        self,
        root: Path,
        options: Any = None,
        *,
        resolves: bool = True,
        versioned: bool = True,
        python: Sequence[str] | None = None,
    ) -> types.InitializeResult:
        command = [*(python or [sys.executable]), "-m", "migrator", "lsp"]
        await self.start_io(*command, cwd=root)
        capabilities = types.ClientCapabilities(
            workspace=types.WorkspaceClientCapabilities(
                configuration=True,
                workspace_edit=types.WorkspaceEditClientCapabilities(document_changes=versioned),
                did_change_watched_files=types.DidChangeWatchedFilesClientCapabilities(True),
            ),
            text_document=types.TextDocumentClientCapabilities(
                code_action=types.CodeActionClientCapabilities(
                    data_support=resolves, resolve_support=RESOLVES if resolves else None
                )
            ),
            general=types.GeneralClientCapabilities(
                position_encodings=[types.PositionEncodingKind(self.encoding)]
            ),
        )
        folder = types.WorkspaceFolder(root.as_uri(), "project")
        result = await self.initialize_async(
            types.InitializeParams(
                capabilities, workspace_folders=[folder], initialization_options=options
            )
        )
        self.initialized(types.InitializedParams())
        return result

    async def until(self, true: Callable[[], Any], what: str = "") -> None:
        """Wait for the server to have said what makes this true."""

        async def wait() -> None:
            while not true():
                self._news.clear()
                await self._news.wait()

        try:
            await asyncio.wait_for(wait(), TIMEOUT)
        except TimeoutError:
            raise AssertionError(
                f"{what or 'never true'}: {self.diagnostics}, {self.messages}"
            ) from None

    # ---- documents -----------------------------------------------------------------------------

    def open(self, path: Path, text: str | None = None) -> str:
        """Open a file with the text that it has, or another one that is not saved."""
        uri = path.as_uri()
        source = path.read_bytes().decode() if text is None else text
        self.keep(uri, source, 1)
        item = types.TextDocumentItem(uri, "python", 1, source)
        self.text_document_did_open(types.DidOpenTextDocumentParams(item))
        return uri

    def keep(self, uri: str, source: str, version: int) -> None:
        codec = PositionCodec(types.PositionEncodingKind(self.encoding))
        self.texts[uri] = _Text(uri, source, version, position_codec=codec)

    def change(self, uri: str, source: str) -> None:
        """Put another text in the place of all."""
        document = self.texts[uri]
        self.keep(uri, source, (document.version or 0) + 1)
        self._changed(uri, [types.TextDocumentContentChangeWholeDocument(source)])

    def edit(self, uri: str, edits: Sequence[types.TextEdit]) -> None:
        """Apply edits as an editor does: all of them are about the text before."""
        self.apply(uri, edits)
        changes = [
            types.TextDocumentContentChangePartial(range=e.range, text=e.new_text)
            for e in _backwards(edits)
        ]
        self._changed(uri, changes)

    def apply(self, uri: str, edits: Sequence[types.TextEdit]) -> None:
        document = self.texts[uri]
        for edit in _backwards(edits):
            change = types.TextDocumentContentChangePartial(range=edit.range, text=edit.new_text)
            document.apply_change(change)
        document.version = (document.version or 0) + 1

    def _changed(self, uri: str, changes: Sequence[Any]) -> None:
        version = self.texts[uri].version or 0
        identifier = types.VersionedTextDocumentIdentifier(version, uri)
        self.text_document_did_change(types.DidChangeTextDocumentParams(identifier, changes))

    def save(self, uri: str) -> None:
        identifier = types.TextDocumentIdentifier(uri)
        self.text_document_did_save(types.DidSaveTextDocumentParams(identifier))

    def text(self, uri: str) -> str:
        return self.texts[uri].source

    # ---- what it is told -----------------------------------------------------------------------

    async def findings(self, uri: str) -> list[types.Diagnostic]:
        """The diagnostics of a document as it is now."""
        version = self.texts[uri].version
        await self.until(
            lambda: uri in self.diagnostics and self.diagnostics[uri].version == version,
            f"no diagnostics of {uri}, version {version}",
        )
        return list(self.diagnostics[uri].diagnostics)

    async def actions(
        self,
        uri: str,
        at: types.Range | tuple[int, int],
        *kinds: str,
        trigger: types.CodeActionTriggerKind = types.CodeActionTriggerKind.Invoked,
    ) -> list[types.CodeAction]:
        where = at
        if isinstance(where, tuple):
            where = types.Range(types.Position(*where), types.Position(*where))
        context = types.CodeActionContext([], list(kinds) or None, trigger)
        found = await asyncio.wait_for(
            self.text_document_code_action_async(
                types.CodeActionParams(types.TextDocumentIdentifier(uri), where, context)
            ),
            TIMEOUT,
        )
        return [action for action in found or [] if isinstance(action, types.CodeAction)]

    async def choose(self, action: types.CodeAction) -> types.CodeAction:
        """Do what an action says, as an editor does: its edit, then its command."""
        if action.edit is None:
            action = await asyncio.wait_for(self.code_action_resolve_async(action), TIMEOUT)
        assert action.edit is not None
        for change in action.edit.document_changes or ():
            assert isinstance(change, types.TextDocumentEdit)
            uri = change.text_document.uri
            assert change.text_document.version == self.texts[uri].version
            self.edit(uri, [e for e in change.edits if isinstance(e, types.TextEdit)])
        for uri, edits in (action.edit.changes or {}).items():
            self.edit(uri, edits)
        if action.command is not None:
            await self.execute(action.command)
        return action

    async def execute(self, command: types.Command) -> None:
        params = types.ExecuteCommandParams(command.command, command.arguments)
        await asyncio.wait_for(self.workspace_execute_command_async(params), TIMEOUT)

    async def hover(self, uri: str, line: int, character: int) -> str:
        found = await asyncio.wait_for(
            self.text_document_hover_async(
                types.HoverParams(
                    types.TextDocumentIdentifier(uri), types.Position(line, character)
                )
            ),
            TIMEOUT,
        )
        if found is None:
            return ""
        assert isinstance(found.contents, types.MarkupContent)
        return found.contents.value

    async def end(self) -> int | None:
        """Shut the server down; its exit code."""
        await asyncio.wait_for(self.shutdown_async(None), TIMEOUT)
        return await self.leave()

    def analysts(self) -> list[int]:
        """The processes that the server has analyse documents."""
        assert self._server is not None
        found = []
        for file in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                parent = file.read_text().rpartition(")")[2].split()[1]
                found += [int(file.parent.name)] if int(parent) == self._server.pid else []
        return found

    def kill(self) -> None:
        assert self._server is not None
        self._server.kill()

    async def leave(self) -> int | None:
        self.exit(None)
        await asyncio.wait_for(self.stop(), TIMEOUT)
        return self.exit_code


def _command_or_action(editor: Editor) -> Callable[[Any, Any], Any]:
    """Tells them apart as the protocol has it: an action may hold a command."""

    def structure(value: Any, _: Any) -> Any:
        kind = types.Command if isinstance(value.get("command"), str) else types.CodeAction
        return editor.protocol._converter.structure(value, kind)

    return structure


def _backwards(edits: Sequence[types.TextEdit]) -> list[types.TextEdit]:
    return sorted(edits, key=lambda e: (e.range.start.line, e.range.start.character), reverse=True)


def session(run: Callable[[Editor], Awaitable[None]], encoding: str = "utf-16") -> None:
    """Let an editor do something; its server has to end well afterwards."""

    async def whole() -> None:
        editor = Editor(encoding)
        try:
            await run(editor)
            if editor.exit_code is None:
                assert await editor.end() == 0
        finally:
            server = editor._server
            if server is not None and server.returncode is None:
                server.kill()

    asyncio.run(whole())
