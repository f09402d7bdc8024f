"""The language server, over its protocol: a process, and a client that does what an editor does."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import TARGETS, cli, one_line, write_tree
from lsp_client import Editor, session
from lsprotocol import types

from migrator import migrate_source
from migrator.options import Options
from migrator.pipeline.engine import migrate_file
from migrator.targets import RUNTIME, targets

SCRIPT = """import torch


def main():
    x = torch.ones(2).cuda()
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()


if __name__ == "__main__":
    main()
"""
TO = {"target": "torchax"}
FIX_ALL = "source.fixAll.tpu-migrate"
Run = Callable[[Editor], Awaitable[None]]


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TPU_MIGRATE_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_tree(tmp_path, {"pyproject.toml": '[project]\nname = "x"\nversion = "1"\n', ".git/x": ""})
    return tmp_path


def code_of(diagnostic: types.Diagnostic) -> str:
    return str(diagnostic.code)


def by_title(actions: list[types.CodeAction], start: str) -> types.CodeAction:
    return next(action for action in actions if action.title.startswith(start))


# ---- findings ------------------------------------------------------------------------------------


def test_findings_come_when_a_file_is_opened_and_when_it_changes(root: Path) -> None:
    async def run(editor: Editor) -> None:
        result = await editor.start(root, TO)
        assert result.server_info and result.server_info.name == "tpu-migrate"
        uri = editor.open(write_tree(root, {"a.py": SCRIPT}) / "a.py")
        found = {code_of(d): d for d in await editor.findings(uri)}
        assert found["MOV001"].severity is types.DiagnosticSeverity.Hint
        assert found["MOV001"].message.startswith("tpu-migrate can rewrite this")
        assert found["MOV001"].source == "tpu-migrate"
        at = types.Range(types.Position(4, 22), types.Position(4, 26))
        assert found["MOV001"].range == at
        assert found["CUD003"].severity is types.DiagnosticSeverity.Warning
        editor.change(uri, "import torch\ntorch.set_default_dtype(torch.bfloat16)\nx = x.cuda()\n")
        severities = [d.severity for d in await editor.findings(uri)]
        assert types.DiagnosticSeverity.Information in severities  # advice

    session(run)


def test_an_address_that_no_file_can_have_is_passed_over(root: Path) -> None:
    async def run(editor: Editor) -> None:
        await editor.start(root, TO)
        for uri in ("file:///a%00.py", f"{root.as_uri()}/%00/b.py"):
            item = types.TextDocumentItem(uri, "python", 1, SCRIPT)
            editor.text_document_did_open(types.DidOpenTextDocumentParams(item))
        good = editor.open(write_tree(root, {"a.py": SCRIPT}) / "a.py")
        assert await editor.findings(good)
        assert not [m for m in editor.messages if "rror" in m.message]

    session(run)


def test_severities_can_be_chosen(root: Path) -> None:
    async def run(editor: Editor) -> None:
        editor.settings = {
            "target": "torch_xla",
            "severity": {"rewrite": "warning", "warning": "off"},
        }
        await editor.start(root, TO)
        uri = editor.open(write_tree(root, {"a.py": SCRIPT}) / "a.py")
        found = {code_of(d): d.severity for d in await editor.findings(uri)}
        assert found["MOV001"] is types.DiagnosticSeverity.Warning and "CUD003" not in found
        titles = [action.title for action in await editor.actions(uri, (4, 23))]
        assert "Rewrite for torch_xla: torch.ones(2).cuda" in titles  # the setting, not the option

    session(run)


def test_a_wrong_setting_is_said(root: Path) -> None:
    async def run(editor: Editor) -> None:
        await editor.start(root, {"target": "tpu"})
        await editor.until(lambda: editor.messages)
        assert "tpuMigrate.target is 'tpu' (known: torch" in editor.messages[0].message

    session(run)


def test_no_target_is_said_once(root: Path) -> None:
    async def run(editor: Editor) -> None:
        await editor.start(root)
        write_tree(root, {"a.py": SCRIPT, "b.py": SCRIPT})
        one, other = editor.open(root / "a.py"), editor.open(root / "b.py")
        assert await editor.actions(one, (4, 23)) == [] == await editor.actions(other, (4, 23))
        assert len(editor.messages) == 1
        assert "no target: set tpuMigrate.target" in editor.messages[0].message
        (root / "pyproject.toml").write_text('[tool.tpu-migrate]\ntarget = "torch_xla"\n')
        editor.save(one)
        await editor.until(lambda: one in editor.diagnostics)
        assert "MOV001" in map(code_of, editor.diagnostics[one].diagnostics)

    session(run)


def test_the_projects_configuration_counts(root: Path) -> None:
    (root / "pyproject.toml").write_text(
        '[tool.tpu-migrate]\ntarget = "torchax"\nexclude = ["third_party"]\nignore = ["MOV"]\n'
    )
    runtime = '"""What code that was migrated from CUDA to TPU by torchax. Written beside migrated'
    write_tree(
        root,
        {
            "a.py": SCRIPT,
            "third_party/b.py": SCRIPT,
            f"{RUNTIME}/__init__.py": f'{runtime} code."""\n',
            f"{RUNTIME}/c.py": SCRIPT,
        },
    )

    async def run(editor: Editor) -> None:
        await editor.start(root)
        others = [editor.open(root / n) for n in ("third_party/b.py", f"{RUNTIME}/c.py")]
        uri = editor.open(root / "a.py")
        found = await editor.findings(uri)
        assert "MOV001 is not selected" in [d.message for d in found]
        for other in others:
            assert await editor.actions(other, (4, 23)) == [] and other not in editor.diagnostics

    session(run)


def test_a_broken_configuration_is_said(root: Path) -> None:
    async def run(editor: Editor) -> None:
        (root / "pyproject.toml").write_text("[tool.tpu-migrate]\nnonsense = 1\n")
        await editor.start(root, TO)
        uri = editor.open(write_tree(root, {"a.py": SCRIPT}) / "a.py")
        assert await editor.actions(uri, (4, 23)) == []
        assert "unknown key 'nonsense'" in editor.messages[0].message

    session(run)


def test_other_files_are_read_as_the_editor_has_them(root: Path) -> None:
    """What a helper in another file returns, although it is not saved."""
    main = 'import torch\nfrom where import device\n\nif device() == "cuda":\n    print(1)\n'
    files = {"main.py": main, "where.py": "def device():\n    return 1\n"}
    unsaved = "import torch\n\n\ndef device():\n    return torch.device('cuda')\n"

    async def run(editor: Editor) -> None:
        await editor.start(root, TO)
        write_tree(root, files)
        helper = editor.open(root / "where.py")
        uri = editor.open(root / "main.py")
        before = await editor.findings(uri)
        editor.change(helper, unsaved)
        await editor.until(lambda: editor.diagnostics[uri].diagnostics != tuple(before))
        (action,) = await editor.actions(uri, (0, 0), FIX_ALL)
        await editor.choose(action)
        assert '== "jax"' in editor.text(uri)

    session(run)


# ---- places --------------------------------------------------------------------------------------


WIDTH: dict[str, Callable[[str], int]] = {
    "utf-8": lambda text: len(text.encode()),
    "utf-16": lambda text: len(text.encode("utf-16-le")) // 2,
    "utf-32": len,
}


@pytest.mark.parametrize("encoding", list(WIDTH))
def test_columns_are_counted_as_the_editor_counts(root: Path, encoding: str) -> None:
    line = '\ts = "\U0001f600é\u4e2d"; x = f(s).cuda(); y = g(s).cuda()'
    other = "def k():\r\n\treturn '\U0001f600'.join(a).cuda()\r\n"
    text = f"import torch\r\ndef h():\r\n{line}\r\n\treturn x\x0c\r\n{other}"
    (root / "a.py").write_bytes(text.encode())

    async def run(editor: Editor) -> None:
        result = await editor.start(root, TO)
        assert str(result.capabilities.position_encoding) == encoding
        uri = editor.open(root / "a.py")
        found = [d for d in await editor.findings(uri) if code_of(d) == "MOV001"]
        width = WIDTH[encoding](line[: line.index("cuda")])
        assert found[0].range.start == types.Position(2, width)
        assert [d.range.start.line for d in found] == [2, 2, 5]
        (action,) = [
            a for a in await editor.actions(uri, found[1].range) if "Rewrite for" in a.title
        ]
        await editor.choose(action)
        assert editor.text(uri) == text.replace("g(s).cuda()", 'g(s).to("jax")')
        (action,) = await editor.actions(uri, (0, 0), FIX_ALL)
        await editor.choose(action)
        assert editor.text(uri).encode() == migrate_source(text).source
        await editor.findings(uri)  # the server has the same text: nothing is left in it
        assert editor.diagnostics[uri].diagnostics == ()

    session(run, encoding)


# ---- rewriting -----------------------------------------------------------------------------------


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
        assert (root / RUNTIME / "__init__.py").exists()
        assert [m.message.split(",")[0] for m in editor.messages] == [
            f"tpu-migrate: wrote {root / RUNTIME}"
        ]

    session(run)


def test_all_at_once_with_the_runtime_beside_it(root: Path) -> None:
    async def run(editor: Editor) -> None:
        await editor.start(root, TO, versioned=False)
        uri = editor.open(write_tree(root, {"pkg/a.py": SCRIPT}) / "pkg/a.py")
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
        with pytest.raises(Exception, match="the text has changed"):
            await editor.choose(by_title(actions, "Rewrite for"))
        assert editor.text(uri) == "import torch\n"

    session(run)


def test_a_foreign_folder_of_the_runtimes_name_is_left_alone(root: Path) -> None:
    async def run(editor: Editor) -> None:
        await editor.start(root, TO)
        write_tree(root, {"a.py": SCRIPT, f"{RUNTIME}/__init__.py": "mine = 1\n"})
        uri = editor.open(root / "a.py")
        (action,) = await editor.actions(uri, (0, 0), FIX_ALL)
        await editor.choose(action)
        await editor.until(lambda: editor.messages)
        assert "in the way of the runtime" in editor.messages[0].message
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
        assert (root / RUNTIME / "__init__.py").exists()

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
    one_line(run.stderr, "pip install 'tpu-migrate[editor]'")
