"""What is written beside a program: the runtime, where its imports find it."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import COPY, TARGETS, write_tree

from migrator import migrate_paths
from migrator.config import Config
from migrator.diagnostics import Outcome
from migrator.runs.run_report import Report
from migrator.targets import targets
from migrator.targets.copies import runtime_copy
from tests.engine.projects import HELPER, LIBRARY, PROJECT, Files, migrate, results


def folders(report: Report, root: Path) -> list[str]:
    found = {path.resolve().relative_to(root.resolve()).as_posix() for path in report.companions}
    return sorted({name.partition("tpu_runtime/")[0] for name in found})


@pytest.mark.parametrize("target", TARGETS)
def test_the_runtime_is_placed_once_per_import_root(tmp_path: Path, target: str) -> None:
    write_tree(tmp_path, PROJECT)
    report = migrate_paths([tmp_path], target, config=COPY)
    assert folders(report, tmp_path) == [""]


@pytest.mark.parametrize("target", TARGETS)
def test_a_program_that_asks_for_torch_xla_gets_the_runtime_it_imports(
    tmp_path: Path, target: str
) -> None:
    script = (
        "import torch\nfrom transformers import Trainer, is_torch_xla_available\n"
        "model = torch.nn.Linear(4, 2).cuda()\n"
        "trainer = Trainer(model=model, eval_dataset=None if is_torch_xla_available() else data)\n"
        "trainer.train()\n"
    )
    write_tree(tmp_path, {"train.py": script})
    report = migrate_paths([tmp_path], target, config=COPY)
    assert "import tpu_runtime" in results(report, tmp_path)["train.py"]
    assert folders(report, tmp_path) == [""]


@pytest.mark.parametrize(
    "added",
    ["append('core')", "insert(0, os.path.join(os.path.dirname(__file__), 'core'))"],
)
def test_a_folder_that_a_script_adds_to_sys_path_is_searched(tmp_path: Path, added: str) -> None:
    library = LIBRARY.replace("x.cuda()", "torch.cuda.initial_seed()")
    files: Files = {
        "core/__init__.py": "",
        "core/lib.py": f"from helper import get_device\n{library}",
        "core/helper.py": HELPER,
        "main.py": f"import os\nimport sys\nsys.path.{added}\nimport torch\nimport lib\n"
        "from helper import get_device\nassert get_device() == 'cuda'\nlib.run(1)\n",
    }
    write_tree(tmp_path, files)
    report = migrate_paths([tmp_path], config=COPY)
    assert folders(report, tmp_path) == [""]
    assert "assert get_device() == 'jax'" in results(report, tmp_path)["main.py"]


@pytest.mark.parametrize(
    ("script", "places"),
    [
        ("import torch\nimport sys\nsys.path.append('../../')\n", ["", "jobs/add/"]),
        ("import sys\nsys.path.append('../../')\nimport torch\n", [""]),
        ("import sys, os\nhere = os.path.dirname(os.path.abspath(__file__))\n"
         "sys.path.insert(0, os.path.join(here, '..', '..'))\nimport torch\n", [""]),
        ("import torch\nimport sys\nfrom pathlib import Path\n"
         "sys.path.insert(0, str(Path(__file__).resolve().parents[2]))\n", ["", "jobs/add/"]),
        ("import torch\n", ["", "jobs/add/"]),  # an installed package
    ],
)  # fmt: skip
def test_the_runtime_lies_where_the_script_finds_it(
    tmp_path: Path, script: str, places: list[str]
) -> None:
    """At the line of its import, not only once the script has changed `sys.path`."""
    guard = "if __name__ == '__main__':\n    print(torch.cuda.seed(), ops.f())\n"
    files: Files = {
        "lib/__init__.py": "",
        "lib/ops.py": "import torch\ndef f(): return torch.cuda.seed()\n",
        "jobs/add/run.py": f"{script}from lib import ops\n\n{guard}",
    }
    write_tree(tmp_path, files)
    (tmp_path / ".git").mkdir()
    assert folders(migrate_paths([tmp_path], config=COPY), tmp_path) == places


ROOT = "rootutils.setup_root(__file__, indicator='.git', pythonpath=True)\n"


@pytest.mark.parametrize(
    ("script", "places"),
    [
        (f"import torch\nimport rootutils\n{ROOT}", ["src/"]),
        (f"import rootutils\n{ROOT}import torch\n", [""]),
        ("import torch\nimport autoroot\n", [""]),  # the runtime's import goes below both
    ],
)
def test_a_library_that_adds_the_projects_root_to_the_path(
    tmp_path: Path, script: str, places: list[str]
) -> None:
    """`python src/train.py`, where the folder is a package: only then is the root searched."""
    guard = "if __name__ == '__main__':\n    print(torch.cuda.seed(), f())\n"
    files: Files = {
        "src/__init__.py": "",
        "src/ops.py": "def f(): return 1\n",
        "src/train.py": f"{script}from src.ops import f\n\n{guard}",
    }
    write_tree(tmp_path, files)
    (tmp_path / ".git").mkdir()
    assert folders(migrate_paths([tmp_path], config=COPY), tmp_path) == places


def test_two_programs_get_a_runtime_each(tmp_path: Path) -> None:
    script = "import torch\nfrom lib import run\nprint(torch.cuda.seed(), run(1))\n"
    library = LIBRARY.replace("x.cuda()", "torch.cuda.initial_seed()")
    for app in ("a", "b"):
        write_tree(tmp_path / app, {"main.py": script, "lib.py": library})
    (tmp_path / ".git").mkdir()
    assert folders(migrate_paths([tmp_path], config=COPY), tmp_path) == ["a/", "b/"]
    assert folders(migrate_paths([tmp_path / "a" / "lib.py"], config=COPY), tmp_path) == ["a/"]


def test_an_import_from_a_folder_above_is_the_root(tmp_path: Path) -> None:
    """A library below `src` or a package is imported from the folder of the script."""
    write_tree(
        tmp_path,
        {
            "train.py": "import torch\nfrom lib.sub import ops\n"
            "print(torch.cuda.seed(), ops.f())\n",
            "lib/sub/ops.py": "import torch\ndef f(): return torch.cuda.seed()\n",
            "lib/__init__.py": "",
            "lib/sub/__init__.py": "",
        },
    )
    (tmp_path / ".git").mkdir()
    assert folders(migrate_paths([tmp_path], config=COPY), tmp_path) == [""]
    assert folders(migrate_paths([tmp_path / "lib" / "sub" / "ops.py"], config=COPY), tmp_path) == [
        ""
    ]


def test_the_runtime_is_no_source_of_the_project(tmp_path: Path) -> None:
    write_tree(tmp_path, PROJECT)
    before = len(migrate_paths([tmp_path], config=COPY, write=True, allow_dirty=True).files)
    assert (tmp_path / "tpu_runtime" / "__init__.py").is_file()
    assert len(migrate_paths([tmp_path]).files) == before


@pytest.mark.parametrize("target", TARGETS)
def test_a_copy_is_all_of_the_runtime(tmp_path: Path, target: str) -> None:
    """Whatever the program needs of it now: it may grow."""
    write_tree(tmp_path, {"main.py": "import torch\n\ntorch.cuda.seed()\n"})
    migrate_paths([tmp_path], target, config=COPY, write=True, allow_dirty=True)
    folder = tmp_path / "tpu_runtime"
    files = [path for path in folder.rglob("*") if path.is_file()]
    there = {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}
    assert there == runtime_copy(targets()[target])


def test_a_new_run_updates_the_runtime(tmp_path: Path) -> None:
    write_tree(tmp_path, PROJECT)
    migrate_paths([tmp_path], config=COPY, write=True, allow_dirty=True)
    module = tmp_path / "tpu_runtime" / "__init__.py"
    current = module.read_bytes()
    module.write_bytes(current + b"# another version\n")
    report = migrate_paths([tmp_path], config=COPY, write=True, allow_dirty=True)
    assert list(report.companions) == [module]
    assert module.read_bytes() == current


def test_another_package_of_that_name_is_not_overwritten(tmp_path: Path) -> None:
    files: Files = {"main.py": "import torch\ntorch.cuda.seed()\n", "tpu_runtime": "mine\n"}
    write_tree(tmp_path, files)
    report = migrate_paths([tmp_path], config=COPY, write=True, allow_dirty=True)
    assert report.exit_code == 2
    assert (tmp_path / "tpu_runtime").read_text() == "mine\n"


def test_a_package_of_the_user_with_the_runtimes_name_is_not_overwritten(tmp_path: Path) -> None:
    mine = "def mine(): pass\n"
    write_tree(
        tmp_path,
        {"main.py": "import torch\ntorch.cuda.seed()\n", "tpu_runtime/__init__.py": mine},
    )
    report = migrate_paths([tmp_path], config=COPY, write=True, allow_dirty=True)
    assert not report.changed and not report.companions
    assert (tmp_path / "tpu_runtime" / "__init__.py").read_text() == mine


def test_a_runtime_from_an_index_is_not_written(tmp_path: Path) -> None:
    write_tree(tmp_path, PROJECT)
    report = migrate_paths([tmp_path], config=Config(runtime="package"))
    assert report.changed and not report.companions


@pytest.mark.parametrize("name", ["tpu_runtime.py", "tpu_runtime/__init__.py"])
def test_migrated_code_finds_its_runtime_only_where_it_is_needed(tmp_path: Path, name: str) -> None:
    """Files that only need words of the target itself bring no runtime."""
    write_tree(tmp_path, {"lib.py": "import torch\n\ndef f(x):\n    return x.cuda()\n"})
    report = migrate_paths([tmp_path])
    assert report.changed and not report.companions
    assert not (tmp_path / name).exists()


def test_star_imports_bring_devices_and_torch_itself(tmp_path: Path) -> None:
    write_tree(
        tmp_path,
        {
            "base.py": "import torch\nfrom torch.cuda.amp import autocast\n",
            "utils.py": "from base import *\nfrom config import Config\nDEVICE = 'cuda'\n"
            "def get_device():\n    return torch.device('cuda')\n",
            "config.py": "from dataclasses import dataclass\n\n@dataclass\nclass Config:\n"
            "    device: str = 'cuda'\n",
            "train.py": "from utils import *\n\nif get_device().type == 'cuda':\n"
            "    torch.cuda.empty_cache()\nif DEVICE == 'cuda' or Config().device == 'cuda':\n"
            "    torch.cuda.synchronize()\nwith autocast():\n"
            "    x = torch.cuda.FloatTensor(2)\n",
        },
    )
    report = migrate_paths([tmp_path], "torchax")
    texts = {f.path.name: f.result.source.decode() for f in report.files}
    assert texts["train.py"] == (
        "from utils import *\nimport tpu_runtime\n\ntpu_runtime.setup()\n\n"
        "if get_device().type == 'jax':\n    pass\n"
        "if DEVICE == 'jax' or Config().device == 'jax':\n    tpu_runtime.synchronize()\n"
        "with tpu_runtime.autocast():\n    x = tpu_runtime.FloatTensor(2)\n"
    )
    assert report.count(Outcome.REPORTED) == 0


@pytest.mark.parametrize("where", ["inside", "above", "in a file"])
def test_kernels_of_cuda_are_left_to_cuda(tmp_path: Path, where: str) -> None:
    """`x.is_cuda` in front of kernels has to stay no: the other side is for the TPU."""
    kernels = "import triton\n\ndef scan(x):\n    return x\n"
    imported = (
        "from kernels import scan" if where == "in a file" else "from flash_attn.ops import scan"
    )
    above, inside = ("", f"        {imported}\n") if where == "inside" else (f"{imported}\n", "")
    model = (
        f"import torch\n{above}\ndef f(x, fast):\n    if fast and x.is_cuda:\n{inside}"
        "        return scan(x)\n    if x.device.type == 'cuda':\n        x = x.bfloat16()\n"
        "    return x.cumsum(0)\n"
    )
    write_tree(tmp_path, {"kernels.py": kernels, "model.py": model})
    report = migrate_paths([tmp_path], "torchax")
    (found,) = [f.result for f in report.files if f.path.name == "model.py"]
    assert found.source.decode() == model.replace("== 'cuda'", "== 'jax'")
    (kept,) = [d for d in found.diagnostics if d.construct == "x.is_cuda"]
    assert kept.outcome is Outcome.KEPT


def test_a_device_without_kernels_behind_it_is_the_targets(tmp_path: Path) -> None:
    source = "import torch\nfrom helpers import f\n\nif x.is_cuda:\n    y = f(x)\n"
    write_tree(tmp_path, {"helpers.py": "import torch\ndef f(x):\n    return x\n", "a.py": source})
    report = migrate_paths([tmp_path], "torchax")
    (found,) = [f.result for f in report.files if f.path.name == "a.py"]
    assert 'if x.device.type == "jax":' in found.source.decode()


def test_what_other_files_take_from_a_file_stays_there(tmp_path: Path) -> None:
    write_tree(
        tmp_path,
        {
            "pkg/__init__.py": "",
            "pkg/amp.py": "import torch\nfrom torch.cuda.amp import GradScaler, autocast\n\n\n"
            "def run(m, x):\n    s = GradScaler()\n    with autocast():\n"
            "        return m(x.cuda())\n",
            "main.py": "import torch\nfrom pkg.amp import autocast\n\nwith autocast():\n"
            "    y = torch.ones(2).cuda()\n",
        },
    )
    report = migrate_paths([tmp_path], "torchax")
    texts = {f.path.name: f.result.source.decode() for f in report.files}
    assert "from torch.cuda.amp import autocast\n" in texts["amp.py"]  # and no GradScaler
    assert "with tpu_runtime.autocast():" in texts["main.py"]


@pytest.mark.parametrize(
    "taking",
    [
        "from ..amp import autocast",
        "from ... import pkg\nfrom .. import amp as mixed, amp\n\nautocast = amp.autocast",
        "from pkg.amp import (\n    autocast,\n)",
    ],
)
def test_what_files_in_folders_below_take_stays_there(tmp_path: Path, taking: str) -> None:
    write_tree(
        tmp_path,
        {
            "pkg/__init__.py": "",
            "pkg/amp.py": "import torch\nfrom torch.cuda.amp import GradScaler, autocast\n\n\n"
            "def run(m, x):\n    s = GradScaler()\n    with autocast():\n"
            "        return m(x.cuda())\n",
            "pkg/data/picture": "",
            "pkg/nets/__init__.py": "",
            "pkg/nets/net.py": f"{taking}\n\nwith autocast():\n    pass\n",
        },
    )
    report = migrate_paths([tmp_path / "pkg" / "amp.py"], "torchax")
    (text,) = [f.result.source.decode() for f in report.files if f.path.name == "amp.py"]
    assert "from torch.cuda.amp import autocast\n" in text


@pytest.mark.parametrize("target", TARGETS)
def test_a_file_that_only_writes_checkpoints_is_none_of_the_device(
    tmp_path: Path, target: str
) -> None:
    """So a script that prepares data beside it gets no set-up, in a second run neither."""
    files: Files = {
        "utils.py": "import torch\n\n\ndef save(model, path):\n"
        "    torch.save(model.state_dict(), path)\n\n\ndef words(path):\n"
        "    return open(path).read().split()\n",
        "prepare.py": "from utils import words\n\n"
        'if __name__ == "__main__":\n    print(words("a"))\n',
        "train.py": "import torch\nimport utils\n\nmodel = torch.nn.Linear(2, 2).cuda()\n"
        'utils.save(model, "a.pt")\n',
    }
    once = migrate(tmp_path, files, target)
    assert once["prepare.py"] == files["prepare.py"] and "tpu_runtime.setup()" in once["train.py"]
    assert migrate(tmp_path, {**once}, target) == once


_NAMESPACE: Files = {
    "team/train.py": "import torch\nfrom MODULE import Net\n\n"
    "if __name__ == '__main__':\n    torch.cuda.manual_seed(0)\n    print(Net())\n",
    "team/model.py": "import torch\n\n\ndef Net():\n    return torch.cuda.initial_seed()\n",
}


@pytest.mark.parametrize(
    ("module", "readme", "place"),
    [
        (".model", "", ""),  # which `python team/train.py` could not import
        ("team.model", "torchrun --nproc-per-node 2 -m team.train --lr 1\n", ""),
        ("team.model", 'command: ["python", "-m", "team.train"]', ""),
        ("team.model", "python -m team.trainer", "team/"),
        ("model", "python -m team.train", "team/"),  # which `-m` could not import
    ],
)
def test_a_module_of_a_folder_that_is_no_package(
    module: str, readme: str, place: str, tmp_path: Path
) -> None:
    files = {name: str(text).replace("MODULE", module) for name, text in _NAMESPACE.items()}
    write_tree(tmp_path, {**files, "README.md": readme})
    (tmp_path / ".git").mkdir()
    assert folders(migrate_paths([tmp_path], config=COPY), tmp_path) == [place]
    for name in files:
        assert folders(migrate_paths([tmp_path / name], config=COPY), tmp_path) == [place]
