"""Notebooks: code cells are migrated as one program, and everything else stays byte for byte."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from helpers import wheel_for

from migrator import migrate_paths
from migrator.config import Config
from migrator.diagnostics import Outcome
from migrator.formats import notebook
from migrator.options import Options
from migrator.pipeline.engine import migrate_file
from tests.formats.books import BOOK, MODEL, TORCHAX, book, code, run, sources


def test_state_carries_over_cells() -> None:
    found = sources(run("import torch", 'device = "cuda"', "x = torch.ones(2).to(device).cuda()"))
    assert found == [
        "import torch\nimport tpu_runtime\n\ntpu_runtime.setup()",
        'device = "jax"',
        'x = torch.ones(2).to(device).to("jax")',
    ]


@pytest.mark.parametrize("indent", [None, 1, 2, 4])
@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_what_is_no_code_stays_byte_for_byte(
    indent: int | None, ascii_only: bool, end: str
) -> None:
    made = book(
        {"cell_type": "markdown", "metadata": {}, "source": ["# `x.cuda()` für alle\n", "cuda"]},
        "import torch\nfirst = 'für'\nx = torch.ones(2).cuda()\nlast = 'für'",
        "print('cuda is only a word here')",
        zoo={"b": 1, "a": [1.0, 1e5]},
    )
    text = json.dumps(made, indent=indent, ensure_ascii=ascii_only).replace("\n", end or "\n") + end
    result = migrate_file(BOOK, text.encode(), TORCHAX)
    assert result.changed
    after_text = result.source.decode()
    before, after = json.loads(text), json.loads(after_text)
    for each in (before, after):
        each["cells"][1].pop("source")
    assert before == after
    # "first" and "last" are lines of the cell that stay.
    for old, new in zip(
        re.split("first|last", text), re.split("first|last", after_text), strict=True
    ):
        assert old == new or "cuda()" in old
    assert ("\\u00fc" in after_text) is ascii_only


def test_only_lines_that_change_are_written_anew() -> None:
    before = json.dumps(book("import torch\na = 1\nx = torch.ones(2).cuda()"), indent=2)
    before = before.replace('"a = 1\\n"', '"\\u0061 = 1\\n"')  # as another program may write it
    after = migrate_file(BOOK, before.encode(), TORCHAX).source.decode()
    assert '"\\u0061 = 1\\n"' in after


@pytest.mark.parametrize(
    ("line", "after"),
    [
        ("%matplotlib inline", None),
        ("%%time", None),
        ("files = !ls *.py", None),
        ("a, b = %system ls", None),
        ("!wget https://example.org/a%20b?c={x}", None),
        ("!echo one \\\n    two", None),
        ("out = !echo one \\\n    two", None),
        ("torch.ones?", None),
        ("?torch.ones", None),
        ("if True:\n    %cd data", None),
        ("text = '''\n!no command\n%nor this\n'''", None),
        ("y = (5\n     % 3)", None),
        ("%time y = torch.ones(2).cuda()", '%time y = torch.ones(2).to("jax")'),
        ("%timeit -n 10 -r3 f(x.cuda())", '%timeit -n 10 -r3 f(x.to("jax"))'),
        ("y = %timeit -o x.cuda()", 'y = %timeit -o x.to("jax")'),
        ("%%timeit z = x.cuda()\nz + 1", '%%timeit z = x.to("jax")\nz + 1'),
        ("%%time\nx.cuda()", '%%time\nx.to("jax")'),
        ("%%capture out\nx.cuda()", '%%capture out\nx.to("jax")'),
        ("%time torch.cuda.empty_cache()\n%time 1", "%time 1"),
        ("if x:\n    %time torch.cuda.empty_cache()", "if x:\n    %time pass"),
        ("%%timeit torch.cuda.empty_cache()\nx + 1", "%%timeit pass\nx + 1"),
    ],
)
def test_what_ipython_adds_to_python_stays(line: str, after: str | None) -> None:
    result = run("import torch", line, "x = torch.ones(2).cuda()")
    assert result.changed and not result.failed
    assert sources(result)[1] == (after or line)


@pytest.mark.parametrize(
    "cell",
    ["%%html\n<b>cuda</b>", "print 'cuda'", "%%writefile -a x.py\ny.cuda()",
     "%%writefile notes.md\ncuda", "%%writefile x.py\nprint 'cuda'"],
)  # fmt: skip
def test_a_cell_that_is_not_python_is_named(cell: str) -> None:
    result = run("import torch", cell, "x = torch.ones(2).cuda()")
    assert sources(result)[1] == cell
    (left,) = [d for d in result.diagnostics if d.outcome is Outcome.REPORTED]
    assert left.code == "CMD001" and str(left.range).startswith("cell 2:1:")
    assert "jax" in sources(result)[2]


@pytest.mark.parametrize("magic", ["%%bash", "%%sh", "%%shell", "%%script bash", "%%bash -s x"])
def test_cells_of_a_shell_are_scripts(magic: str) -> None:
    cell = f"{magic}\n# cuda\nfor i in 1; do\n  python x.py \\\n    --device cuda\ndone\nnvidia-smi"
    result = run("import torch", cell, "x = torch.ones(2).cuda()")
    after = cell.replace("--device cuda", "--device jax").replace("nvidia-smi", "tpu-info")
    assert sources(result)[1] == after
    found = [str(d.range) for d in result.diagnostics if d.code == "CMD001"]
    assert [place.partition(" ")[2][:4] for place in found] == ["2:4:", "2:7:"]


@pytest.mark.parametrize(
    ("metadata", "after"),
    [
        ({"accelerator": "GPU"}, {"accelerator": "TPU"}),
        (
            {"accelerator": "GPU", "colab": {"gpuType": "T4", "toc": []}},
            {"accelerator": "TPU", "colab": {"gpuType": "V5E1", "toc": []}},
        ),
        ({"accelerator": "None"}, {"accelerator": "None"}),
        (
            {
                "kaggle": {
                    "accelerator": "nvidiaTeslaT4",
                    "isGpuEnabled": True,
                    "dockerImageVersionId": 31041,
                    "language": "python",
                }
            },
            {
                "kaggle": {
                    "accelerator": "tpuV5e8",
                    "isGpuEnabled": False,
                    "dockerImageVersionId": None,
                    "language": "python",
                }
            },
        ),
        ({"kaggle": {"accelerator": "none", "dockerImageVersionId": 1}},) * 2,
    ],
)
def test_colab_and_kaggle_are_asked_for_a_tpu(
    metadata: dict[str, Any], after: dict[str, Any]
) -> None:
    result = run("import torch\nx = torch.ones(2).cuda()", **metadata)
    assert json.loads(result.source)["metadata"] == after
    assert run("import torch  # cuda", **metadata).changed is False


@pytest.mark.parametrize(
    ("command", "torchax"),
    [
        ("!nvidia-smi", "!tpu-info"),
        ("!nvidia-smi -L", "!tpu-info"),
        ("!nvidia-smi --query-gpu=name --format=csv", None),
        ("!pip install numpy torch", "!pip install numpy torch==2.9.0 {more}"),
        (
            "%pip install -q 'torch>=2.0' torchvision==0.15 tqdm",
            "%pip install -q torch==2.9.0 {more} torchvision==0.24.0 tqdm",
        ),
        (
            "!pip3 install torch==2.1.0+cu118 --index-url https://download.pytorch.org/whl/cu118",
            "!pip3 install torch==2.9.0 {more} --extra-index-url "
            "https://download.pytorch.org/whl/cpu",
        ),
        ("!pip install torch flash-attn", None),
        ("!pip install -r requirements.txt", None),
        ("!python train.py --device cuda:0 --lr 1", "!python train.py --device jax --lr 1"),
        ("!CUDA_VISIBLE_DEVICES=0 python train.py", None),
        ("!torchrun --nproc_per_node 4 train.py", None),
    ],
)
def test_commands(command: str, torchax: str | None) -> None:
    result = run("import torch", command, "x = torch.ones(2).cuda()")
    more = "torchax==0.0.13 jax==0.10.2 jaxlib==0.10.2 libtpu==0.0.52"
    assert sources(result)[1] == (torchax or command).format(more=more)


def test_torch_xla_gets_its_own_packages() -> None:
    result = run("!pip install torch\nimport torch\ntorch.ones(2).cuda()", target="torch_xla")
    assert "!pip install torch==2.9.0 'torch_xla[tpu]==2.9.0'\n" in sources(result)[0]


def test_a_cell_that_loses_all_its_code_stays_empty() -> None:
    found = sources(run("import torch", "torch.cuda.empty_cache()", "torch.ones(2).cuda()"))
    assert found[1] == ""


def test_a_source_that_is_one_string_stays_one() -> None:
    cell = code("x") | {"source": "import torch\nx = torch.ones(2).cuda()\n"}
    result = run(cell)
    source = json.loads(result.source)["cells"][0]["source"]
    assert source == (
        'import torch\nimport tpu_runtime\n\ntpu_runtime.setup()\n\nx = torch.ones(2).to("jax")\n'
    )


def test_a_second_run_changes_nothing() -> None:
    cells = ("!nvidia-smi\n%cd x\nimport torch", "device = torch.device('cuda')\nx.to(device)")
    once = run(*cells, accelerator="GPU")
    again = migrate_file(BOOK, once.source, TORCHAX)
    assert once.changed and not again.changed


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"cells": [cuda', "its JSON is damaged"),
        (b'"cuda"', "its JSON is damaged"),
        (b'{"nbformat": 3, "worksheets": ["cuda"]}', "notebook format 3: only 4 is read"),
        (b'{"cells": [], "nbformat": 4, "metadata": {"language_info": {"name": "R"}}, "x": "cuda"}',
         "a notebook of R"),
        (b"\xff\xfe cuda", "cannot be decoded"),
    ],
)  # fmt: skip
def test_what_can_not_be_read_stays_and_is_one_line(content: bytes, message: str) -> None:
    result = migrate_file(BOOK, content, TORCHAX)
    assert result.source == content and result.failed
    assert message in result.diagnostics[0].message and "\n" not in result.diagnostics[0].message


def test_notebooks_of_a_project_know_its_modules_and_get_the_runtime(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text(
        "import torch\ndef pick():\n    return torch.device('cuda')\n"
    )
    made = book("import torch\nfrom helper import pick", "if pick().type == 'cuda':\n    pass")
    (tmp_path / "a.ipynb").write_text(json.dumps(made, indent=1) + "\n")
    (tmp_path / ".ipynb_checkpoints").mkdir()
    (tmp_path / ".ipynb_checkpoints" / "a.ipynb").write_text("damaged cuda")
    report = migrate_paths([tmp_path], output=tmp_path.parent / f"{tmp_path.name}_out")
    assert report.exit_code == 0
    assert {f.path.name for f in report.changed} == {"helper.py", "a.ipynb"}
    cells = json.loads((tmp_path.parent / f"{tmp_path.name}_out" / "a.ipynb").read_text())["cells"]
    assert "'jax'" in "".join(cells[1]["source"])
    assert (tmp_path.parent / f"{tmp_path.name}_out" / wheel_for("torchax")).exists()


def test_the_module_of_a_notebook_can_be_split_again() -> None:
    read = notebook.read_notebook(
        json.dumps(book("a = 1", "", "b = 2\n\n", "%%html\n<b>")).encode()
    )
    assert read.with_module(read.module) == read.text
    with pytest.raises(ValueError, match="a cell is missing"):
        read.with_module(read.cells[0].code)


@pytest.mark.parametrize(
    "first", ["%%bash\necho cuda", "!pip install numpy", "%%time\nm = 1", "# a comment"]
)
def test_new_imports_stand_in_the_first_cell_of_python(first: str) -> None:
    found = sources(run(first, "y = x.cuda()"))
    assert found[0] == first or first.startswith("#")
    assert found[1 if not first.startswith("#") else 0].startswith("import tpu_runtime")


def test_names_that_only_magics_use_stay_imported() -> None:
    cell = "from torch.cuda.amp import autocast\nimport torch\nwith autocast():\n    x.cuda()"
    found = sources(run(cell, "%timeit (autocast())"))
    assert "import autocast" in found[0]


def test_a_notebook_that_starts_gpu_code_of_its_project_is_set_up(tmp_path: Path) -> None:
    (tmp_path / "utils.py").write_text("import torch\ndef train():\n    torch.ones(2).cuda()\n")
    made = book("from utils import train", "train()")
    (tmp_path / "a.ipynb").write_text(json.dumps(made))
    migrate_paths([tmp_path], output=tmp_path.parent / "out2")
    assert "tpu_runtime.setup()" in (tmp_path.parent / "out2" / "a.ipynb").read_text()


@pytest.mark.parametrize("metadata", [{"kernelspec": None}, {"language_info": None}])
def test_empty_metadata(metadata: dict[str, Any]) -> None:
    assert run("import torch\ntorch.ones(2).cuda()", **metadata).changed


def test_what_no_file_can_hold_is_left_to_its_cell() -> None:
    result = run("a = '\ud800'", "import torch\ntorch.ones(2).cuda()")
    assert result.changed and not result.failed


def test_messages_name_lines_of_cells() -> None:
    copies = "import torch\nmodel = torch.nn.DataParallel(net)"
    result = run(copies, "!nvidia-smi\nbatch = 8 // torch.cuda.device_count()")
    said = [d.message for d in result.diagnostics if d.code == "DST002"]
    assert len(said) == 1 and said[0].startswith("cell 2, line 2 computes with the number of GPUs")


# ---- programs that run on a GPU, too -------------------------------------------------------------


def test_a_portable_notebook_asks_the_runtime_and_keeps_what_its_machine_has() -> None:
    cells = (
        "!nvidia-smi\n!pip install torch==1.13",
        "import torch\ndevice = torch.device('cuda' if torch.cuda.is_available() else 'cpu')",
        "x = torch.ones(2).to(device)",
        f"%%writefile model.py\n{MODEL}",
    )
    content = json.dumps(book(*cells, accelerator="GPU"), indent=1).encode()
    result = migrate_file(BOOK, content, TORCHAX, Options(portable=True))
    assert sources(result) == [
        cells[0],
        "import torch\nimport tpu_runtime\n\ntpu_runtime.setup()\n\ndevice = tpu_runtime.device()",
        cells[2],
        "%%writefile model.py\n"
        + MODEL.replace("torch\n", "torch\nimport tpu_runtime\n", 1).replace(
            "cuda()", "to(tpu_runtime.device())"
        ),
    ]
    assert json.loads(result.source)["metadata"] == {"accelerator": "GPU"}
    assert not migrate_file(BOOK, result.source, TORCHAX, Options(portable=True)).changed


def test_a_portable_project_has_one_runtime_that_all_import(tmp_path: Path) -> None:
    project, out = tmp_path / "project", tmp_path / "out"
    (project / "pkg").mkdir(parents=True)
    (project / "pkg" / "__init__.py").write_text("")
    (project / "pkg" / "util.py").write_text(MODEL)
    main = (
        "import torch\nfrom pkg.util import f\nif __name__ == '__main__':\n    f(torch.ones(2))\n"
    )
    (project / "train.py").write_text(main)
    (project / "a.ipynb").write_text(json.dumps(book("from pkg.util import f", "x.cuda()")))
    report = migrate_paths([project], output=out, config=Config(portable=True, runtime="copy"))
    assert report.exit_code == 0
    assert [p.relative_to(out).as_posix() for p in out.rglob("tpu_runtime")] == ["tpu_runtime"]
    for name in ("pkg/util.py", "train.py", "a.ipynb"):
        assert "import tpu_runtime" in (out / name).read_text(), name


# ---- notebooks that are Python files -------------------------------------------------------------

PERCENT = """# ---
# jupyter:
#   jupytext:
#     text_representation:
#       format_name: percent
# ---

# %% [markdown]
# # GPU: cuda
# !nvidia-smi

# %%
import torch

# !pip install torch
# %cd x

# %% a title
x = torch.ones(2).cuda()
# %time torch.cuda.empty_cache()

# %%
print(x)
"""


def test_cells_of_a_python_file_are_kept() -> None:
    result = migrate_file(Path("a.py"), PERCENT.encode(), TORCHAX)
    assert result.source.decode() == PERCENT.replace(
        "import torch\n", "import torch\nimport tpu_runtime\n\ntpu_runtime.setup()\n"
    ).replace(".cuda()\n", '.to("jax")\n')
    assert {d.outcome for d in result.diagnostics if d.outcome} == {Outcome.REWRITTEN}
