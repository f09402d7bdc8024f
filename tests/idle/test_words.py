"""What is certain by words alone: never less than what the engine finds."""

from __future__ import annotations

import ast
import json
import os
import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from helpers import REPOSITORY, write_tree

from migrator.analysis.project.facts import ProjectFacts
from migrator.analysis.project.file_facts import File
from migrator.analysis.project.project_cache import ProjectCache
from migrator.analysis.ranks.vocabulary import ENVIRONMENT
from migrator.analysis.syntax.names import Names
from migrator.analysis.tokens import without_prose
from migrator.analysis.values.flow import Flow
from migrator.files.discover import Disk
from migrator.frameworks.torch.inventory import find
from migrator.frameworks.torch.prefilter import DEVICES, has_device_tokens, has_tokens
from migrator.idle.imported import Unsure, importable
from migrator.options import Options
from migrator.pipeline.analyse import letters_of_constructs, may_hold_constructs
from migrator.pipeline.normalise import foreign
from migrator.registry import registry, vocabulary
from migrator.targets import Target, targets


@cache
def sources() -> tuple[bytes, ...]:
    """The programs of this repository, and what the examples of the rules are made of."""
    rooms = (REPOSITORY / name for name in ("reference_apps", "benchmarks"))
    found = [path.read_bytes() for room in rooms for path in sorted(room.rglob("*.py"))]
    for rule in registry().rules.values():
        for example in rule.examples:
            found += [value.encode() for value in vars(example).values() if isinstance(value, str)]
    lines = [line for source in found for line in source.splitlines()]
    return *found, *lines


@pytest.mark.parametrize("target", targets().values(), ids=lambda target: target.name)
@pytest.mark.parametrize("replaced", [(), (("mine.on_gpu", "mine.on_tpu"),)], ids=["", "replaced"])
def test_no_construct_is_without_a_word(
    target: Target, replaced: tuple[tuple[str, str], ...]
) -> None:
    options = Options(replace=replaced)
    letters = letters_of_constructs(target, options)
    assert all(letters)
    holding = 0
    for source in (*sources(), b"import mine\nmine.on_gpu()\n"):
        if may_hold_constructs(source, target, options) or foreign(source, target) is not None:
            holding += 1
            assert any(word in source for word in letters), source
    assert holding > 100


# ---- imports -------------------------------------------------------------------------------------

NAMES = ("core", "util", "model", "data")


def statements(chance: random.Random) -> Iterator[str]:
    """Imports as people write them, and lines that look as if they were some."""
    for _ in range(chance.randint(1, 5)):
        dots = "." * chance.choice((0, 0, 1, 1, 2, 3))
        path = ".".join(chance.choices(NAMES, k=chance.randint(1, 3)))
        taken = chance.sample(NAMES, 2)
        yield chance.choice((
            f"import {path}", f"import os, {path} as p", f"from {dots or '.'} import {taken[0]}",
            f"from {dots}{path} import {taken[0]}, {taken[1]} as q",
            f"from {dots}{path} import (  # not (yet)\n  {taken[0]},  # the )\n  {taken[1]},\n)",
            f"from {dots}{path} \\\n    import {taken[0]}", f"from {dots or '.'} import *",
            f"if True: from {dots}{path} import ({taken[0]},\n{taken[1]})",
            f"x = '#'; from {dots or '.'} import (\n  {taken[0]})", "print('from here (')",
            f"try:\n  import {path}\nexcept ImportError:\n  from {dots}{path} import {taken[0]}",
        ))  # fmt: skip


def project(chance: random.Random) -> dict[str, str]:
    files = {}
    for _ in range(chance.randint(3, 10)):
        folder = "/".join(chance.choices(NAMES, k=chance.randint(0, 3)))
        name = chance.choice((*NAMES, "__init__"))
        files[f"{folder}/{name}.py".lstrip("/")] = "\n".join(statements(chance)) + "\n"
    return files


@pytest.mark.parametrize("seed", range(60))
def test_no_import_is_overlooked(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    root = write_tree(tmp_path / "project", project(chance)).resolve()
    disk = Disk()
    cache = ProjectCache(disk)

    def listed(folder: str) -> frozenset[str]:
        return frozenset(os.listdir(folder) if os.path.isdir(folder) else ())

    compared = 0
    for path in root.rglob("*.py"):
        facts = ProjectFacts(path, root, disk, cache, None)
        found = {str(other) for other in facts.imports(path)} - {str(path)}
        try:
            known = set(importable(str(path), path.read_bytes(), str(root), listed))
        except Unsure:
            continue
        compared += len(found)
        assert found <= known, path.read_text()
    assert compared or seed


@pytest.mark.parametrize("variable", [*ENVIRONMENT, "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"])
def test_variables_of_launchers_are_seen(variable: str) -> None:
    assert has_tokens(f"import os, torch\nx = os.environ['{variable}']\n".encode())


@pytest.mark.parametrize(
    ("text", "speaks"),
    [
        ("x = args.world_size\n", True),
        ("x = 1  # on 8 GPUs\n", False),
        ('def f():\n    """On 8 GPUs."""\n', False),
        ("def f():\n    r'''On\n    8 \"GPUs\".\n    '''\n", False),
        ('x = """\n8 gpus\n"""\n', True),
        ('run(\n    """\n8 gpus\n"""\n)\n', True),
        ("import a\r# sizes\rx = world_size\r", True),
        ("x = '#', world_size  # no comment before\n", True),
        ('x = "\\"#", world_size\n', True),
        ("x = f'{y}#{world_size}'\n", True),
        ("# it's 1\nx = world_size\n# isn't it\n", True),
    ],
)
def test_only_code_speaks_of_processes(text: str, speaks: bool) -> None:
    assert File(text.encode()).speaks_of_processes is speaks


def test_code_without_prose_has_all_its_names() -> None:
    compared = 0
    for path in REPOSITORY.rglob("*.py"):
        if ".venv" in path.as_posix() or ".git" in path.parts:
            continue
        source = path.read_bytes()
        left = without_prose(source)
        compared += left != source
        for node in ast.walk(ast.parse(source)):
            for text in (getattr(node, name, None) for name in ("id", "attr", "arg", "name")):
                assert text is None or text.encode() in left, (path, text)
    assert compared > 100


@pytest.mark.parametrize(
    "name",
    [
        "torch.amp.custom_fwd",
        "torch.amp.GradScaler",
        "torch.cuda.Stream",
        "torch.nn.DataParallel",
        "torch.accelerator.current_accelerator",
        "torch.set_default_device",
    ],
)
def test_each_name_of_a_device_has_a_word(name: str) -> None:
    source = f"import torch\nx = {name}(KIND)\n"
    assert DEVICES.includes(name) and has_device_tokens(source.encode())


# ---- names and numbers of devices ----------------------------------------------------------------

NUMBERED = (
    "def f(x, device: int):\n    return x.to(device)\n",
    "def f(x, device: Union[\n    str, int,\n]):\n    return x.to(device)\n",
    "def f(x, one):\n    device = 0 if one else 1\n    return x.to(device)\n",
    "def f(x, one):\n    device = x.device if one else 0\n    return x.to(device)\n",
    "def f(x, one, two):\n    device = x.device if one else 0 if two else x.device\n"
    "    return x.to(device)\n",
    "device = -1\ndevice += 1\nx = torch.zeros(2).to(device)\n",
    "device, x = 0, torch.zeros(2)\nx = x.to(device)\n",
    "(device, x) = (0, torch.zeros(2))\nx = x.to(device)\n",
    "x = torch.zeros(2)\nfor device in (0, 1):\n    x = x.to(device)\n",
    "x = torch.zeros(2)\nif (device := 1):\n    x = x.to(device)\n",
    "class A:\n    device: int\n    def f(self, x):\n        return x.to(self.device)\n",
    "class A:\n    @property\n    def device(self): return 0\n"
    "    def f(self, x):\n        return x.to(self.device)\n",
    "import argparse\np = argparse.ArgumentParser()\np.add_argument('--device', type=int)\n"
    "args = p.parse_args()\nx = torch.zeros(2).to(args.device)\n",
    "import argparse\np = argparse.ArgumentParser()\np.add_argument(\n    'device', type=int)\n"
    "args = p.parse_args()\nx = torch.zeros(2).to(args.device)\n",
)


@pytest.mark.parametrize("text", NUMBERED)
def test_a_device_that_may_be_a_number_is_looked_at(text: str) -> None:
    source = f"import torch\nfrom typing import Union\n{text}"
    names = Names(ast.parse(source))
    if any(find(names, Flow(names), vocabulary("torch", ()))):
        assert has_tokens(source.encode())


@pytest.mark.parametrize(
    "text",
    [
        "made = {'device': options.get('device', None)}\nx = y.to(z.device)\n",
        "device, dtype = x.device, x.dtype\nx = y.to(device)\n",
        "# where the device is in use\nx = y.to(device)\n",
    ],
)
def test_what_is_no_number_is_not_looked_at(text: str) -> None:
    source = f"import torch\n{text}"
    names = Names(ast.parse(source))
    assert not any(find(names, Flow(names), vocabulary("torch", ())))
    assert not has_tokens(source.encode())


def test_most_numbers_of_devices_are_constructs() -> None:
    names = [Names(ast.parse(f"import torch\n{text}")) for text in NUMBERED]
    assert sum(any(find(n, Flow(n), vocabulary("torch", ()))) for n in names) > len(names) / 2


@pytest.mark.parametrize(
    "text",
    [
        "@torch.no_grad()\ndef f(model, xs):\n    for x in xs:\n        model(x)\n",
        "@torch.no_grad()\n@wraps(\n    g,\n)\ndef f(model, xs):\n    for x in xs:\n"
        "        model(x)\n",
        "def f(model, xs):\n    for x in xs:\n        with torch.no_grad():\n"
        "            model(x)\n",
        "def f(model, xs):\n    def g(): pass\n    with torch.no_grad():\n        while x := g():\n"
        "            model(x)\n",
        "class A:\n    @torch.no_grad()\n    def f(self, model, xs):\n        for x in xs:\n"
        "            model(x)\n",
        "class A:\n\t@torch.no_grad()\n\tdef f(self, model, xs):\n\t\tfor x in xs:\n"
        "\t\t\tmodel(x)\n",
        "for x in xs:\n    with torch.no_grad():\n        model(x)\n",
        "if xs:\n    with torch.no_grad():\n        for x in xs:\n            model(x)\n",
    ],
)
def test_a_loop_without_gradients_is_seen_in_any_function(text: str) -> None:
    names = Names(ast.parse(f"import torch\n{text}"))
    assert any(c.kind == "loop" for c in find(names, Flow(names), vocabulary("torch", ())))
    for lines in (text, json.dumps([text]), json.dumps(text.splitlines(keepends=True))):
        assert has_tokens(f"import torch\n{lines}".encode())


def test_a_function_without_a_loop_is_not_looked_at_for_no_grad() -> None:
    loop = "def g(xs):\n    for x in xs:\n        print(x)\n"
    off = "@torch.no_grad()\ndef f(w):\n    w.zero_()\n"
    assert not has_tokens(f"import torch\n{loop}\n{off}\n{loop}".encode())


@pytest.mark.parametrize(
    "text",
    [
        "import torch as t\nx = t.load('f')\n",
        "import torch\nx = getattr(torch, 'load')('f')\n",
        "from torch import nn, load\nx = load('f')\n",
        "from torch import (\n    nn,  # (modules)\n    load,\n)\nx = load('f')\n",
        "from torch import nn, \\\n    load\nx = load('f')\n",
        "from torch import load as read\nx = read('f')\n",
        '{"cells": [{"source": "import torch\\nfrom torch import load\\nload(1)"}]}',
        '{"cells": [{"source": ["import torch\\n",\n"from torch import (\\n",\n"    nn,\\n",\n'
        '"    load)\\n"]}]}',
        "from functorch import grad\ng = grad(f)\n",
        "import torch, common\nfrom common import *\nx = load('f')\n",
    ],
)
def test_a_name_is_seen_however_it_is_imported(text: str) -> None:
    assert vocabulary("torch", ()).may_be_in(text.encode())


@pytest.mark.parametrize(
    "text",
    [
        "import torch\n# load what is there, and save it\nx.requires_grad_()\n",
        "import functools, torch\ngrad_norm = 1\n",
        "import json\nx = json.load(f)\n",
        "import json, torch\nx = json.load(f)\n",
    ],
)
def test_a_word_alone_is_no_name(text: str) -> None:
    assert not vocabulary("torch", ()).may_be_in(text.encode())
