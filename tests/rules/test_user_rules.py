"""Rules of one's own: the table of names, and packages with rules; the page that shows both."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from helpers import (
    REPOSITORY,
    TARGETS,
    Install,
    cli,
    environment_with,
    errors,
    one_line,
    outcomes,
    reported,
    run,
    write_tree,
)

from migrator import migrate_paths
from migrator.config import Config
from migrator.examples import failures, rules_of

PAGE = REPOSITORY / "docs" / "rules-of-your-own.md"
SAME = (("mylib.to_gpu", "mylib.to_device"),)
OTHER = (("mylib.to_gpu", "tpulib.dev.move"),)


def replaced(source: str, table: tuple[tuple[str, str], ...] = SAME, path: str = "a.py") -> str:
    result = run(source, path=path, replace=table)
    assert not errors(result)
    assert run(result.source, path=path, replace=table).source == result.source
    return result.source.decode()


# ---- the table of names --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("import mylib\nx = mylib.to_gpu(x)\n", "import mylib\nx = mylib.to_device(x)\n"),
        ("import mylib as m\nf = m.to_gpu\n", "import mylib as m\nf = m.to_device\n"),
        (
            "from mylib import to_gpu\nx = to_gpu(y)\nmap(to_gpu, z)\n",
            "from mylib import to_device\nx = to_device(y)\nmap(to_device, z)\n",
        ),
        ("from mylib import to_gpu as g\ng(x)\n", "from mylib import to_device as g\ng(x)\n"),
        (
            "from mylib import (\n    a,  # one\n    to_gpu,  # two\n)\na(to_gpu(x))\n",
            "from mylib import (\n    a,  # one\n    to_device,  # two\n)\na(to_device(x))\n",
        ),
        # The new name is taken, or the old one is seen from elsewhere: it stays.
        (
            "from mylib import to_gpu\nto_device = 1\nto_gpu(x)\n",
            "from mylib import to_device as to_gpu\nto_device = 1\nto_gpu(x)\n",
        ),
        (
            "from mylib import to_gpu\n__all__ = ['to_gpu']\nto_gpu(x)\n",
            "from mylib import to_device as to_gpu\n__all__ = ['to_gpu']\nto_gpu(x)\n",
        ),
        ("from mylib import to_gpu\n", "from mylib import to_device as to_gpu\n"),
        (
            "try:\n    from mylib import to_gpu\nexcept ImportError:\n    to_gpu = 0\nto_gpu(x)\n",
            "try:\n    from mylib import to_device as to_gpu\nexcept ImportError:\n"
            "    to_gpu = 0\nto_gpu(x)\n",
        ),
        (
            "def f(x):\n    from mylib import to_gpu\n    return to_gpu(x)\n",
            "def f(x):\n    from mylib import to_device\n    return to_device(x)\n",
        ),
        # Not this name.
        ("from other import to_gpu\nto_gpu(x)\n", "from other import to_gpu\nto_gpu(x)\n"),
        ("def to_gpu(x):\n    pass\nto_gpu(x)\n", "def to_gpu(x):\n    pass\nto_gpu(x)\n"),
        (
            "import mylib\n\ndef f(mylib):\n    mylib.to_gpu(x)\n",
            "import mylib\n\ndef f(mylib):\n    mylib.to_gpu(x)\n",
        ),
        ("x.to_gpu(1)\ns = 'mylib.to_gpu'\n", "x.to_gpu(1)\ns = 'mylib.to_gpu'\n"),
    ],
)
def test_a_name_of_the_same_module(before: str, after: str) -> None:
    assert replaced(before) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "import mylib\nx = mylib.to_gpu(x)\n",
            "import tpulib.dev\nx = tpulib.dev.move(x)\n",
        ),
        (
            "import mylib as m\nx = m.to_gpu(m.load())\n",
            "import mylib as m\nimport tpulib.dev\nx = tpulib.dev.move(m.load())\n",
        ),
        (
            "import mylib as m\nfrom tpulib import dev\nx = m.to_gpu(x)\ndev.show(x)\n",
            "from tpulib import dev\nx = dev.move(x)\ndev.show(x)\n",
        ),
        ("from mylib import to_gpu\nto_gpu(x)\n", "from tpulib.dev import move\nmove(x)\n"),
        ("from mylib import to_gpu as g\ng(x)\n", "from tpulib.dev import move as g\ng(x)\n"),
        (
            "from mylib import a, to_gpu as g\ng(a)\n",
            "from mylib import a\nfrom tpulib.dev import move as g\ng(a)\n",
        ),
        (
            "if c:\n    from mylib import a, to_gpu\n    to_gpu(a)\n",
            "if c:\n    from mylib import a\n    from tpulib.dev import move\n    move(a)\n",
        ),
    ],
)
def test_a_name_of_another_module(before: str, after: str) -> None:
    assert replaced(before, OTHER) == after


def test_several_names_of_one_import() -> None:
    table = (("m.a", "m.b"), ("m.c", "n.d"), ("m.e", "o.f"))
    source = "from m import a, c, e as g\na(c(g))\n"
    assert replaced(source, table) == (
        "from m import b\nfrom n import d\nfrom o import f as g\nb(d(g))\n"
    )
    assert replaced("from m import c, e\nc(e)\n", table) == (
        "from o import f\nfrom n import d\nd(f)\n"
    )


def test_it_goes_before_what_the_tool_would_do() -> None:
    table = (("torch.cuda.synchronize", "mylib.wait"),)
    source = "import torch\ntorch.cuda.synchronize()\nx = torch.ones(1).cuda()\n"
    assert replaced(source, table) == (
        'import mylib\nimport torch\nmylib.wait()\nx = torch.ones(1).to("jax")\n'
    )


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("import mylib\nmylib.to_gpu = f\n", "is assigned to"),
        ("from mylib import *\nto_gpu(x)\n", "star import"),
    ],
)
def test_what_is_left_is_reported(source: str, what: str) -> None:
    result = run(source, replace=SAME)
    assert not result.changed
    assert [what in d.message for d in result.diagnostics] == [True]


def test_suppressions_count_for_an_import_with_its_uses() -> None:
    source = "from mylib import to_gpu\nto_gpu(x)\nto_gpu(y)  # tpu-migrate: ignore\n"
    assert replaced(source) == source
    assert replaced(f"import mylib\n{source[25:]}".replace("to_gpu(", "mylib.to_gpu(")) == (
        "import mylib\nmylib.to_device(x)\nmylib.to_gpu(y)  # tpu-migrate: ignore\n"
    )


def test_relative_imports_of_a_package(tmp_path: Path) -> None:
    files = {
        "mylib/__init__.py": "from .ops import to_gpu\n",
        "mylib/ops.py": "def to_gpu(x):\n    return x\n\n\ndef to_device(x):\n    return x\n",
        "mylib/sub/__init__.py": "",
        "mylib/sub/a.py": "from ..ops import to_gpu\nfrom .. import ops\nto_gpu(ops.to_gpu(x))\n",
    }
    table = (("mylib.ops.to_gpu", "mylib.ops.to_device"),)
    report = migrate_paths([write_tree(tmp_path, files)], config=Config(replace=table))
    made = {f.path.relative_to(tmp_path).as_posix(): f.result.source for f in report.changed}
    assert made == {
        "mylib/__init__.py": b"from .ops import to_device as to_gpu\n",
        "mylib/sub/a.py": b"from ..ops import to_device\nfrom .. import ops\n"
        b"to_device(ops.to_device(x))\n",
    }


def test_in_notebooks() -> None:
    cells = ["from mylib import to_gpu", "!pip install x\nx = to_gpu(1)"]
    made = [{"cell_type": "code", "metadata": {}, "source": [cell]} for cell in cells]
    text = json.dumps({"cells": made, "metadata": {}, "nbformat": 4})
    after = json.loads(replaced(text, path="a.ipynb"))["cells"]
    assert ["".join(cell["source"]) for cell in after] == [
        "from mylib import to_device",
        "!pip install x\nx = to_device(1)",
    ]


def test_in_the_configuration(tmp_path: Path) -> None:
    config = '[tool.tpu-migrate.replace]\n"mylib.to_gpu" = "mylib.to_device"\n'
    write_tree(tmp_path, {"pyproject.toml": config, "a.py": "import mylib\nmylib.to_gpu(1)\n"})
    found = cli("a.py", "--target", "torchax", "--diff", cwd=tmp_path)
    assert b"+mylib.to_device(1)" in found.stdout and b"USR001" in found.stderr


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ('"to_gpu" = "mylib.x"', ["to_gpu", "full name"]),
        ('"a.b" = "c"', ["a.b", "'c'", "full name"]),
        ('"a.b" = 3', ["a.b", "3", "full name"]),
        ('"a.b" = "c.class"', ["c.class", "full name"]),
        ('"a.b" = "a.b"', ["a.b", "replaced itself"]),
        ('"a.b" = "a.c"\n"a.c" = "a.d"', ["a.c", "replaced itself"]),
        ('a.b = "c.d"', ['"a.b"', "quotes"]),
    ],
)
def test_bad_tables(tmp_path: Path, table: str, words: list[str]) -> None:
    config = f"[tool.tpu-migrate.replace]\n{table}\n"
    write_tree(tmp_path, {"pyproject.toml": config, "a.py": "x = 1\n"})
    found = cli("a.py", "--target", "torchax", cwd=tmp_path)
    assert found.returncode == 2
    one_line(found.stderr, "pyproject.toml", "[tool.tpu-migrate.replace]", *words)


# ---- packages with rules -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "way", ["PYTHONPATH", "python -m", "site-packages", "dist-packages", "a link"]
)
def test_rules_of_the_project_itself_are_never_loaded(tmp_path: Path, way: str) -> None:
    """A repository brings no code that runs when it is looked at, whatever its folders' names."""
    files = {
        "own.py": f"open({str(tmp_path / 'ran')!r}, 'w')\n",
        "own.egg-info/PKG-INFO": "Name: own\nVersion: 1.0\n",
        "own.egg-info/entry_points.txt": "".join(
            f"[tpu_migrate.{group}]\nown = own\n" for group in ("rules", "targets", "frameworks")
        ),
        "train.py": "x = x.cuda()\n",
    }
    name = way if way.endswith("-packages") else "p"
    project = where = write_tree(tmp_path / name, files)
    if way == "a link":
        where = tmp_path / "site-packages"
        where.symlink_to(project)
    given = {} if way == "python -m" else {"PYTHONPATH": str(where)}
    run = subprocess.run(
        [sys.executable, "-m", "migrator", project, "--target", "torchax", "--check"],
        cwd=tmp_path if given else project, env={**os.environ, **given}, capture_output=True,
    )  # fmt: skip
    assert run.returncode == 1, run.stderr
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("way", ["PYTHONPATH", "python -m"])
def test_a_module_of_the_project_does_not_stand_for_an_installed_one(
    tmp_path: Path, way: str
) -> None:
    project = write_tree(
        tmp_path / "p",
        {"own_rules.py": f"open({str(tmp_path / 'ran')!r}, 'w')\n", "train.py": USES},
    )
    python = environment_with(
        tmp_path / "env",
        {
            "own_rules.py": RULE.format(code="OWN001"),
            "own_rules-1.0.dist-info/METADATA": "Name: own-rules\nVersion: 1.0\n",
            "own_rules-1.0.dist-info/entry_points.txt": "[tpu_migrate.rules]\nown = own_rules\n",
        },
    )
    given = {} if way == "python -m" else {"PYTHONPATH": str(project)}
    run = subprocess.run(
        [python, "-m", "migrator", "train.py", "--target", "torchax", "--check"],
        cwd=project, env={**os.environ, **given}, capture_output=True,
    )  # fmt: skip
    assert b"OWN001" in run.stdout, run.stderr
    assert not (tmp_path / "ran").exists()


RULE = """
from migrator.edits import Replace
from migrator.rule import Example, Report, Rewrite, Rule

OPS = Rule(
    code="{code}", name="own-ops", summary="operators of ours", why="They are CUDA's.",
    examples=(Example("import mylib"),),
)


@OPS.on("name", "mylib.cuda_ops.*", "torch.cuda.synchronize")
def ops(ctx, found):
    if found.key.endswith(".gelu"):
        return Rewrite([Replace(found.node, "torch.nn.functional.gelu")], ("torch",))
    return Report(f"{{found.key}} is ours")
"""
USES = "from mylib.cuda_ops import fused, gelu as g\nimport mylib.cuda_ops\ny = g(x)\nfused(y)\n"


@pytest.mark.parametrize("value", ["own_rules", "own_rules.ops"])
def test_rules_of_a_package_join(install: Install, value: str) -> None:
    before = run(USES)
    assert not before.diagnostics
    files = {"own_rules/__init__.py": "", "own_rules/ops.py": RULE.format(code="OWN001")}
    install(files, value)
    result = run(USES)
    assert outcomes(result) == [
        ("OWN001", "rewritten", "g"),
        ("OWN001", "reported", "fused"),
    ]
    assert b"y = torch.nn.functional.gelu(x)" in result.source
    ast.parse(result.source)
    assert reported(run("import torch\ntorch.cuda.synchronize()\n")) == ["torch.cuda.synchronize"]
    assert not run("import mylib.others\nmylib.others.f()\n").diagnostics


def test_the_command_lists_and_selects_them(install: Install, tmp_path: Path) -> None:
    install({"own_rules.py": RULE.format(code="OWN001")}, "own_rules")
    assert b"OWN001" in cli("rules", cwd=tmp_path).stdout
    assert b"Operators of ours" in cli("explain", "OWN001", cwd=tmp_path).stdout
    write_tree(tmp_path, {"a.py": USES})
    to = ("--target", "torchax", "--diff")
    assert b"+y = torch.nn" in cli("a.py", *to, "--select", "OWN", cwd=tmp_path).stdout
    assert b"+y = torch.nn" not in cli("a.py", *to, "--ignore", "OWN", cwd=tmp_path).stdout


@pytest.mark.parametrize(
    ("files", "value", "words"),
    [
        ({"own_rules.py": RULE.format(code="MOV001")}, "own_rules", ["MOV001", "tpu-migrate"]),
        (
            {"own_rules/a.py": RULE.format(code="OWN1"), "own_rules/b.py": RULE.format(code="OWN1"),
             "own_rules/__init__.py": ""}, "own_rules", ["OWN1", "own_rules"],
        ),
        ({"own_rules.py": "x = 1\n"}, "own_rules", ["no Rule"]),
        ({"own_rules.py": "import nothing_such\n"}, "own_rules", ["nothing_such"]),
        ({}, "own_missing", ["own_missing"]),
    ],
)  # fmt: skip
def test_a_package_with_a_fault_is_one_line(
    install: Install, tmp_path: Path, files: dict[str, str], value: str, words: list[str]
) -> None:
    install(files, value)
    write_tree(tmp_path, {"p/a.py": USES})
    for command in (("p", "--target", "torchax", "--check"), ("rules",)):
        found = cli(*command, cwd=tmp_path)
        assert found.returncode == 2
        one_line(found.stderr, f"rules of {value}", *words)


# ---- the page ------------------------------------------------------------------------------------


def blocks(section: str) -> list[str]:
    return re.findall(r"^```\w*\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)


def sections() -> list[str]:
    return re.split(r"^## ", PAGE.read_text("utf-8"), flags=re.MULTILINE)[1:]


def diff_of(root: Path, target: str) -> str:
    found = cli("train.py", "--target", target, "--diff", cwd=root)
    return "".join(
        line
        for line in found.stdout.decode().splitlines(keepends=True)
        if not line.startswith(("---", "+++", "@@"))
    )


@pytest.mark.parametrize("target", TARGETS)
def test_the_page_shows_what_comes_out_of_the_table(tmp_path: Path, target: str) -> None:
    config, source, diff = blocks(sections()[0])[:3]
    write_tree(tmp_path, {"pyproject.toml": config, "train.py": source})
    assert diff_of(tmp_path, target) == diff


@pytest.mark.parametrize("target", TARGETS)
def test_the_page_shows_what_comes_out_of_a_package(
    tmp_path: Path, install: Install, target: str
) -> None:
    project, module, source, diff, left, listed = blocks(sections()[1])[:6]
    (value,) = tomllib.loads(project)["project"]["entry-points"]["tpu_migrate.rules"].values()
    install({f"{value}.py": module}, value)
    write_tree(tmp_path, {"train.py": source})
    assert diff_of(tmp_path, target) == diff
    found = cli("train.py", "--target", target, "--check", cwd=tmp_path)
    assert left in found.stdout.decode()
    assert " ".join(listed.split()) in " ".join(cli("rules", cwd=tmp_path).stdout.decode().split())
    assert not list(failures(rules_of(value)))


def test_a_program_that_stays_as_a_whole_still_gets_the_names() -> None:
    source = (
        "import torch\nfrom mylib import to_gpu\n\n\ndef main(rank):\n"
        "    torch.distributed.init_process_group('nccl')\n    to_gpu(rank)\n"
        "    torch.distributed.split_group()\n\n\n"
        "torch.multiprocessing.spawn(main, nprocs=2)\n"
    )
    assert replaced(source) == source.replace("to_gpu", "to_device")
