"""Functions of torch.cuda that a program replaces: who calls them gets what was put there."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from helpers import TARGETS, cli, constructs, reported, run, write_tree

from migrator.diagnostics import Outcome

PATCHES = {
    "an assignment": "torch.cuda.is_available = lambda: False",
    "one with setattr": 'setattr(torch.cuda, "is_available", lambda: False)',
    "one to another name": "from torch import cuda\ncuda.is_available = lambda: False",
    "a fixture": """
        def without(monkeypatch):
            monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    """,
    "a fixture by name": """
        def without(monkeypatch):
            monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    """,
    "a decorator": """
        from unittest import mock
        @mock.patch("torch.cuda.is_available", return_value=False)
        def without(answer):
            main()
    """,
    "a block": """
        from unittest.mock import patch
        with patch("torch.cuda.is_available", return_value=False):
            main()
    """,
    "a block for an object": """
        from unittest.mock import patch
        with patch.object(torch.cuda, "is_available", return_value=False):
            main()
    """,
    "several": """
        from unittest import mock
        mock.patch.multiple("torch.cuda", is_available=lambda: False).start()
    """,
    "pytest's own": """
        def without(mocker):
            mocker.patch("torch.cuda.is_available", return_value=False)
    """,
}
READERS = (
    'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")',
    "if torch.cuda.is_available():\n    print(1)",
    "fast = not quick and torch.cuda.is_available()",
    "ask = torch.cuda.is_available",
)


@pytest.mark.parametrize("target", [*TARGETS, "torch_tpu"])
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", PATCHES)
def test_who_reads_what_is_replaced_stays(kind: str, reader: str, target: str) -> None:
    source = f"import torch\n{dedent(PATCHES[kind])}\n{reader}\n"
    result = run(source, target)
    assert "torch.cuda.is_available" in result.source.decode().splitlines()[-1 - reader.count("\n")]
    (found,) = [d for d in constructs(result) if d.construct == "torch.cuda.is_available"
                and d.code == "DEV001"]  # fmt: skip
    assert found.outcome is Outcome.REPORTED
    assert "is replaced in line" in found.message


@pytest.mark.parametrize("target", TARGETS)
def test_other_functions_of_cuda(target: str) -> None:
    patches = {
        "torch.cuda.device_count = lambda: 0": "n = torch.cuda.device_count()",
        "torch.cuda.manual_seed = count(torch.cuda.manual_seed)": "torch.cuda.manual_seed(1)",
        "torch.cuda.synchronize = lambda *a: calls.append(a)": "torch.cuda.synchronize()",
        "torch.Tensor.cuda = lambda x, *a, **k: x": "x = torch.ones(2).cuda()",
        "torch.nn.Module.cuda = lambda x, *a: x": "x = torch.nn.Linear(2, 2).cuda()",
    }
    for patch, reader in patches.items():
        result = run(f"import torch\n{patch}\n{reader}\n", target)
        assert result.source.decode().splitlines()[-1] == reader
        assert any(d.range.line == 3 and d.outcome is Outcome.REPORTED for d in constructs(result))


@pytest.mark.parametrize("target", TARGETS)
def test_a_replacement_for_machines_without_cuda_is_not_made_on_a_gpu(target: str) -> None:
    patch = "if not torch.cuda.is_available():\n    torch.cuda.synchronize = lambda: None\n"
    result = run(f"import torch\n{patch}torch.cuda.synchronize()\n", target)
    assert "torch.cuda.synchronize()" not in result.source.decode()


def test_a_replacement_in_another_file_of_the_program(tmp_path: Path) -> None:
    write_tree(tmp_path / "p", {
        "main.py": "import torch\nimport pick\ntorch.cuda.is_available = lambda: False\n"
        "print(pick.device())\n",
        "pick.py": "import torch\n\n\ndef device():\n"
        "    return 'cuda' if torch.cuda.is_available() else 'cpu'\n",
    })  # fmt: skip
    done = cli("p", "--target", "torchax", "-o", "out", cwd=tmp_path)
    assert b"pick.py:5" in done.stdout
    assert b"torch.cuda.is_available()" in (tmp_path / "out/pick.py").read_bytes()


def test_a_test_that_replaces_it_keeps_no_program(tmp_path: Path) -> None:
    write_tree(tmp_path / "p", {
        "pick.py": "import torch\n\n\ndef device():\n"
        "    return 'cuda' if torch.cuda.is_available() else 'cpu'\n",
        "test_pick.py": "from unittest import mock\nimport pick\n\n\n"
        "@mock.patch('torch.cuda.is_available', return_value=False)\n"
        "def test_it(answer):\n    assert pick.device() == 'cpu'\n",
    })  # fmt: skip
    done = cli("p", "--target", "torchax", "-o", "out", cwd=tmp_path)
    assert b"return 'jax'" in (tmp_path / "out/pick.py").read_bytes()
    assert b"test_pick.py:5" in done.stdout
    assert reported(run("import torch\nfrom unittest import mock\n"
                        "mock.patch('torch.cuda.is_available').start()\n"))  # fmt: skip
