"""The server: an editor's requests, and the answers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from lsprotocol import types
from pygls.exceptions import JsonRpcContentModified, JsonRpcException
from pygls.lsp.server import LanguageServer
from pygls.uris import to_fs_path, uri_scheme

from migrator.config import OWN, SHARED, TABLE, Config, load
from migrator.diagnostics import Diagnostic
from migrator.distribution import __version__
from migrator.editor import editor_settings
from migrator.editor.analysis import Analysis, Moment
from migrator.editor.analyst_process import AnalystProcess
from migrator.editor.open_documents import OpenDocument, Text
from migrator.editor.text_positions import LineWorkspace, text_position
from migrator.errors import UsageError
from migrator.files.discover import as_module, is_passed_over, project_root
from migrator.files.user_folders import resolved
from migrator.formats import file_kinds
from migrator.registry import registry
from migrator.runs.run import check
from migrator.runs.run_targets import chosen_targets
from migrator.targets import names as target_names

NAME = "tpu-migrate"
WHILE_TYPING = 0.3  # seconds without a change before a document is looked at again
_OTHERS = 1.0  # the same for documents that may depend on it
_LARGE = 50_000  # bytes; a larger document may take more than a second


class Server(LanguageServer):
    """One editor's server. Documents are analysed in two processes, one at a time in each.

    Large documents take long themselves: each edit stops their analysis. Small ones may take
    long at first, while their project is read, which is then cached.
    """

    def __init__(self) -> None:
        sync = types.NotebookDocumentSyncOptions(
            [types.NotebookDocumentFilterWithNotebook("jupyter-notebook")], save=True
        )
        super().__init__(NAME, __version__, notebook_document_sync=sync)
        self.was_shut_down = False
        self.settings = editor_settings.EditorSettings()
        self._configured = asyncio.Event()
        self._said: set[str] = set()
        self._analyses: dict[str, Analysis] = {}
        self._moment = 0  # counts file events: findings may depend on any file
        self._timers: dict[str, asyncio.TimerHandle] = {}  # documents waiting to be analysed
        self._looks: dict[str, asyncio.Task[None]] = {}  # those being analysed, with the last task
        self._published: dict[str, set[str]] = {}  # texts of a document that have diagnostics
        self._processes = {False: AnalystProcess(), True: AnalystProcess()}  # for large documents

    # ---- settings ------------------------------------------------------------------------------

    def initialize(self, params: types.InitializeParams) -> None:
        given = self.workspace
        self.protocol._workspace = LineWorkspace(
            given.root_uri,
            types.TextDocumentSyncKind.Incremental,
            list(given.folders.values()),
            given.position_encoding,
        )
        self._configure(params.initialization_options)
        self._processes[False].start()

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
        item = types.ConfigurationItem(section=editor_settings.SECTION)
        asked = self.workspace_configuration_async(types.ConfigurationParams([item]))
        try:
            found = await asyncio.wait_for(asked, 5)
        except (TimeoutError, JsonRpcException):
            return
        if found and found[0]:
            self._configure(found[0])

    def _configure(self, value: Any) -> None:
        try:
            given = editor_settings.read(value)
        except UsageError as error:
            self.say(str(error), types.MessageType.Error)
            return
        if value:
            self.settings = given

    async def settings_changed(self, pushed: Any) -> None:
        if isinstance(pushed, Mapping) and editor_settings.SECTION in pushed:
            self._configure(pushed)
        await self._ask_for_settings()
        self.look_at_all()

    def _watch(self) -> None:
        patterns = ("**/*.py", f"**/*{file_kinds.NOTEBOOK}", f"**/{OWN}", f"**/{SHARED}")
        watchers = [types.FileSystemWatcher(pattern) for pattern in patterns]
        what = types.DidChangeWatchedFilesRegistrationOptions(watchers)
        method = types.WORKSPACE_DID_CHANGE_WATCHED_FILES
        self.client_register_capability(
            types.RegistrationParams([types.Registration("files", method, what)])
        )

    def say(self, message: str, kind: types.MessageType) -> None:
        """Show a message once."""
        if message not in self._said:
            self._said.add(message)
            self.tell(message, kind)

    def tell(self, message: str, kind: types.MessageType) -> None:
        self.window_show_message(types.ShowMessageParams(kind, f"{NAME}: {message}"))

    # ---- documents -----------------------------------------------------------------------------

    def document(self, uri: str) -> OpenDocument | None:
        """A document that is open and may be analysed."""
        path = path_of(uri)
        if path is None or path.suffix not in (".py", file_kinds.NOTEBOOK):
            return None
        book = self.workspace.get_notebook_document(notebook_uri=uri)
        if book is not None:
            texts = tuple(self._cells(book))
            return OpenDocument(uri, path, texts, has_cells=True) if texts else None
        text = self.workspace.text_documents.get(unquote(uri))
        return OpenDocument(uri, path, (Text(uri, text.version, text.source),)) if text else None

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
        """The addresses of all documents, as the editor writes them."""
        books = self.workspace.notebook_documents.values()
        cells = {cell.document for book in books for cell in book.cells}
        files = [t.uri for t in self.workspace.text_documents.values() if t.uri not in cells]
        return [*files, *(book.uri for book in books)]

    def _others(self, document: OpenDocument) -> dict[Path, bytes | None]:
        """The open documents, as files of the project."""
        found = [self.document(uri) for uri in self._open()]
        open_documents = [document, *(d for d in found if d is not None)]
        return {resolved(d.path): as_module(d.path, d.content) for d in open_documents}

    @property
    def roots(self) -> list[Path]:
        paths = (path_of(folder.uri) for folder in self.workspace.folders.values())
        return [path for path in paths if path is not None]

    def config(self, path: Path) -> Config | None:
        """The configuration of a file's project; None if nothing is to be done."""
        try:
            config = load(path).with_overrides(target=self.settings.target)
            if config.target is None:
                names = " or ".join(target_names())
                self.say(
                    f"no target: set {editor_settings.SECTION}.target to {names}, or target in "
                    f"{TABLE} of {SHARED}",
                    types.MessageType.Warning,
                )
                return None
            check(config, chosen_targets(config.targets)[0])
        except UsageError as error:
            self.say(str(error), types.MessageType.Error)
            return None
        real = resolved(path)
        roots = [resolved(root) for root in self.roots]
        top = next((r for r in roots if r in real.parents), None) or project_root(real)
        return None if is_passed_over(real, top, config.excluded) else config

    # ---- looking at them -----------------------------------------------------------------------

    def look_at(self, uri: str, delay: float = 0, *, keep: bool = False) -> None:
        """Analyse a document, replacing any pending analysis of it.

        With `keep`, the diagnostics stay while the text isn't valid Python, as between two key
        presses; an editor moves them along.
        """
        self._wait_no_longer(uri)
        loop = asyncio.get_running_loop()
        self._timers[uri] = loop.call_later(delay, self._begin, uri, keep)

    def _wait_no_longer(self, uri: str) -> None:
        timer = self._timers.pop(uri, None)
        if timer is not None:
            timer.cancel()

    def _begin(self, uri: str, keep: bool) -> None:
        look = self._look(uri, keep, self._looks.get(uri))
        self._looks[uri] = asyncio.ensure_future(look)

    def look_at_all(self, but: str = "", delay: float = 0) -> None:
        """Analyse all documents, because a file has changed."""
        self._moment += 1
        for uri in self._open():
            if uri != but:
                self.look_at(uri, delay, keep=True)

    def opened(self, uri: str) -> None:
        """A document was opened or saved."""
        self.look_at(uri)
        self.look_at_all(but=uri, delay=_OTHERS)

    def changed(self, uri: str) -> None:
        self._processes[True].stop(uri)
        self.look_at(uri, WHILE_TYPING, keep=True)
        self.look_at_all(but=uri, delay=_OTHERS)

    def forget(self, uri: str) -> None:
        """A document was closed."""
        self._processes[True].stop(uri)
        self._wait_no_longer(uri)
        self._looks.pop(uri, None)
        self._analyses.pop(uri, None)
        self._publish(uri, {}, {})
        self.look_at_all(delay=_OTHERS)

    async def _look(self, uri: str, keep: bool, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        if self._looks.get(uri) is not asyncio.current_task():
            return  # a newer task has replaced this one
        try:
            analysis = await self.analysis(uri)
        except JsonRpcContentModified:
            return
        except JsonRpcException as error:
            self.say(error.message, types.MessageType.Error)
            return
        if analysis is None:
            self._publish(uri, {}, {})
        elif analysis.document == self.document(uri) and not (keep and analysis.result.failed):
            self._show(analysis)

    async def analysis(self, uri: str) -> Analysis | None:
        """The analysis of a document with the current state of all files.

        Raises:
            JsonRpcContentModified: the document was edited meanwhile.
        """
        await self._configured.wait()
        document = self.document(uri)
        config = self.config(document.path) if document is not None else None
        if document is None or config is None:
            return None
        known = self._analyses.get(uri)
        if known is not None and (known.moment.number, known.moment.config) == (
            self._moment,
            config,
        ):
            return known
        moment = Moment(document, self._others(document), config, self.roots, self._moment)
        found: Analysis = await self.ask("analysis", moment)
        self._analyses[uri] = found
        return found

    async def ask(self, what: str, moment: Moment, *arguments: Any) -> Any:
        """Send a request about a document to the `Analyst`; a large one doesn't block others."""
        process = self._processes[len(moment.document.content) > _LARGE]
        return await process.ask(what, moment, *arguments)

    def end(self) -> None:
        """The editor disconnects."""
        self.was_shut_down = True
        for process in self._processes.values():
            process.end()

    def _show(self, analysis: Analysis) -> None:
        document = analysis.document
        found: dict[str, list[types.Diagnostic]] = {text.uri: [] for text in document.texts}
        for finding in analysis.findings:
            level = self.settings.level(finding)
            if level is not None:
                text, _ = document.place(finding.range)
                found[text.uri].append(self.diagnostic(analysis, finding))
        self._publish(document.uri, found, {text.uri: text.version for text in document.texts})

    def diagnostic(self, analysis: Analysis, finding: Diagnostic) -> types.Diagnostic:
        _, where = text_position(analysis.document, finding.range, self.workspace.position_codec)
        return types.Diagnostic(
            where,
            message_of(finding),
            self.settings.level(finding),
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
        """Publish the diagnostics of a document's texts, and clear those of texts it has lost."""
        before = self._published.get(uri, set())
        for text in {**dict.fromkeys(before), **found}:
            params = types.PublishDiagnosticsParams(text, found.get(text, ()), versions.get(text))
            self.text_document_publish_diagnostics(params)
        self._published[uri] = {text for text, diagnostics in found.items() if diagnostics}


def path_of(uri: str) -> Path | None:
    """The file of an address, None if it isn't a file."""
    path = to_fs_path(uri) if uri_scheme(uri) == "file" else None
    return Path(path) if path and "\0" not in path else None


def message_of(finding: Diagnostic) -> str:
    if finding.is_edit:
        return "tpu-migrate can rewrite this" + (f": {finding.message}" if finding.message else "")
    return finding.message


@cache
def _pages() -> str | None:
    """The address of the rules' pages, if the project says where its documentation is."""
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
