"""What the language server changes: rewriting, switching off, notebooks; and its process."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers import TARGETS, cli, one_line, wheel_for, write_tree
from lsp_client import Editor, session
from lsprotocol import types

from migrator.options import Options
from migrator.pipeline.engine import migrate_file
from migrator.targets import RUNTIME, targets
from tests.editor.documents import FIX_ALL, SCRIPT, TO, by_title, code_of


@pytest.mark.parametrize("target", TARGETS)
def test_one_rewrite_after_the_other_ends_where_the_migration_does(root: Path, target: str) -> None:
    async def run(editor: Editor) -> None:
        await editor.start(root, {"tpuMigrate": {"target": target}})
        uri = editor.open(write_tree(root, {"a.py": SCRIPT}) / "a.py")
        whole = migrate_file(Path("a.py"), SCRIPT.encode(), targets()[target], Options(entry=True))
        for _ in range(5):
            found = await editor.findings(uri)
            hints = [d for d in found if d.severity is types.DiagnosticSeverity.Hint]
            if not hints:
                break
            actions = await editor.actions(uri, hints[-1].range, "quickfix")
            await editor.choose(by_title(actions, "Rewrite for"))
        assert editor.text(uri) == whole.source.decode()
        wheel = root / wheel_for(target)
        assert wheel.exists()
        (message,) = [m.message for m in editor.messages]
        assert message.startswith(f"tpu-migrate: wrote {wheel}, which a.py imports; ")
        assert message.endswith(f": pip install {wheel.as_posix()}")

    session(run)


def test_all_at_once_with_the_runtime_beside_it(root: Path) -> None:
    async def run(editor: Editor) -> None:
        table = '[tool.tpu-migrate]\nruntime = "copy"\n'
        write_tree(root, {"pyproject.toml": table, "pkg/a.py": SCRIPT})
        await editor.start(root, TO, versioned=False)
        uri = editor.open(root / "pkg/a.py")
        (action,) = await editor.actions(uri, (0, 0), FIX_ALL)
        done = await editor.choose(action)
        assert done.edit and done.edit.changes and not done.edit.document_changes
        assert ".cuda()" not in editor.text(uri) and "cuda.Stream" in editor.text(uri)
        assert (root / "pkg" / RUNTIME / "__init__.py").exists()
        assert await editor.actions(uri, (0, 0), FIX_ALL) == []

    session(run)


def test_an_editor_that_can_not_ask_later_gets_edits_at_once(root: Path) -> None:
    async def run(editor: Editor) -> None:
        await editor.start(root, TO, resolves=False)
        uri = editor.open(write_tree(root, {"a.py": SCRIPT}) / "a.py")
        actions = await editor.actions(uri, (4, 23))
        assert len(actions) == 3 and all(action.edit for action in actions)
        assert by_title(actions, "Rewrite for").command

    session(run)


def test_saving_migrates_only_by_name(root: Path) -> None:
    async def run(editor: Editor) -> None:
        await editor.start(root, TO)
        uri = editor.open(write_tree(root, {"a.py": SCRIPT}) / "a.py")
        automatic = types.CodeActionTriggerKind.Automatic
        for kinds in (["source.fixAll"], ["source"], []):
            found = await editor.actions(uri, (0, 0), *kinds, trigger=automatic)
            assert FIX_ALL not in [action.kind for action in found]
        assert await editor.actions(uri, (0, 0), FIX_ALL, trigger=automatic)
        assert await editor.actions(uri, (0, 0), "source.fixAll")

    session(run)


def test_a_rewrite_of_a_text_that_is_gone_is_refused(root: Path) -> None:
    async def run(editor: Editor) -> None:
        await editor.start(root, TO)
        uri = editor.open(write_tree(root, {"a.py": SCRIPT}) / "a.py")
        actions = await editor.actions(uri, (4, 23))
        editor.change(uri, "import torch\n")
        with pytest.raises(Exception, match="the document has changed"):
            await editor.choose(by_title(actions, "Rewrite for"))
        assert editor.text(uri) == "import torch\n"

    session(run)


def test_a_foreign_folder_of_the_runtimes_name_is_left_alone(root: Path) -> None:
    async def run(editor: Editor) -> None:
        await editor.start(root, TO)
        write_tree(root, {"a.py": SCRIPT, f"{RUNTIME}/__init__.py": "mine = 1\n"})
        uri = editor.open(root / "a.py")
        assert not await editor.actions(uri, (0, 0), FIX_ALL)  # the program stays
        assert (root / RUNTIME / "__init__.py").read_text() == "mine = 1\n"

    session(run)


# ---- switching off, explaining -------------------------------------------------------------------


IGNORED = {
    "x = y.cuda()": "x = y.cuda()  # tpu-migrate: ignore[MOV001]",
    "x = y.cuda()  # noqa": "x = y.cuda()  # noqa  # tpu-migrate: ignore[MOV001]",
    "x = y.cuda()  # tpu-migrate: ignore[CUD001]": (
        "x = y.cuda()  # tpu-migrate: ignore[CUD001, MOV001]"
    ),
    "x = f(\n    y.cuda(),\n)": "x = f(\n    y.cuda(),  # tpu-migrate: ignore[MOV001]\n)",
    'x = y.cuda(), """\n"""': 'x = y.cuda(), """\n"""',  # no comment can stand there
}


def test_a_line_is_ignored_by_a_comment(root: Path) -> None:
    async def run(editor: Editor) -> None:
        await editor.start(root, TO)
        for number, (line, ignored) in enumerate(IGNORED.items()):
            uri = editor.open(root / f"{number}.py", f"{line}\n")
            finding = next(d for d in await editor.findings(uri) if code_of(d) == "MOV001")
            for action in await editor.actions(uri, finding.range, "quickfix"):
                if action.title == "Ignore MOV001 on this line":
                    await editor.choose(action)
                    assert "MOV001" not in map(code_of, await editor.findings(uri))
            assert editor.text(uri) == f"{ignored}\n"

    session(run)


def test_hovering_explains_the_rule(root: Path) -> None:
    async def run(editor: Editor) -> None:
        await editor.start(root, TO)
        uri = editor.open(write_tree(root, {"a.py": SCRIPT}) / "a.py")
        said = await editor.hover(uri, 6, 20)
        assert said.startswith("**streams have no counterpart")
        assert "# CUD003" in said and "```python" in said
        assert await editor.hover(uri, 3, 0) == ""

    session(run)


# ---- text that is not valid ----------------------------------------------------------------------


def test_while_a_line_is_typed_findings_stay(root: Path) -> None:
    async def run(editor: Editor) -> None:
        await editor.start(root, TO)
        uri = editor.open(write_tree(root, {"a.py": SCRIPT}) / "a.py")
        before = await editor.findings(uri)
        published = editor.publications
        editor.change(uri, SCRIPT + "y = x.cuda(\n")
        assert await editor.actions(uri, (4, 23)) == []  # answered: the new text was looked at
        assert editor.publications == published
        editor.change(uri, SCRIPT + "y = x.cuda()\n")
        assert len(await editor.findings(uri)) == len(before) + 1
        editor.change(uri, SCRIPT + "y = x.cuda(\n")
        editor.save(uri)
        (error,) = await editor.findings(uri)
        assert error.severity is types.DiagnosticSeverity.Error and code_of(error) == "ERR001"

    session(run)


# ---- notebooks -----------------------------------------------------------------------------------


CELLS = ["# Title", "import torch\nx = torch.ones(2).cuda()\n", "!pip list\ny = x.to('cuda')"]


def notebook(editor: Editor, path: Path) -> tuple[str, list[str]]:
    """Open a notebook as an editor that knows of cells does."""
    uri = path.as_uri()
    cells = [f"vscode-notebook-cell:{path}#c{n}" for n in range(len(CELLS))]
    kinds = [types.NotebookCellKind.Markup, *[types.NotebookCellKind.Code] * 2]
    languages = ["markdown", "python", "python"]
    for cell, text in zip(cells, CELLS, strict=True):
        editor.keep(cell, text, 1)
    editor.notebook_document_did_open(
        types.DidOpenNotebookDocumentParams(
            types.NotebookDocument(
                uri,
                "jupyter-notebook",
                1,
                [types.NotebookCell(k, c) for k, c in zip(kinds, cells, strict=True)],
            ),
            [
                types.TextDocumentItem(cell, language, 1, text)
                for cell, language, text in zip(cells, languages, CELLS, strict=True)
            ],
        )
    )
    return uri, cells


def test_cells_of_a_notebook_are_one_program(root: Path) -> None:
    async def run(editor: Editor) -> None:
        await editor.start(root, TO)
        _, (_, first, second) = notebook(editor, root / "a.ipynb")
        found = await editor.findings(second)
        assert [(code_of(d), d.range.start.line) for d in found] == [("DEV002", 1)]
        assert found[0].range.start.character == len("y = x.to(")
        actions = await editor.actions(second, found[0].range, "quickfix")
        await editor.choose(by_title(actions, "Rewrite for"))
        assert editor.text(second) == "!pip list\ny = x.to('jax')"
        assert editor.text(first).endswith("x = torch.ones(2).cuda()\n")

    session(run)


def test_a_notebook_changes_as_a_whole(root: Path) -> None:
    async def run(editor: Editor) -> None:
        await editor.start(root, TO)
        _, (_, first, second) = notebook(editor, root / "a.ipynb")
        await editor.findings(first)
        (ignore,) = [a for a in await editor.actions(first, (1, 20)) if "Ignore" in a.title]
        assert ignore.edit and ignore.edit.document_changes
        (action,) = await editor.actions(first, (0, 0), FIX_ALL)
        await editor.choose(action)
        assert "tpu_runtime.setup()" in editor.text(first)
        assert "cuda" not in editor.text(first) + editor.text(second)
        assert (root / wheel_for("torchax")).exists()

    async def removal(editor: Editor) -> None:
        """A cell that is taken out takes its diagnostics along."""
        await editor.start(root, TO)
        uri, (_, first, second) = notebook(editor, root / "b.ipynb")
        await editor.findings(second)
        gone = types.NotebookCellArrayChange(2, 1, [])
        structure = types.NotebookDocumentCellChangeStructure(
            gone, did_close=[types.TextDocumentIdentifier(second)]
        )
        cells = types.NotebookDocumentCellChanges(structure)
        editor.notebook_document_did_change(
            types.DidChangeNotebookDocumentParams(
                types.VersionedNotebookDocumentIdentifier(2, uri),
                types.NotebookDocumentChangeEvent(cells=cells),
            )
        )
        await editor.until(lambda: not editor.diagnostics[second].diagnostics)
        assert editor.diagnostics[first].diagnostics

    session(run)
    session(removal)


def test_a_notebook_that_is_open_as_text(root: Path) -> None:
    cells: list[Any] = [
        {"cell_type": "code", "metadata": {}, "outputs": [], "source": text.splitlines(True)}
        for text in CELLS[1:]
    ]
    book = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    text = json.dumps(book, indent=1)

    async def run(editor: Editor) -> None:
        await editor.start(root, TO)
        uri = editor.open(write_tree(root, {"a.ipynb": text}) / "a.ipynb")
        lines = text.splitlines()
        rows = {code_of(d): d.range.start.line for d in await editor.findings(uri)}
        assert "ones(2).cuda()" in lines[rows["MOV001"]]
        (action,) = await editor.actions(uri, (0, 0), FIX_ALL)
        await editor.choose(action)
        assert "cuda" not in editor.text(uri)
        assert json.loads(editor.text(uri))["nbformat"] == 4

    session(run)


# ---- the process ---------------------------------------------------------------------------------


def test_leaving_without_shutting_down_is_an_error(root: Path) -> None:
    async def run(editor: Editor) -> None:
        await editor.start(root, TO)
        assert await editor.leave() == 1

    session(run)


def test_closing_a_file_takes_its_findings_away(root: Path) -> None:
    async def run(editor: Editor) -> None:
        await editor.start(root, TO)
        uri = editor.open(write_tree(root, {"a.py": SCRIPT}) / "a.py")
        await editor.findings(uri)
        identifier = types.TextDocumentIdentifier(uri)
        editor.text_document_did_close(types.DidCloseTextDocumentParams(identifier))
        await editor.until(lambda: not editor.diagnostics[uri].diagnostics)

    session(run)


def test_without_pygls_one_line_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [n for n in sys.modules if n.startswith(("pygls", "lsprotocol"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr("migrator.editor.command.find_spec", lambda name: None)
    run = cli("lsp", cwd=tmp_path)
    assert run.returncode == 2
    one_line(run.stderr, "pip install '.[editor]' in a clone")
