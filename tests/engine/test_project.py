"""Projects: facts that cross files, set-up where it belongs, companions, one run or many."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import DEVICE, TARGETS, cli, read_tree, write_tree

from migrator import migrate_paths
from migrator.config import Config
from migrator.diagnostics import Outcome
from migrator.runs.run_report import Report

Files = dict[str, str | bytes]


def migrate(root: Path, files: Files, target: str = "torchax", **config: object) -> dict[str, str]:
    """The files of a project after a migration of all of it."""
    write_tree(root, files)
    report = migrate_paths([root], target, config=Config(**config))  # type: ignore[arg-type]
    assert report.exit_code == 0, report.errors or report.failures
    return results(report, root)


def results(report: Report, root: Path) -> dict[str, str]:
    return {
        file.path.resolve().relative_to(root.resolve()).as_posix(): file.result.source.decode()
        for file in report.files
    }


def reported(report: Report) -> list[str]:
    return [d.construct for _, d in report.diagnostics(Outcome.REPORTED)]


HELPER = 'import torch\n\n\ndef get_device():\n    return torch.device("cuda")\n'


# ---- facts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("statement", "call"),
    [
        ("from utils import get_device", "get_device()"),
        ("from utils import get_device as gd", "gd()"),
        ("import utils", "utils.get_device()"),
        ("from utils import *", "get_device()"),
    ],
)
def test_a_helper_in_another_file_returns_a_device(
    tmp_path: Path, statement: str, call: str, target: str
) -> None:
    """`device.type == "cuda"` is about the helper's device, whatever the variable is called."""
    main = (
        f'import torch\n{statement}\n\nwhere = {call}\nif where == "cuda":\n    torch.cuda.seed()\n'
    )
    out = migrate(tmp_path, {"utils.py": HELPER, "main.py": main}, target)
    assert f'if where == "{DEVICE[target]}":' in out["main.py"]


def test_facts_go_through_a_package(tmp_path: Path) -> None:
    out = migrate(
        tmp_path,
        {
            "pkg/__init__.py": "from .devices import pick\n",
            "pkg/devices.py": HELPER.replace("get_device", "pick"),
            "pkg/sub/__init__.py": "",
            "pkg/sub/use.py": 'from ..devices import pick\nw = pick()\nassert w == "cuda"\n',
            "main.py": 'from pkg import pick\nw = pick()\nassert w == "cuda"\n',
            "other.py": 'def pick(): return f()\nw = pick()\nassert w == "cuda"\n',
        },
    )
    assert 'w == "jax"' in out["pkg/sub/use.py"]
    assert 'w == "jax"' in out["main.py"]
    assert 'w == "cuda"' in out["other.py"]


def test_a_class_of_another_file_is_a_model(tmp_path: Path) -> None:
    files: Files = {
        "net.py": "from torch import nn\nclass Net(nn.Module):\n    pass\n",
        "main.py": "from net import Net\nnet = Net()\nmove = net.cuda\n# cuda\n",
    }
    write_tree(tmp_path, files)
    assert reported(migrate_paths([tmp_path])) == ["net.cuda"]


def test_import_cycles_end(tmp_path: Path) -> None:
    out = migrate(
        tmp_path,
        {
            "a.py": "import torch\nfrom b import f\ndef g(): return f()\nx = g().cuda()\n",
            "b.py": "from a import g\ndef f(): return g()\ny = f().cuda()\n",
            "c.py": "from c import *\nx = f().cuda()\n",
        },
    )
    assert 'g().to("jax")' in out["a.py"] and 'f().to("jax")' in out["b.py"]


def test_a_broken_import_does_not_stop_its_user(tmp_path: Path) -> None:
    write_tree(tmp_path, {"bad.py": "def cuda(:\n", "main.py": "import bad\nx = f().cuda()\n"})
    report = migrate_paths([tmp_path / "main.py"])
    assert not report.failures and report.changed


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("compares", [True, False])
def test_an_index_stays_where_the_program_compares_devices(
    tmp_path: Path, target: str, compares: bool
) -> None:
    name = f"{DEVICE[target]}:0" if compares else DEVICE[target]
    test = "x.device != device" if compares else "x.device.type != device"
    files: Files = {
        "main.py": "import net\nfrom pick import first\nnet.run(first())\n",
        "net.py": f"import torch\ndef run(device):\n    x = torch.ones(2)\n    return {test}\n",
        "pick.py": "def first(device='cuda:1'):\n    return device\n",
        "conf/net.yaml": "device: cuda:1\nother_device: cuda\n",
        "run.sh": "python main.py --device cuda:0\n",
    }
    out = migrate(tmp_path, files, target)
    assert f"device='{name}'" in out["pick.py"]
    assert out["conf/net.yaml"] == f"device: {name}\nother_device: {DEVICE[target]}\n"
    assert out["run.sh"] == f"python main.py --device {name}\n"


# ---- set-up --------------------------------------------------------------------------------------

LIBRARY = "import torch\n\n\ndef run(x):\n    return x.cuda()\n"
CLEAN_MAIN = 'import lib\n\nif __name__ == "__main__":\n    lib.run(1)\n'


@pytest.mark.parametrize("target", TARGETS)
def test_a_clean_main_that_imports_gpu_code_gets_the_set_up(tmp_path: Path, target: str) -> None:
    out = migrate(tmp_path, {"lib.py": LIBRARY, "main.py": CLEAN_MAIN}, target)
    assert out["main.py"].count("tpu_runtime.setup()") == 1
    assert "import tpu_runtime\n" in out["main.py"]
    assert "setup" not in out["lib.py"]


def test_gpu_code_two_imports_away_counts(tmp_path: Path) -> None:
    out = migrate(
        tmp_path,
        {
            "a/__init__.py": "",
            "a/b.py": "from .c import run\n",
            "a/c.py": LIBRARY,
            "main.py": "from a import b\nif __name__ == '__main__':\n    b.run(1)\n",
        },
    )
    assert "tpu_runtime.setup()" in out["main.py"]
    assert all("setup" not in text for name, text in out.items() if name != "main.py")


def test_a_clean_main_of_clean_code_stays(tmp_path: Path) -> None:
    files: Files = {"lib.py": "def run(x): return x\n", "main.py": CLEAN_MAIN}
    out = migrate(tmp_path, files)
    assert out == files


def test_each_script_is_set_up_and_no_module_that_they_share(tmp_path: Path) -> None:
    script = "import torch\nfrom lib import run\n\nx = torch.ones(2).cuda()\nrun(x)\n"
    out = migrate(tmp_path, {"lib.py": LIBRARY, "one.py": script, "two.py": script})
    assert "setup()" in out["one.py"] and out["one.py"] == out["two.py"]
    assert "setup()" not in out["lib.py"]


def test_a_script_without_a_word_of_gpus_is_set_up_where_it_acts(tmp_path: Path) -> None:
    """Also where a package passes the device on, and imports itself."""
    files: Files = {
        "pkg/__init__.py": "from .where import *\nfrom .models import Net\n",
        "pkg/where.py": 'import torch\nplace = torch.device("cuda")\n',
        "pkg/models.py": "import torch\nfrom . import place\nclass Net(torch.nn.Module): ...\n",
        "train.py": "import torch\nfrom pkg import place as d\nprint(torch.ones(2, device=d))\n",
    }
    out = migrate(tmp_path, files)
    assert "tpu_runtime.setup()" in out["train.py"]
    assert not any("setup" in text for name, text in out.items() if name != "train.py")


def test_a_class_of_another_file_that_looks_at_the_name_of_a_device(tmp_path: Path) -> None:
    files: Files = {
        "lib/__init__.py": "from .box import Box as Container\n",
        "lib/box.py": "class Box:\n    def to(self, x):\n        self.a = {'cuda': 1}.get(x, 2)\n",
        "run.py": 'import torch\nfrom lib import Container as C\nC().to("cuda")\n',
    }
    out = migrate(tmp_path, files)
    assert 'C().to("cuda")' in out["run.py"]


COMMANDS = {
    "pyproject.toml": '[project.scripts]\ntrain = "pkg.cli:main"\n',
    "poetry": '[tool.poetry.scripts]\ntrain = "pkg.cli:main"\n',
    "setup.cfg": "[options.entry_points]\nconsole_scripts =\n    train = pkg.cli:main\n",
    "setup.py": (
        "from setuptools import setup\n"
        "setup(entry_points={'console_scripts': ['train = pkg.cli:main [gpu]']})\n"
    ),
}


INI = """from setuptools import setup
setup(entry_points='''
    [console_scripts]
    train = pkg.cli:main
''')
"""
NAMED = {"poetry": "pyproject.toml", "ini": "setup.py"}


@pytest.mark.parametrize("packaging", [*COMMANDS, "ini"])
@pytest.mark.parametrize("folder", ["", "src/"])
def test_a_module_that_a_command_starts_gets_the_set_up(
    tmp_path: Path, packaging: str, folder: str
) -> None:
    files: Files = {
        NAMED.get(packaging, packaging): {**COMMANDS, "ini": INI}[packaging],
        f"{folder}pkg/__init__.py": "",
        f"{folder}pkg/lib.py": LIBRARY,
        f"{folder}pkg/cli.py": "from .lib import run\n\n\ndef main():\n    run(1)\n",
    }
    out = migrate(tmp_path, files)
    assert "tpu_runtime.setup()" in out.pop(f"{folder}pkg/cli.py")
    assert not any("setup()" in text for text in out.values())


def test_packaging_that_is_damaged_or_says_something_else_starts_nothing(tmp_path: Path) -> None:
    files: Files = {
        "pyproject.toml": '[project.scripts\ntrain = "pkg.lib:main"\n',
        "setup.cfg": "train = pkg.lib:main\n",
        "setup.py": "# console_scripts: 'train = pkg.lib:main'\n",
        "pkg/lib.py": LIBRARY,
    }
    write_tree(tmp_path, files)
    for content in ('[project]\nscripts = "pkg.lib:main"\n', "[project.scripts]\na = 1\n"):
        out = results(migrate_paths([tmp_path / "pkg"]), tmp_path)
        assert "setup()" not in out["pkg/lib.py"]
        (tmp_path / "pyproject.toml").write_text(content)


def test_what_python_m_starts_gets_the_set_up(tmp_path: Path) -> None:
    files: Files = {
        "pkg/__init__.py": "",
        "pkg/lib.py": LIBRARY,
        "pkg/__main__.py": "from .lib import run\n\nrun(1)\n",
    }
    assert "tpu_runtime.setup()" in migrate(tmp_path, files)["pkg/__main__.py"]


def test_a_folder_without_a_program_says_who_has_to_set_up(tmp_path: Path) -> None:
    write_tree(tmp_path, {"lib.py": LIBRARY})
    run = (".", "--target", "torchax", "--check")
    said = "what imports this code calls tpu_runtime.setup() first"
    assert said in " ".join(cli(*run, cwd=tmp_path).stdout.decode().split())
    assert said in cli(*run, "--format=markdown", cwd=tmp_path).stdout.decode().replace("\\", "")
    assert b'"lacks_program": true' in cli(*run, "--format=json", cwd=tmp_path).stdout
    cli(*run, "--report", "page.html", cwd=tmp_path)
    assert said in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    "files",
    [
        {"lib.py": LIBRARY, "main.py": CLEAN_MAIN},
        {"lib.py": "import torch\n\n\ndef run(x):\n    return x.float()\n"},
        {"loader.py": "import torch\nload = torch.utils.data.DataLoader(d, pin_memory=True)\n"},
    ],
)
def test_a_folder_with_a_program_or_without_devices_says_nothing(
    tmp_path: Path, files: Files
) -> None:
    write_tree(tmp_path, files)
    assert not migrate_paths([tmp_path]).lacks_program


def test_a_program_without_a_suffix_is_found_by_its_first_line(tmp_path: Path) -> None:
    script = (
        "#!/usr/bin/env python3\nimport torch\nfrom lib import run\n\nrun(torch.ones(2).cuda())\n"
    )
    files: Files = {"lib.py": LIBRARY, "train": script, "NOTES": "x.cuda()\n", "data": b"\xff\0"}
    out = migrate(tmp_path, files)
    assert set(out) == {"lib.py", "train"}
    assert "tpu_runtime.setup()" in out["train"] and '.to("jax")' in out["train"]


def test_a_folder_of_many_files_without_a_suffix_is_data(tmp_path: Path) -> None:
    many: Files = {f"{n:04}": "#!/usr/bin/env python3\nx.cuda()\n" for n in range(201)}
    assert migrate(tmp_path, {**many, "lib.py": LIBRARY}).keys() == {"lib.py"}


@pytest.mark.parametrize(
    "statement",
    [
        "from pkg import (\n    c,\n)",
        "from pkg import c as \\\n    inner",
        "import os; from pkg import c",
        "import os, \\\n    pkg.c",
        "try: from pkg import c\nexcept ImportError: pass",
    ],
)
def test_an_import_is_seen_however_it_is_laid_out(tmp_path: Path, statement: str) -> None:
    main = f"{statement}\n\nif __name__ == '__main__':\n    run(1)\n"
    out = migrate(tmp_path, {"pkg/__init__.py": "", "pkg/c.py": LIBRARY, "main.py": main})
    assert out["main.py"].count("tpu_runtime.setup()") == 1


@pytest.mark.parametrize("text", ["# import lib", '"""\nimport lib\n"""'])
def test_an_import_in_a_text_is_none(tmp_path: Path, text: str) -> None:
    main = f"{text}\nif __name__ == '__main__':\n    print(1)\n"
    files: Files = {"lib.py": LIBRARY, "main.py": main}
    assert migrate(tmp_path, files)["main.py"] == main


def test_a_text_about_a_target_makes_no_gpu_code(tmp_path: Path) -> None:
    files: Files = {
        "lib.py": "# as torch_xla, torchax do: 'jax'\nKIND = 'xla'\n",
        "main.py": CLEAN_MAIN,
    }
    assert migrate(tmp_path, files) == files


def test_a_file_that_was_migrated_before_is_gpu_code(tmp_path: Path) -> None:
    library = LIBRARY.replace(".cuda()", '.to("jax")')
    out = migrate(tmp_path, {"lib.py": library, "main.py": CLEAN_MAIN})
    assert "tpu_runtime.setup()" in out["main.py"]


def test_a_comment_is_no_word_of_another_accelerator(tmp_path: Path) -> None:
    source = "import torch\nx = torch.ones(2, device='xpu')  # torch_xla has no such device\n"
    assert "device='jax'" in migrate(tmp_path, {"lib.py": source})["lib.py"]


@pytest.mark.parametrize("text", ["# import tpu_runtime", '"""\nimport tpu_runtime\n"""'])
def test_a_text_about_the_runtime_brings_none(tmp_path: Path, text: str) -> None:
    write_tree(tmp_path, {"lib.py": f"{text}\ndef f(x):\n    return x.cuda()\n"})
    assert not migrate_paths([tmp_path]).companions


MAIN = "def main():\n    torch.ones(2).cuda()\n"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("code", "use"),
    [
        (f"{MAIN}if flag:\n    main()\nimport pdb; pdb.set_trace()\n", "if flag"),
        (f"{MAIN}main()\nif flag:\n    import pdb\n", "main()\nif"),
        (f"{MAIN}try:\n    main()\nfinally:\n    import pdb\n", "try:"),
        (f"{MAIN}run = main\nrun()\nimport pdb\n", "run()"),
        ("move = lambda x: x.cuda()\ny = move(1)\nimport pdb\n", "y = move"),
        ("class Settings:\n    device = torch.device('cuda')\nimport pdb\n", "class"),
        ("def f(x, to=torch.device('cuda')):\n    return x.to(to)\nimport pdb\n", "def f"),
        ("@torch.cuda.amp.autocast()\ndef f(x):\n    return x.cuda()\nimport pdb\n", "@"),
        (
            f"def register(f):\n    f(1)\n{MAIN}@register\ndef f(x):\n    pass\nimport pdb\n",
            "@register",
        ),
        ("from lib import run\nrun(1)\nimport pdb\n", "run(1)"),
        ("import lib\nx = lib.run(1)\nimport pdb\n", "x = lib"),
        ("import lib\nassert lib.run(1)\nimport pdb\n", "assert"),
        ("from lib import *\nrun(1)\nimport pdb\n", "run(1)"),
        ("exec(open('x.py').read())\nimport pdb\n", "exec("),
    ],
)
def test_set_up_stands_above_the_first_use(
    tmp_path: Path, code: str, use: str, target: str
) -> None:
    main = f"import torch\n\n{code}x = torch.ones(2).cuda()\n"
    text = migrate(tmp_path, {"lib.py": LIBRARY, "main.py": main}, target)["main.py"]
    assert text.count("setup()") == 1
    shown = use.replace("torch.cuda.amp", "")
    assert text.index("import tpu_runtime") < text.index("setup()") < text.index(shown)


@pytest.mark.parametrize(
    "before",
    [
        "import os\nos.environ['A'] = '1'\n",
        "import warnings\nwarnings.filterwarnings('ignore')\n",
        "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('-n')\n"
        "args = parser.parse_args()\n",
        "try:\n    import torch\nexcept ImportError:\n    install('torch')\n",
        "import matplotlib\nmatplotlib.use('Agg')\nprint('ready')\n",
    ],
)
def test_set_up_stands_below_what_uses_no_device(tmp_path: Path, before: str) -> None:
    main = f"{before}import torch\nimport lib\n\nx = torch.ones(2).cuda()\n"
    text = migrate(tmp_path, {"lib.py": LIBRARY, "main.py": main})["main.py"]
    assert text.index("import lib") < text.index("setup()") < text.index("x = ")


# ---- the same bytes, however it is called --------------------------------------------------------

PROJECT: Files = {
    "main.py": "import torch\nfrom pkg.net import Net\nfrom utils import get_device\n\n"
    "net = Net().to(get_device())\nprint(torch.cuda.device_count())\n",
    "utils.py": HELPER,
    "pkg/__init__.py": "",
    "pkg/net.py": "import torch\nfrom . import ops\n\n\nclass Net(torch.nn.Module):\n"
    "    def forward(self, x):\n        return ops.move(x.cuda())\n",
    "pkg/ops.py": "import torch\n\n\ndef move(x):\n    torch.cuda.synchronize()\n    return x\n",
    "tools/run.py": "import sys\nsys.path.insert(0, '..')\nimport main\n\n"
    "if __name__ == '__main__':\n"
    "    main.go('cuda')\n",
    "notes.txt": "cuda\n",
}


@pytest.mark.parametrize("target", TARGETS)
def test_one_path_or_all(tmp_path: Path, target: str) -> None:
    write_tree(tmp_path, PROJECT)
    (tmp_path / ".git").mkdir()
    together = results(migrate_paths([tmp_path], target), tmp_path)
    python = [name for name in PROJECT if name.endswith(".py")]
    assert sorted(together) == sorted(python)
    for name in python:
        alone = migrate_paths([tmp_path / name], target)
        assert results(alone, tmp_path) == {name: together[name]}
    given = [tmp_path / name for name in reversed(python)]
    assert results(migrate_paths(given, target), tmp_path) == together
    pooled = migrate_paths([tmp_path], target, config=Config(jobs=2))
    assert results(pooled, tmp_path) == together


def test_relative_and_absolute_paths_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tree(tmp_path, PROJECT)
    absolute = results(migrate_paths([tmp_path]), tmp_path)
    monkeypatch.chdir(tmp_path)
    assert results(migrate_paths(["."]), tmp_path) == absolute
    monkeypatch.chdir(tmp_path / "pkg")
    assert results(migrate_paths(["net.py", "../main.py"]), tmp_path) == {
        name: absolute[name] for name in ("pkg/net.py", "main.py")
    }


def test_files_are_processed_once_and_in_order(tmp_path: Path) -> None:
    write_tree(tmp_path, PROJECT)
    report = migrate_paths([tmp_path, tmp_path / "main.py", tmp_path / "pkg"])
    paths = [file.path for file in report.files]
    assert paths == sorted(set(paths))


@pytest.mark.parametrize("target", TARGETS)
def test_a_second_run_over_a_project_changes_nothing(tmp_path: Path, target: str) -> None:
    write_tree(tmp_path, PROJECT)
    assert migrate_paths([tmp_path], target, write=True, allow_dirty=True).changed
    first = read_tree(tmp_path, runtime=True)
    again = migrate_paths([tmp_path], target, write=True, allow_dirty=True)
    assert not again.changed and not again.companions
    assert read_tree(tmp_path, runtime=True) == first


# ---- companions ----------------------------------------------------------------------------------


def folders(report: Report, root: Path) -> list[str]:
    found = {path.resolve().relative_to(root.resolve()).as_posix() for path in report.companions}
    return sorted({name.partition("tpu_runtime/")[0] for name in found})


@pytest.mark.parametrize("target", TARGETS)
def test_the_runtime_is_placed_once_per_import_root(tmp_path: Path, target: str) -> None:
    write_tree(tmp_path, PROJECT)
    report = migrate_paths([tmp_path], target)
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
    report = migrate_paths([tmp_path])
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
    assert folders(migrate_paths([tmp_path]), tmp_path) == places


def test_two_programs_get_a_runtime_each(tmp_path: Path) -> None:
    script = "import torch\nfrom lib import run\nprint(torch.cuda.seed(), run(1))\n"
    library = LIBRARY.replace("x.cuda()", "torch.cuda.initial_seed()")
    for app in ("a", "b"):
        write_tree(tmp_path / app, {"main.py": script, "lib.py": library})
    (tmp_path / ".git").mkdir()
    assert folders(migrate_paths([tmp_path]), tmp_path) == ["a/", "b/"]
    assert folders(migrate_paths([tmp_path / "a" / "lib.py"]), tmp_path) == ["a/"]


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
    assert folders(migrate_paths([tmp_path]), tmp_path) == [""]
    assert folders(migrate_paths([tmp_path / "lib" / "sub" / "ops.py"]), tmp_path) == [""]


def test_the_runtime_is_no_source_of_the_project(tmp_path: Path) -> None:
    write_tree(tmp_path, PROJECT)
    before = len(migrate_paths([tmp_path], write=True, allow_dirty=True).files)
    assert (tmp_path / "tpu_runtime" / "__init__.py").is_file()
    assert len(migrate_paths([tmp_path]).files) == before


def test_a_new_run_updates_the_runtime(tmp_path: Path) -> None:
    write_tree(tmp_path, PROJECT)
    migrate_paths([tmp_path], write=True, allow_dirty=True)
    module = tmp_path / "tpu_runtime" / "__init__.py"
    current = module.read_bytes()
    module.write_bytes(current + b"# another version\n")
    report = migrate_paths([tmp_path], write=True, allow_dirty=True)
    assert list(report.companions) == [module]
    assert module.read_bytes() == current


def test_another_package_of_that_name_is_not_overwritten(tmp_path: Path) -> None:
    files: Files = {"main.py": "import torch\ntorch.cuda.seed()\n", "tpu_runtime": "mine\n"}
    write_tree(tmp_path, files)
    report = migrate_paths([tmp_path], write=True, allow_dirty=True)
    assert report.exit_code == 2
    assert (tmp_path / "tpu_runtime").read_text() == "mine\n"


def test_a_package_of_the_user_with_the_runtimes_name_is_not_overwritten(tmp_path: Path) -> None:
    mine = "def mine(): pass\n"
    write_tree(
        tmp_path,
        {"main.py": "import torch\ntorch.cuda.seed()\n", "tpu_runtime/__init__.py": mine},
    )
    report = migrate_paths([tmp_path], write=True, allow_dirty=True)
    assert report.exit_code == 2
    assert (tmp_path / "tpu_runtime" / "__init__.py").read_text() == mine


def test_an_installed_runtime_is_not_written(tmp_path: Path) -> None:
    write_tree(tmp_path, PROJECT)
    report = migrate_paths([tmp_path], config=Config(runtime="installed"))
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
