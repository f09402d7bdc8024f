"""What an editor can do about findings: code actions, hover texts, and writing the runtime."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from lsprotocol import types
from pygls.exceptions import JsonRpcContentModified

from migrator.config import Config
from migrator.diagnostics import Diagnostic
from migrator.editor.analysis import Analysis, OfferedRewrite
from migrator.editor.language_server import NAME, Server, message_of, path_of
from migrator.editor.open_documents import DocumentEdit, Text
from migrator.editor.text_positions import text_edit, text_position
from migrator.errors import UsageError
from migrator.files.discover import project_root
from migrator.files.user_folders import resolved
from migrator.registry import registry
from migrator.report.explain import markdown
from migrator.runs.delivery import deliver_to, write_delivered
from migrator.runs.run_report import Report
from migrator.runs.run_targets import chosen_targets, label
from migrator.runs.worker import Worker
from migrator.targets import RUNTIME

FIX_ALL = f"source.fixAll.{NAME}"
WRITE_RUNTIME = f"{NAME}.writeRuntime"


class Actions:
    """The actions for a server's findings."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def _document_uri(self, uri: str) -> str:
        """The notebook's address, for a cell."""
        book = self._server.workspace.get_notebook_document(cell_uri=uri)
        return book.uri if book is not None else uri

    def _findings_at(
        self, analysis: Analysis, uri: str, where: types.Range, *, whole_line: bool = True
    ) -> list[Diagnostic]:
        """Findings that overlap a range of a text, or else those that start on its first line."""
        codec = self._server.workspace.position_codec
        places = [(f, *text_position(analysis.document, f.range, codec)) for f in analysis.findings]
        here = [(finding, place) for finding, text, place in places if text.uri == uri]
        met = [f for f, at in here if at.start <= where.end and where.start <= at.end]
        on_line = [f for f, at in here if whole_line and at.start.line == where.start.line]
        return met or on_line

    async def actions(self, params: types.CodeActionParams) -> list[types.CodeAction]:
        uri, only = params.text_document.uri, params.context.only
        analysis = await self._server.analysis(self._document_uri(uri))
        if analysis is None or analysis.result.failed:
            return []
        found: list[types.CodeAction] = []
        if _asked_for(types.CodeActionKind.QuickFix, only):
            findings = _once(self._findings_at(analysis, uri, params.range))
            found += [self._rewrite(analysis, f) for f in findings if f.is_edit]
            shown = [f for f in findings if self._server.settings.level(f) is not None]
            edits = await self._server.ask("suppressions", analysis.moment, shown)
            pairs = zip(shown, edits, strict=True)
            found += [self._ignore(analysis, f, *edit) for f, edit in pairs if edit is not None]
        # Actions that an editor runs by itself when a file is saved must be requested by this name.
        by_name = params.context.trigger_kind is types.CodeActionTriggerKind.Automatic
        if analysis.changes and _asked_for(FIX_ALL, only, by_name=by_name):
            found.append(self._rewrite(analysis))
        if self._resolves:
            return found
        return [action if action.edit else await self.resolve(action) for action in found]

    @property
    def _resolves(self) -> bool:
        """Whether the editor asks for an edit only once it is chosen: computing it takes time."""
        ability = self._server.client_capabilities.text_document
        actions = ability.code_action if ability is not None else None
        if actions is None or not actions.data_support or actions.resolve_support is None:
            return False
        return "edit" in actions.resolve_support.properties

    def _rewrite(self, analysis: Analysis, finding: Diagnostic | None = None) -> types.CodeAction:
        """The rewrite of one finding, or of all, without its edit."""
        data = {"uri": analysis.document.uri}
        if finding is None:
            title = f"Rewrite all in this file for {label(analysis.moment.targets)}"
            return types.CodeAction(title, FIX_ALL, data=data)
        what = finding.construct or finding.message
        return types.CodeAction(
            f"Rewrite for {label(analysis.moment.targets)}: {what}",
            types.CodeActionKind.QuickFix,
            [self._server.diagnostic(analysis, finding)],
            is_preferred=True,
            data={**data, "finding": _key(finding)},
        )

    def _ignore(
        self, analysis: Analysis, finding: Diagnostic, text: Text, edit: DocumentEdit
    ) -> types.CodeAction:
        return types.CodeAction(
            f"Ignore {finding.code} on this line",
            types.CodeActionKind.QuickFix,
            [self._server.diagnostic(analysis, finding)],
            edit=self._workspace_edit([(text, [edit])]),
        )

    async def resolve(self, action: types.CodeAction) -> types.CodeAction:
        """An action with its edit, and with the command that writes the runtime if it needs that.

        Raises:
            JsonRpcContentModified: the text has changed since the action was offered.
        """
        data: Any = action.data
        analysis = await self._server.analysis(data["uri"])
        wanted = data.get("finding")
        found = [f for f in analysis.findings if _key(f) == wanted] if analysis is not None else []
        if analysis is None or analysis.result.failed or (wanted and not found):
            raise JsonRpcContentModified("the document has changed")
        chosen = found[0] if wanted else None
        rewrite: OfferedRewrite = await self._server.ask("rewrite", analysis.moment, chosen)
        action.edit = self._workspace_edit(rewrite.edits)
        path, config = analysis.document.path, analysis.moment.config
        if RUNTIME in rewrite.companions and self._missing(path, config) is not None:
            title = "Write the runtime into the project"
            action.command = types.Command(title, WRITE_RUNTIME, arguments=[data["uri"]])
        return action

    def _workspace_edit(
        self, changes: Iterable[tuple[Text, Sequence[DocumentEdit]]]
    ) -> types.WorkspaceEdit:
        codec = self._server.workspace.position_codec
        edits = {text: [text_edit(text, e, codec) for e in found] for text, found in changes}
        ability = self._server.client_capabilities.workspace
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
        """The rules behind the findings at a position."""
        uri, at = params.text_document.uri, params.position
        analysis = await self._server.analysis(self._document_uri(uri))
        if analysis is None:
            return None
        rules = registry().rules
        met = self._findings_at(analysis, uri, types.Range(at, at), whole_line=False)
        pages = {f.code: f for f in met if f.code in rules}
        if not pages:
            return None
        said = [f"**{message_of(f)}**\n\n{markdown(rules[code])}" for code, f in pages.items()]
        return types.Hover(types.MarkupContent(types.MarkupKind.Markdown, "\n---\n\n".join(said)))

    def _missing(self, path: Path, config: Config) -> Report | None:
        """What a file lacks of the runtime; None if nothing is to be written."""
        try:
            worker = Worker(self._server.roots, chosen_targets(config.targets), config)
            report = deliver_to(path, worker)
        except UsageError as error:
            self._server.say(str(error), types.MessageType.Error)
            return None
        return report if report.companions else None

    def write_runtime(self, uri: str) -> None:
        path = path_of(uri)
        config = self._server.config(path) if path is not None else None
        if path is None or config is None:
            return
        report = self._missing(path, config)
        if report is None:
            return
        try:
            write_delivered(report, project_root(resolved(path), self._server.roots))
        except UsageError as error:
            self._server.tell(str(error), types.MessageType.Error)
            return
        said = [
            f"wrote {report.runtime}, which {path.name} imports",
            *(delivery.said() for delivery in report.deliveries),
        ]
        self._server.tell("; ".join(said), types.MessageType.Info)


def _asked_for(kind: str, only: Sequence[str] | None, *, by_name: bool = False) -> bool:
    if not only:
        return not by_name
    return any(kind == wanted or (not by_name and kind.startswith(f"{wanted}.")) for wanted in only)


def _key(finding: Diagnostic) -> list[object]:
    where = finding.range
    return [where.cell, where.line, where.column, where.end_line, where.end_column, finding.code]


def _once(findings: Iterable[Diagnostic]) -> list[Diagnostic]:
    """One finding for each rule and position: an edit covers all of them."""
    return list({(f.range, f.code): f for f in findings}.values())
