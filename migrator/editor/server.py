"""The server: what an editor asks, and what it is told."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.lsp.server import LanguageServer
from pygls.uris import to_fs_path, uri_scheme
from pygls.workspace import TextDocument, Workspace

from migrator import __version__
from migrator.analysis.project_cache import ProjectCache
from migrator.config import Config, load
from migrator.depth import DEEP
from migrator.diagnostics import Diagnostic, SourceMap
from migrator.editor import settings
from migrator.editor.analysis import Analysis, analyse
from migrator.editor.documents import Document, Edit, Text
from migrator.errors import UsageError
from migrator.files.discover import as_module, is_passed_over, project_root
from migrator.formats import notebook
from migrator.registry import registry
from migrator.report.explain import markdown
from migrator.run import check
from migrator.runtime_copies import runtime_beside, write_beside
from migrator.targets import RUNTIME, find_target
from migrator.targets import names as target_names
from migrator.worker import Worker

NAME = "tpu-migrate"
FIX_ALL = f"source.fixAll.{NAME}"
WRITE_RUNTIME = f"{NAME}.writeRuntime"
_WHILE_TYPING = 0.3  # seconds without a change before a document is looked at again
_OTHERS = 1.0  # and before those are that may depend on it
_CONTENT_MODIFIED = -32801  # of the protocol: an answer would be about a text that is gone
_LARGE = 50_000  # bytes of a document that may take more than a second
_STACK = 64 * 2**20  # deep expressions need it; a thread has as little as 512 KiB

_Result = TypeVar("_Result")


class Server(LanguageServer):
    """One editor's server. Analyses run in two threads, one at a time in each."""

    def __init__(self) -> None:
        sync = types.NotebookDocumentSyncOptions(
            [types.NotebookDocumentFilterWithNotebook("jupyter-notebook")], save=True
        )
        super().__init__(NAME, __version__, notebook_document_sync=sync)
        self.was_shut_down = False
        self._settings = settings.Settings()
        self._configured = asyncio.Event()
        self._said: set[str] = set()
        self._analyses: dict[str, tuple[int, Analysis]] = {}
        self._moment = 0  # counts what happens to files: findings may depend on all of them
        self._caches: dict[str, ProjectCache] = {}
        self._pending: dict[str, asyncio.Task[None]] = {}
        self._published: dict[str, set[str]] = {}  # texts of a document that have diagnostics
        sys.setrecursionlimit(max(sys.getrecursionlimit(), DEEP))  # it is for all threads
        self._threads = {False: _thread(), True: _thread()}  # for documents that are large
        _register(self)

    # ---- settings ------------------------------------------------------------------------------

    def initialize(self, params: types.InitializeParams) -> None:
        given = self.workspace
        self.protocol._workspace = _Workspace(
            given.root_uri,
            types.TextDocumentSyncKind.Incremental,
            list(given.folders.values()),
            given.position_encoding,
        )
        self._configure(params.initialization_options)

    async def initialized(self) -> None:
        ability = self.client_capabilities.workspace
        if ability and ability.did_change_watched_files:
            if ability.did_change_watched_files.dynamic_registration:
                self._watch()
        await self._ask_for_settings()
        self._configured.set()

    async def _ask_for_settings(self) -> None:
        ability = self.client_capabilities.workspace
        if not (ability and ability.configuration):
            return
        item = types.ConfigurationItem(section=settings.SECTION)
        asked = self.workspace_configuration_async(types.ConfigurationParams([item]))
        try:
            found = await asyncio.wait_for(asked, 5)
        except (TimeoutError, JsonRpcException):
            return
        if found and found[0]:
            self._configure(found[0])

    def _configure(self, value: Any) -> None:
        try:
            given = settings.read(value)
        except UsageError as error:
            self._say(str(error), types.MessageType.Error)
            return
        if value:
            self._settings = given

    async def settings_changed(self, pushed: Any) -> None:
        if isinstance(pushed, Mapping) and settings.SECTION in pushed:
            self._configure(pushed)
        await self._ask_for_settings()
        self.look_at_all()

    def _watch(self) -> None:
        patterns = ("**/*.py", f"**/*{notebook.SUFFIX}", "**/pyproject.toml")
        watchers = [types.FileSystemWatcher(pattern) for pattern in patterns]
        what = types.DidChangeWatchedFilesRegistrationOptions(watchers)
        method = types.WORKSPACE_DID_CHANGE_WATCHED_FILES
        self.client_register_capability(
            types.RegistrationParams([types.Registration("files", method, what)])
        )

    def _say(self, message: str, kind: types.MessageType) -> None:
        """Say something once."""
        if message not in self._said:
            self._said.add(message)
            self._tell(message, kind)

    def _tell(self, message: str, kind: types.MessageType) -> None:
        self.window_show_message(types.ShowMessageParams(kind, f"{NAME}: {message}"))

    # ---- documents -----------------------------------------------------------------------------

    def document(self, uri: str) -> Document | None:
        """A document that is open and may be looked at."""
        path = _path(uri)
        if path is None or path.suffix not in (".py", notebook.SUFFIX):
            return None
        book = self.workspace.get_notebook_document(notebook_uri=uri)
        if book is not None:
            texts = tuple(self._cells(book))
            return Document(uri, path, texts, has_cells=True) if texts else None
        text = self.workspace.text_documents.get(unquote(uri))
        return Document(uri, path, (Text(uri, text.version, text.source),)) if text else None

    def _cells(self, book: types.NotebookDocument) -> Iterator[Text]:
        known = self.workspace.text_documents
        cells = [(cell, known.get(unquote(cell.document))) for cell in book.cells]
        if not any(text is not None and text.language_id == "python" for _, text in cells):
            return
        for number, (cell, text) in enumerate(cells, 1):
            source, version = (text.source, text.version) if text is not None else ("", None)
            is_code = cell.kind is types.NotebookCellKind.Code
            yield Text(cell.document, version, source, number, is_code)

    def _open(self) -> list[str]:
        """Addresses of all documents, as the editor writes them."""
        books = self.workspace.notebook_documents.values()
        cells = {cell.document for book in books for cell in book.cells}
        files = [t.uri for t in self.workspace.text_documents.values() if t.uri not in cells]
        return [*files, *(book.uri for book in books)]

    def _others(self, document: Document) -> dict[Path, bytes | None]:
        """What is open, as files of the project know it."""
        found = [self.document(uri) for uri in self._open()]
        open_documents = [document, *(d for d in found if d is not None)]
        return {d.path.resolve(): as_module(d.path, d.content) for d in open_documents}

    @property
    def _roots(self) -> list[Path]:
        paths = (_path(folder.uri) for folder in self.workspace.folders.values())
        return [path for path in paths if path is not None]

    def _config(self, path: Path) -> Config | None:
        """The configuration of a file's project; None where nothing is to be done."""
        try:
            config = load(path).with_overrides(target=self._settings.target)
            if config.target is None:
                names = " or ".join(target_names())
                self._say(
                    f"no target: set {settings.SECTION}.target to {names}, or target in "
                    "[tool.tpu-migrate] of pyproject.toml",
                    types.MessageType.Warning,
                )
                return None
            check(config, find_target(config.target))
        except UsageError as error:
            self._say(str(error), types.MessageType.Error)
            return None
        real = path.resolve()
        roots = [root.resolve() for root in self._roots]
        top = next((r for r in roots if r in real.parents), None) or project_root(real)
        return None if is_passed_over(real, top, config.exclude) else config

    # ---- looking at them -----------------------------------------------------------------------

    def look_at(self, uri: str, delay: float = 0, *, keep: bool = False) -> None:
        """Have a document looked at, in place of what was to be done about it before.

        With `keep`, what is shown stays while the text is not valid Python: so it is between two
        keys, and an editor moves along what it shows.
        """
        pending = self._pending.pop(uri, None)
        if pending is not None:
            pending.cancel()
        self._pending[uri] = asyncio.ensure_future(self._look_at(uri, delay, keep))

    def look_at_all(self, but: str = "", delay: float = 0) -> None:
        """Have all documents looked at, since something has happened to a file."""
        self._moment += 1
        for uri in self._open():
            if uri != but:
                self.look_at(uri, delay, keep=True)

    def opened(self, uri: str) -> None:
        """A document was opened or saved."""
        self.look_at(uri)
        self.look_at_all(but=uri, delay=_OTHERS)

    def changed(self, uri: str) -> None:
        self.look_at(uri, _WHILE_TYPING, keep=True)
        self.look_at_all(but=uri, delay=_OTHERS)

    def forget(self, uri: str) -> None:
        """A document was closed."""
        pending = self._pending.pop(uri, None)
        if pending is not None:
            pending.cancel()
        self._analyses.pop(uri, None)
        self._publish(uri, {}, {})
        self.look_at_all(delay=_OTHERS)

    async def _look_at(self, uri: str, delay: float, keep: bool) -> None:
        await asyncio.sleep(delay)
        analysis = await self._analysis(uri)
        if analysis is None:
            self._publish(uri, {}, {})
            return
        if not (keep and analysis.result.failed):
            self._show(analysis)

    async def _analysis(self, uri: str) -> Analysis | None:
        """The analysis of a document as all files are now."""
        await self._configured.wait()
        document = self.document(uri)
        config = self._config(document.path) if document is not None else None
        if document is None or config is None:
            return None
        moment, known = self._analyses.get(uri, (0, None))
        if known is not None and moment == self._moment and known.config == config:
            return known
        moment = self._moment
        target = find_target(str(config.target))
        others, roots = self._others(document), self._roots
        earlier = self._caches.get(target.name)
        found = await self._beside(
            document, lambda: analyse(document, others, target, config, roots, earlier)
        )
        self._caches[target.name] = found.worker.cache
        self._analyses[uri] = moment, found
        return found

    async def _beside(self, document: Document, work: Callable[[], _Result]) -> _Result:
        """Do something in the thread for it; what was cancelled by then is not begun.

        A large document does not keep the others waiting.
        """
        thread = self._threads[len(document.content) > _LARGE]
        return await asyncio.get_running_loop().run_in_executor(thread, work)

    def _show(self, analysis: Analysis) -> None:
        document = analysis.document
        found: dict[str, list[types.Diagnostic]] = {text.uri: [] for text in document.texts}
        for finding in analysis.findings:
            level = self._settings.level(finding)
            if level is not None:
                text, _ = document.place(finding.range, self.workspace.position_codec)
                found[text.uri].append(self._diagnostic(analysis, finding))
        self._publish(document.uri, found, {text.uri: text.version for text in document.texts})

    def _diagnostic(self, analysis: Analysis, finding: Diagnostic) -> types.Diagnostic:
        _, where = analysis.document.place(finding.range, self.workspace.position_codec)
        return types.Diagnostic(
            where,
            _message(finding),
            self._settings.level(finding),
            finding.code,
            _description(finding.code),
            NAME,
        )

    def _publish(
        self,
        uri: str,
        found: Mapping[str, Sequence[types.Diagnostic]],
        versions: Mapping[str, int | None],
    ) -> None:
        """Show the diagnostics of a document's texts, and no longer those of others it had."""
        before = self._published.get(uri, set())
        for text in {**dict.fromkeys(before), **found}:
            params = types.PublishDiagnosticsParams(text, found.get(text, ()), versions.get(text))
            self.text_document_publish_diagnostics(params)
        self._published[uri] = {text for text, diagnostics in found.items() if diagnostics}

    # ---- what can be done ----------------------------------------------------------------------

    def _document_uri(self, uri: str) -> str:
        """That of the notebook, for a cell of one."""
        book = self.workspace.get_notebook_document(cell_uri=uri)
        return book.uri if book is not None else uri

    def _findings_at(
        self, analysis: Analysis, uri: str, where: types.Range, *, whole_line: bool = True
    ) -> list[Diagnostic]:
        """Findings that meet a range of a text; else, those that begin on its first line."""
        codec = self.workspace.position_codec
        places = [(f, *analysis.document.place(f.range, codec)) for f in analysis.findings]
        here = [(finding, place) for finding, text, place in places if text.uri == uri]
        met = [f for f, at in here if at.start <= where.end and where.start <= at.end]
        on_line = [f for f, at in here if whole_line and at.start.line == where.start.line]
        return met or on_line

    async def actions(self, params: types.CodeActionParams) -> list[types.CodeAction]:
        uri, only = params.text_document.uri, params.context.only
        analysis = await self._analysis(self._document_uri(uri))
        if analysis is None or analysis.result.failed:
            return []
        found: list[types.CodeAction] = []
        if _asked_for(types.CodeActionKind.QuickFix, only):
            findings = _once(self._findings_at(analysis, uri, params.range))
            found += [self._rewrite(analysis, f) for f in findings if f.is_edit]
            shown = [f for f in findings if self._settings.level(f) is not None]
            work = ((f, partial(analysis.suppression, f)) for f in shown)
            edits = [(f, await self._beside(analysis.document, each)) for f, each in work]
            found += [self._ignore(analysis, f, *edit) for f, edit in edits if edit is not None]
        # What an editor does by itself, when a file is saved, has to ask for this by its name.
        by_name = params.context.trigger_kind is types.CodeActionTriggerKind.Automatic
        if analysis.changes and _asked_for(FIX_ALL, only, by_name=by_name):
            found.append(self._rewrite(analysis))
        if self._resolves:
            return found
        return [action if action.edit else await self.resolve(action) for action in found]

    @property
    def _resolves(self) -> bool:
        """Whether the editor asks for an edit when it is chosen: finding it takes a while."""
        ability = self.client_capabilities.text_document
        actions = ability.code_action if ability is not None else None
        if actions is None or not actions.data_support or actions.resolve_support is None:
            return False
        return "edit" in actions.resolve_support.properties

    def _rewrite(self, analysis: Analysis, finding: Diagnostic | None = None) -> types.CodeAction:
        """The rewrite of one finding, or of all, without its edit."""
        data = {"uri": analysis.document.uri}
        if finding is None:
            title = f"Rewrite all in this file for {analysis.target.name}"
            return types.CodeAction(title, FIX_ALL, data=data)
        what = finding.construct or finding.message
        return types.CodeAction(
            f"Rewrite for {analysis.target.name}: {what}",
            types.CodeActionKind.QuickFix,
            [self._diagnostic(analysis, finding)],
            is_preferred=True,
            data={**data, "finding": _key(finding)},
        )

    def _ignore(
        self, analysis: Analysis, finding: Diagnostic, text: Text, edit: Edit
    ) -> types.CodeAction:
        return types.CodeAction(
            f"Ignore {finding.code} on this line",
            types.CodeActionKind.QuickFix,
            [self._diagnostic(analysis, finding)],
            edit=self._workspace_edit([(text, [edit])]),
        )

    async def resolve(self, action: types.CodeAction) -> types.CodeAction:
        """An action with its edit, and with the command that writes the runtime if it needs that.

        Raises:
            JsonRpcException: the text is not any more what the action is about.
        """
        data: Any = action.data
        analysis = await self._analysis(data["uri"])
        wanted = data.get("finding")
        found = [f for f in analysis.findings if _key(f) == wanted] if analysis is not None else []
        if analysis is None or analysis.result.failed or (wanted and not found):
            raise JsonRpcException("the text has changed", _CONTENT_MODIFIED)
        work = partial(analysis.of, found[0]) if wanted else analysis.whole
        result = await self._beside(analysis.document, work)
        action.edit = self._workspace_edit(analysis.document.edits(result.source))
        if RUNTIME in result.companions and self._missing(analysis.document.path, analysis.config):
            title = f"Write {RUNTIME}/ beside it"
            action.command = types.Command(title, WRITE_RUNTIME, arguments=[data["uri"]])
        return action

    def _workspace_edit(
        self, changes: Iterable[tuple[Text, Sequence[Edit]]]
    ) -> types.WorkspaceEdit:
        codec = self.workspace.position_codec
        edits = {text: [text.text_edit(e, codec) for e in found] for text, found in changes}
        ability = self.client_capabilities.workspace
        able = ability.workspace_edit if ability is not None else None
        if able is None or not able.document_changes:
            return types.WorkspaceEdit({text.uri: found for text, found in edits.items()})
        identified = types.OptionalVersionedTextDocumentIdentifier
        return types.WorkspaceEdit(
            document_changes=[
                types.TextDocumentEdit(identified(text.uri, text.version), found)
                for text, found in edits.items()
            ]
        )

    async def hover(self, params: types.HoverParams) -> types.Hover | None:
        """The rules behind the findings at a place."""
        uri, at = params.text_document.uri, params.position
        analysis = await self._analysis(self._document_uri(uri))
        if analysis is None:
            return None
        rules = registry().rules
        met = self._findings_at(analysis, uri, types.Range(at, at), whole_line=False)
        pages = {f.code: f for f in met if f.code in rules}
        if not pages:
            return None
        said = [f"**{_message(f)}**\n\n{markdown(rules[code])}" for code, f in pages.items()]
        return types.Hover(types.MarkupContent(types.MarkupKind.Markdown, "\n---\n\n".join(said)))

    # ---- the runtime ---------------------------------------------------------------------------

    def _missing(self, path: Path, config: Config) -> dict[Path, bytes]:
        """Files of the runtime that have to be written beside a file."""
        target = find_target(str(config.target))
        try:
            # A program that is being edited may need any of it next.
            whole = replace(config, runtime="whole")
            return runtime_beside(path, Worker(self._roots, [target], whole))
        except UsageError as error:
            self._say(str(error), types.MessageType.Error)
            return {}

    def write_runtime(self, uri: str) -> None:
        path = _path(uri)
        config = self._config(path) if path is not None else None
        if path is None or config is None or config.runtime == "installed":
            return
        files = self._missing(path, config)
        try:
            write_beside(files, project_root(path.resolve(), self._roots))
        except UsageError as error:
            self._tell(str(error), types.MessageType.Error)
            return
        if files:
            folder = next(p for p in next(iter(files)).parents if p.name == RUNTIME)
            self._tell(f"wrote {folder}, which {path.name} imports", types.MessageType.Info)


# ---- the protocol --------------------------------------------------------------------------------


class _Workspace(Workspace):
    """Documents whose lines end where the protocol has it: at no form feed, nor U+2028."""

    def _create_text_document(self, *arguments: Any, **named: Any) -> TextDocument:
        document = super()._create_text_document(*arguments, **named)
        document.__class__ = _Document
        return document


class _Document(TextDocument):
    @property
    def lines(self) -> Sequence[str]:
        return SourceMap(self.source).lines


def _thread() -> ThreadPoolExecutor:
    """One thread, with a stack that deep expressions fit in."""
    pool = ThreadPoolExecutor(1)
    before = threading.stack_size(_STACK)
    pool.submit(int)  # starts it
    threading.stack_size(before)
    return pool


def _register(server: Server) -> None:
    """Say which messages of the protocol are answered, and by what."""
    feature = server.feature

    @feature(types.INITIALIZE)
    def initialize(params: types.InitializeParams) -> None:
        server.initialize(params)

    @feature(types.INITIALIZED)
    async def initialized(_: types.InitializedParams) -> None:
        await server.initialized()

    @feature(types.SHUTDOWN)
    def shutdown(_: None) -> None:
        server.was_shut_down = True

    @feature(types.WORKSPACE_DID_CHANGE_CONFIGURATION)
    async def configured(params: types.DidChangeConfigurationParams) -> None:
        await server.settings_changed(params.settings)

    @feature(types.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    def files(_: types.DidChangeWatchedFilesParams) -> None:
        server.look_at_all(delay=_WHILE_TYPING)

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

    kinds = [types.CodeActionKind.QuickFix, FIX_ALL]

    @feature(types.TEXT_DOCUMENT_CODE_ACTION, types.CodeActionOptions(kinds, resolve_provider=True))
    async def actions(params: types.CodeActionParams) -> list[types.CodeAction]:
        return await server.actions(params)

    @feature(types.CODE_ACTION_RESOLVE)
    async def resolve(action: types.CodeAction) -> types.CodeAction:
        return await server.resolve(action)

    @feature(types.TEXT_DOCUMENT_HOVER)
    async def hover(params: types.HoverParams) -> types.Hover | None:
        return await server.hover(params)

    @server.command(WRITE_RUNTIME)
    def write_runtime(uri: str) -> None:
        server.write_runtime(uri)


def _path(uri: str) -> Path | None:
    """The file of an address, None for what is no file."""
    path = to_fs_path(uri) if uri_scheme(uri) == "file" else None
    return Path(path) if path and "\0" not in path else None


def _asked_for(kind: str, only: Sequence[str] | None, *, by_name: bool = False) -> bool:
    if not only:
        return not by_name
    return any(kind == wanted or (not by_name and kind.startswith(f"{wanted}.")) for wanted in only)


def _key(finding: Diagnostic) -> list[object]:
    where = finding.range
    return [where.cell, where.line, where.column, where.end_line, where.end_column, finding.code]


def _once(findings: Iterable[Diagnostic]) -> list[Diagnostic]:
    """One finding for each rule and place: an edit is made for all of them."""
    return list({(f.range, f.code): f for f in findings}.values())


def _message(finding: Diagnostic) -> str:
    if finding.is_edit:
        return "tpu-migrate can rewrite this" + (f": {finding.message}" if finding.message else "")
    return finding.message


@cache
def _pages() -> str | None:
    """Where the pages of the rules are, if the project says where its documentation is."""
    try:
        urls = metadata(NAME).get_all("Project-URL") or []
    except PackageNotFoundError:
        return None
    named = dict(url.split(", ", 1) for url in urls if ", " in url)
    return f"{named['Documentation'].rstrip('/')}/rules" if "Documentation" in named else None


def _description(code: str) -> types.CodeDescription | None:
    if _pages() is None or code not in registry().rules:
        return None
    return types.CodeDescription(f"{_pages()}/{code}.md")
