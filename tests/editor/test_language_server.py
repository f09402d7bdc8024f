"""The language server, over its protocol: a process, and a client that does what an editor does."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from helpers import REPOSITORY, write_tree
from lsp_client import Editor, session
from lsprotocol import types

from migrator import migrate_source
from migrator.targets import RUNTIME
from tests.editor.documents import FIX_ALL, SCRIPT, TO, code_of

Run = Callable[[Editor], Awaitable[None]]


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
        assert "tpuMigrate.target is 'tpu' (known: keras_jax, tf_tpu" in editor.messages[0].message

    session(run)


def test_all_settings_of_the_extension_are_known(root: Path) -> None:
    """VS Code answers with the whole section: one that is refused would be an error."""
    extension = json.loads((REPOSITORY / "editors/vscode/package.json").read_text("utf-8"))
    of_extension = extension["contributes"]["configuration"]["properties"]

    async def run(editor: Editor) -> None:
        defaults = {name.partition(".")[2]: p["default"] for name, p in of_extension.items()}
        editor.settings = {**defaults, "target": "torch_xla"}
        await editor.start(root, TO)
        uri = editor.open(write_tree(root, {"a.py": SCRIPT}) / "a.py")
        titles = [action.title for action in await editor.actions(uri, (4, 23))]
        assert "Rewrite for torch_xla: torch.ones(2).cuda" in titles
        assert editor.messages == []

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
