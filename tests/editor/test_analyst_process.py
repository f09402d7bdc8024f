"""The processes of the language server that analyse documents: who waits for them, how they end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from helpers import write_tree
from lsp_client import Editor, session
from lsprotocol import types
from pygls.exceptions import JsonRpcException

TO = {"target": "torchax"}
SMALL = "import torch\n\nx = torch.ones(2).cuda()\n"
ENDLESS = "import torch\n" + "x = x.cuda()\n" * 100_000  # minutes
QUICK = SMALL + "# nothing else\n" * 5_000  # as large, and soon done

linux = pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    tree = {"large.py": ENDLESS, "a.py": SMALL, ".git/x": ""}
    write_tree(tmp_path, {"pyproject.toml": '[project]\nname = "x"\n', **tree})
    return tmp_path


def test_a_large_document_keeps_no_other_waiting(root: Path) -> None:
    async def run(editor: Editor) -> None:
        await editor.start(root, TO)
        large, small = editor.open(root / "large.py"), editor.open(root / "a.py")
        assert await editor.findings(small)
        editor.change(small, f"{SMALL}torch.cuda.synchronize()\n")
        assert "CUD001" in {d.code for d in await editor.findings(small)}
        assert large not in editor.diagnostics

    session(run)


def test_an_edit_stops_the_analysis_of_the_text_before(root: Path) -> None:
    async def run(editor: Editor) -> None:
        await editor.start(root, TO)
        large, small = editor.open(root / "large.py"), editor.open(root / "a.py")
        await editor.findings(small)  # so that of the large one has begun
        question = asyncio.ensure_future(editor.actions(large, (1, 5)))
        await editor.hover(small, 2, 20)
        editor.change(large, QUICK)
        assert await editor.findings(large)
        with pytest.raises(JsonRpcException, match="the document has changed"):
            await question
        assert await editor.actions(large, (2, 20))

    session(run)


def test_a_document_that_is_closed_is_looked_at_no_longer(root: Path) -> None:
    async def run(editor: Editor) -> None:
        await editor.start(root, TO)
        large, small = editor.open(root / "large.py"), editor.open(root / "a.py")
        await editor.findings(small)
        identifier = types.TextDocumentIdentifier(large)
        editor.text_document_did_close(types.DidCloseTextDocumentParams(identifier))
        (root / "other.py").write_text(QUICK)
        assert await editor.findings(editor.open(root / "other.py"))

    session(run)


@linux
def test_they_end_with_the_server(root: Path, cold_interpreter: str) -> None:
    async def run(editor: Editor) -> None:
        await editor.start(root, TO, python=[cold_interpreter])
        editor.open(root / "large.py")
        await editor.findings(editor.open(root / "a.py"))
        left = editor.analysts()
        assert len(left) == 2
        editor.kill()
        editor.exit_code = -signal.SIGKILL
        for _ in range(300):
            left = [pid for pid in left if _runs(pid)]
            if not left:
                break
            await asyncio.sleep(0.1)
        assert not left

    session(run)


def _runs(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@linux
def test_one_that_dies_is_said_and_replaced(root: Path, cold_interpreter: str) -> None:
    async def run(editor: Editor) -> None:
        await editor.start(root, TO, python=[cold_interpreter])
        small = editor.open(root / "a.py")
        await editor.findings(small)
        large = editor.open(root / "large.py")
        await editor.hover(small, 2, 20)
        for pid in editor.analysts():
            os.kill(pid, signal.SIGKILL)
        await editor.until(lambda: editor.messages)
        assert (
            editor.messages[0].message == "tpu-migrate: internal error: an analysis ended with -9"
        )
        editor.change(large, QUICK)
        editor.change(small, f"{SMALL}\n")
        assert await editor.findings(large) and await editor.findings(small)

    session(run)


def test_nothing_of_the_folder_is_run(root: Path, cold_interpreter: str) -> None:
    names = ("pickle", "struct", "json", "sitecustomize", "migrator", "encodings", "queue")
    write_tree(root, {f"{name}.py": "open('ran', 'a').write(__name__)\n" for name in names})

    async def run(editor: Editor) -> None:
        await editor.start(root, TO, python=[cold_interpreter, "-I"])
        editor.open(root / "large.py")
        assert await editor.findings(editor.open(root / "a.py"))
        assert not (root / "ran").exists()

    session(run)
