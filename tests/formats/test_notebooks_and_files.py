"""Notebooks that write files, run on a GPU too, or are Python files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from migrator import migrate_paths
from migrator.diagnostics import Outcome, Severity
from migrator.options import Options
from migrator.pipeline.engine import migrate_file
from tests.formats.books import BOOK, MODEL, TORCHAX, book, run, sources


@pytest.mark.parametrize(
    ("name", "text", "after"),
    [
        ("model.py", MODEL, MODEL.replace("cuda()", 'to("jax")')),
        ("'model.py'", MODEL, MODEL.replace("cuda()", 'to("jax")')),
        ("requirements.txt", "torchvision\nnumpy\n", "torchvision==0.24.0\nnumpy\n"),
        ("run.sh", "python x.py --device cuda\n", "python x.py --device jax\n"),
        ("a.yaml", "device: cuda\n", "device: jax\n"),
        ("environment.yml", "dependencies:\n- python\n- pip:\n  - torchvision",
         "dependencies:\n- python\n- pip:\n  - torchvision==0.24.0"),
    ],
)  # fmt: skip
def test_a_file_that_a_cell_writes_is_migrated_as_that_file(
    name: str, text: str, after: str
) -> None:
    result = run("import torch", f"%%writefile {name}\n{text}", "torch.ones(2).cuda()")
    assert sources(result)[1] == f"%%writefile {name}\n{after}"
    assert {d.range.cell for d in result.diagnostics if d.outcome} == {2, 3}
    again = migrate_file(BOOK, result.source, TORCHAX)
    assert not again.changed and not again.failed


def test_places_in_a_file_that_a_cell_writes_are_those_of_the_cell() -> None:
    result = run("%%writefile a.py\nimport flash_attn\n", "import torch\ntorch.ones(2).cuda()")
    (left,) = [d for d in result.diagnostics if d.outcome is Outcome.REPORTED]
    assert str(left.range).startswith("cell 1:2:")


def test_a_program_that_a_cell_writes_sets_itself_up() -> None:
    program = "import torch\n\nif __name__ == '__main__':\n    torch.ones(2).cuda()\n"
    (first,) = sources(run(f"%%writefile train.py\n{program}"))
    assert first.startswith(
        "%%writefile train.py\nimport torch\nimport tpu_runtime\n\ntpu_runtime.se"
    )


def test_a_notebook_is_set_up_for_the_module_that_it_writes(tmp_path: Path) -> None:
    made = book(f"%%writefile model.py\n{MODEL}", "import torch\nfrom model import f", "f(1)")
    (tmp_path / "a.ipynb").write_text(json.dumps(made))
    report = migrate_paths([tmp_path], output=tmp_path.parent / "written")
    assert "tpu_runtime.setup()" in (tmp_path.parent / "written" / "a.ipynb").read_text()
    assert report.exit_code == 0


def test_a_file_in_another_folder_needs_a_copy_of_the_runtime_there() -> None:
    cells = ["import torch", "%%writefile demo/app.py\nimport torch\n"
             "if __name__ == '__main__':\n    torch.ones(2).cuda()\n"]  # fmt: skip
    assert not [d for d in run(*cells).diagnostics if d.severity is Severity.ADVICE]  # a wheel
    content = json.dumps(book(*cells)).encode()
    result = migrate_file(BOOK, content, TORCHAX, Options(runtime="copy"))
    (advice,) = [d.message for d in result.diagnostics if d.severity is Severity.ADVICE]
    assert advice.startswith("demo/app.py imports tpu_runtime")


def test_places_are_those_of_cells() -> None:
    text = {"cell_type": "markdown", "metadata": {}, "source": []}
    result = run(text, "import torch", "!ls \\\n  -l\ny = 1\nx = torch.ones(2).cuda()")
    places = {d.construct: str(d.range) for d in result.diagnostics if d.outcome}
    assert places == {"torch.ones(2).cuda": "cell 3:4:19"}
