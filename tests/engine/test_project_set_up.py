"""Set-up in the files of a project: where, and that it is the same however the run is called."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import TARGETS, cli, write_tree

from migrator import migrate_paths
from migrator.config import Config
from tests.engine.projects import LIBRARY, PROJECT, Files, migrate, results

GUARD = '\nif __name__ == "__main__":\n    '
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


UTILS = """
import json
import torch


def read(path):
    return json.load(open(path))


def move(x):
    return x.to(torch.device("cuda"))
"""


def test_a_program_that_reaches_no_device_stays(tmp_path: Path) -> None:
    """A JSON tool imports the module, and calls what leaves the device alone."""
    files: Files = {
        "utils.py": UTILS,
        "tool.py": f"from utils import read\n{GUARD}print(read('a.json'))\n",
        "train.py": f"import utils\n{GUARD}print(utils.move(utils.read('a.json')))\n",
    }
    out = migrate(tmp_path, files)
    assert out["tool.py"] == files["tool.py"] and "setup()" in out["train.py"]


def test_an_export_on_the_cpu_stays(tmp_path: Path) -> None:
    export = "model = torch.load('m.pt', map_location='cpu').to('cpu')\n"
    onnx = "torch.onnx.export(model, torch.zeros(1, 3, device=torch.device('cpu')), 'm.onnx')\n"
    files: Files = {"export.py": f"import torch\n\n{export}{onnx}"}
    assert migrate(tmp_path, files) == files


@pytest.mark.parametrize(
    "acts", ["LOGGER.warning('old')\n", "for name in ():\n    setattr(W, name, 1)\n"]
)
def test_a_library_without_a_main_block_stays(tmp_path: Path, acts: str) -> None:
    """Also if only files above it import it."""
    head = "import logging\nimport dev\nLOGGER = logging.getLogger()\n"
    library = f"{head}class W:\n    f = dev.run\n{acts}"
    packages = {"pkg/__init__.py": "", "pkg/log/__init__.py": ""}
    main = "from pkg.log import w\nw.W.f(1)\n"
    files: Files = {"dev.py": LIBRARY, "pkg/log/w.py": library, **packages, "main.py": main}
    out = migrate(tmp_path, files)
    assert out["pkg/log/w.py"] == library and "setup()" in out["main.py"]


@pytest.mark.parametrize("name", ["load", "save", "compile", "profile", "sync"])
def test_what_also_serves_the_cpu_gives_no_set_up_in_a_second_run(
    tmp_path: Path, name: str
) -> None:
    """`torch.load` may become the runtime's in any program, and says nothing of a device."""
    read = f"def read(path):\n    return tpu_runtime.{name}(path)\n"
    files: Files = {
        "data.py": f"import tpu_runtime\n\n\n{read}",
        "prepare.py": f"from data import read\n{GUARD}read('a.pt')\n",
    }
    assert migrate(tmp_path / "cpu", files) == files
    files["data.py"] = str(files["data.py"]).replace("(path)\n", "(path).to('jax')\n")
    assert "setup()" in migrate(tmp_path / "device", files)["prepare.py"]


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
    said = "whatever imports this code has to call tpu_runtime.setup() first"
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


@pytest.mark.parametrize("target", TARGETS)
def test_one_path_or_all(tmp_path: Path, target: str) -> None:
    write_tree(tmp_path, PROJECT)
    (tmp_path / ".git").mkdir()
    together = results(migrate_paths([tmp_path], target), tmp_path)
    python = [name for name in PROJECT if name.endswith(".py")]
    assert sorted(together) == sorted(python)
    for name in python:
        alone = migrate_paths([tmp_path / name], target, only_named=True)
        assert results(alone, tmp_path)[name] == together[name]
        program = results(migrate_paths([tmp_path / name], target), tmp_path)
        assert name in program and program.items() <= together.items()
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
    program = results(migrate_paths(["net.py", "../main.py"]), tmp_path)
    assert {"pkg/net.py", "main.py"} <= program.keys()
    assert program.items() <= absolute.items()


def test_files_are_processed_once_and_in_order(tmp_path: Path) -> None:
    write_tree(tmp_path, PROJECT)
    report = migrate_paths([tmp_path, tmp_path / "main.py", tmp_path / "pkg"])
    paths = [file.path for file in report.files]
    assert paths == sorted(set(paths))


@pytest.mark.parametrize("main", ["a.py", "z.py"])
def test_what_starts_a_file_depends_on_its_root_not_on_the_order(tmp_path: Path, main: str) -> None:
    """A repository in another one: only the outer one's packaging installs the command."""
    files: Files = {
        ".git/HEAD": "",
        "sub/.git/HEAD": "",
        "sub/__init__.py": "",
        "setup.py": "from setuptools import setup\n"
        'setup(entry_points={"console_scripts": ["x = sub.m:never"]})\n',
        "sub/m.py": "import torch\nimport torch.distributed as dist\n\n\n"
        'def never():\n    dist.rpc.init_rpc("a")\n\n\n'
        'def build():\n    dist.init_process_group("nccl")\n'
        "    return torch.nn.Linear(2, 2).cuda()\n",
        main: "import torch.distributed as dist\nfrom sub.m import build\n\n"
        "build().cuda(dist.get_rank())\n",
    }
    out = migrate(tmp_path, files, "torch_xla")
    assert out[main] == files[main]
    assert out["sub/m.py"] == files["sub/m.py"]
