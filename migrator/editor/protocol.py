"""The protocol's messages, and what handles them."""

from __future__ import annotations

from lsprotocol import types

from migrator.editor.actions import FIX_ALL, WRITE_RUNTIME, Actions
from migrator.editor.language_server import WHILE_TYPING, Server


def new_server() -> Server:
    """A server that answers an editor."""
    server = Server()
    _session(server)
    _documents(server)
    _notebooks(server)
    _questions(server, Actions(server))
    return server


def _session(server: Server) -> None:
    feature = server.feature

    @feature(types.INITIALIZE)
    def initialize(params: types.InitializeParams) -> None:
        server.initialize(params)

    @feature(types.INITIALIZED)
    async def initialized(_: types.InitializedParams) -> None:
        await server.initialized()

    @feature(types.SHUTDOWN)
    def shutdown(_: None) -> None:
        server.end()

    @feature(types.WORKSPACE_DID_CHANGE_CONFIGURATION)
    async def configured(params: types.DidChangeConfigurationParams) -> None:
        await server.settings_changed(params.settings)

    @feature(types.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    def files(_: types.DidChangeWatchedFilesParams) -> None:
        server.look_at_all(delay=WHILE_TYPING)


def _documents(server: Server) -> None:
    feature = server.feature

    @feature(types.TEXT_DOCUMENT_DID_OPEN)
    def opened(params: types.DidOpenTextDocumentParams) -> None:
        server.opened(params.text_document.uri)

    @feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def changed(params: types.DidChangeTextDocumentParams) -> None:
        server.changed(params.text_document.uri)

    @feature(types.TEXT_DOCUMENT_DID_SAVE)
    def saved(params: types.DidSaveTextDocumentParams) -> None:
        server.opened(params.text_document.uri)

    @feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def closed(params: types.DidCloseTextDocumentParams) -> None:
        server.forget(params.text_document.uri)


def _notebooks(server: Server) -> None:
    feature = server.feature

    @feature(types.NOTEBOOK_DOCUMENT_DID_OPEN)
    def notebook_opened(params: types.DidOpenNotebookDocumentParams) -> None:
        server.opened(params.notebook_document.uri)

    @feature(types.NOTEBOOK_DOCUMENT_DID_CHANGE)
    def notebook_changed(params: types.DidChangeNotebookDocumentParams) -> None:
        server.changed(params.notebook_document.uri)

    @feature(types.NOTEBOOK_DOCUMENT_DID_SAVE)
    def notebook_saved(params: types.DidSaveNotebookDocumentParams) -> None:
        server.opened(params.notebook_document.uri)

    @feature(types.NOTEBOOK_DOCUMENT_DID_CLOSE)
    def notebook_closed(params: types.DidCloseNotebookDocumentParams) -> None:
        server.forget(params.notebook_document.uri)


def _questions(server: Server, able: Actions) -> None:
    feature = server.feature
    kinds = [types.CodeActionKind.QuickFix, FIX_ALL]

    @feature(types.TEXT_DOCUMENT_CODE_ACTION, types.CodeActionOptions(kinds, resolve_provider=True))
    async def actions(params: types.CodeActionParams) -> list[types.CodeAction]:
        return await able.actions(params)

    @feature(types.CODE_ACTION_RESOLVE)
    async def resolve(action: types.CodeAction) -> types.CodeAction:
        return await able.resolve(action)

    @feature(types.TEXT_DOCUMENT_HOVER)
    async def hover(params: types.HoverParams) -> types.Hover | None:
        return await able.hover(params)

    @server.command(WRITE_RUNTIME)
    def write_runtime(uri: str) -> None:
        able.write_runtime(uri)
